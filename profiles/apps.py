from django.apps import AppConfig


class ProfilesConfig(AppConfig):
    name = "profiles"

    def ready(self) -> None:
        from common import hooks
        from profiles.hooks import search
        from profiles.services import editing

        hooks.search.subscribe(search.find)
        hooks.team_holdings.subscribe(editing.owned_by)
