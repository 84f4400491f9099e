"""Labels on helm's record by which a revision that this product made is recognized.

A label names the plan. helm copies labels from revision to revision, in any upgrade; so a second one names the
revision's own number, which a copy does not. A rollback gets none of ours: the revision before it names its number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from components.helm.releases import ReleaseHistory, ReleaseRevision
from components.plans.prepared import Prepared

PLAN, REVISION, ROLLBACK = "setpoint.dev/plan", "setpoint.dev/revision", "setpoint.dev/rollback"
TARGET = "setpoint.dev/rollback-to"
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


def is_of(revision: ReleaseRevision, prepared: Prepared) -> bool:
    """Return whether this plan made the revision, forward or back."""
    return plan_of(revision) == plan_label(prepared) or 0 < prepared.back_to == rollback_of(revision)


def rollback_labels(last: ReleaseRevision, target: ReleaseRevision) -> dict[str, str]:
    """Return the labels for the newest revision, before helm rolls back.

    They name the number that the rollback's revision will have, and the one that it goes back to.
    """
    return {ROLLBACK: str(last.number + 1), TARGET: str(target.number)}


def is_made_by_us(history: ReleaseHistory, revision: ReleaseRevision) -> bool:
    """Return whether a plan of ours made this revision, by an upgrade or a rollback."""
    before = history.numbered(revision.number - 1)
    is_announced = before is not None and before.labels.get(ROLLBACK) == str(revision.number)
    return bool(plan_of(revision) or (is_announced and rollback_of(revision)))


def _target(history: ReleaseHistory, revision: ReleaseRevision) -> int:
    """Return what a rollback goes back to, 0 if it is none.

    A removal writes its own words over helm's; then the labels of the revision before tell, where we rolled back.
    """
    before = history.numbered(revision.number - 1)
    if before is not None and before.labels.get(ROLLBACK) == str(revision.number):
        label = before.labels.get(TARGET, "")
        if label.isdigit() and len(label) < 10:
            return int(label)
    return rollback_of(revision)


def rollback_of(revision: ReleaseRevision) -> int:
    """The revision that this one goes back to, 0 if it is no rollback: helm's own words."""
    match = _ROLLBACK.fullmatch(revision.read().description)
    return int(match[1]) if match else 0


def is_ours(history: ReleaseHistory) -> bool:
    """Return whether the newest revision is one of ours, or a rollback to one."""
    return history.last is not None and leads_to_ours(history, history.last)


def leads_to_ours(history: ReleaseHistory, revision: ReleaseRevision) -> bool:
    """Return whether a plan of ours made this revision, or what it goes back to."""
    return any(plan_of(made) for made in way_back(history, revision))


def way_back(history: ReleaseHistory, revision: ReleaseRevision) -> Iterator[ReleaseRevision]:
    """Yield the revision, what it goes back to where it is a rollback, which may be one itself, and so on."""
    yield revision
    while not plan_of(revision):
        target = history.numbered(_target(history, revision))
        if target is None or target.number >= revision.number:
            return
        revision = target
        yield revision
