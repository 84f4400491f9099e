from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.models import User
from accounts.people import factor_resets
from common.errors import Refusal

BY = "command line"


class Command(BaseCommand):
    help = "Takes the second factor of a local account away and ends its sessions, where no two administrators can."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", help="Of the local account.")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(email=str(options["email"]).strip().lower()).first()
        if user is None:
            raise CommandError(f"No account has the address {options['email']}.")
        try:
            factor_resets.reset_on_the_server(user=user, by=BY)
        except Refusal as refusal:
            raise CommandError(str(refusal)) from refusal
        self.stdout.write(f"{user.email} logs in with the password alone from now on.")
