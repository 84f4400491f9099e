from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "accounts"

    def ready(self) -> None:
        from accounts import filters
        from accounts.access import factors, repeats
        from accounts.people import factor_resets, limits
        from accounts.scim import clients
        from accounts.workloads import rules
        from common import hooks
        from common.idempotency import idempotency

        idempotency.claim = repeats.claim
        factor_resets.register()
        limits.register()
        rules.register()
        clients.register()
        hooks.stored_secrets.subscribe(factors.stored_secrets)
        hooks.kept_filters.subscribe(lambda page, user: [filters.of_page(page, user)])
