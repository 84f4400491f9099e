from django.apps import AppConfig


class GpusConfig(AppConfig):
    name = "gpus"

    def ready(self) -> None:
        from common import hooks
        from gpus import panels

        hooks.node_panels.subscribe(panels.of_node)
