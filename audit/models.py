"""The append-only audit trail. Rows are inserted in the change's own transaction and sealed afterwards.

Records, seals and refusals are only ever inserted: on PostgreSQL triggers refuse everything else, and the role that
processes connect as needs no other right (docs/operating.md).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NoReturn, Self

from django.db import models

from audit import macs
from common.clock import now


class AppendOnly(TypeError):
    """Code tried to change or delete an audit record."""


class AppendOnlyQuerySet(models.QuerySet[Any]):
    """Reads chain; every way to change or delete is refused."""

    def update(self, **_fields: Any) -> NoReturn:
        raise AppendOnly("audit records are never changed")

    def delete(self) -> NoReturn:
        raise AppendOnly("audit records are never deleted")

    def bulk_update(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise AppendOnly("audit records are never changed")


class RecordQuerySet(AppendOnlyQuerySet):
    def bulk_create(self, objs: Iterable[Record], *args: Any, **kwargs: Any) -> list[Record]:
        rows = list(objs)
        for row in rows:
            row.mac = macs.mark_of(row)
        return super().bulk_create(rows, *args, **kwargs)

    def unsealed(self, since: datetime | None = None) -> Self:
        """Neither sealed nor refused, in the order in which they are sealed; `since` spares a look at all history."""
        rows = self.filter(sealed_as=None, refused_as=None).order_by("at", "id")
        return rows if since is None else rows.filter(at__gte=since)

    def sealed(self) -> Self:
        return self.exclude(sealed_as=None).select_related("sealed_as").order_by("sealed_as__seq")


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
    mac = models.CharField(max_length=64, blank=True, help_text="Of the process that wrote it; empty: before 2026-11.")

    objects = RecordQuerySet.as_manager()

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [models.Index(fields=["-at", "-id"], name="newest_first")]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.actor} {self.action} {self.target_name or self.target}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise AppendOnly("audit records are never changed")
        self.mac = macs.mark_of(self)
        super().save(*args, **kwargs)

    def delete(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise AppendOnly("audit records are never deleted")

    @property
    def seq(self) -> int | None:
        """Its number in the chain; None: it is not sealed yet, or was refused."""
        sealed = getattr(self, "sealed_as", None)
        return sealed.seq if sealed else None

    @property
    def seal(self) -> str:
        sealed = getattr(self, "sealed_as", None)
        return sealed.seal if sealed else ""


class _Mark(models.Model):
    """Beside a record, without a constraint of the database: a record that is gone must not take its seal with it."""

    objects = AppendOnlyQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise AppendOnly("seals are never changed")
        super().save(*args, **kwargs)

    def delete(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise AppendOnly("seals are never deleted")


class Seal(_Mark):
    class Scheme(models.IntegerChoices):
        FIRST = 1, "Sealed as it was in the table: records carried no mark of their writer"
        MARKED = 2, "The record's mark was right when it was sealed"

    seq = models.BigIntegerField(primary_key=True)
    record = models.OneToOneField(Record, on_delete=models.DO_NOTHING, db_constraint=False, related_name="sealed_as")
    seal = models.CharField(max_length=64)
    scheme = models.PositiveSmallIntegerField(choices=Scheme, default=Scheme.MARKED)
    at = models.DateTimeField(null=True, help_text="When it was sealed; part of it. Null in the first scheme.")

    class Meta:
        ordering = ["seq"]

    def __str__(self) -> str:
        return f"{self.seq}:{self.seal}"


class Refusal(_Mark):
    """A record that the sealer does not seal: it stays unsealed, and is reported until an administrator accepts it."""

    record = models.OneToOneField(Record, on_delete=models.DO_NOTHING, db_constraint=False, related_name="refused_as")
    why = models.CharField(max_length=200)
    at = models.DateTimeField(default=now)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.why


class Chain(models.Model):
    """The head of the chain, one row. The sealer is the process that changes it from the `seq` it read."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    seq = models.BigIntegerField(default=0)
    seal = models.CharField(max_length=64, blank=True, help_text="Of the last sealed record.")
    newest_at = models.DateTimeField(null=True, help_text="The newest time of a sealed record.")
    sealed_at = models.DateTimeField(null=True)
    checked_at = models.DateTimeField(null=True, help_text="When a sealer last looked; written at most every 5 s.")
    broken = models.CharField(max_length=300, blank=True, help_text="Why nothing is sealed; empty: it is.")

    def __str__(self) -> str:
        return f"{self.seq}:{self.seal}"
