from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.people import setup


class Command(BaseCommand):
    help = "Prints a new token for the page that makes the first administrator. Only while nobody has an account."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--url", default="", help="Where the server is; default SETPOINT_URL.")

    def handle(self, *args: Any, **options: Any) -> None:
        token = setup.prepare()
        if not token:
            raise CommandError("Somebody has an account already: set-up is closed. createadmin makes an administrator.")
        url = (options["url"] or settings.BASE_URL).rstrip("/")
        self.stdout.write("Nobody has an account yet. The first administrator is made on this page, once:")
        self.stdout.write(f"  {url}/setup/?token={token}")
        self.stdout.flush()
