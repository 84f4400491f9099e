"""Each node's place on the compliance axis, rolled up when something of it is written.

Pages count rows instead of a hundred settings a node, and a quiet fleet writes nothing: only standings that differ are
stored. Computed from rows that are read after the standings are locked, so two writers cannot leave an older truth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import transaction

from clusters.models import Node, Pool
from clusters.objects import selects
from clusters.services.pools import matching
from common.clock import now
from compliance.models import Assignment, ComplianceState, NodeStanding, SettingState

FIELDS = ("pool_id", "state", "reason", "settings", "drifted", "pending", "lacking", "is_joining")
CHUNK = 500
WORST_FIRST = (ComplianceState.DRIFTED, ComplianceState.UNKNOWN, ComplianceState.PENDING, ComplianceState.COMPLIANT)


@dataclass(slots=True)
class StandingInputs:
    """Inputs of one node's standing."""

    labels: Mapping[str, str]
    cluster_id: UUID
    deaf: str
    """Why its values cannot be known; empty when its agent answers."""
    expected: int | None = None
    """The revision that it is expected to run."""
    is_begun: bool = False
    """A step once began here."""
    states: list[tuple[str, str, str]] = field(default_factory=list)
    """(state, key, reason) of each assigned setting."""


def renew(
    node_ids: Iterable[int], *, lacking: Mapping[int, Sequence[str]] | None = None, is_assigned: bool = False
) -> int:
    """Roll these nodes up again; returns how many standings were written.

    `lacking`: news of keys they do not have. `is_assigned`: their pool was given a target just now, so nodes that find
    themselves in it did not join.
    """
    written = 0
    for chunk in _chunks(sorted(set(node_ids))):
        with transaction.atomic():
            known = {s.pk: s for s in NodeStanding.objects.select_for_update().filter(pk__in=chunk).order_by("pk")}
            written += _renew(chunk, known, lacking or {}, is_assigned=is_assigned)
    return written


def renew_pool(pool: Pool, *, known_up_to: int | None = None) -> None:
    """The pool's target changed: the state of every node it holds, or held, changes.

    Nodes with a key greater than `known_up_to` came after the plan for it was made: they joined.
    """
    standings = NodeStanding.objects.filter(pool=pool).values_list("pk", flat=True)
    pks = {*standings, *matching(pool).values_list("pk", flat=True)}
    joined = {pk for pk in pks if known_up_to is not None and pk > known_up_to}
    renew(pks - joined, is_assigned=True)
    renew(joined)


def renew_all(cluster_id: UUID) -> int:
    """Every present node: the safety net for what no change announced."""
    return renew(Node.objects.present().filter(cluster=cluster_id).values_list("pk", flat=True))


def _renew(
    node_ids: Sequence[int],
    known: Mapping[int, NodeStanding],
    lacking: Mapping[int, Sequence[str]],
    *,
    is_assigned: bool,
) -> int:
    facts = _facts(node_ids)
    targets = _targets({f.cluster_id for f in facts.values()})
    at, differing = now(), []
    for pk, seen in facts.items():
        before = known.get(pk)
        fresh = _judge(pk, seen, targets.get(seen.cluster_id, ()), before, is_assigned=is_assigned)
        fresh.lacking = list(lacking.get(pk, before.lacking if before else ()))
        if before is None or any(getattr(fresh, name) != getattr(before, name) for name in FIELDS):
            fresh.since = before.since if before and before.state == fresh.state else at
            differing.append(fresh)
    if differing:
        NodeStanding.objects.bulk_create(
            differing,
            batch_size=CHUNK,
            update_conflicts=True,
            unique_fields=["node"],
            update_fields=["since", *(name.removesuffix("_id") for name in FIELDS)],
        )
    return len(differing)


def _facts(node_ids: Sequence[int]) -> dict[int, StandingInputs]:
    agents = ("tuning__protocol", "tuning__malformed", "tuning__status__conditions", "tuning__status__settings")
    columns = ("pk", "cluster_id", "labels", "expectation__node_id", "expectation__revision_id", *agents)
    facts = {}
    for pk, cluster, labels, begun, expected, *answer in Node.objects.filter(pk__in=node_ids).values_list(*columns):
        facts[pk] = StandingInputs(labels, cluster, _deaf(*answer), expected, is_begun=begun is not None)
    states = SettingState.objects.filter(node__in=node_ids).order_by("key")
    for pk, *state in states.values_list("node_id", "state", "key", "reason"):
        if pk in facts:
            facts[pk].states.append((state[0], state[1], state[2]))
    return facts


def _deaf(protocol: int | None, malformed: str | None, conditions: Sequence[Any] | None, reports: object) -> str:
    """Return why an agent's answer is unusable; empty where it is usable. Null: the node has no agent's object."""
    if not protocol:
        return "No agent has answered there yet."
    if malformed:
        return f"The agent's answer cannot be read: {malformed}"
    degraded: Mapping[str, Any] = next(
        (c for c in conditions or () if c.get("type") == "Degraded" and c.get("status") == "True"), {}
    )
    if degraded and not reports:  # an agent that refuses to work reports no setting at all
        return f"The agent refuses to work: {degraded.get('message') or degraded.get('reason')}"
    return ""


def _targets(cluster_ids: Iterable[UUID]) -> dict[UUID, list[Assignment]]:
    """Assigned pools by cluster, the newest first: where two hold one node, the newer assignment has it."""
    out: dict[UUID, list[Assignment]] = defaultdict(list)
    rows = (
        Assignment.objects.filter(pool__cluster__in=list(cluster_ids))
        .select_related("pool", "revision__profile")
        .defer("revision__source", "revision__content")
    )
    for assignment in rows.order_by("-set_at", "-pk"):
        out[assignment.pool.cluster_id].append(assignment)
    return out


def _judge(
    pk: int, seen: StandingInputs, targets: Sequence[Assignment], before: NodeStanding | None, *, is_assigned: bool
) -> NodeStanding:
    target = next((a for a in targets if selects(a.pool.selector, seen.labels)), None)
    states = [state for state, *_ in seen.states]
    fresh = NodeStanding(
        node_id=pk,
        pool_id=target.pool_id if target else None,
        settings=len(states),
        drifted=states.count(ComplianceState.DRIFTED),
        pending=states.count(ComplianceState.PENDING),
    )
    if target is not None and not seen.is_begun and not states:
        was_there = before is not None and before.pool_id == target.pool_id
        fresh.is_joining = before.is_joining if before and was_there else not is_assigned
    fresh.state, reason = _state(seen, target, states, is_joining=fresh.is_joining)
    fresh.reason = reason[:300]
    return fresh


def _state(
    seen: StandingInputs, target: Assignment | None, states: Sequence[str], *, is_joining: bool
) -> tuple[str, str]:
    if target is None and seen.expected is None and not states:
        return NodeStanding.UNASSIGNED, ""
    if seen.deaf:
        return ComplianceState.UNKNOWN, seen.deaf
    worst = next((state for state in WORST_FIRST if state in states), ComplianceState.COMPLIANT)
    if worst in (ComplianceState.DRIFTED, ComplianceState.UNKNOWN):
        key, reason = next((key, reason) for state, key, reason in seen.states if state == worst)
        return worst, f"{key}: {reason}" if reason else key
    if target is not None and seen.expected != target.revision_id:
        if is_joining:
            return ComplianceState.PENDING, f"Joined {target.pool.name}; a plan brings it to {target.revision}."
        return (
            ComplianceState.PENDING,
            f"{target.pool.name} is to run {target.revision}; the rollout has not reached it.",
        )
    if worst == ComplianceState.PENDING:
        key, reason = next((key, reason) for state, key, reason in seen.states if state == worst)
        return worst, f"{key}: {reason}" if reason else f"{key} is not effective yet."
    return worst, ""


def _chunks(pks: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(pks), CHUNK):
        yield pks[start : start + CHUNK]
