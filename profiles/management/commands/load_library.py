from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from profiles.services import library


class Command(BaseCommand):
    help = "Publish the profiles that come with Setpoint, where they differ from what is published. Safe to repeat."

    def handle(self, *args: Any, **options: Any) -> None:
        for name, revision, reason in library.load_all():
            self.stdout.write(f"{name}: published {revision}" if revision else f"{name}: {reason}")
