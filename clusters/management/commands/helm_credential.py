from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from clusters import crypto, helm_credentials
from clusters.fleet import FleetError
from clusters.models import Cluster
from common.errors import Refusal

BY = "manage.py helm_credential"


class Command(BaseCommand):
    help = (
        "Keep the token of setpoint-helm-issuer, read from standard input, for a cluster's components. Run it where "
        "helm runs: only there SETPOINT_HELM_CREDENTIAL_KEYS is set."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("cluster", help="by name")
        parser.add_argument("--remove", action="store_true", help="forget what is stored")

    def handle(self, *args: Any, **options: Any) -> None:
        cluster = Cluster.objects.filter(name=options["cluster"]).first()
        if cluster is None:
            raise CommandError(f"there is no cluster {options['cluster']!r}")
        if options["remove"]:
            was_there = helm_credentials.remove(cluster, by=BY)
            self.stdout.write(f"{cluster}: {'removed' if was_there else 'there was none'}")
            return
        try:
            row = helm_credentials.store(cluster, sys.stdin.read(), by=BY)
        except (Refusal, FleetError, crypto.KeyUnusable) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{cluster}: stored until {row.expires_at:%Y-%m-%d %H:%M} UTC; it is renewed by itself")
