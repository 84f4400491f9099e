"""A cluster's GPUs as one picture: which of them, in which order and groups, and the numbers that a canvas draws.

The filters are in the address, so that a picture can be shared; the table behind it has the same
nodes in the same order. An unknown filter is reported, and not applied.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from accounts.models import User
from accounts.permissions import restrict
from clusters import objects
from clusters.models import Cluster, Node, Pool
from compliance.models import NodeExpectation
from gpus.metrics import boards, states, xids
from gpus.metrics.samples import Metric
from gpus.reports.selectors import Gpu, GpuNode
from gpus.storage.node_snapshot import model_name

RATIO, NUMBER = "ratio", "number"
METRICS: dict[str, tuple[str, str, float, str]] = {
    "busy": ("Busy", RATIO, 1, "%"),
    "engine": ("Engine", RATIO, 1, "%"),
    "sm": ("SM", RATIO, 1, "%"),
    "tensor": ("Tensor", RATIO, 1, "%"),
    "ofu": ("OFU", RATIO, 1, "%"),
    "memory": ("Memory", RATIO, 1, "%"),
    "power": ("Power", NUMBER, 700, "W"),
    "temperature": ("Temperature", NUMBER, 90, "°C"),
}
"""By name: word, kind, what the darkest step means, unit."""
NO_POOL, NO_RACK, NO_REVISION = "no pool", "no rack label", "no revision"
RACK_LABELS = (
    "topology.setpoint.dev/rack",
    "topology.kubernetes.io/rack",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-subblock",
    "nvidia.com/gpu.clique",
)
"""The first that a node has: nothing standardizes racks. Sites' own; then clouds' nearest, by their documentation."""
MOST_TEXT = 253
WORD = {
    states.EFFECTIVE: "Effective",
    states.LOW: "Low",
    states.HELD: "Held idle",
    states.FREE: "Free",
    states.NONE: "No data",
}
GROUPS = {"": "None", "pool": "Pool", "rack": "Rack", "model": "Model", "revision": "Revision"}
ORDERS = {
    "name": "Name",
    "worst": "Worst first",
    "idle": "Most held idle",
    "busy": "Busiest",
    "quiet": "Least busy",
    "hot": "Hottest",
    "free": "Most free",
}
FIELDS = ("metric", "order", "group", "state", "model", "pool", "revision", "q")


@dataclass(slots=True)
class HeatmapQuery:
    """Heatmap options from a URL's query."""

    metric: str = "busy"
    order: str = "name"
    group: str = ""
    state: str = ""
    model: str = ""
    pool: str = ""
    revision: str = ""
    q: str = ""
    errors: list[str] = field(default_factory=list)
    """What was asked and is not there, in sentences."""

    @property
    def is_narrowed(self) -> bool:
        return bool(self.state or self.model or self.pool or self.revision or self.q)

    @property
    def bare(self) -> str:
        """The same picture of all GPUs."""
        return self.address(state="", model="", pool="", revision="", q="")

    def address(self, **other: str) -> str:
        """The query that asks for this but for `other`."""
        fields = {name: other.get(name, getattr(self, name)) for name in FIELDS}
        default = dict.fromkeys(FIELDS, "") | {"metric": "busy", "order": "name"}
        return urlencode({name: value for name, value in fields.items() if value != default[name]})


def wish(params: Mapping[str, str]) -> HeatmapQuery:
    """Models, pools and revisions are not judged here: one that is gone leaves an empty picture, which says so."""
    model, pool, revision, q = (params.get(name, "").strip()[:MOST_TEXT] for name in ("model", "pool", "revision", "q"))
    read_query = HeatmapQuery(model=model, pool=pool, revision=revision, q=q)
    known: dict[str, Mapping[str, Any]] = {"metric": METRICS, "order": ORDERS, "group": GROUPS, "state": WORD}
    for name, values in known.items():
        word = params.get(name, "")
        if word in values:
            setattr(read_query, name, word)
        elif word:
            read_query.errors.append(f"There is no {name} “{word[:40]}”: not applied.")
    return read_query


@dataclass(slots=True)
class NodePlaces:
    """Pool, rack and revision of a cluster's nodes, by the node's key. Only what was asked for is filled in."""

    pools: dict[int, str] = field(default_factory=dict)
    racks: dict[int, str] = field(default_factory=dict)
    revisions: dict[int, str] = field(default_factory=dict)
    known_revisions: set[tuple[str, int]] | None = None
    """Profile and number, of any node."""


def places(
    user: User, cluster: Cluster, query: HeatmapQuery, nodes: Iterable[GpuNode], pools: Iterable[Pool]
) -> NodePlaces:
    """Return the nodes' places, with at most one query. The nodes must have labels if `needs_labels` says so."""
    node_places = NodePlaces()
    if needs_labels(query):
        chosen = sorted(pools, key=lambda pool: pool.name)
        for node in nodes:
            names = [pool.name for pool in chosen if objects.selects(pool.selector, node.labels)]
            node_places.pools[node.pk] = ", ".join(names) or NO_POOL
            node_places.racks[node.pk] = next(
                (node.labels[key] for key in RACK_LABELS if node.labels.get(key)), NO_RACK
            )
    if needs_revisions(query):
        rows = NodeExpectation.objects.filter(node__in=_present(user, cluster)).exclude(revision=None)
        node_places.known_revisions = set()
        for pk, profile, number in rows.values_list("node_id", *_REVISION):
            node_places.revisions[pk] = f"{profile} r{number}"
            node_places.known_revisions.add((profile, number))
    return node_places


_REVISION = ("revision__profile__name", "revision__number")


def needs_labels(query: HeatmapQuery) -> bool:
    return query.group in ("pool", "rack") or bool(query.pool)


def needs_revisions(query: HeatmapQuery) -> bool:
    return query.group == "revision" or bool(query.revision)


def _present(user: User, cluster: Cluster) -> Any:
    return restrict(Node.objects.present(), user).filter(cluster=cluster).order_by()


@dataclass(slots=True)
class HeatmapNode:
    """A node of the picture."""

    node: GpuNode
    group: str
    gpus: list[Gpu]
    missing: int
    """GPUs that the API server offers and telemetry does not know."""

    def count(self, state: str) -> int:
        return sum(gpu.state == state for gpu in self.gpus)


def parts(nodes: Iterable[GpuNode], query: HeatmapQuery, where: NodePlaces) -> list[HeatmapNode]:
    """The nodes that are left, with those of their GPUs that are, group by group in the order asked for.

    Groups stand by name; within each, nodes that are equal in the order's eyes stand by theirs.
    """
    key = _key(query.order)
    left = [part for node in nodes if (part := _part(node, query, where)) is not None]
    left.sort(key=lambda part: (part.group, key(part), counted(part.node.name)))
    return left


_NUMBER = re.compile(r"[0-9]+")


def counted(name: str) -> str:
    """A name to sort by, as people count: gpu-9, gpu-10, gpu-100."""
    return _NUMBER.sub(lambda match: match[0].zfill(20), name)


def _part(node: GpuNode, query: HeatmapQuery, where: NodePlaces) -> HeatmapNode | None:
    if query.pool and query.pool not in where.pools.get(node.pk, NO_POOL).split(", "):
        return None
    if query.revision and where.revisions.get(node.pk, NO_REVISION) != query.revision:
        return None
    if query.model and model_of(node) != query.model:
        return None
    gpus, missing = node.gpus, max(0, node.offered - len(node.gpus))
    text = query.q.lower()
    if text and text not in node.name.lower():
        gpus = [gpu for gpu in gpus if any(text in f"{holder[0]}/{holder[1]}".lower() for holder in gpu.holders)]
        missing = 0
    if query.state:
        gpus = [gpu for gpu in gpus if gpu.state == query.state]
        missing = missing if query.state == states.NONE else 0
    if not gpus and not missing:
        return None
    by_group: dict[str, Callable[[], str]] = {
        "pool": lambda: where.pools.get(node.pk, NO_POOL),
        "rack": lambda: where.racks.get(node.pk, NO_RACK),
        "revision": lambda: where.revisions.get(node.pk, NO_REVISION),
        "model": lambda: model_of(node),
    }
    return HeatmapNode(node, by_group[query.group]() if query.group else "", gpus, missing)


def _key(order: str) -> Callable[[HeatmapNode], Any]:
    """Return the sort key of an order: what sorts first has the least."""
    if order == "worst":
        return lambda part: (-_ill(part), -part.count(states.NONE) - part.missing, -part.count(states.HELD))
    if order == "idle":
        return lambda part: -part.count(states.HELD)
    if order == "free":
        return lambda part: -part.count(states.FREE)
    if order == "hot":
        return lambda part: -max((gpu.values.get(Metric.TEMPERATURE, 0) for gpu in part.gpus), default=0)
    if order in ("busy", "quiet"):
        sign = -1 if order == "busy" else 1
        return lambda part: _busy(part.gpus, sign)
    return lambda part: 0


def _busy(gpus: Iterable[Gpu], sign: int) -> tuple[bool, float]:
    """Return a sort key from the mean of known values; nodes without any sort last both ways."""
    known = [value for gpu in gpus if (value := _value(gpu, "busy")) is not None]
    return not known, sign * sum(known) / len(known) if known else 0.0


def _ill(part: HeatmapNode) -> int:
    return sum(any(xid.advice.severity == "bad" for xid in xids.reported(gpu.xids)) for gpu in part.gpus if gpu.xids)


def model_of(node: GpuNode) -> str:
    return model_name(node.product)


# ── Figures ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def _value(gpu: Gpu, metric: str) -> float | None:
    if not gpu.is_current:
        return None
    values = gpu.values
    if metric == "memory":
        return memory_share(values)
    if metric == "ofu":
        return boards.ofu(values, gpu.model)
    if metric == "power" and gpu.instance:
        return gpu.board_watts
    value = values.get(metric)
    if value is None and metric == "busy" and gpu.instance:
        return values.get("engine")  # the driver has no utilization of an instance
    return value


def figure(gpu: Gpu, metric: str) -> int | None:
    """Return the value in the unit of METRICS, rounded; None if not reported, or stale.

    An instance's busy is engine, and its power its board's.
    """
    value = _value(gpu, metric)
    if value is None:
        return None
    return round(value * 100) if METRICS[metric][1] == RATIO else round(value)


def step(gpu: Gpu, metric: str) -> str:
    """The class of its color: nine steps, and none where there is no figure."""
    value = figure(gpu, metric)
    top = 100 if METRICS[metric][1] == RATIO else METRICS[metric][2]
    return "n" if value is None else str(min(8, max(0, int(value * 9 / top))))


def memory_share(values: Mapping[str, float]) -> float | None:
    used, free = values.get(Metric.MEMORY_USED), values.get(Metric.MEMORY_FREE)
    if used is None or free is None or not used + free:
        return None
    return used / (used + free)


def cells(heatmap_nodes: Iterable[HeatmapNode], metric: str) -> dict[str, Any]:
    """Return the canvas's data by column: 40,000 GPUs are a third of what they are by row.

    nodes   [key, name, group's number, GPUs, GPUs without telemetry]
    states  a digit each GPU, node after node: its place in `words`
    value, busy, power, heat    a number each GPU, -1 where there is none
    pod     its first pod's place in `pods`, -1 where no pod holds it
    names   {place of a GPU: its name}, where it is not its place in the node
    parts   {place of a GPU: [first, of]}, where MIG splits one GPU into this and more cells
    xid     {place of a GPU: its worst XID}
    """
    pods: dict[str, int] = {}
    groups: dict[str, int] = {}
    columns: dict[str, list[int]] = {name: [] for name in ("value", "busy", "power", "heat", "pod")}
    digits = {state: str(number) for number, state in enumerate(states.STATES)}
    nodes, state_digits = [], []
    names: dict[int, str] = {}
    split: dict[int, list[int]] = {}
    ill: dict[int, int] = {}
    value, busy, power, heat, pod = columns.values()
    at = 0
    for part in heatmap_nodes:
        group = groups.setdefault(part.group, len(groups))
        nodes.append([part.node.pk, part.node.name, group, len(part.gpus), part.missing])
        for place, gpu in enumerate(part.gpus):
            state_digits.append(digits[gpu.state])
            for column, name in ((value, metric), (busy, "busy"), (power, "power"), (heat, "temperature")):
                number = figure(gpu, name)
                column.append(-1 if number is None else number)
            holder = "/".join(gpu.holders[0][:2]) if gpu.holders else ""
            pod.append(pods.setdefault(holder, len(pods)) if holder else -1)
            if gpu.name != str(place):
                names[at] = gpu.name
            if gpu.xids and (seen := xids.reported(gpu.xids)):
                ill[at] = seen[0].code
            at += 1
        _split(part.gpus, at - len(part.gpus), split)
    word, kind, top, unit = METRICS[metric]
    return {
        "nodes": nodes,
        "groups": list(groups),
        "states": "".join(state_digits),
        **columns,
        "names": names,
        "parts": split,
        "xid": ill,
        "pods": list(pods),
        "words": [[state, WORD.get(state, "Out of service")] for state in states.STATES],
        "top": 100 if kind == RATIO else top,
        "unit": unit,
        "word": word,
    }


def _split(gpus: list[Gpu], start: int, into: dict[int, list[int]]) -> None:
    instances: dict[str, list[int]] = defaultdict(list)
    for place, gpu in enumerate(gpus):
        if gpu.instance:
            instances[gpu.uuid].append(start + place)
    for members in instances.values():
        for number, place in enumerate(members):
            into[place] = [number, len(members)]


def choices(
    user: User, cluster: Cluster, where: NodePlaces, nodes: Iterable[GpuNode], pools: Iterable[Pool]
) -> dict[str, list[str]]:
    """Return the options of the filters. One query, unless `places` has made it."""
    revisions = where.known_revisions
    if revisions is None:
        rows = NodeExpectation.objects.filter(node__in=_present(user, cluster)).exclude(revision=None)
        revisions = set(rows.order_by().values_list(*_REVISION).distinct())
    return {
        "model": sorted({model_of(node) for node in nodes}),
        "pool": [*sorted(pool.name for pool in pools), NO_POOL],
        "revision": [*(f"{profile} r{number}" for profile, number in sorted(revisions)), NO_REVISION],
    }
