from __future__ import annotations

import getpass
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from audit import database_roles, heads, sealing
from audit.models import Chain, Record
from audit.sealing import ChainFinding

WRITABLE = (
    "The role of this connection may change or delete audit records as far as the database's rights go; triggers alone "
    "refuse it, and an owner can drop them. docs/operating.md says how to use a role that cannot."
)


class Command(BaseCommand):
    help = "Checks that no audit record was changed, added, removed, moved or cut off. Exit status 1 when one was."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--head",
            action="append",
            default=[],
            metavar="SEQ:SEAL",
            help='A head from the log ("audit sealed … head=…"), syslog or webhook, besides those of the file. '
            "May be given several times.",
        )
        parser.add_argument(
            "--accept",
            metavar="WHY",
            help="Continue despite what is found, such as after a restore: recorded with this reason. "
            "Exactly these findings are told of no more.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        given: list[str] = options["head"]
        for head in given:
            if not heads.LINE.fullmatch(head):
                raise CommandError(f"--head must be SEQ:SEAL as in the log, not {head!r}")
        findings: list[ChainFinding] = []
        for finding in sealing.verify(given):
            findings.append(finding)
            self.stderr.write(self.style.ERROR(f"{finding.kind}: {finding.message}"))
        if database_roles.powers():
            self.stderr.write(self.style.WARNING(WRITABLE))
        waiting = Record.objects.unsealed().count()
        if findings and options["accept"]:
            sealing.accept(findings, why=options["accept"], by=f"command line ({getpass.getuser()})"[:200])
            self.stdout.write(f"{len(findings)} findings are accepted and recorded; sealing continues.")
            return
        if findings:
            raise CommandError(
                f"The audit record is damaged: {len(findings)} findings, {waiting} records not yet sealed."
            )
        chain = Chain.objects.filter(pk=1).first()
        self.stdout.write(f"whole: head {chain or '0:'}, {waiting} records not yet sealed")
        if not given and not heads.kept(last=heads.LAST):
            self.stdout.write("Without heads kept elsewhere, a tail cut together with its head would not be seen.")
