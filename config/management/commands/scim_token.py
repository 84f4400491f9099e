from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.people import identities
from accounts.scim import clients
from common.errors import Refusal

BY = "command line"


class Command(BaseCommand):
    help = "Makes a token with which the directory of a single sign-on provider provisions people and groups (SCIM)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--provider", required=True, help="A key of SETPOINT_OIDC_PROVIDERS or SETPOINT_SAML_PROVIDERS."
        )
        parser.add_argument("--name", required=True, help="By which administrators recognize it.")
        parser.add_argument("--days", type=int, default=180, help=f"How long it is valid, at most {clients.MOST_DAYS}.")
        parser.add_argument("--network", action="append", default=[], help="An address range; may be given again.")

    def handle(self, *args: Any, **options: Any) -> None:
        provider = next((row for row in identities.providers() if row.key == options["provider"]), None)
        if provider is None:
            known = ", ".join(row.key for row in identities.providers()) or "none"
            raise CommandError(f"No provider {options['provider']!r} is configured; there is: {known}.")
        try:
            _, text = clients.issue(
                provider=provider, name=options["name"], days=options["days"], by=BY, networks=options["network"]
            )
        except Refusal as refusal:
            reasons = "; ".join(message for messages in refusal.fields.values() for message in messages)
            raise CommandError(f"{refusal} {reasons}".strip()) from refusal
        self.stdout.write(text)
