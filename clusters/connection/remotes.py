"""Remotes with a secret: what a chart repository, a channel of notices and a telemetry source have in common.

Each row says where something is asked or sent, and keeps one secret, sealed for that row alone. It is never read back,
stays where nothing is given for it, and is not taken along to another host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar
from uuid import UUID

from django.db import models

from clusters.connection import encryption
from common import addresses, hooks
from common.clock import now
from common.errors import Invalid, Stale


class Remote(models.Model):
    """A row with an address, a version and a sealed secret: the model has the columns `url`, COLUMN and COLUMN_key."""

    SEALED_AS: ClassVar[str]
    """With the row's place, what the secret is sealed for: it opens there and for nothing else."""
    COLUMN: ClassVar[str] = "secret"
    url: Any
    version: Any

    class Meta:
        abstract = True

    @property
    def sealed_for(self) -> UUID:
        place: UUID = self.pk
        return place

    @property
    def has_secret(self) -> bool:
        return bool(getattr(self, self.COLUMN))

    @classmethod
    def secret_columns(cls) -> tuple[str, str]:
        """The ciphertext, and the fingerprint of its key. Both are empty where there is no secret."""
        return cls.COLUMN, f"{cls.COLUMN}_key"

    def set_secret(self, text: str) -> None:
        """Seals it; saving is the caller's. Empty: it is forgotten. Raises encryption.KeyUnusable."""
        empty = encryption.Sealed(b"", "")
        sealed = encryption.seal(self.sealed_for, self.SEALED_AS, text) if text else empty
        for column, value in zip(self.secret_columns(), (sealed.data, sealed.key), strict=True):
            setattr(self, column, value)

    def open_secret(self) -> str:
        """Empty where there is none. Raises encryption.CannotOpen, encryption.KeyUnusable."""
        if not self.has_secret:
            return ""
        data, key = (getattr(self, column) for column in self.secret_columns())
        return encryption.unseal(self.sealed_for, self.SEALED_AS, encryption.Sealed(bytes(data), key))


def is_carried_off(row: Remote, was: str, given: str | None) -> bool:
    """Return whether the stored secret would go to another host than it was given for; `was`: the address before."""
    return given is None and row.has_secret and addresses.server(was) != addresses.server(row.url)


def refuse(why: str, objections: Iterable[tuple[str, str]]) -> None:
    """Raises Invalid with each reason under its field; does nothing where every reason is empty."""
    wrong: dict[str, list[str]] = {}
    for name, reason in objections:
        if reason:
            wrong.setdefault(name, []).append(reason)
    if wrong:
        raise Invalid(f"{why}: {', '.join(wrong)}.", fields=wrong)


def seal(row: Remote, given: str | None) -> None:
    """Put what was given in place of the stored one; None: it stays. Raises Invalid."""
    if given is None:
        return
    try:
        row.set_secret(given)
    except encryption.KeyUnusable as error:
        raise Invalid(f"A {row.COLUMN} cannot be stored.", fields={row.COLUMN: [str(error)]}) from error


def write(changed: Remote, names: Sequence[str], *, by: object, version: int, title: str, **more: Any) -> None:
    """Save these fields and the secret over the version that was read. Raises Stale."""
    values = {name: getattr(changed, name) for name in (*names, *changed.secret_columns())}
    values |= {"version": version + 1, "changed_by": str(by)[:150], "changed_at": now(), **more}
    if not _at(changed, version).update(**values):
        raise _stale(title)


def delete(row: Remote, *, version: int, title: str) -> None:
    """Raises Stale."""
    count, _ = _at(row, version).delete()
    if not count:
        raise _stale(title)


def recorded_fields(row: Remote, names: Iterable[str]) -> dict[str, Any]:
    """Return these fields for audit records, and whether there is a secret."""
    return {name: getattr(row, name) for name in names} | {f"has_{row.COLUMN}": row.has_secret}


def new_secret(row: Remote, given: str | None) -> dict[str, str]:
    """Return what the record of a change shows of a given secret: that it changed; empty for None."""
    return {} if given is None else {row.COLUMN: "changed"}


def stored_secret(
    row: Remote, *, title: str, action: str, target: str, target_name: str, cluster_id: UUID | None = None
) -> hooks.StoredSecret:
    """Return the secret's description for the rotation of encryption keys."""
    return hooks.StoredSecret(
        row=row,
        place=row.sealed_for,
        field=row.SEALED_AS,
        columns=row.secret_columns(),
        title=f"The stored {row.COLUMN} of {title}",
        action=action,
        target=target,
        target_name=target_name,
        cluster_id=cluster_id,
    )


def _at(row: Remote, version: int) -> models.QuerySet[Any]:
    return type(row)._default_manager.filter(pk=row.pk).filter(**{"version": version})


def _stale(title: str) -> Stale:
    return Stale(f"{title[0].upper()}{title[1:]} was changed meanwhile. Reload it and try again.")
