"""The append-only record of who did what. Rows are inserted in the change's own transaction and sealed afterwards."""

from __future__ import annotations

import uuid
from typing import Any, NoReturn, Self

from django.db import models

from common.clock import now


class AppendOnly(TypeError):
    """Code tried to change or delete an audit record."""


class RecordQuerySet(models.QuerySet["Record"]):
    """Reads chain; every way to change or delete is refused. The sealer writes two columns through `put_seal`."""

    def update(self, **_fields: Any) -> NoReturn:
        raise AppendOnly("audit records are never changed")

    def delete(self) -> NoReturn:
        raise AppendOnly("audit records are never deleted")

    def bulk_update(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise AppendOnly("audit records are never changed")

    def unsealed(self) -> Self:
        return self.filter(seq=None).order_by("at", "id")

    def sealed(self) -> Self:
        return self.exclude(seq=None).order_by("seq")

    def put_seal(self, pk: uuid.UUID, *, seq: int, seal: str) -> bool:
        """True if the record was still unsealed."""
        return bool(self.filter(pk=pk, seq=None)._raw_update(seq=seq, seal=seal))

    def _raw_update(self, **fields: Any) -> int:
        return super().update(**fields)


class Record(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    at = models.DateTimeField(default=now, db_index=True)
    actor = models.CharField(max_length=200, db_index=True, help_text="Text, so that a deleted person stays named.")
    action = models.CharField(max_length=60, db_index=True, help_text="object.verb, such as plan.approve")
    target = models.CharField(max_length=200, db_index=True, help_text="kind:id, such as plan:<uuid>")
    target_name = models.CharField(max_length=200, blank=True)
    cluster_id = models.UUIDField(null=True, db_index=True)
    request_id = models.CharField(max_length=64, blank=True, db_index=True)
    message = models.TextField(blank=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    # The seal: set once by the sealer, in order.
    seq = models.BigIntegerField(null=True, unique=True)
    seal = models.CharField(max_length=64, blank=True)

    objects = RecordQuerySet.as_manager()

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [models.Index(fields=["-at", "-id"], name="newest_first")]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.actor} {self.action} {self.target_name or self.target}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise AppendOnly("audit records are never changed")
        super().save(*args, **kwargs)

    def delete(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise AppendOnly("audit records are never deleted")


class Chain(models.Model):
    """The head of the chain, one row. Whoever changes it from the `seq` they read is the sealer of those records."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    seq = models.BigIntegerField(default=0)
    seal = models.CharField(max_length=64, blank=True, help_text="Of the last sealed record.")
    sealed_at = models.DateTimeField(null=True)
    checked_at = models.DateTimeField(null=True, help_text="When a sealer last looked; written at most every 5 s.")

    def __str__(self) -> str:
        return f"{self.seq}:{self.seal}"
