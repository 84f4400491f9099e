"""Detection of changes to approval rules that let any plan through with less. In doubt a change does.

A rule may be widened (it fits more plans) and tightened (it asks for more) by one administrator. A change that this
module does not know to be one of the two counts as weaker, so that a condition that is added to rules is safe before it
is known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jobs.approvals import rules
from jobs.diffs.changes import Disruption
from jobs.models import ApprovalRule

Wider = Callable[[Any, Any], bool]
DEMANDS = ("approvers", "of_count", "of_role", "of_scope")
APART = (*DEMANDS, "name", "is_enabled")
"""Fields of a rule that are no condition."""


def _class_wider(before: str, after: str) -> bool:
    return Disruption(after).rank <= Disruption(before).rank


WIDER: Mapping[str, Wider] = {
    "worst_class": _class_wider,
    "gpu_percent": lambda before, after: after <= before,
    "node_percent": lambda before, after: after <= before,
}
"""By condition: whether the second value, of two that are set, fits every plan that the first fits."""


def is_weaker(before: ApprovalRule, after: Mapping[str, Any] | None) -> bool:
    """`after`: every field as it would be; None: the rule is deleted."""
    if not before.is_enabled or _asks_no_more_than_always(before):
        return False
    if after is None or not after["is_enabled"]:
        return True
    return not _asks_as_much(before, after) or not _fits_as_many(before, after)


def _asks_no_more_than_always(row: ApprovalRule) -> bool:
    return row.approvers <= rules.FLOOR.approvers and not (row.of_role and row.of_count)


def _asks_as_much(before: ApprovalRule, after: Mapping[str, Any]) -> bool:
    if after["approvers"] < before.approvers:
        return False
    if not (before.of_role and before.of_count):
        return True
    same = (after["of_role"], after["of_scope"]) == (before.of_role, before.of_scope)
    return same and after["of_count"] >= before.of_count


def _fits_as_many(before: ApprovalRule, after: Mapping[str, Any]) -> bool:
    for name, value in after.items():
        if name in APART:
            continue
        threshold = getattr(before, name)
        if value == threshold or not _is_set(value):
            continue
        if not _is_set(threshold) or name not in WIDER or not WIDER[name](threshold, value):
            return False
    return True


def _is_set(value: Any) -> bool:
    """An empty condition fits every plan."""
    return value is not None and value not in ("", [], {}, False)
