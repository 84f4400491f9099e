from django.apps import AppConfig


class ProfilesConfig(AppConfig):
    name = "profiles"

    def ready(self) -> None:
        from common import hooks
        from profiles.hooks import search

        hooks.search.subscribe(search.find)
