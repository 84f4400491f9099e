from django.apps import AppConfig


class CommonConfig(AppConfig):
    """Bottom room. Registered only so that Django finds its template tags."""

    name = "common"
