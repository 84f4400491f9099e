"""Off their profile, and slower than their peers: both facts of each node joined when they are read, for pages, REST
and files. That two things are true of one node makes neither the other's cause; every page that shows them says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import django_filters
from django.db.models import Case, CharField, Count, IntegerField, Max, Prefetch, Q, QuerySet, Value, When

from accounts.models import User
from accounts.permissions import restrict
from clusters.inventory.job_role import STAGE, has_stage
from clusters.models import Cluster
from common import hooks
from common.filtering import ClusterReferenceFilter
from compliance.models import Assignment, ComplianceState, NodeStanding, SettingState
from compliance.reports import selectors
from compliance.reports.exports import ExportKind, Record
from gpus.effects import measures, reports
from gpus.models import NodePace
from gpus.peers import comparison, job
from gpus.reports.selectors import HEAVY

if TYPE_CHECKING:
    from typing import TypedDict

    from django_stubs_ext import WithAnnotations

    class Joined(TypedDict):
        """Annotations of the queries: the node's place on the compliance axis, and both facts in one word."""

        shown: str
        cell: str

    JoinedPace = WithAnnotations[NodePace, Joined]
else:
    JoinedPace = NodePace

OFF = (ComplianceState.DRIFTED,)
"""Off its profile: another value is effective than was approved for it. A node whose turn has not come (pending) still
runs what it is expected to, so it is neither off its profile nor on it."""
OFF_SLOWER, ON_SLOWER, SLOWER, OFF_LEVEL, ON_LEVEL, LEVEL, FEW = (
    "off-slower", "on-slower", "slower", "off-level", "on-level", "level", "few",
)  # fmt: skip
CELLS: Mapping[str, str] = {
    OFF_SLOWER: "Non-compliant and underperforming",
    ON_SLOWER: "Compliant and underperforming",
    SLOWER: "Underperforming, compliance pending, unknown or without target",
    OFF_LEVEL: "Non-compliant, performing like peers",
    ON_LEVEL: "Compliant, performing like peers",
    LEVEL: "Performing like peers, compliance pending, unknown or without target",
    FEW: "Not enough to compare",
}
"""Every node that was looked at is in one of these; over any set of nodes they sum to its size."""
SHOWN = 3
"""Rows on other pages than their own."""
MOST_KEYS = 4


# ── queries ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def rows(user: User) -> QuerySet[JoinedPace]:
    """Present nodes with `cell` and `shown`; nothing else is joined to them."""
    paces = NodePace.objects.filter(node__gone_at=None).annotate(shown=selectors.shown_of_node("node__"))
    return restrict(paces.annotate(cell=_cell()), user)


def whole(user: User) -> QuerySet[JoinedPace]:
    """Return the nodes with all that a row of a list shows, including their settings that are not compliant."""
    off_settings = SettingState.objects.exclude(state=ComplianceState.COMPLIANT).order_by("key")
    target = "node__standing__pool__assignment__revision"
    paces = rows(user).select_related("cluster", f"{target}__profile")
    paces = paces.defer(*(f"node__{name}" for name in HEAVY), f"{target}__content", f"{target}__source")
    return paces.prefetch_related(Prefetch("node__settings", queryset=off_settings, to_attr="off_settings"))


def _cell() -> Case:
    slower, level = Q(verdict=NodePace.Verdict.SLOWER), Q(verdict=NodePace.Verdict.LEVEL)
    off, on = Q(shown__in=OFF), Q(shown=ComplianceState.COMPLIANT)
    parts = ((slower & off, OFF_SLOWER), (slower & on, ON_SLOWER), (slower, SLOWER), (level & off, OFF_LEVEL),
             (level & on, ON_LEVEL), (level, LEVEL))  # fmt: skip
    return Case(*(When(where, then=Value(name)) for where, name in parts), default=Value(FEW), output_field=CharField())


def worst_first(paces: QuerySet[JoinedPace]) -> QuerySet[JoinedPace]:
    rank = Case(*(When(cell=name, then=Value(place)) for place, name in enumerate(CELLS)), output_field=IntegerField())
    return paces.alias(rank=rank).order_by("rank", "gap", "node__name", "pk")


def count(paces: QuerySet[JoinedPace]) -> dict[str, int]:
    """Count the nodes by cell, each named. One query."""
    counted = dict(paces.order_by().values_list("cell").annotate(n=Count("pk")))
    return {name: counted.get(name, 0) for name in CELLS}


class PaceFilter(django_filters.FilterSet):  # type: ignore[misc]
    """`cell` and `state` may be given several times."""

    cell = django_filters.MultipleChoiceFilter(
        choices=list(CELLS.items()), distinct=False, help_text="Both facts of a node at once."
    )
    verdict = django_filters.ChoiceFilter(choices=NodePace.Verdict.choices)
    state = django_filters.MultipleChoiceFilter(
        field_name="shown",
        distinct=False,
        choices=NodeStanding.STATES,
        help_text="The node's place on the compliance axis.",
    )
    signal = django_filters.ChoiceFilter(choices=[(name, name) for name in comparison.BY_NAME])
    cluster = ClusterReferenceFilter()
    environment = django_filters.ChoiceFilter(field_name="cluster__environment", choices=Cluster.Environment.choices)
    model = django_filters.CharFilter(max_length=120, lookup_expr="icontains", help_text="A part of the GPUs' model.")
    name = django_filters.CharFilter(
        field_name="node__name", lookup_expr="icontains", max_length=253, help_text="A part of the node's name."
    )

    class Meta:
        model = NodePace
        fields: list[str] = []


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class SignalLine:
    """One signal of one node, every number a text with its unit."""

    title: str
    value: str
    usual: str
    change: str
    is_slower: bool
    hint: str
    """What being lower points to; of a signal that is not."""


def lines(row: NodePace) -> list[SignalLine]:
    out = []
    for reading in row.signals:
        signal, measure = comparison.BY_NAME.get(reading["signal"]), measures.BY_NAME.get(reading["signal"])
        if signal is None or measure is None:
            continue
        is_slower = row.verdict == NodePace.Verdict.SLOWER and _is_below(row, reading)
        value, usual = (reports.level(measure, reading[name]) for name in ("value", "usual"))
        out.append(
            SignalLine(
                measure.title, value, usual, percent(reading["gap"]), is_slower, signal.hint if is_slower else ""
            )
        )
    return sorted(out, key=lambda line: not line.is_slower)


def _is_below(row: NodePace, reading: Mapping[str, Any]) -> bool:
    return row.in_common in comparison.BY_NAME[reading["signal"]].decides and reading["gap"] < reading["bound"]


def percent(gap: float | None) -> str:
    """`30 % below`"""
    if gap is None:
        return reports.DASH
    whole = f"{abs(gap) * 100:.0f}"
    return "as usual" if whole == "0" else f"{whole} % {'below' if gap < 0 else 'above'}"


def peers(row: NodePace) -> str:
    """`13 peers at the job team-llm/llm-pretrain as worker with 8 GPUs a pod`"""
    among = {comparison.JOB: "at the job", comparison.REPLICAS: "among the replicas of"}.get(row.in_common)
    return f"{row.peers:,} peers {among or 'in the namespace'} {_group(row)}"


def _group(row: NodePace) -> str:
    """`team-llm/llm-pretrain as worker with 8 GPUs a pod`"""
    role = f" as {row.role}" if row.role else ""
    return f"{row.work}{role}{f' with {row.pod_gpus:,} GPU{_s(row.pod_gpus)} a pod' if row.pod_gpus else ''}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def caution(row: NodePace) -> str:
    """Return what a verdict, or its absence, does not tell; empty where there is nothing to add."""
    if row.in_common == comparison.NAMESPACE and row.verdict != NodePace.Verdict.FEW:
        return "Their jobs differ, so only the SM clock counts."
    if row.in_common == comparison.REPLICAS and row.verdict != NodePace.Verdict.FEW:
        return "Replicas may have different loads, so only the SM clock counts."
    is_slower = row.verdict == NodePace.Verdict.SLOWER
    below = {reading["signal"] for reading in row.signals if is_slower and _is_below(row, reading)}
    if below and below <= comparison.OF_LOADS and not has_stage(row.role):
        return f"A pipeline stage with less work looks the same, unless pods name their stage ({STAGE})."
    return ""


def few(row: NodePace) -> str:
    """Return why a node is not compared."""
    if row.hours < comparison.FEWEST_HOURS:
        hours = f"{row.hours} hour{_s(row.hours)}"
        return f"At work in {hours} of the last {job.HOURS}; {comparison.FEWEST_HOURS} are needed."
    if not row.work:
        least = f"fewer than {comparison.FEWEST_PEERS} other nodes"
        return f"At work for {row.hours} hours, but {least} with this model did comparable work at the same time."
    peers_ = f"At work for {row.hours} hours at {_group(row)}: {row.peers:,} other node{_s(row.peers)}"
    if row.peers < comparison.FEWEST_PEERS:
        return f"{peers_} with the same GPUs did the same; {comparison.FEWEST_PEERS} are needed."
    if row.in_common == comparison.REPLICAS:
        return f"{peers_} did the same, but replicas may have different loads, and too few were busy at the same time."
    return f"{peers_} did the same, but not in {comparison.FEWEST_HOURS} hours."


# ── pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def card(user: User, *, within: Q, query: str) -> dict[str, Any]:
    """Return the card of other pages: the counts, and the first nodes of which both are true. At most three queries.

    `query` narrows the list behind the links to the same nodes; `within` is the same as a condition.
    """
    counts = count(rows(user).filter(within))
    entries = [entry(row) for row in worst_first(whole(user).filter(within, cell=OFF_SLOWER))[:SHOWN]] if (
        counts[OFF_SLOWER]
    ) else []  # fmt: skip
    return {"counts": counts, "total": sum(counts.values()), **grid(counts), "rows": entries, "query": query}


def grid(counts: Mapping[str, int]) -> dict[str, Any]:
    """The two facts crossed: a row for each of slower and not slower, with the cells in the columns' order."""
    lines_ = (("Slower", (OFF_SLOWER, ON_SLOWER, SLOWER)), ("Not slower", (OFF_LEVEL, ON_LEVEL, LEVEL)))
    compared, both = sum(number for name, number in counts.items() if name != FEW), counts[OFF_SLOWER]
    return {
        "grid": [(word, [(name, counts[name], CELLS[name]) for name in cells]) for word, cells in lines_],
        "compared": compared,
        "few": counts[FEW],
        "both": both,
        "headline": headline(compared, both),
    }


def headline(compared: int, both: int) -> str:
    """Count the compared nodes that are both non-compliant and slower."""
    if not compared:
        return "Nothing to compare yet."
    if not both:
        return "No node is both non-compliant and slower than its peers."
    nodes, their = ("node is", "its") if both == 1 else ("nodes are", "their")
    return (
        f"{both:,} {nodes} non-compliant and slower than {their} peers: with the same GPUs, at the same work, in the "
        "same hours."
    )


def entry(row: JoinedPace) -> dict[str, Any]:
    """A row of `whole` as templates have it."""
    node: Any = row.node
    standing: NodeStanding | None = getattr(node, "standing", None)
    pool = standing.pool if standing else None
    assignment: Assignment | None = getattr(pool, "assignment", None) if pool else None
    is_off = row.shown in OFF
    return {
        "row": row,
        "node": node,
        "shown": row.shown,
        "cell": row.cell,
        "is_off": is_off,
        "off_settings": node.off_settings[:MOST_KEYS] if is_off else [],
        "more_off_settings": max(0, len(node.off_settings) - MOST_KEYS) if is_off else 0,
        "standing": standing,
        "assignment": assignment,
        "was_slower_before": bool(is_off and row.since and standing and row.since < standing.since),
        "lines": lines(row),
        "peers": peers(row),
        "few": few(row),
        "caution": caution(row),
        "plan": None,
        "rollout": None,
    }


def mended(entries: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Add to each entry the plan, or the rollout, that would bring the node to its profile. Two queries."""
    off = [node_entry for node_entry in entries if node_entry["is_off"] and node_entry["assignment"]]
    if not off:
        return entries
    plans: dict[tuple[int, int], hooks.WorkRef] = {}
    for node, plan in hooks.plans_of_nodes([node_entry["node"].pk for node_entry in off]):
        plans.setdefault((node, plan.revision_id), plan)
    rollouts: dict[tuple[int, int], hooks.WorkRef] = {}
    for ref in hooks.rollouts_of_pools(sorted({node_entry["assignment"].pool_id for node_entry in off})):
        rollouts.setdefault((ref.pool_id, ref.revision_id), ref)
    for node_entry in off:
        target = node_entry["assignment"]
        node_entry["plan"] = plans.get((node_entry["node"].pk, target.revision_id))
        node_entry["rollout"] = rollouts.get((target.pool_id, target.revision_id))
    return entries


def until(user: User) -> Any:
    """The end of the last hour that any of the rows knows; None without rows. One query."""
    return restrict(NodePace.objects.all(), user).aggregate(last=Max("until"))["last"]


def of_node(row: NodePace | None) -> dict[str, Any] | None:
    """One line for a node's page; None where it was not looked at yet."""
    if row is None:
        return None
    return {
        "row": row,
        "lines": [line for line in lines(row) if line.is_slower],
        "peers": peers(row),
        "few": few(row),
        "caution": caution(row),
    }


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def _records(paces: Sequence[JoinedPace]) -> Iterable[Record]:
    for row in paces:
        node: Any = row.node
        by_signal = {reading["signal"]: reading for reading in row.signals}
        numbers = {
            f"{name}_{what}": by_signal.get(name, {}).get(what)
            for name in comparison.BY_NAME
            for what in ("value", "usual", "gap")
        }
        yield {
            "cluster": row.cluster.name, "node": node.name, "node_uid": node.uid, "model": row.model,
            "cell": row.cell, "verdict": row.verdict, "state": row.shown,
            "off_settings": [setting.key for setting in node.off_settings] if row.shown in OFF else [],
            "signal": row.signal, "gap": row.gap, "since": _instant(row.since), "hours": row.hours,
            "peers": row.peers, "in_common": row.in_common, "work": row.work, **numbers, "until": _instant(row.until),
            "role": row.role, "pod_gpus": row.pod_gpus, "caution": caution(row),
            "reason": few(row) if row.verdict == NodePace.Verdict.FEW else "",
        }  # fmt: skip


def _instant(value: Any) -> str:
    return value.isoformat(timespec="seconds").replace("+00:00", "Z") if value else ""


FILE = ExportKind(
    (
        "cluster", "node", "node_uid", "model", "cell", "verdict", "state", "off_settings", "signal", "gap", "since",
        "hours", "peers", "in_common", "work",
        *(f"{name}_{what}" for name in comparison.BY_NAME for what in ("value", "usual", "gap")), "until",
        "role", "pod_gpus", "caution", "reason",
    ),
    _records,
)  # fmt: skip
