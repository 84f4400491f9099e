from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from audit import services as audit
from clusters.connection import encryption
from common import hooks


class Command(BaseCommand):
    help = "Seal every stored secret with the newest of SETPOINT_CREDENTIAL_KEYS. Then the older keys may go."

    def handle(self, *args: Any, **options: Any) -> None:
        failed, done = [], 0
        for secret in hooks.stored_secrets():
            try:
                done += reseal(secret)
            except (encryption.CannotOpen, encryption.KeyUnusable) as error:
                failed.append(f"{secret.title} cannot be read: {error}.")
        self.stdout.write(f"{done} secrets resealed, {len(failed)} could not be opened.")
        if failed:
            raise CommandError("\n".join(failed))


def reseal(secret: hooks.StoredSecret) -> bool:
    """Seal a secret with the newest key; return whether it had another. Raises encryption.CannotOpen, KeyUnusable."""
    data, key = (getattr(secret.row, column) for column in secret.columns)
    have = encryption.Sealed(bytes(data), key)
    if not have.data or encryption.is_newest(have):
        return False
    sealed = encryption.seal(secret.place, secret.field, encryption.unseal(secret.place, secret.field, have))
    with transaction.atomic():
        # Only the seal changes: no version, no time stamp, so no watch restarts. A credential replaced meanwhile wins.
        as_read = type(secret.row)._base_manager.filter(pk=secret.row.pk, **{secret.columns[0]: data})
        if not as_read.update(**dict(zip(secret.columns, (sealed.data, sealed.key), strict=True))):
            return False
        audit.record(
            by="manage.py rotate_credentials",
            action=secret.action,
            target=secret.target,
            target_name=secret.target_name,
            cluster_id=secret.cluster_id,
            before={secret.columns[1]: key},
            after={secret.columns[1]: sealed.key},
        )
    return True
