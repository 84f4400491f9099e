from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from clusters.connection import encryption, helm_credentials
from clusters.fleet import FleetError
from clusters.models import Cluster
from common.errors import Refusal

BY = "manage.py helm_credential"


class Command(BaseCommand):
    help = (
        "Keep the token of setpoint-helm-issuer, read from standard input, for a cluster's components. Run it where "
        "helm runs: only there SETPOINT_HELM_CREDENTIAL_KEYS is set. With --admin: of setpoint-helm-admin, which "
        "`component_rights --cluster-admin` tells how to make, for plans that name it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("cluster", help="by name")
        parser.add_argument("--admin", action="store_true", help="the token of setpoint-helm-admin, for a while")
        parser.add_argument("--remove", action="store_true", help="forget what is stored")

    def handle(self, *args: Any, **options: Any) -> None:
        cluster = Cluster.objects.filter(name=options["cluster"]).first()
        if cluster is None:
            raise CommandError(f"there is no cluster {options['cluster']!r}")
        is_admin = options["admin"]
        if options["remove"]:
            forget = helm_credentials.remove_administrator if is_admin else helm_credentials.remove
            was_there = forget(cluster, by=BY)
            self.stdout.write(f"{cluster}: {'removed' if was_there else 'there was none'}")
            return
        try:
            keep = helm_credentials.store_administrator if is_admin else helm_credentials.store
            row = keep(cluster, sys.stdin.read(), by=BY)
        except (Refusal, FleetError, encryption.KeyUnusable) as error:
            raise CommandError(str(error)) from error
        then = "it ends then, and so does what it opens" if is_admin else "it is renewed by itself"
        self.stdout.write(f"{cluster}: stored until {row.expires_at:%Y-%m-%d %H:%M} UTC; {then}")
