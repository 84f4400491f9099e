"""Labels on helm's record by which a revision that this product made is recognized.

A label names the plan. helm copies labels from revision to revision, in any upgrade; so a second one names the
revision's own number, which a copy does not. A rollback gets none of ours: the revision before it names its number.
"""

from __future__ import annotations

import re

from components.helm.releases import ReleaseHistory, ReleaseRevision
from components.plans.prepared import Prepared

PLAN, REVISION, ROLLBACK = "setpoint.dev/plan", "setpoint.dev/revision", "setpoint.dev/rollback"
_ROLLBACK = re.compile(r"Rollback to (\d{1,9})")


def plan_label(prepared: Prepared) -> str:
    """A label's value that names what was approved: 32 hex digits of its digest."""
    return prepared.digest.removeprefix("sha256:")[:32]


def labels(prepared: Prepared, history: ReleaseHistory) -> dict[str, str]:
    """Return the labels for the revision that helm makes next."""
    number = history.last.number + 1 if history.last else 1
    return {PLAN: plan_label(prepared), REVISION: str(number)}


def plan_of(revision: ReleaseRevision) -> str:
    """Name the plan that made this revision; empty: none of ours."""
    return revision.labels.get(PLAN, "") if revision.labels.get(REVISION) == str(revision.number) else ""


def rollback_label(last: ReleaseRevision) -> dict[str, str]:
    """Return the label for the newest revision, before helm rolls back.

    It names the number that the rollback's revision will have.
    """
    return {ROLLBACK: str(last.number + 1)}


def is_made_by_us(history: ReleaseHistory, revision: ReleaseRevision) -> bool:
    """Return whether a plan of ours made this revision, by an upgrade or a rollback."""
    before = history.numbered(revision.number - 1)
    is_announced = before is not None and before.labels.get(ROLLBACK) == str(revision.number)
    return bool(plan_of(revision) or (is_announced and rollback_of(revision)))


def rollback_of(revision: ReleaseRevision) -> int:
    """The revision that this one goes back to, 0 if it is no rollback: helm's own words."""
    found = _ROLLBACK.fullmatch(revision.read().description)
    return int(found[1]) if found else 0


def is_ours(history: ReleaseHistory) -> bool:
    """Return whether the newest revision is one of ours, or a rollback to one."""
    last = history.last
    if last is None:
        return False
    if plan_of(last):
        return True
    target = history.numbered(rollback_of(last))
    return bool(target and plan_of(target))
