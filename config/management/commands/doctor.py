from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config.doctor import report


class Command(BaseCommand):
    help = (
        "Check database, broker, keys, clocks, egress, clusters, agents and charts; say what is wrong and what to do. "
        "Changes nothing, and shows no secret. Exit status 1 when there is a problem."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="One JSON document, for programs.")

    def handle(self, *args: Any, **options: Any) -> None:
        result = report.make()
        if options["json"]:
            self.stdout.write(json.dumps(result.to_json(), indent=2, ensure_ascii=False))
        else:
            for finding in result.findings:
                line = f"{finding.state:8} {finding.area:10} {finding.text}"
                self.stdout.write(line if not finding.advice else f"{line}\n{'':20}→ {finding.advice}")
        if result.problems:
            raise CommandError(f"Problems: {result.problems}, warnings: {result.warnings}.", returncode=1)
        if not options["json"]:
            self.stdout.write(f"No problems; warnings: {result.warnings}.")
