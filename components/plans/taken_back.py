"""Fields of a release's objects that another party set, and that a plan sets back: which, whose, and since when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any

from django.utils.dateparse import parse_datetime

from components.plans import field_managers
from components.plans.diff import Compared, cleaned
from components.plans.prepared import WARN, PlanNote
from components.values.secrets import looks_secret, masked_text

HELM = "helm"
MOST = 20
"""Notes of one component; more are counted."""


def notes(compared: Sequence[Compared], hidden: Sequence[str]) -> list[PlanNote]:
    """The warning that fields are taken, once for each object."""
    found = [note for one in compared if one.change == "changed" and (note := _note(one, hidden))]
    if len(found) <= MOST:
        return found
    title = f"{len(found) - MOST} more objects have fields that another party set, and they are taken over"
    return [*found[:MOST], PlanNote(WARN, "takes", title, "Compliance lists each of them.")]


def _note(one: Compared, hidden: Sequence[str]) -> PlanNote | None:
    taken = list(_taken(one, hidden))
    if not taken:
        return None
    place = f"{one.namespace}/" if one.namespace else ""
    title = f"Fields of {one.wanted.kind} {place}{one.wanted.name} that another party set are taken over"
    return PlanNote(WARN, "takes", title, " ".join(taken)[:2000])


def _taken(one: Compared, hidden: Sequence[str]) -> Iterator[str]:
    assert one.live is not None
    for path, want, have in field_managers.differing(cleaned(one.result), cleaned(one.live)):
        who = field_managers.writer(one.live, path, but=HELM) if have is not field_managers.ABSENT else None
        if who is None or who.manager == HELM:
            continue
        at = parse_datetime(who.at) if who.at else None
        since = f" since {at.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if at else ""
        there, made = _values(one, path, want, have)
        said = f"{field_managers.text(path)}{f' is {there},' if there else ' is'} held by {who}{since}"
        yield masked_text(f"{said}; this plan makes it {made}." if made else f"{said}; this plan sets it.", hidden)


def _values(one: Compared, path: field_managers.Path, want: Any, have: Any) -> tuple[str, str]:
    """Both sides in words; nothing of what may be secret."""
    text = next((side for side in (have, want) if isinstance(side, str)), "x")
    if one.wanted.kind == "Secret" or any(looks_secret(name, text) for name in field_managers.names(path)):
        return "", ""
    if any(isinstance(side, Mapping | list) for side in (want, have)):
        return "", ""
    made, there = field_managers.as_texts(want, have, 120)
    return there or "empty", made or ("absent" if want is field_managers.ABSENT else "empty")
