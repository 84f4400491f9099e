"""A row whose status changes through `move` alone, and the numbers that people say."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models

from audit.marked import Marked
from common.errors import IllegalMove, LostRace


class Moves(models.Model):
    """A row with a status, a table NEXT of legal moves, and a version that makes each move a conditional update."""

    NEXT: ClassVar[dict[str, set[str]]] = {}

    status: Any
    version = models.PositiveIntegerField(default=1)

    class Meta:
        abstract = True

    def move(self, to: str, **fields: Any) -> None:
        """The only way to change status. Raises IllegalMove, LostRace."""
        if to not in self.NEXT.get(self.status, set()):
            raise IllegalMove(f"{type(self).__name__} {self.pk}: {self.status} -> {to}")
        self.put(status=to, **fields)

    def put(self, **fields: Any) -> None:
        """Change fields if the row was not changed since it was read. Raises LostRace."""
        if isinstance(self, Marked) and self.covers(fields):
            fields |= {"mac": self.mark_with(**fields)}
        fields |= {"version": self.version + 1}
        as_read = type(self)._default_manager.filter(pk=self.pk, version=self.version)
        if not as_read.update(**fields):
            raise LostRace(f"{type(self).__name__} {self.pk}")
        for name, value in fields.items():
            setattr(self, name, value)


class Counter(models.Model):
    """Short numbers for people: P-218, R-131. One row a kind, raised under its row lock."""

    kind = models.CharField(max_length=10, primary_key=True)
    value = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.kind}-{self.value}"
