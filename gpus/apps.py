from django.apps import AppConfig


class GpusConfig(AppConfig):
    name = "gpus"

    def ready(self) -> None:
        from common import hooks
        from gpus.alerts import checks, host_loads, rules
        from gpus.services import sources
        from gpus.services.checks import runs
        from gpus.showback import teams
        from gpus.web import export_views, panels

        hooks.team_scopes.subscribe(teams.role_scopes)
        hooks.team_locks.subscribe(teams.locked)
        hooks.node_panels.subscribe(panels.of_node)
        hooks.cluster_panels.subscribe(panels.of_cluster)
        hooks.cluster_numbers.subscribe(panels.numbers_of_cluster)
        hooks.compliance_panels.subscribe(panels.of_compliance)
        hooks.stored_secrets.subscribe(sources.stored_secrets)
        hooks.plan_panels.subscribe(panels.of_plan)
        hooks.rollout_panels.subscribe(panels.of_rollout)
        hooks.profile_panels.subscribe(panels.of_profile)
        hooks.node_work.subscribe(runs.works_on)
        hooks.disconnect_blockers.subscribe(runs.blockers)
        hooks.alert_rules.subscribe(rules.rules)
        hooks.alert_rules.subscribe(checks.rules)
        hooks.alert_rules.subscribe(host_loads.rules)
        hooks.alert_panels.subscribe(export_views.panel)
