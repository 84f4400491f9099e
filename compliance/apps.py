from django.apps import AppConfig


class ComplianceConfig(AppConfig):
    name = "compliance"

    def ready(self) -> None:
        from common import hooks
        from compliance import services

        hooks.nodes_changed.subscribe(services.observe)
