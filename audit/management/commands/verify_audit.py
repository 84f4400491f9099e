from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from audit import sealing
from audit.models import Chain, Record


class Command(BaseCommand):
    help = "Checks that no audit record was changed, removed, moved or cut off. Exit status 1 when one was."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--head",
            action="append",
            default=[],
            metavar="SEQ:SEAL",
            help='A head from the log ("audit sealed … head=…"), kept where the database cannot reach it. '
            "Without one a cut tail may stay unseen. May be given several times.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        heads: list[str] = options["head"]
        for head in heads:
            number, _, seal = head.partition(":")
            if not (number.isdigit() and len(seal) == 64):
                raise CommandError(f"--head must be SEQ:SEAL as in the log, not {head!r}")
        findings = 0
        for finding in sealing.verify(heads):
            findings += 1
            self.stderr.write(self.style.ERROR(f"{finding.kind}: {finding.message}"))
        waiting = Record.objects.unsealed().count()
        if findings:
            raise CommandError(f"The audit record is damaged: {findings} findings, {waiting} records not yet sealed.")
        chain = Chain.objects.filter(pk=1).first()
        self.stdout.write(f"whole: head {chain or '0:'}, {waiting} records not yet sealed")
        if not heads:
            self.stdout.write("Without --head from the log, a tail cut together with its head would not be seen.")
