from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.people import bootstrap
from common import stopping
from config import embedded, private
from profiles.services import library


class Command(BaseCommand):
    help = "The embedded server, for real use on one machine: web, worker, beat and watch in this process."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--host", default="127.0.0.1", help="Another address only behind a proxy that speaks TLS.")

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.EMBEDDED:
            raise CommandError("SETPOINT_EMBEDDED is false: run gunicorn, celery worker and beat, and manage.py watch.")
        private.settle()
        call_command("migrate", interactive=False, verbosity=0)
        for name, revision, _ in library.load_all():  # so that a new installation has something to plan
            if revision:
                self.stdout.write(f"The library's profile {name}: published {revision}")
        stop = stopping.at_signals()
        try:
            running = embedded.start(host=options["host"], port=options["port"])
        except OSError as error:
            raise CommandError(f"{options['host']}:{options['port']} cannot be used: {error.strerror}") from error
        embedded.lead_links_to(running.url)
        self.stdout.write(f"Setpoint is at {running.url} (Ctrl-C ends it)")
        self._first_administrator(running.url)
        self.stdout.flush()
        stop.wait()
        self.stdout.write("Ending …")
        if not running.stop():
            embedded.leave()

    def _first_administrator(self, url: str) -> None:
        email, password = os.environ.get("SETPOINT_ADMIN_EMAIL"), os.environ.get("SETPOINT_ADMIN_PASSWORD")
        if email and password and not bootstrap.administrators():
            call_command("createadmin", email)
        with suppress(CommandError):  # an account exists: set-up is closed, and stays so
            call_command("setuptoken", url=url, stdout=self.stdout)
