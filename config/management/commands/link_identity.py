from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.models import User
from accounts.people import identities
from common.errors import Refusal

BY = "command line"


class Command(BaseCommand):
    help = (
        "Makes a local account, or one of a provider that is configured no more, one of single sign-on: its person "
        "logs in at the provider, and has the roles of their groups. Its password, sessions and tokens end."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--email", required=True, help="Of the account.")
        parser.add_argument(
            "--provider", required=True, help="A key of SETPOINT_OIDC_PROVIDERS or SETPOINT_SAML_PROVIDERS."
        )
        parser.add_argument(
            "--subject",
            required=True,
            help="The person's claim sub, or SAML's NameID, from the provider's directory, not from a mail.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        provider = next((row for row in identities.providers() if row.key == options["provider"]), None)
        if provider is None:
            known = ", ".join(row.key for row in identities.providers()) or "none"
            raise CommandError(f"No provider {options['provider']!r} is configured; there is: {known}.")
        user = User.objects.filter(email=str(options["email"]).strip().lower()).first()
        if user is None:
            raise CommandError(f"No account has the address {options['email']}.")
        try:
            identities.link(user=user, provider=provider, subject=str(options["subject"]), by=BY)
        except Refusal as refusal:
            reasons = "; ".join(message for messages in refusal.fields.values() for message in messages)
            raise CommandError(f"{refusal} {reasons}".strip()) from refusal
        self.stdout.write(f"{user.email} logs in with {provider.name} from now on.")
