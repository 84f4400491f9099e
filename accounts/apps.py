from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "accounts"

    def ready(self) -> None:
        from accounts import filters, repeats
        from common import hooks
        from common.idempotency import idempotency

        idempotency.claim = repeats.claim
        hooks.kept_filters.subscribe(lambda page, user: [filters.of_page(page, user)])
