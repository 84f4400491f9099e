"""Fields of a release's objects that another party set, and that a plan sets back: which, whose, and since when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any

from django.utils.dateparse import parse_datetime

from common.secret_names import looks_secret
from components.plans import field_managers
from components.plans.diff import Compared, cleaned
from components.plans.prepared import WARN, PlanNote
from components.values.secrets import masked_text

HELM = "helm"
MOST = 20
"""Notes of one component; more are counted."""


def notes(compared: Sequence[Compared], hidden: Sequence[str]) -> list[PlanNote]:
    """The warning that fields are taken, once for each object."""
    takes = [
        note
        for compared_object in compared
        if compared_object.change == "changed" and (note := _note(compared_object, hidden))
    ]
    if len(takes) <= MOST:
        return takes
    title = f"{len(takes) - MOST} more objects have fields that another party set, and they are taken over"
    return [*takes[:MOST], PlanNote(WARN, "takes", title, "Compliance lists each of them.")]


def _note(compared: Compared, hidden: Sequence[str]) -> PlanNote | None:
    taken = list(_taken(compared, hidden))
    if not taken:
        return None
    place = f"{compared.namespace}/" if compared.namespace else ""
    title = f"Fields of {compared.wanted.kind} {place}{compared.wanted.name} that another party set are taken over"
    return PlanNote(WARN, "takes", title, " ".join(taken)[:2000])


def _taken(compared: Compared, hidden: Sequence[str]) -> Iterator[str]:
    assert compared.live is not None
    for path, want, have in field_managers.differing(cleaned(compared.result), cleaned(compared.live)):
        who = field_managers.writer(compared.live, path, but=HELM) if have is not field_managers.ABSENT else None
        if who is None or who.manager == HELM:
            continue
        at = parse_datetime(who.at) if who.at else None
        since = f" since {at.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if at else ""
        there, made = _values(compared, path, want, have)
        holding = f"{field_managers.text(path)}{f' is {there},' if there else ' is'} held by {who}{since}"
        yield masked_text(
            f"{holding}; this plan makes it {made}." if made else f"{holding}; this plan sets it.", hidden
        )


def _values(compared: Compared, path: field_managers.Path, want: Any, have: Any) -> tuple[str, str]:
    """Both sides in words; nothing of what may be secret."""
    text = next((side for side in (have, want) if isinstance(side, str)), "x")
    if compared.wanted.kind == "Secret" or any(looks_secret(name, text) for name in field_managers.names(path)):
        return "", ""
    if any(isinstance(side, Mapping | list) for side in (want, have)):
        return "", ""
    made, there = field_managers.as_texts(want, have, 120)
    return there or "empty", made or ("absent" if want is field_managers.ABSENT else "empty")
