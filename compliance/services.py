"""Expectations are set by the engine, answers are taken from the watch: the two halves of a setting's state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import transaction

from clusters.models import NodeTuning
from common.clock import now
from compliance.models import NodeExpectation, SettingState
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
"""What an agent can say of a key that it never wrote. A key being put back has no written value either."""


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
    rows = []
    for target in targets:
        for wanted in target.settings:
            known = earlier.get((target.node_id, wanted.key))
            keeps = known is not None and known.has_original and not (wanted.is_untouched and known.written is None)
            rows.append(
                SettingState(
                    node_id=target.node_id,
                    key=wanted.key,
                    operator=wanted.operator,
                    desired=wanted.value,
                    written=known.written if known else None,
                    effective=wanted.original,
                    original=known.original if known and keeps else wanted.original,
                    has_original=True,
                    state=State.COMPLIANT
                    if satisfied(wanted.operator, wanted.value, wanted.original)
                    else State.PENDING,
                    rollout_id=rollout_id,
                    since=at,
                )
            )
        for key in target.dropped:
            known = earlier.get((target.node_id, key))
            if known is not None:
                known.operator, known.desired = "=", known.original or ""
                known.state, known.rollout_id, known.since = State.PENDING, rollout_id, at
                rows.append(known)
    kept = {(t.node_id, key) for t in targets for key in (*(w.key for w in t.settings), *t.dropped)}
    # Wanted once, never written, and wanted no more: there is nothing to put back, and nothing to be compliant with.
    over = [row.pk for at_key, row in earlier.items() if at_key not in kept and row.written is None]
    SettingState.objects.filter(pk__in=over).delete()
    expectations = []
    for target in targets:
        known_target = past.get(target.node_id)
        same_rollout = known_target is not None and known_target.rollout_id == rollout_id
        previous = None if known_target is None else known_target.previous if same_rollout else known_target.revision
        expectations.append(
            NodeExpectation(
                node_id=target.node_id, revision=target.revision, previous=previous, rollout_id=rollout_id, since=at
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
        update_fields=["revision", "previous", "rollout_id", "since"],
    )


def untouched(tuning: NodeTuning | None) -> frozenset[str]:
    """Keys that were asked of the node's agent and that it says it never wrote."""
    reports = tuning.status.get("settings", ()) if tuning else ()
    return frozenset(r["key"] for r in reports if r.get("written") is None and r.get("state") in NOTHING_WRITTEN)


def originals(tunings: Mapping[int, NodeTuning | None]) -> dict[int, dict[str, str | None]]:
    """By node, what Setpoint may have to put back: originals of keys that it wrote, or may have written."""
    out: dict[int, dict[str, str | None]] = defaultdict(dict)
    never = {node_id: untouched(tuning) for node_id, tuning in tunings.items()}
    rows = SettingState.objects.filter(node_id__in=list(tunings), has_original=True)
    for node_id, key, original, written in rows.values_list("node_id", "key", "original", "written"):
        if written is not None or key not in never[node_id]:
            out[node_id][key] = original
    return out


def forget(keys: Mapping[int, Iterable[str]]) -> None:
    """These keys are restored: Setpoint wants nothing there any more."""
    for node_id, names in keys.items():
        SettingState.objects.filter(node_id=node_id, key__in=list(names)).delete()


def observe(cluster_id: UUID, node_ids: Sequence[int]) -> None:
    """Take the agents' answers into the setting states of these nodes. Writes only rows that differ."""
    tunings = NodeTuning.objects.filter(node_id__in=node_ids).only("node_id", "status", "observed")
    answers = {t.node_id: t for t in tunings}
    changed = []
    at = now()
    for row in SettingState.objects.filter(node_id__in=node_ids):
        answer = answers.get(row.node_id)
        if answer is None or not _take(row, answer):
            continue
        changed.append(row)
    for row in changed:
        row.since = at if row.since is None else row.since
    if changed:
        with transaction.atomic():
            # An upsert is many times faster than bulk_update; the lock keeps it from bringing back what was forgotten.
            locked = SettingState.objects.select_for_update().filter(node_id__in=node_ids)
            still = set(locked.values_list("pk", flat=True))
            SettingState.objects.bulk_create(
                [row for row in changed if row.pk in still],
                batch_size=500,
                update_conflicts=True,
                unique_fields=["id"],
                update_fields=["written", "effective", "state", "reason", "since"],
            )


def _take(row: SettingState, answer: NodeTuning) -> bool:
    """Apply one answer to one row; whether anything changed."""
    report = next((s for s in answer.status.get("settings", ()) if s.get("key") == row.key), None)
    effective = report.get("effective") if report else answer.observed.get(row.key, row.effective)
    written = (report.get("written") if report else None) or row.written  # once written, it is to be put back
    state, reason = judge(row, effective, report)
    if (effective, written, state, reason) == (row.effective, row.written, row.state, row.reason):
        return False
    if state != row.state:
        row.since = now()
    row.effective, row.written, row.state, row.reason = effective, written, state, reason
    return True


def judge(row: SettingState, effective: str | None, report: Mapping[str, Any] | None) -> tuple[str, str]:
    """Compliance of one key and why. Effective means compliant; anything else depends on what was there before."""
    said = (report or {}).get("state", "")
    reason = str((report or {}).get("reason", ""))[:512]
    if satisfied(row.operator, row.desired, effective):
        return State.COMPLIANT, ""
    if said in (SettingStatus.DRIFTED, SettingStatus.CONTENDED, SettingStatus.MOVED):
        return State.DRIFTED, reason
    if said in (SettingStatus.NOT_EFFECTIVE, SettingStatus.FAILED, SettingStatus.UNSUPPORTED, SettingStatus.DENIED):
        return State.DRIFTED, reason
    if row.state in (State.COMPLIANT, State.DRIFTED):
        return State.DRIFTED, reason
    return State.PENDING, reason


def counts(nodes: Any) -> dict[str, int]:
    """Nodes by compliance: the worst of a node's settings; nodes without any expectation count as unassigned."""
    states: dict[int, str] = {}
    rank = {State.COMPLIANT: 0, State.PENDING: 1, State.UNKNOWN: 2, State.DRIFTED: 3}
    for node_id, state in SettingState.objects.filter(node__in=nodes).values_list("node_id", "state").distinct():
        if node_id not in states or rank[state] > rank[states[node_id]]:  # type: ignore[index]
            states[node_id] = state
    out = {str(s): 0 for s in State}
    for state in states.values():
        out[state] += 1
    return out


def left_behind(cluster_id: UUID) -> list[str]:
    """What a disconnected cluster keeps of ours: values without the record of their originals."""
    held = SettingState.objects.filter(node__cluster_id=cluster_id, node__gone_at=None, has_original=True)
    settings, nodes = held.count(), held.values("node").distinct().count()
    if not settings:
        return []
    sentence = (
        f"{settings} settings on {nodes} nodes stay as they are. Their originals are forgotten here and remain only in "
        "the journal of each host: revert first if they are to be put back."
    )
    return [sentence]
