"""Rows that carry power: each has a mark (HMAC) of the process that wrote it, so one made or changed in the table has
none.

The mark is over the columns that the power is in. It is made by `save`, `bulk_create` and `remarked`, never by
`update`: what a service changes that way it marks itself. A row whose mark was wrong when it was read keeps it, so that
no later change of ours makes it right.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Self, TypeVar
from uuid import UUID

from django.db import models, transaction

from audit import macs

Row_co = TypeVar("Row_co", bound="Marked", covariant=True)


class MarkedQuerySet(models.QuerySet[Row_co]):
    def bulk_create(self, objs: Iterable[Any], *args: Any, **kwargs: Any) -> list[Any]:
        rows = list(objs)
        for row in rows:
            row.mac = row.mark_with()
        made = super().bulk_create(rows, *args, **kwargs)
        if self.model.is_numbered_by_the_database():
            for row in made:
                row.remark()
        return made


class Marked(models.Model):
    """`MARKED`: attribute names of the columns that the mark covers. `MARKED_IF_FILLED`: of those that it covers in
    rows where they are not empty, so that rows from before such a column keep their marks."""

    MARKED: ClassVar[tuple[str, ...]] = ()
    MARKED_IF_FILLED: ClassVar[tuple[str, ...]] = ()

    mac = models.CharField(
        max_length=64, blank=True, default="", db_default="", editable=False,
        help_text="The mark of the process that wrote it.",
    )  # fmt: skip

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        if (some := kwargs.get("update_fields")) is not None:
            fields = _by_attribute(self, {name: getattr(self, name) for name in some})
            if self.covers(fields):
                self.put_marked(**fields)
            else:
                super().save(*args, **kwargs)
            return
        is_new = self._state.adding
        self.mac = self.mark_with()
        super().save(*args, **kwargs)
        if is_new and self.is_numbered_by_the_database():
            self.remark()
        self._remember()

    @classmethod
    def from_db(cls, *args: Any, **kwargs: Any) -> Self:
        row = super().from_db(*args, **kwargs)
        row._remember()
        return row

    def refresh_from_db(self, *args: Any, **kwargs: Any) -> None:
        super().refresh_from_db(*args, **kwargs)
        self._remember()

    @property
    def is_genuine(self) -> bool:
        """Return whether a process that has the key wrote the row as it was read. A new object is genuine."""
        if "_read" not in self.__dict__:
            return True
        if "_is_genuine" not in self.__dict__:
            read = self.__dict__["_read"]
            if read is None:  # some columns were left out when it was read
                read = {name: _canonical_value(getattr(self, name)) for name in self.covered()}
            self.__dict__["_is_genuine"] = hmac.compare_digest(self.mac, self._mark(read))
        return bool(self.__dict__["_is_genuine"])

    @transaction.atomic
    def put_marked(self, **fields: Any) -> None:
        """Change these columns, and the mark with them; others are as the table has them now."""
        kind, fields = type(self), _by_attribute(self, fields)
        row = kind._base_manager.select_for_update().get(pk=self.pk)
        mac = row.mark_with(**fields)
        kind._base_manager.filter(pk=self.pk).update(**fields, mac=mac)
        for name, value in fields.items():
            setattr(self, name, value)
        self.mac = mac
        self.__dict__["_is_genuine"] = row.is_genuine

    def accept(self) -> None:
        """Make the row genuine as it is: a person at the machine says that it is right."""
        self.__dict__["_is_genuine"] = True
        self.remark()

    @classmethod
    def covered(cls) -> tuple[str, ...]:
        return (*cls.MARKED, *cls.MARKED_IF_FILLED)

    def covers(self, fields: Mapping[str, Any]) -> bool:
        """Return whether the mark covers one of these columns."""
        return not _by_attribute(self, fields).keys().isdisjoint(self.covered())

    def mark_with(self, **over: Any) -> str:
        """The mark that this row has with these values in place of its own; a wrong one stays wrong."""
        if not self.is_genuine:
            return self.mac
        over = _by_attribute(self, over)
        content = {name: over.get(name, getattr(self, name)) for name in self.covered()}
        return self._mark({name: _canonical_value(value) for name, value in content.items()})

    def remark(self) -> None:
        """Write the mark alone, after a conditional `update` of ours or once the database has given a number."""
        self.mac = self.mark_with()
        type(self)._base_manager.filter(pk=self.pk).update(mac=self.mac)
        self._remember()

    @classmethod
    def is_numbered_by_the_database(cls) -> bool:
        """Return whether the mark covers a key that is not known before the row is inserted."""
        key = cls._meta.pk
        return key is not None and key.attname in cls.MARKED and isinstance(key, models.AutoField)

    def _remember(self) -> None:
        """Keep the values as read, before the object is changed."""
        there = self.__dict__
        is_whole = all(name in there for name in (*self.covered(), "mac"))
        there["_read"] = {name: _canonical_value(there[name]) for name in self.covered()} if is_whole else None
        there.pop("_is_genuine", None)

    @classmethod
    def _mark(cls, content: dict[str, Any]) -> str:
        content = {name: value for name, value in content.items() if value or name not in cls.MARKED_IF_FILLED}
        return macs.mark(f"setpoint row of {cls._meta.label_lower}, scheme 1".encode(), content)


def mark_rows(model: Any, columns: Sequence[str]) -> int:
    """Mark the rows from before a migration that adds marks, and return their number. `model` is the historical one."""
    purpose = f"setpoint row of {model._meta.label_lower}, scheme 1".encode()
    count = 0
    for values in model._base_manager.values("pk", *columns).iterator():
        content = {name: _canonical_value(values[name]) for name in columns}
        count += model._base_manager.filter(pk=values["pk"]).update(mac=macs.mark(purpose, content))
    return count


def _by_attribute(row: models.Model, fields: Mapping[str, Any]) -> dict[str, Any]:
    """`user=ada` as `user_id=7`."""
    names = {field.name: field.attname for field in row._meta.concrete_fields}
    plain = {name: value.pk if isinstance(value, models.Model) else value for name, value in fields.items()}
    return {names.get(name, name): value for name, value in plain.items()}


def _canonical_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict | list):
        return macs.canonical(value)  # as it is now: the object may be changed in place
    return str(value) if isinstance(value, str) else value
