from django.apps import AppConfig


class ConfigConfig(AppConfig):
    """Top room: settings, URLs, the commands that start processes."""

    name = "config"
