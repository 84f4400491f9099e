"""Audit records as timeline entries of an object: an answer to `common.hooks.timeline`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlencode

from django.db.models import Q, QuerySet
from django.urls import reverse

from audit.models import Record
from common.look import Appearance, appearance
from common.timeline import EDITS, ROLLOUTS, VERDICTS, Entry, Subject, place

SOURCE = "audit"
VERDICT_ACTIONS: Mapping[str, tuple[str, str]] = {
    "plan.approve": ("{} approved", "approved"),
    "plan.changes": ("Changes of {} requested", "changes"),
    "plan.reject": ("{} rejected", "rejected"),
    "plan.retract": ("The approval of {} was withdrawn", "withdrawn"),
}
"""By action: the sentence, and the plan's status that looks like it."""
SENTENCES: Mapping[str, str] = {
    "assignment.observe": "Drift in {} is only observed from now on",
    "chart-repository.reseal": "The password of {} was re-encrypted",
    "cluster.connect": "{} was connected",
    "cluster.disconnect": "{} was disconnected",
    "cluster.rotate_credential": "The credential of {} was replaced",
    "cluster.reseal": "The credential of {} was re-encrypted",
    "cluster.update": "{} was changed",
    "component-values.update": "The values of {} were changed",
    "freeze.set": "A freeze of {} began",
    "installation.restore": "The database was restored from a backup {}",
    "freeze.lift": "The freeze of {} was lifted",
    "plan.expire": "{} expired",
    "plan.make": "{} was made",
    "plan.rejudge": "The approval of {} was judged again",
    "plan.remind": "Those who can decide on {} were reminded",
    "plan.request": "Approval of {} was requested",
    "plan.supersede": "Another plan took the place of {}",
    "plan.withdraw": "{} was withdrawn",
    "pool.create": "The pool {} was made",
    "pool.delete": "The pool {} was deleted",
    "pool.update": "The pool {} was changed",
    "profile.create": "{} was made",
    "profile.publish": "{} was published",
    "profile.discard": "The draft of {} was discarded",
    "profile.owner": "The owner of {} was changed",
    "profile.edit": "The draft of {} was written",
    "rollout.abort": "{} is aborted",
    "rollout.keep-cordoned": "{} keeps a node cordoned",
    "rollout.pause": "{} paused",
    "rollout.resume": "{} resumed",
    "rollout.go-on": "{} continued past what held it",
    "rollout.retry-failed": "{} retries its failed nodes",
    "rollout.revert": "{} is being reverted",
    "rollout.skip": "{} skips a node",
    "rollout.start": "{} started",
    "rollout.break-glass": "{} started by break-glass, without approval",
    "rollout.break-glass-review": "The start of {} by break-glass was reviewed",
    "rollout.break-glass-overdue": "The review of the break-glass start of {} is overdue",
    "telemetry.reseal": "The telemetry secret of {} was re-encrypted",
}
ROLLOUT_LOOKS: Mapping[str, str] = {
    "start": "running", "resume": "running", "go-on": "running", "retry-failed": "running", "pause": "paused",
    "abort": "aborting", "revert": "reverting", "skip": "skipped", "keep-cordoned": "running",
}  # fmt: skip
"""By verb: the status of operation that looks like it; ends are named like their status."""
_WORK = re.compile(r"([PR])-(\d{1,9})")
MOST_VALUES = 3


def entries_of(subject: Subject) -> Iterable[Entry]:
    """Records of the object itself; of a cluster all that names it. Two at one instant are told apart by their key."""
    if not subject.wants(EDITS, VERDICTS, ROLLOUTS):
        return ()
    about = Q(cluster_id=subject.row.pk) if subject.kind == "cluster" else Q(target__in=list(subject.targets))
    rows = Record.objects.filter(about).exclude(action__in=list(subject.told))
    return _entries(subject.rows(_only(rows, subject.only), SOURCE))


def _only(rows: QuerySet[Record], what: str) -> QuerySet[Record]:
    verdicts, rollouts = Q(action__in=list(VERDICT_ACTIONS)), Q(action__startswith="rollout.")
    narrowed = {VERDICTS: verdicts, ROLLOUTS: rollouts, EDITS: ~verdicts & ~rollouts}
    return rows.filter(narrowed[what]) if what else rows


def _entries(rows: Iterable[Record]) -> Iterator[Entry]:
    for row in rows:
        what, seen = _look(row.action)
        yield Entry(
            place(row.at, SOURCE, row.pk),
            what,
            _sentence(row),
            seen.icon,
            seen.css,
            by=row.actor,
            url=_url(row),
            detail=" ".join(part for part in (f"“{row.message}”" if row.message else "", changed(row)) if part),
        )


def _look(action: str) -> tuple[str, Appearance]:
    kind, _, verb = action.partition(".")
    if action in VERDICT_ACTIONS:
        return VERDICTS, appearance("plan", VERDICT_ACTIONS[action][1])
    if kind == "rollout":
        return ROLLOUTS, appearance("operation", ROLLOUT_LOOKS.get(verb, verb))
    return EDITS, appearance("edit", kind)


def _sentence(row: Record) -> str:
    name = row.target_name or row.target
    kind, _, verb = row.action.partition(".")
    if row.action in VERDICT_ACTIONS:
        return VERDICT_ACTIONS[row.action][0].format(name)
    if row.action in SENTENCES:
        return SENTENCES[row.action].format(name)
    if kind == "rollout":
        return f"{name} {verb}"  # its end
    return f"{name}: {row.action.replace('.', ' ')}"


def changed(row: Record) -> str:
    """`budget 1 → 2`: the first short values that differ, of an edit that tells both."""
    if not (row.before and row.after):
        return ""
    differ = [
        f"{name} {row.before.get(name)} → {value}"
        for name, value in row.after.items()
        if name != "version" and row.before.get(name) != value and _is_short(value) and _is_short(row.before.get(name))
    ]
    return ", ".join(differ[:MOST_VALUES]) + (" …" if len(differ) > MOST_VALUES else "")


def _is_short(value: object) -> bool:
    return not isinstance(value, list | dict) and len(str(value)) <= 40


def _url(row: Record) -> str:
    """A plan or a rollout by the name that people know it by; else the record itself."""
    if work := _WORK.fullmatch(row.target_name):
        return reverse("jobs:plan" if work[1] == "P" else "jobs:rollout", args=[int(work[2])])
    return f"{reverse('audit:records')}?{urlencode({'target': row.target})}"
