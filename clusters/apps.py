from collections.abc import Iterable

from django.apps import AppConfig


class ClustersConfig(AppConfig):
    name = "clusters"

    def ready(self) -> None:
        from clusters.connection import registry, sealing
        from clusters.models import Cluster
        from clusters.net import web_session
        from clusters.reports import alert_rules, search
        from clusters.services import pools
        from common import hooks

        def role_scopes() -> Iterable[tuple[str, str]]:
            return [(f"cluster:{pk}", name) for pk, name in Cluster.objects.order_by("name").values_list("pk", "name")]

        hooks.role_scopes.subscribe(role_scopes)
        hooks.team_holdings.subscribe(pools.owned_by)
        hooks.search.subscribe(search.find)
        hooks.sealing.subscribe(sealing.answer)
        hooks.web_session.subscribe(web_session.sessions)
        hooks.alert_rules.subscribe(alert_rules.rules)
        hooks.stored_secrets.subscribe(registry.stored_secrets)
