from django.apps import AppConfig
from django.db.models.signals import post_migrate


class AuditConfig(AppConfig):
    name = "audit"

    def ready(self) -> None:
        from audit import database_roles, timeline
        from common import hooks

        hooks.timeline.subscribe(timeline.entries_of)
        post_migrate.connect(database_roles.after_migration, sender=self, dispatch_uid="rights of the application")
