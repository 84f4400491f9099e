from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config.backups import BackupRefused, restoring


class Command(BaseCommand):
    help = (
        "Back up the database to a new file, while everything runs. Keys are no part of it: keep them elsewhere. "
        "PostgreSQL needs pg_dump of the server's version."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            manifest = restoring.backup(options["file"])
        except BackupRefused as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{options['file']}: the {manifest.database} database of Setpoint {manifest.version}")
        self.stdout.write(f"at {manifest.at}, {manifest.size:,} bytes, sha256:{manifest.sha256}")
