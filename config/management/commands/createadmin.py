from __future__ import annotations

import getpass
import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from accounts.models import User
from accounts.people import services
from common.errors import Refusal

BY = "command line"


class Command(BaseCommand):
    help = "Makes an administrator of everything, or gives an existing person that role and a new password."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument(
            "--roles",
            default="admin",
            help="Comma-separated roles in all clusters; default admin. Roles do not include one another.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        email = str(options["email"]).strip().lower()
        password = os.environ.get("SETPOINT_ADMIN_PASSWORD") or self._typed_password()
        roles = [role.strip() for role in options["roles"].split(",") if role.strip()]
        try:
            with transaction.atomic():
                user = User.objects.filter(email=email).first()
                if user is None:
                    user = services.create_user(email=email, password=password, by=BY)
                else:
                    services.set_password(user=user, password=password, by=BY)
                for role in roles:
                    services.bind(user=user, role=role, scope="*", by=BY)
        except Refusal as refusal:
            reasons = "; ".join(message for messages in refusal.fields.values() for message in messages)
            raise CommandError(f"{refusal} {reasons}".strip()) from refusal
        self.stdout.write(f"{email} is now {', '.join(roles)} of all clusters.")

    def _typed_password(self) -> str:
        if not sys.stdin.isatty():
            raise CommandError("Set SETPOINT_ADMIN_PASSWORD, or run this in a terminal.")
        first = getpass.getpass("Password (at least 12 characters): ")
        if first != getpass.getpass("Again: "):
            raise CommandError("The two differ.")
        return first
