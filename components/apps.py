from django.apps import AppConfig


class ComponentsConfig(AppConfig):
    name = "components"

    def ready(self) -> None:
        from common import hooks
        from components.catalog import presentation, releases
        from components.charts import profile_findings, repositories
        from components.hooks import panels, search

        hooks.cluster_panels.subscribe(panels.of_cluster)
        hooks.search.subscribe(search.find)
        hooks.component_choices.subscribe(presentation.choices)
        hooks.component_releases.subscribe(releases.releases)
        hooks.profile_findings.subscribe(profile_findings.component_findings)
        hooks.stored_secrets.subscribe(repositories.stored_secrets)
