"""The site's own entries as they are stored: rows that administrators wrote, read by the parser of the files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from components.catalog import loader
from components.catalog.entry import Component
from components.catalog.yaml_reader import BadCatalog
from components.models import SiteEntry

Stamp = tuple[str, str, bool, bool]
"""Name, SHA-256 of the text, whether it is classified, whether the row is as Setpoint wrote it."""
_FORGED = "Its row was changed outside Setpoint. Upload it again."
_is_switched_off = [False]
"""The last counts."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    name: str
    stamp: Stamp
    component: Component | None
    problem: str = ""
    """Why it is no component; empty where it is one."""


@contextmanager
def switched_off() -> Iterator[None]:
    """Leave the rows unread in this process, for commands that have no database."""
    yield from _switched(True)


@contextmanager
def switched_on() -> Iterator[None]:
    yield from _switched(False)


def _switched(is_off: bool) -> Iterator[None]:
    _is_switched_off.append(is_off)
    try:
        yield
    finally:
        _is_switched_off.pop()


def stamps() -> tuple[Stamp, ...]:
    """Return what changes whenever an entry does: one query, without the texts."""
    if _is_switched_off[-1]:
        return ()
    return tuple(_stamp(row) for row in SiteEntry.objects.defer("text").order_by("name"))


def entries() -> tuple[StoredEntry, ...]:
    """Read every row whole. One query."""
    return tuple(_entry(row) for row in SiteEntry.objects.order_by("name"))


def _stamp(row: SiteEntry) -> Stamp:
    return row.name, row.sha256, row.is_classified, row.is_genuine


def _entry(row: SiteEntry) -> StoredEntry:
    stamp = _stamp(row)
    if not row.is_whole:
        return StoredEntry(row.name, stamp, None, _FORGED)
    try:
        component = _parsed(row.text, row.name)
    except BadCatalog as error:  # another version of Setpoint took it
        return StoredEntry(row.name, stamp, None, str(error))
    return StoredEntry(row.name, stamp, component.of_site(row.sha256, is_untested=not row.is_classified))


@lru_cache(maxsize=64)
def _parsed(text: str, name: str) -> Component:
    return loader.parse(text, file=f"{name}.yaml", name=name)
