from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "accounts"

    def ready(self) -> None:
        from accounts import repeats
        from common.idempotency import idempotency

        idempotency.claim = repeats.claim
