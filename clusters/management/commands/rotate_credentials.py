from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from audit import services as audit
from clusters import connections, crypto
from clusters.models import Cluster


class Command(BaseCommand):
    help = "Seal every stored credential with the newest of SETPOINT_CREDENTIAL_KEYS. Then the older keys may go."

    def handle(self, *args: Any, **options: Any) -> None:
        failed, done = [], 0
        for cluster in Cluster.objects.order_by("name"):
            if crypto.is_newest(crypto.Sealed(bytes(cluster.credential), cluster.credential_key)):
                continue
            try:
                sealed = connections.sealed(cluster.pk, connections.credentials(cluster))
            except connections.CredentialUnreadable as error:
                failed.append(str(error))
                continue
            before = cluster.credential_key
            with transaction.atomic():
                # Only the seal changes, so credential_set_at stays and no watch restarts; a rotation meanwhile wins.
                as_read = Cluster.objects.filter(pk=cluster.pk, credential_set_at=cluster.credential_set_at)
                if not as_read.update(credential=sealed.data, credential_key=sealed.key):
                    continue
                audit.record(
                    by="manage.py rotate_credentials",
                    action="cluster.reseal",
                    target=f"cluster:{cluster.pk}",
                    target_name=cluster.name,
                    cluster_id=cluster.pk,
                    before={"credential_key": before},
                    after={"credential_key": sealed.key},
                )
            done += 1
        self.stdout.write(f"{done} credentials sealed anew, {len(failed)} could not be opened.")
        if failed:
            raise CommandError("\n".join(failed))
