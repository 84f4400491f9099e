"""Each node of a pool against a revision, from rows alone: what would change, or why it cannot be tuned now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clusters.models import Cluster, GpuPod, Node
from common.clock import now
from compliance.models import NodeExpectation
from compliance.services import expectations
from contract import names as contract_names
from contract import nodetuning
from jobs.diffs import evictions, restore_check
from jobs.diffs.changes import Changes
from jobs.diffs.node_diff import NOTHING, NodeComparison, ObservedNode, Pods, Target, changes_or_watch
from jobs.forecast.schedule import Candidate
from jobs.forecast.strategy import Strategy
from jobs.models import Signal
from jobs.planning.node_rows import COMPARING, Progress, unnoted
from profiles.models import Revision

TOLD_EVERY = 250
"""Nodes between two calls of `progress`."""


@dataclass(slots=True)
class PlanDraft:
    """Content of a plan that may be made."""

    candidates: list[Candidate] = field(default_factory=list)
    changes: dict[int, Changes] = field(default_factory=dict)
    left_out: dict[str, list[Node]] = field(default_factory=lambda: defaultdict(list))
    lacking: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    higher: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    compliant: list[Node] = field(default_factory=list)


def compare_nodes(
    cluster: Cluster,
    nodes: list[Node],
    revision: Revision,
    target: Target,
    strategy: Strategy,
    *,
    tolerated: Mapping[str, Pods] | None = None,
    progress: Progress = unnoted,
) -> PlanDraft:
    """Each node against the revision, from rows alone: what changes, or why it cannot be tuned now.

    `tolerated`: by node, what each of its pods tolerates; None: not read, so that every NoExecute taint evicts some.
    """
    draft = PlanDraft()
    comparison, watches = NodeComparison(target), dict[Changes, Changes]()
    originals = expectations.originals({n.pk: getattr(n, "tuning", None) for n in nodes})
    before, expected = _before(nodes)
    pods = gpu_pods(cluster)
    order = order_signals(nodes)
    unknown = restore_check.unknown_steps(n.tuning.spec_step for n in nodes if hasattr(n, "tuning"))
    for number, node in enumerate(nodes):
        if number % TOLD_EVERY == 0:
            progress(COMPARING, number, len(nodes))
        reason = _reason_not_to_tune(node, strategy, cluster, unknown)
        if reason:
            draft.left_out[reason].append(node)
            continue
        there = None if tolerated is None else tolerated.get(node.name, ())
        seen = _observed_node(node, originals.get(node.pk, {}), before.get(node.pk, NOTHING), there)
        difference = comparison.of(seen)
        for key in difference.lacking:
            draft.lacking[key].append(node.name)
        for key in difference.higher:
            draft.higher[key].append(node.name)
        changes = changes_or_watch(
            difference.changes,
            enforce=strategy.enforce,
            mode=node.tuning.mode,
            is_expected=expected.get(node.pk) == revision.pk,
        )
        if not changes.items:
            draft.compliant.append(node)
            continue
        if changes is not difference.changes:
            changes = watches.setdefault(changes, changes)  # one for all nodes that are only told to watch
        draft.changes[node.pk] = changes
        candidate = _candidate(node, changes, pods.get(node.name, []), order.get(node.pk, 0.0))
        if strategy.domain:
            candidate.domain = str(node.labels.get(strategy.domain, ""))
        draft.candidates.append(candidate)
    return draft


def _observed_node(node: Node, originals: Mapping[str, str | None], before: Target, pods: Pods | None) -> ObservedNode:
    return ObservedNode(
        observed=node.tuning.observed,
        labels=node.labels,
        annotations=node.annotations,
        taints=node.taints,
        originals=originals,
        before=before,
        pods=pods,
    )


def _candidate(node: Node, changes: Changes, pods: Sequence[Mapping[str, Any]], signal: float) -> Candidate:
    return Candidate(
        node_id=node.pk,
        name=node.name,
        worst=changes.worst_class,
        is_control_plane=node.is_control_plane,
        gpus=node.gpu_count,
        gpu_pods=pods,
        ending=evictions.ending_pods(pods, changes),
        signal=signal,
        kind=node.gpu_product,
    )


def _reason_not_to_tune(node: Node, strategy: Strategy, cluster: Cluster, unknown: frozenset[str]) -> str:
    """Explain, in a sentence, why a node is left out; empty when it can be tuned."""
    tuning = getattr(node, "tuning", None)
    if tuning is None or tuning.protocol == 0:
        return "No agent has answered there."
    if abs(tuning.protocol - contract_names.PROTOCOL) > contract_names.MAX_SKEW:
        newer = "agent" if tuning.protocol < contract_names.PROTOCOL else "control plane"
        return f"Agent {tuning.agent_version} and this control plane are too far apart: upgrade the {newer}."
    if tuning.malformed:
        return f"The agent's answer cannot be read: {tuning.malformed}."
    if tuning.spec_step in unknown:
        return restore_check.LEFT_OUT
    if tuning.silence(cluster):
        return "The agent has been silent for too long."
    if why := nodetuning.reason_not_to_work(tuning.status):
        return why
    if node.is_driver_busy:
        return f"An operator upgrades their driver ({node.driver_upgrade})."
    if strategy.include_unavailable:
        return ""
    if not node.is_ready:
        return "They are not Ready."
    if node.is_cordoned:
        return "They are cordoned by others."
    return ""


def _before(nodes: list[Node]) -> tuple[dict[int, Target], dict[int, int]]:
    """The target each node is expected to run now, one Target per revision; and that revision's key."""
    rows = NodeExpectation.objects.filter(node__in=nodes, revision__isnull=False)
    expected = {node_id: pk for node_id, pk in rows.values_list("node_id", "revision_id") if pk is not None}
    revisions = Revision.objects.filter(pk__in=set(expected.values())).values_list("pk", "content")
    targets = {pk: Target.of(content) for pk, content in revisions}
    return {node_id: targets[pk] for node_id, pk in expected.items() if pk in targets}, expected


def gpu_pods(cluster: Cluster) -> dict[str, list[dict[str, Any]]]:
    """Return pods that hold GPUs, by node name."""
    out: dict[str, list[dict[str, Any]]] = defaultdict(list)
    fields = ("namespace", "name", "node_name", "gpus", "owner_kind", "owner_name", "started_at", "tolerations")
    for pod in GpuPod.objects.filter(cluster=cluster).exclude(node_name="").values(*fields):
        out[pod["node_name"]].append(pod)
    return out


def order_signals(nodes: Iterable[Node]) -> dict[int, float]:
    """Return the order signals of the rooms above, by node: lower goes first."""
    scopes = {f"node:{n.pk}": n.pk for n in nodes}
    rows = Signal.objects.filter(kind="order", expires_at__gt=now(), scope__startswith="node:")
    return {scopes[s.scope]: float(s.value) for s in rows if s.scope in scopes}
