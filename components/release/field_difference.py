"""One difference of a component's objects from what was approved: plain data, as JSON in rows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FieldDifference:
    """One field of one object that is not as approved; or the object as a whole, where `path` is empty."""

    kind: str
    name: str
    namespace: str = ""
    api_version: str = ""
    path: str = ""
    approved: str | None = None
    """As text; null: nothing was to be there."""
    live: str | None = None
    who: str = ""
    """The field manager that holds it; empty: the API server records none."""
    at: str = ""
    note: str = ""
    is_awaited: bool = False
    """An object that is not there, and that a rollout at work is about to make."""

    @property
    def where(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def sentence(self) -> str:
        if not self.path and self.live is not None:
            return f"{self.kind} {self.where} is there, and was to be removed"
        if not self.path:
            return f"{self.kind} {self.where} is {'not there yet' if self.is_awaited else 'gone'}"
        now = "is gone" if self.live is None else f"is {_short(self.live)}"
        return f"{self.kind} {self.where}: {self.path} {now}{f', set by {self.who}' if self.who else ''}"

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def _short(text: str) -> str:
    line = text.splitlines()[0] if text else "empty"
    return line if len(line) <= 80 else f"{line[:79]}…"
