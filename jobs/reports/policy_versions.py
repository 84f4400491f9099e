"""Versions of the approval policy with their state and difference, for pages and REST."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from accounts.models import PendingChange, User
from accounts.people import pending
from common.clock import now
from jobs.approvals import policybook
from jobs.models import PolicyVersion
from jobs.policy import policy_text


@dataclass(frozen=True, slots=True)
class VersionState:
    row: PolicyVersion
    state: str
    """active, retired, proposed, or closed: withdrawn, refused or expired."""
    change: PendingChange | None = None
    """The proposal that waits for a second administrator."""

    def reason_not_to_activate(self, user: User) -> str:
        if self.change is None:
            return "It does not wait for a second administrator."
        return pending.reason_not_to(self.change, user)


def version_states(rows: Sequence[PolicyVersion]) -> list[VersionState]:
    targets = {policybook.target_of(row): row for row in rows}
    changes = PendingChange.objects.filter(
        kind=policybook.ACTIVATE, target__in=targets, status=PendingChange.Status.WAITING, expires_at__gt=now()
    )
    waiting = {change.target: change for change in changes.select_related("proposed_by")}
    return [_state(row, waiting.get(target)) for target, row in targets.items()]


def _state(row: PolicyVersion, change: PendingChange | None) -> VersionState:
    if row.is_active:
        return VersionState(row, "active")
    if row.activated_at:
        return VersionState(row, "retired")
    return VersionState(row, "proposed" if change else "closed", change)


def difference_of(row: PolicyVersion) -> list[tuple[str, str]]:
    """Lines of a unified difference, (sign, text), from the version that was active before it, or is now."""
    older = PolicyVersion.objects.exclude(activated_at=None).exclude(pk=row.pk)
    if row.activated_at:
        older = older.filter(activated_at__lt=row.activated_at)
    base = older.order_by("-activated_at", "-pk").first()
    left = base.text if base else policy_text.EMPTY
    lines = list(difflib.unified_diff(left.splitlines(), row.text.splitlines(), lineterm="", n=3))[2:]
    return [("@", line) if line.startswith("@@") else (line[:1] or " ", line[1:]) for line in lines]
