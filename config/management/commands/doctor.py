from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from config.doctor import bundle, report

STANDARD_OUTPUT = Path("-")


class Command(BaseCommand):
    help = (
        "Check database, broker, keys, clocks, egress, clusters, agents and charts; say what is wrong and what to do. "
        "Changes nothing, and shows no secret. Exit status 1 when there is a problem."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="One JSON document, for programs.")
        parser.add_argument(
            "--bundle",
            type=Path,
            metavar="FILE.tar.gz",
            help="Write what helps others to see what is wrong, without secrets; - is standard output.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        file: Path | None = options["bundle"]
        _check(file, is_json=options["json"])
        out = self.stderr if file == STANDARD_OUTPUT else self.stdout
        result = report.make()
        if options["json"]:
            out.write(json.dumps(result.to_json(), indent=2, ensure_ascii=False))
        else:
            for finding in result.findings:
                line = f"{finding.state:8} {finding.area:10} {finding.text}"
                out.write(line if not finding.advice else f"{line}\n{'':20}→ {finding.advice}")
        if file is not None:
            self._bundle(file, result)
        if result.problems:
            raise CommandError(f"Problems: {result.problems}, warnings: {result.warnings}.", returncode=1)
        if not options["json"]:
            out.write(f"No problems; warnings: {result.warnings}.")

    def _bundle(self, file: Path, result: report.Report) -> None:
        parts = bundle.parts_of(result)
        if file == STANDARD_OUTPUT:
            content, left_out = bundle.packed(parts)
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        else:
            try:
                left_out = bundle.write(file, parts)
            except bundle.BundleRefused as error:
                raise CommandError(str(error)) from error
        for name, why in left_out.items():
            self.stderr.write(f"{name} was left out of the bundle: {why}.")
        self.stderr.write("The bundle is written. Read it before you hand it on.")


def _check(file: Path | None, *, is_json: bool) -> None:
    """Refuse a target before minutes of checks. Raises CommandError."""
    if file == STANDARD_OUTPUT and is_json:
        raise CommandError("--bundle - and --json would both write to standard output: choose one of them.")
    if file in (None, STANDARD_OUTPUT):
        return
    if not file.name.endswith(".tar.gz") or file.exists() or not file.parent.is_dir():
        raise CommandError(f"--bundle {file}: name a file ending in .tar.gz, new, in a folder that exists; or -.")
