from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.people import setup


class Command(BaseCommand):
    help = "Prints a new token for the page that makes the first administrator. Only while no account exists."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--url", default="", help="Where the server is; default SETPOINT_URL.")

    def handle(self, *args: Any, **options: Any) -> None:
        token = setup.prepare()
        if not token:
            raise CommandError("An account exists already: set-up is closed. createadmin makes an administrator.")
        url = (options["url"] or settings.BASE_URL).rstrip("/")
        self.stdout.write("No account exists yet. The first administrator is made on this page, once:")
        self.stdout.write(f"  {url}/setup/?token={token}")
        self.stdout.flush()
