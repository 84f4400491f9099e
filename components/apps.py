from django.apps import AppConfig


class ComponentsConfig(AppConfig):
    name = "components"

    def ready(self) -> None:
        from common import hooks
        from components import chart_repositories, finding, findings, panels, presenting

        hooks.cluster_panels.subscribe(panels.of_cluster)
        hooks.search.subscribe(finding.find)
        hooks.component_choices.subscribe(presenting.choices)
        hooks.profile_findings.subscribe(findings.of)
        hooks.stored_secrets.subscribe(chart_repositories.stored_secrets)
