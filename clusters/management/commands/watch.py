from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from audit.sealing import check_at_start
from clusters.watch import supervisor
from common import stopping


class Command(BaseCommand):
    help = (
        "Watch clusters and keep their rows true. Several processes share the clusters; leases in the database decide."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--alive-file", type=Path, help="Touched every few seconds while it does its work.")

    def handle(self, *args: Any, **options: Any) -> None:
        check_at_start("watch")
        supervisor.run(stopping.at_signals(), supervisor.new_owner(), alive_file=options["alive_file"])
