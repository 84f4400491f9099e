from django.apps import AppConfig
from django.urls.converters import IntConverter


class CommonConfig(AppConfig):
    """Bottom room. Registered so that Django finds its template tags, and before any address is compiled."""

    name = "common"

    def ready(self) -> None:
        # No key has more than 18 digits. Through a foreign key the database is asked for it all the same, and a number
        # that does not fit its column is an error of the server there; as an address it is one that does not exist.
        IntConverter.regex = "[0-9]{1,18}"
