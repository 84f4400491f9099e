from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.models import User
from accounts.people import limits
from common.errors import Invalid

BY = "command line"


class Command(BaseCommand):
    help = "Limits an account to address ranges, or frees it from them: the way back for administrators locked out."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", help="Of the account.")
        parser.add_argument("networks", nargs="*", help="Such as 10.0.0.0/8; none: it is accepted from every address.")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(email=str(options["email"]).strip().lower()).first()
        if user is None:
            raise CommandError(f"No account has the address {options['email']}.")
        try:
            user = limits.limit_on_the_server(user=user, networks=options["networks"], by=BY)
        except Invalid as refusal:
            raise CommandError(f"{refusal} {' '.join(refusal.fields['networks'])}") from refusal
        places = ", ".join(user.networks.split())
        self.stdout.write(f"{user.email} is accepted from {places or 'every address'}{' only' if places else ''}.")
