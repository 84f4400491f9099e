"""What this room tells of an object's past: settings that drifted, came back, or were let go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.urls import reverse

from common.look import look
from common.timeline import Entry, Subject, place
from compliance.models import SettingChange, State

SOURCE = "setting"


def of(subject: Subject) -> Iterable[Entry]:
    """Of a node everything; of a cluster or a pool what drifted, for rollouts tell the rest themselves."""
    rows = SettingChange.objects.select_related("node")
    if subject.kind == "node":
        rows = rows.filter(node=subject.row)
    elif subject.kind == "cluster":
        rows = rows.filter(node__cluster=subject.row, state=State.DRIFTED)
    elif subject.kind == "pool":
        rows = rows.filter(node__standing__pool=subject.row, state=State.DRIFTED)
    else:
        return ()
    return _entries(subject.rows(rows, SOURCE), on_node=subject.kind == "node")


def _entries(rows: Iterable[SettingChange], *, on_node: bool) -> Iterator[Entry]:
    for row in rows:
        seen = look("compliance", row.state)
        yield Entry(
            place(row.at, SOURCE, row.pk),
            f"{row.key} {_became(row)}{'' if on_node else f' on {row.node.name}'}",
            "arrow-back-up" if row.state == SettingChange.RELEASED else seen.icon,
            seen.css,
            url=f"{reverse('compliance:changes')}?node={row.node_id}&key={row.key}",
            detail=f"{row.won_by} won" if row.won_by else row.get_cause_display() if row.cause else "",
        )


def _became(row: SettingChange) -> str:
    value = "absent" if row.effective is None else row.effective
    words = {
        str(State.DRIFTED): f"drifted to {value}",
        str(State.COMPLIANT): f"is {value}, as desired",
        str(State.PENDING): f"waits to become {row.operator} {row.desired}",
        SettingChange.RELEASED: "was let go",
    }
    return words.get(row.state, f"became {row.state}")
