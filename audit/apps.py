from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "audit"

    def ready(self) -> None:
        from audit import timeline
        from common import hooks

        hooks.timeline.subscribe(timeline.of)
