from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config.backups import BackupRefused, restoring

NEXT = """\
All rollouts are held by a freeze. Now:
1. manage.py verify_audit, and --accept what it names, where heads of the audit record are kept.
2. Start the processes; manage.py doctor names each node whose objects are newer than the database.
3. Take over what is newer on each cluster's page, then lift the freeze on the page Freezes."""


class Command(BaseCommand):
    help = (
        "Replace the database by a backup, completely or not at all, and hold all rollouts until an administrator "
        "lifts the freeze. Stop every process before. With PostgreSQL: as the role that owns the tables, with the "
        "variables of `migrate`."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--replace", action="store_true", help="Replace a database that is not empty.")
        parser.add_argument(
            "--other-keys", action="store_true", help="Restore although keys do not fit, because they are lost."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            manifest = restoring.restore(
                options["file"], replaces=options["replace"], accepts_other_keys=options["other_keys"]
            )
        except BackupRefused as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"Restored the backup of {manifest.at}.")
        self.stdout.write(NEXT)
