from collections.abc import Iterable

from django.apps import AppConfig


class ClustersConfig(AppConfig):
    name = "clusters"

    def ready(self) -> None:
        from clusters import alert_rules, connections, finding
        from clusters.models import Cluster
        from common import hooks

        def role_scopes() -> Iterable[tuple[str, str]]:
            return [(f"cluster:{pk}", name) for pk, name in Cluster.objects.order_by("name").values_list("pk", "name")]

        hooks.role_scopes.subscribe(role_scopes)
        hooks.search.subscribe(finding.find)
        hooks.alert_rules.subscribe(alert_rules.rules)
        hooks.stored_secrets.subscribe(connections.stored_secrets)
