from django.apps import AppConfig


class ComplianceConfig(AppConfig):
    name = "compliance"

    def ready(self) -> None:
        from common import hooks
        from compliance import services
        from profiles import catalogue

        hooks.nodes_changed.subscribe(services.observe)
        hooks.observed_keys.subscribe(catalogue.observable_keys)
