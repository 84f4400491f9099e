from django.apps import AppConfig


class NoticesConfig(AppConfig):
    name = "notices"

    def ready(self) -> None:
        from common import hooks
        from notices.channels import services
        from notices.reports import panels

        hooks.overview_panels.subscribe(panels.of_overview)
        hooks.cluster_panels.subscribe(panels.of_cluster)
        hooks.cluster_numbers.subscribe(panels.numbers_of_cluster)
        hooks.node_panels.subscribe(panels.of_node)
        hooks.audit_panels.subscribe(panels.of_audit)
        hooks.stored_secrets.subscribe(services.stored_secrets)
