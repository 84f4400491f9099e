"""Expectations are set by the engine, answers are taken from the watch: the two halves of a setting's state."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Count, QuerySet

from clusters.models import NodeTuning
from common.clock import now
from compliance.models import NodeExpectation, SettingState
from compliance.services import causes, history, standings
from contract.keys import satisfied
from contract.nodetuning import SettingStatus
from profiles.models import Revision

State = SettingState.State

UPDATED = [
    "operator",
    "desired",
    "written",
    "effective",
    "state",
    "reason",
    "cause",
    "won_by",
    "rollout_id",
    "since",
    "original",
    "has_original",
]


NOTHING_WRITTEN = (
    SettingStatus.OBSERVED,
    SettingStatus.EFFECTIVE,
    SettingStatus.DRIFTED,
    SettingStatus.MOVED,
    SettingStatus.DENIED,
    SettingStatus.UNSUPPORTED,
)
"""What an agent can say of a key that it never wrote. A key being reverted has no written value either."""


@dataclass(frozen=True, slots=True)
class Desired:
    key: str
    operator: str
    value: str
    original: str | None
    """What the node answers now: kept only if no earlier original is known."""
    is_untouched: bool = False
    """The agent says that nothing was ever written: an earlier try did not come to it, and its original is void."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One node's new target, as its step starts."""

    node_id: int
    revision: Revision | None
    settings: tuple[Desired, ...]
    dropped: tuple[str, ...] = ()
    """Keys that go back to their originals: their rows stay until the agent has restored them."""


def expect(targets: Sequence[Expected], *, rollout_id: UUID) -> None:
    """Record originals and targets of these nodes, in the caller's transaction: before `spec` is written (law 7)."""
    node_ids = [t.node_id for t in targets]
    earlier = {(s.node_id, s.key): s for s in SettingState.objects.filter(node_id__in=node_ids)}
    past = {e.node_id: e for e in NodeExpectation.objects.filter(node_id__in=node_ids)}
    at = now()
    rows = [row for target in targets for row in _states(target, earlier, rollout_id=rollout_id, at=at)]
    kept = {(t.node_id, key) for t in targets for key in (*(w.key for w in t.settings), *t.dropped)}
    # Wanted once, never written, and wanted no more: there is nothing to put back, and nothing to be compliant with.
    over = [row for at_key, row in earlier.items() if at_key not in kept and row.written is None]
    history.note(row for row in rows if history.differs(row, earlier.get((row.node_id, row.key))))
    history.note_released(over)
    SettingState.objects.filter(pk__in=[row.pk for row in over]).delete()
    expectations = []
    for target in targets:
        known_target = past.get(target.node_id)
        same_rollout = known_target is not None and known_target.rollout_id == rollout_id
        previous = None if known_target is None else known_target.previous if same_rollout else known_target.revision
        expectations.append(
            NodeExpectation(
                node_id=target.node_id,
                revision=target.revision,
                previous=previous,
                rollout_id=rollout_id,
                since=at,
                earlier=_earlier(known_target, is_same=same_rollout),
            )
        )
    SettingState.objects.bulk_create(
        rows, batch_size=500, update_conflicts=True, unique_fields=["node", "key"], update_fields=UPDATED
    )
    NodeExpectation.objects.bulk_create(
        expectations,
        batch_size=500,
        update_conflicts=True,
        unique_fields=["node"],
        update_fields=["revision", "previous", "rollout_id", "since", "earlier"],
    )
    standings.renew(node_ids, lacking={t.node_id: _lacking(t) for t in targets})


def _states(
    target: Expected, earlier: Mapping[tuple[int, str], SettingState], *, rollout_id: UUID, at: datetime
) -> Iterator[SettingState]:
    """Yield the states wanted of this node from now on, and reverts of keys that are no longer wanted."""
    for setting in target.settings:
        known = earlier.get((target.node_id, setting.key))
        keeps = known is not None and known.has_original and not (setting.is_untouched and known.written is None)
        is_so = satisfied(setting.operator, setting.value, setting.original)
        state = State.COMPLIANT if is_so else State.PENDING
        yield SettingState(
            node_id=target.node_id,
            key=setting.key,
            operator=setting.operator,
            desired=setting.value,
            written=known.written if known else None,
            effective=setting.original,
            original=known.original if known and keeps else setting.original,
            has_original=True,
            state=state,
            rollout_id=rollout_id,
            since=known.since if known and known.state == state else at,
        )
    for key in target.dropped:
        known = earlier.get((target.node_id, key))
        if known is not None:
            back = copy.copy(known)
            back.operator, back.desired = "=", known.original or ""
            back.state, back.rollout_id, back.since = State.PENDING, rollout_id, at
            back.reason, back.cause, back.won_by = "", "", ""
            yield back


def _earlier(known: NodeExpectation | None, *, is_same: bool) -> list[list[Any]]:
    kept: list[list[Any]] = list(known.earlier) if known else []
    if known is None or is_same or known.rollout_id is None:
        return kept
    superseded = [str(known.rollout_id), known.previous_id, known.since.isoformat()]
    return [superseded, *kept][:MOST_EARLIER]


MOST_EARLIER = 20
"""Rollouts that can be reverted on a node one after another, the latest first."""


def give_back(node_ids: Iterable[int], *, rollout_id: UUID) -> None:
    """This rollout was reverted on these nodes: each is again what the rollout before it made of it, which can be
    reverted in its turn. In the caller's transaction."""
    rows = [
        row for row in NodeExpectation.objects.filter(node__in=list(node_ids), rollout_id=rollout_id) if row.earlier
    ]
    known = set(Revision.objects.filter(pk__in={row.earlier[0][1] for row in rows}).values_list("pk", flat=True))
    for row in rows:
        (rollout, previous, since), *row.earlier = row.earlier
        row.rollout_id, row.since = UUID(rollout), datetime.fromisoformat(since)
        row.previous_id = previous if previous in known else None
    NodeExpectation.objects.bulk_update(rows, ["rollout_id", "previous", "since", "earlier"], batch_size=200)


def adopt(taken: Mapping[int, Sequence[Mapping[str, Any]]]) -> None:
    """Adopt values that an earlier installation, or a later state of this one, wrote on these nodes.

    `taken` is from the hosts' journals: [{key, asked, now, original, is_written}]. Runs in the caller's transaction.

    The value that is effective is what is wanted until a plan says otherwise, and the original is the journal's, so
    that a later revert finds it. What this database knows itself stays.
    """
    rows = [
        SettingState(
            node_id=node_id,
            key=value["key"],
            desired=value["now"],
            written=value["now"],
            effective=value["now"],
            original=value["original"],
            has_original=True,
            state=State.COMPLIANT,
        )
        for node_id, settings_ in taken.items()
        for value in settings_
        if value["is_written"] and value["now"] is not None
    ]
    SettingState.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)
    if rows:
        standings.renew(list(taken))


def _lacking(target: Expected) -> list[str]:
    """Keys of the revision that the step leaves out, because the node does not have them."""
    taken = {setting.key for setting in target.settings}
    wanted_keys = (s["key"] for s in target.revision.content.get("settings", ())) if target.revision else ()
    return sorted(key for key in wanted_keys if key not in taken)


def untouched(tuning: NodeTuning | None) -> frozenset[str]:
    """Keys that were asked of the node's agent and that it says it never wrote."""
    reports = tuning.status.get("settings", ()) if tuning else ()
    return frozenset(r["key"] for r in reports if r.get("written") is None and r.get("state") in NOTHING_WRITTEN)


def originals(tunings: Mapping[int, NodeTuning | None]) -> dict[int, dict[str, str | None]]:
    """Return by node what Setpoint may have to restore: originals of keys that it wrote, or may have written."""
    out: dict[int, dict[str, str | None]] = defaultdict(dict)
    never = {node_id: untouched(tuning) for node_id, tuning in tunings.items()}
    rows = SettingState.objects.filter(node_id__in=list(tunings), has_original=True)
    for node_id, key, original, written in rows.values_list("node_id", "key", "original", "written"):
        if written is not None or key not in never[node_id]:
            out[node_id][key] = original
    return out


@transaction.atomic
def forget(keys: Mapping[int, Iterable[str]]) -> None:
    """These keys are restored: No longer managed by Setpoint. In a transaction: lists count by standings."""
    for node_id, names in keys.items():
        rows = list(SettingState.objects.filter(node_id=node_id, key__in=list(names)))
        history.note_released(rows)
        SettingState.objects.filter(pk__in=[row.pk for row in rows]).delete()
    if keys:
        standings.renew(keys)


def observe(cluster_id: UUID, node_ids: Sequence[int]) -> None:
    """Take the agents' answers into the setting states of these nodes. Writes only rows that differ."""
    changed, _ = _differing(SettingState.objects.filter(node_id__in=node_ids), node_ids)
    with transaction.atomic():  # lists count by standings: these settings are never read without them
        if changed:
            _store(node_ids)
        standings.renew(node_ids)


def _differing(rows: QuerySet[SettingState], node_ids: Sequence[int]) -> tuple[list[SettingState], set[int]]:
    """Rows that the agents' answers change, changed, and the keys of those whose change history tells."""
    states = list(rows)  # read, and locked where they are to be, before the answers: those are then not older
    tunings = NodeTuning.objects.filter(node_id__in=node_ids).only("node_id", "status", "observed")
    answers = {t.node_id: t for t in tunings}
    reports = {pk: {r.get("key"): r for r in t.status.get("settings", ())} for pk, t in answers.items()}
    changed: list[SettingState] = []
    telling: set[int] = set()
    for row in states:
        answer = answers.get(row.node_id)
        if answer is None:
            continue
        before = copy.copy(row)
        if not _take(row, answer, reports[row.node_id].get(row.key)):
            continue
        changed.append(row)
        if history.differs(row, before):
            telling.add(row.pk)
    return changed, telling


def _store(node_ids: Sequence[int]) -> None:
    """Judge again under the lock, and write: of two who observe at once, neither puts back an answer that is older.

    An upsert is many times faster than bulk_update; the lock keeps it from bringing back what was forgotten.
    """
    locked = SettingState.objects.select_for_update().filter(node_id__in=node_ids).order_by("pk")
    rows, telling = _differing(locked, node_ids)
    SettingState.objects.bulk_create(
        rows,
        batch_size=500,
        update_conflicts=True,
        unique_fields=["id"],
        update_fields=["written", "effective", "state", "reason", "cause", "won_by", "since"],
    )
    history.note(row for row in rows if row.pk in telling)


def _take(row: SettingState, answer: NodeTuning, report: Mapping[str, Any] | None) -> bool:
    """Apply one answer to one row; whether anything changed."""
    effective = report.get("effective") if report else answer.observed.get(row.key, row.effective)
    written = (report.get("written") if report else None) or row.written  # once written, it is to be restored
    state, reason = judge(row, effective, report)
    cause, won_by = causes.why(report) if state == State.DRIFTED else ("", "")
    fresh = (effective, written, state, reason, str(cause), won_by)
    if fresh == (row.effective, row.written, row.state, row.reason, row.cause, row.won_by):
        return False
    if state != row.state:
        row.since = now()
    row.effective, row.written, row.state, row.reason, row.cause, row.won_by = fresh
    return True


def judge(row: SettingState, effective: str | None, report: Mapping[str, Any] | None) -> tuple[str, str]:
    """Compliance of one key and why. Effective means compliant; anything else depends on what was there before."""
    state = (report or {}).get("state", "")
    reason = str((report or {}).get("reason", ""))[:512]
    if satisfied(row.operator, row.desired, effective):
        return State.COMPLIANT, ""
    if state in (SettingStatus.DRIFTED, SettingStatus.CONTENDED, SettingStatus.MOVED):
        return State.DRIFTED, reason
    if state in (SettingStatus.NOT_EFFECTIVE, SettingStatus.FAILED, SettingStatus.UNSUPPORTED, SettingStatus.DENIED):
        return State.DRIFTED, reason
    if row.state in (State.COMPLIANT, State.DRIFTED):
        return State.DRIFTED, reason
    return State.PENDING, reason


def left_behind(cluster_id: UUID) -> list[str]:
    """Return which of Setpoint's values a disconnected cluster keeps, without the record of their originals."""
    with_original = SettingState.objects.filter(node__cluster_id=cluster_id, node__gone_at=None, has_original=True)
    counted = with_original.order_by().aggregate(settings=Count("pk"), nodes=Count("node", distinct=True))
    settings, nodes = counted["settings"], counted["nodes"]
    if not settings:
        return []
    sentence = (
        f"{settings} settings on {nodes} nodes stay as they are. Their originals are forgotten here and remain only in "
        "the journal of each host: revert first to restore them."
    )
    return [sentence]
