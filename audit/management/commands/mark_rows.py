from __future__ import annotations

from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from audit.marked import Marked
from audit.services import record

BY = "command line"
SHOWN = 20
"""Rows of one table that are named."""


class Command(BaseCommand):
    help = "Names rows that carry power and not the mark of a process of ours: changed in the table, or of another key."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--accept", metavar="WHY", help="They are right as they are, and get a mark; recorded.")

    def handle(self, *args: Any, **options: Any) -> None:
        why = (options["accept"] or "").strip()
        if options["accept"] is not None and not why:
            raise CommandError("Say why they are right as they are.")
        with transaction.atomic():
            wrong_rows = {model._meta.label: rows for model in apps.get_models() if (rows := wrong(model))}
            for label, rows in wrong_rows.items():
                self._name(label, rows)
                if why:
                    for row in rows:
                        row.accept()
            if wrong_rows and why:
                named = {label: [str(row.pk) for row in rows] for label, rows in wrong_rows.items()}
                record(by=BY, action="rows.accept", target="rows", target_name="", message=why, after=named)
        count = sum(map(len, wrong_rows.values()))
        if count and not why:
            raise CommandError(f"{count} rows are not as Setpoint wrote them; they give no power.")
        self.stdout.write(f"{count} rows were accepted." if count else "All rows are as Setpoint wrote them.")

    def _name(self, label: str, rows: list[Marked]) -> None:
        more = f", and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
        self.stdout.write(f"{label}: {', '.join(f'{row} ({row.pk})' for row in rows[:SHOWN])}{more}")


def wrong(model: Any) -> list[Marked]:
    if not issubclass(model, Marked):
        return []
    return [row for row in model._base_manager.iterator(chunk_size=500) if not row.is_genuine]
