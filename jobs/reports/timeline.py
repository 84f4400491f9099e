"""Timeline entries of plans and rollouts: an answer to `common.hooks.timeline`.

The audit record tells the decisions about plans, rollouts and clusters; here is what it does not know: the log of a
rollout, a node's share of it, and what was planned for a pool or with a profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.db.models import Q
from django.urls import reverse

from accounts.permissions import restrict
from common.look import appearance
from common.timeline import EDITS, ROLLOUTS, VERDICTS, Entry, EntryPosition, Subject, place
from jobs.models import Approval, Plan, Rollout, Step, StepEvent

LOGGED = (
    "rollout.pause", "rollout.resume", "rollout.go-on", "rollout.abort", "rollout.revert",
    "rollout.retry-failed", "rollout.skip",
    "rollout.keep-cordoned", "rollout.succeeded", "rollout.failed", "rollout.cancelled", "rollout.reverted",
)  # fmt: skip
"""Actions that a rollout's own log tells, with who asked."""
_VERDICTS = {
    Approval.Verdict.APPROVE: ("approved", "approved"),
    Approval.Verdict.CHANGES: ("back for changes", "changes"),
    Approval.Verdict.REJECT: ("rejected", "rejected"),
    Approval.Verdict.RETRACT: ("without a verdict again", "withdrawn"),
}
_REVISION = ("revision__number", "revision__profile__name")
_NAMES = ("pool__name", "pool__cluster__name", *_REVISION)
"""What a plan is called after, without its long columns."""


def timeline_entries(subject: Subject) -> Iterable[Entry]:
    if subject.kind == "rollout":
        return _events(subject) if subject.wants(ROLLOUTS) else ()
    if subject.kind == "node":
        return [*_steps(subject), *_events(subject)] if subject.wants(ROLLOUTS) else ()
    if subject.kind in ("pool", "profile"):
        return [*_plans(subject), *_verdicts(subject), *_started(subject), *_ended(subject)]
    return ()


def _events(subject: Subject) -> Iterator[Entry]:
    is_node = subject.kind == "node"
    about = Q(step__node=subject.row) if is_node else Q(rollout=subject.row)
    rows = StepEvent.objects.filter(about).select_related("step", "rollout")
    read = ("at", "level", "text", "step__node_name", "step__component", "rollout__number")
    for row in subject.rows(rows.only(*read), "event"):
        seen = appearance("event", row.level)
        name = row.step.name if row.step else ""
        yield Entry(
            place(row.at, "event", row.pk),
            ROLLOUTS,
            f"{row.rollout}: {row.text}" if is_node else f"{name}: {row.text}" if name else row.text,
            seen.icon,
            seen.css,
            url=_step(row),
            on="" if is_node else name,
            alike=_plural_template(row.text) if row.step and row.step.node_name and not is_node else "",
        )


def _steps(subject: Subject) -> Iterator[Entry]:
    """Yield the state of each rollout on this node, present or final."""
    rows = Step.objects.filter(node=subject.row).select_related("rollout__plan__revision__profile")
    read = ("entered_at", "status", "rollout__number", *(f"rollout__plan__{name}" for name in _REVISION))
    for row in subject.rows(rows.only(*read), "step", at="entered_at"):
        seen = appearance("step", row.status)
        yield Entry(
            place(row.entered_at, "step", row.pk),
            ROLLOUTS,
            f"{row.rollout}, {row.rollout.plan.revision}: {row.status}",
            seen.icon,
            seen.css,
            url=reverse("jobs:step", args=[row.rollout.number, row.pk]),
        )


def _plural_template(text: str) -> str:
    return text.rstrip(".").replace("{", "{{").replace("}", "}}") + ", on {} nodes"


def _step(event: StepEvent) -> str:
    number = event.rollout.number
    return (
        reverse("jobs:step", args=[number, event.step_id]) if event.step_id else reverse("jobs:rollout", args=[number])
    )


# ── what was planned for a pool, or with a profile: only in clusters that the reader may see ──────────────────────────
def _of_plans(subject: Subject, prefix: str = "") -> Q:
    if subject.kind == "pool":
        return Q(**{f"{prefix}pool": subject.row})
    return Q(**{f"{prefix}revision__profile": subject.row})


def _plans(subject: Subject) -> Iterator[Entry]:
    if not subject.wants(EDITS):
        return
    rows = Plan.objects.filter(_of_plans(subject)).select_related("pool__cluster", "revision__profile", "created_by")
    rows = rows.only("number", "created_at", "message", "created_by__email", *_NAMES)
    seen = appearance("plan", Plan.Status.DRAFT)
    for plan in subject.rows(restrict(rows, subject.user), "plan", at="created_at"):
        yield Entry(
            place(plan.created_at, "plan", plan.pk),
            EDITS,
            f"{plan} was made: {plan.revision} to {plan.pool}",
            seen.icon,
            seen.css,
            by=str(plan.created_by or ""),
            url=reverse("jobs:plan", args=[plan.number]),
            detail=f"“{plan.message}”" if plan.message else "",
        )


def _verdicts(subject: Subject) -> Iterator[Entry]:
    if not subject.wants(VERDICTS):
        return
    rows = Approval.objects.filter(_of_plans(subject, "plan__")).select_related("plan", "person")
    rows = rows.only("at", "verdict", "comment", "plan__number", "person__email")
    for row in subject.rows(restrict(rows, subject.user, "plan__cluster__"), "verdict"):
        words, status = _VERDICTS[Approval.Verdict(row.verdict)]
        seen = appearance("plan", status)
        yield Entry(
            place(row.at, "verdict", row.pk),
            VERDICTS,
            f"{row.plan} {words}",
            seen.icon,
            seen.css,
            by=str(row.person),
            url=reverse("jobs:plan", args=[row.plan.number]),
            detail=f"“{row.comment}”" if row.comment else "",
        )


def _started(subject: Subject) -> Iterator[Entry]:
    if not subject.wants(ROLLOUTS):
        return
    for row in _rollouts(subject, "start", "created_at"):
        yield _of_rollout(row, place(row.created_at, "start", row.pk), Rollout.Status.RUNNING, "started")


def _ended(subject: Subject) -> Iterator[Entry]:
    if not subject.wants(ROLLOUTS):
        return
    for row in _rollouts(subject, "end", "finished_at"):
        assert row.finished_at is not None
        yield _of_rollout(row, place(row.finished_at, "end", row.pk), row.status, row.get_status_display().lower())


def _rollouts(subject: Subject, source: str, at: str) -> list[Rollout]:
    rows = Rollout.objects.filter(_of_plans(subject, "plan__"), **{f"{at}__isnull": False})
    if source == "end":
        rows = rows.exclude(status__in=Rollout.LIVE)
    rows = rows.select_related("plan__pool__cluster", "plan__revision__profile", "started_by")
    names = (f"plan__{name}" for name in _NAMES)
    rows = rows.only("number", "status", "created_at", "finished_at", "started_by__email", *names)
    return subject.rows(restrict(rows, subject.user), source, at=at)


def _of_rollout(row: Rollout, at: EntryPosition, status: str, words: str) -> Entry:
    seen = appearance("operation", status)
    return Entry(
        at,
        ROLLOUTS,
        f"{row} {words}: {row.plan.revision} to {row.plan.pool}",
        seen.icon,
        seen.css,
        by=str(row.started_by or "") if words == "started" else "",
        url=reverse("jobs:rollout", args=[row.number]),
    )
