from django.apps import AppConfig


class ComponentsConfig(AppConfig):
    name = "components"

    def ready(self) -> None:
        from common import hooks
        from components import finding, findings

        hooks.search.subscribe(finding.find)
        hooks.profile_findings.subscribe(findings.of)
