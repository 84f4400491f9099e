"""Alert rules over the GPUs of a whole node: boards that are lost, and an exporter that is silent.

A node that is down, whose driver is being replaced, or of which nothing is heard is no evidence of either: it is
unknown here, and other rules report it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Min, Q
from django.urls import reverse

from clusters import objects
from clusters.models import Cluster, Node
from common.alerting import AlertCondition, AlertRule, RuleResult, Severity, SubjectKind
from common.clock import now
from gpus.alerts.subjects import blind
from gpus.metrics import xids
from gpus.models import GpuDevice, TelemetrySource

LOST, SILENT = "gpu-lost", "exporter-silent"
KNOWN_FOR = timedelta(days=7)
"""A board that was not seen for longer was taken out on purpose: it is not lost any more."""
COUNT_LABEL, MIG_CONFIG = "nvidia.com/gpu.count", "nvidia.com/mig.config"
"""Of GPU feature discovery and of the MIG manager."""
EXPORTED_FOR = ("nvidia.com/", "amd.com/")
"""Resources whose vendor's exporter Setpoint reads."""
SOURCES = {
    LOST: "the node's capacity and GPU feature discovery's label nvidia.com/gpu.count; boards that were seen before",
    SILENT: "the node's capacity; the last reading",
}
NAMED = 8


def rules() -> Iterator[AlertRule]:
    yield AlertRule(
        LOST,
        "GPU lost",
        "A node that is ready reports fewer GPUs than it has by its capacity and labels, or than it reported before"
        "{lasting}. A GPU with a fatal XID is reported by that rule alone; a node that reports none, by that of silent "
        "exporters.",
        Severity.CRITICAL,
        gpus_lost,
        opens_after=timedelta(minutes=5),
        closes_after=timedelta(minutes=5),
        order=12,
    )
    yield AlertRule(
        SILENT,
        "Exporter silent",
        "A node that is ready has GPUs, and the last reading of the cluster has none of them{lasting}.",
        Severity.WARNING,
        exporters_silent,
        opens_after=timedelta(minutes=5),
        closes_after=timedelta(minutes=2),
        order=52,
    )


@dataclass(frozen=True, slots=True)
class NodeBoards:
    """Boards of one node, by the last reading and by those before."""

    reported: int = 0
    dead: int = 0
    """The reading names them, and has no value of theirs: the driver has lost them."""
    missing: int = 0
    """Seen within KNOWN_FOR, and not in the last reading."""
    missing_since: datetime | None = None

    @property
    def is_silent(self) -> bool:
        return not self.reported and not self.dead


@dataclass(frozen=True, slots=True)
class _World:
    """Subjects of the rules of nodes, and why some are not judged; five queries at most."""

    nodes: list[Node]
    """Ready, with GPUs of an exporter that is read, and with a driver that no one replaces now."""
    unknown: frozenset[str]
    boards: Mapping[str, NodeBoards]
    blind: str = ""
    not_judged: str = ""

    def why_not(self) -> RuleResult | None:
        if self.blind:
            return RuleResult(blind=self.blind)
        return RuleResult(not_judged=self.not_judged, is_unjudged=True) if self.not_judged else None


def _world(cluster_id: UUID) -> _World:
    why = blind(cluster_id)
    if not why:
        cluster = Cluster.objects.get(pk=cluster_id)
        why = "" if cluster.is_current else cluster.why_unknown
    if not why and _answers_in_part(TelemetrySource.objects.get(cluster=cluster_id)):
        why = "Prometheus answers in part: what is missing may be there."
    if why:
        return _World([], frozenset(), {}, why)
    fields = (
        "pk", "uid", "name", "is_ready", "driver_upgrade", "allocatable", "gpu_count", "gpu_product", "gpu_shares",
        "gpu_virtual", "gpus_by_claim", "labels",
    )  # fmt: skip
    # No exporter of the host reports what virtual machines were given.
    offering = Node.objects.present().filter(cluster=cluster_id, gpu_count__gt=F("gpu_virtual"))
    nodes = [
        node
        for node in offering.order_by("name").only(*fields)
        if node.gpus_by_claim or any(resource.startswith(EXPORTED_FOR) for resource in node.allocatable)
    ]
    there = [node for node in nodes if node.is_ready and not node.is_driver_busy]
    unknown = frozenset(node.uid for node in nodes) - {node.uid for node in there}
    boards = _boards(cluster_id)
    return _World(there, unknown, boards, not_judged=_unplaced(cluster_id, boards))


def _unplaced(cluster_id: UUID, boards: Mapping[str, NodeBoards]) -> str:
    """Return why nodes cannot be told from what exporters report: they name none, or none that there is."""
    if not boards:
        return "Not judged: no exporter has reported a GPU here yet."
    here = {name for name, of_node in boards.items() if not of_node.is_silent}
    known = set(Node.objects.present().filter(cluster=cluster_id).order_by().values_list("name", flat=True))
    gpus = sum(boards[name].reported + boards[name].dead for name in here - known)
    return f"Not judged: exporters name no node of the cluster for {gpus:,} GPUs." if gpus else ""


def _boards(cluster_id: UUID) -> dict[str, NodeBoards]:
    seen, dead = Q(missing_since=None), Q(values={})
    lately = Q(missing_since__gte=now() - KNOWN_FOR, is_board=False)
    rows = GpuDevice.objects.hardware().filter(cluster=cluster_id).order_by().values("node_name")
    counts = rows.annotate(
        reported=Count("pk", filter=seen & ~dead),
        dead=Count("pk", filter=seen & dead),
        missing=Count("pk", filter=lately),
        since=Min("missing_since", filter=lately),
    )
    columns = ("node_name", "reported", "dead", "missing", "since")
    return {name: NodeBoards(*about) for name, *about in counts.values_list(*columns)}


# ── A lost GPU ────────────────────────────────────────────────────────────────────────────────────────────────────────
def gpus_lost(cluster_id: UUID, _threshold: float) -> RuleResult:
    """Report what each node lacks. Eight queries, for up to 500 nodes that lack something."""
    world = _world(cluster_id)
    if (why_not := world.why_not()) is not None:
        return why_not
    conditions, unknown = [], set(world.unknown)
    suspects = []
    for node in world.nodes:
        boards = world.boards.get(node.name, NodeBoards())
        if boards.is_silent:
            unknown.add(node.uid)
        elif boards.dead or boards.missing or boards.reported < _expected(node):
            suspects.append((node, boards))
    rows = _rows(cluster_id, [node.name for node, boards in suspects if boards.dead or boards.missing])
    for node, boards in suspects:
        if condition := _of_lost(node, boards, rows.get(node.name, [])):
            conditions.append(condition)
    return RuleResult(conditions, frozenset(unknown))


def _answers_in_part(source: TelemetrySource) -> bool:
    """True where a Prometheus left something out. Of exporters that do not answer each is known by its node."""
    return not source.reads_exporters and source.state == TelemetrySource.State.PARTLY


def _expected(node: Node) -> int:
    """Boards that a node has by the API server's word; 0 where its GPUs are split, for those are parts."""
    if _is_split(node):
        return 0
    label = str(node.labels.get(COUNT_LABEL, ""))
    return max(
        node.gpu_count - node.gpu_virtual, int(label) if label.isascii() and label.isdecimal() and len(label) < 4 else 0
    )


def _is_split(node: Node) -> bool:
    """Return whether MIG is on: its device names are instances, and a GPU without one is reported by no exporter."""
    parts = sum(node.instances.values()) - objects.virtual_count(node.allocatable)
    return parts > 0 or "MIG" in node.gpu_product or node.labels.get(MIG_CONFIG, "all-disabled") not in (
        "", "all-disabled",
    )  # fmt: skip


def _rows(cluster_id: UUID, names: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the boards of these nodes by node name."""
    by_node: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for start in range(0, len(names), 500):
        rows = GpuDevice.objects.hardware().filter(cluster=cluster_id, node_name__in=names[start : start + 500])
        columns = ("node_name", "uuid", "index", "values", "xids", "missing_since", "first_seen_at", "is_board")
        for row in rows.order_by("index", "uuid").values(*columns):
            by_node[row["node_name"]].append(row)
    return by_node


def _of_lost(node: Node, boards: NodeBoards, rows: list[dict[str, Any]]) -> AlertCondition | None:
    """None where all that lacks is explained: by a fatal XID, or by boards that took the place of others."""
    dead = [row for row in rows if row["missing_since"] is None and not row["values"]]
    unexplained = [row for row in dead if not xids.is_fatal(row["xids"])]
    gone: list[dict[str, Any]] = []
    if not _is_split(node):
        since = now() - KNOWN_FOR
        gone = [row for row in rows if row["missing_since"] and row["missing_since"] >= since and not row["is_board"]]
    came = sum(row["missing_since"] is None and row["first_seen_at"] >= (boards.missing_since or now()) for row in rows)
    before = max(0, len(gone) - came) + len(unexplained)
    explained = len(dead) - len(unexplained)
    lost = max(before, _expected(node) - boards.reported - explained)
    if lost <= 0:
        return None
    total = boards.reported + len(dead) + max(0, lost - len(unexplained))
    named = [f"GPU {row['index']} ({row['uuid']})" for row in (*unexplained, *gone)][:NAMED] if before else []
    which = f" No longer reported: {', '.join(named)}." if named else ""
    return AlertCondition(
        SubjectKind.NODE,
        node.uid,
        node.name,
        f"It reports {boards.reported} of its {total} GPUs.{which}",
        mend="Cordon and drain the node, look for the GPU on the PCIe bus and in the kernel's log, and power-cycle it.",
        link=reverse("clusters:node", args=[node.pk]),
        node=node.pk,
        figures={"reported": boards.reported, "expected": total, "lost": lost},
    )


# ── A silent exporter ─────────────────────────────────────────────────────────────────────────────────────────────────
def exporters_silent(cluster_id: UUID, _threshold: float) -> RuleResult:
    """Report nodes of which the last reading has nothing; all of them at once are one condition of the cluster."""
    world = _world(cluster_id)
    if (why_not := world.why_not()) is not None:
        return why_not
    silent = [node for node in world.nodes if world.boards.get(node.name, NodeBoards()).is_silent]
    if len(silent) > 1 and len(silent) == len(world.nodes):
        gpus = sum(node.gpu_count - node.gpu_virtual for node in silent)
        condition = AlertCondition(
            SubjectKind.CLUSTER,
            str(cluster_id),
            Cluster.objects.get(pk=cluster_id).name,
            f"None of its {len(silent):,} nodes with GPUs is in the last reading.",
            mend="See the data quality panel of the cluster's GPU page for what does not answer.",
            link=reverse("gpus:cluster", args=[cluster_id]),
            figures={"nodes": len(silent), "gpus": gpus},
        )
        return RuleResult([condition], world.unknown | {node.uid for node in silent})
    since = {node.name: world.boards[node.name].missing_since for node in silent if node.name in world.boards}
    return RuleResult([_of_silent(node, since.get(node.name)) for node in silent], world.unknown)


def _of_silent(node: Node, since: datetime | None) -> AlertCondition:
    return AlertCondition(
        SubjectKind.NODE,
        node.uid,
        node.name,
        f"It is ready, and nothing is known of its GPUs: {node.gpu_words}.",
        mend="Look at the exporter's pod on this node: is there one, does it run, and does it answer?",
        link=reverse("clusters:node", args=[node.pk]),
        node=node.pk,
        since=since,
        figures={"gpus": node.gpu_count - node.gpu_virtual},
    )
