"""The writer against a reference cache: for any events in any order, rows never go back, and end up equal.

A history of one cluster is made first: objects of three kinds created, changed, deleted and created again, each at a
version that counts up. Then it is delivered as a cluster does: by lists that were read earlier than they are written,
by watches that end, resume where they were, fall behind (410) or send nothing but bookmarks, and by answers to
enrolment and to the engine, at any time later. The truth is then simply the last state of the history.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusters import objects
from clusters.fleet import Event, Identity, Keep, NotFound, Page
from clusters.inventory import rows, store
from clusters.models import Cluster, GpuPod, Node, NodeTuning, RowCheck, Tombstone
from clusters.watch.anti_entropy import AntiEntropy
from clusters.watch.streams import KINDS, Happened, Listed, Watched, WatchTimings
from clusters.watch.writer import Writer
from tests.clusters.factories import ClusterFactory, raw_node, raw_pod, raw_status, raw_tuning

pytestmark = pytest.mark.django_db

BEGAN = datetime(2026, 11, 21, 12, tzinfo=UTC)
PACE = WatchTimings(gather=0, compare=0, settle=0)
NAMES = ("n0", "n1", "n2")

Raw = dict[str, Any]
State = dict[tuple[str, str], Raw]


@dataclass
class History:
    """The API server, and all that it ever held: `states[v]` is what there was at version v."""

    uid: str
    states: list[State] = field(default_factory=lambda: [{}])
    events: list[tuple[str, Event]] = field(default_factory=list)
    """The event at index v - 1 made version v."""
    _made: int = 0
    _gpus: dict[str, int] = field(default_factory=dict)
    """By the UID of a pod."""

    @property
    def version(self) -> int:
        return len(self.states) - 1

    def _put(self, kind: str, name: str, raw: Raw | None, type_: str) -> None:
        version, state = self.version + 1, dict(self.states[-1])
        versioned = copy.deepcopy(raw if raw is not None else state[kind, name])
        versioned["metadata"]["resourceVersion"] = str(version)
        if raw is None:
            del state[kind, name]
        else:
            state[kind, name] = versioned
        self.states.append(state)
        self.events.append((kind, Event(type_, versioned)))

    def change(self, kind: str, name: str, how: str, variant: int) -> None:
        state = self.states[-1]
        old = state.get((kind, name))
        if how == "delete":
            if old is not None:
                self._put(kind, name, None, "DELETED")
                if kind == "nodes" and ("nodetunings", name) in state:
                    self._put("nodetunings", name, None, "DELETED")  # as the garbage collector does
            return
        if kind == "nodetunings" and ("nodes", name) not in state:
            return
        self._put(kind, name, self._raw(kind, name, old, variant), "MODIFIED" if old else "ADDED")

    def _raw(self, kind: str, name: str, old: Raw | None, variant: int) -> Raw:
        self._made += old is None
        uid = old["metadata"]["uid"] if old else f"{kind}-{name}-{self._made}"
        if kind == "nodes":
            return raw_node(name, uid=uid, unschedulable=bool(variant % 2), gpus=8)
        if kind == "pods":
            phase = "Running" if variant else "Succeeded"
            gpus = self._gpus.setdefault(uid, variant % 3)  # what a pod requests never changes
            return raw_pod(name, uid=uid, gpus=gpus, node=NAMES[variant % 3], phase=phase)
        node = self.states[-1]["nodes", name]["metadata"]["uid"]
        status = raw_status(nodeUID=node, agentVersion=f"0.{variant}") if variant else None
        raw = raw_tuning(name, uid=node, status=status, generation=variant + 1)
        raw["metadata"]["uid"] = uid
        return raw

    def page(self, kind: str, version: int) -> Page:
        items = [copy.deepcopy(raw) for (of, _), raw in sorted(self.states[version].items()) if of == kind]
        kept = [(objects.uid(raw), store.KEEP[kind](raw) if kind in store.KEEP else raw) for raw in items]
        left_out = frozenset(uid for uid, raw in kept if raw is None)
        return Page([raw for _, raw in kept if raw is not None], str(version), left_out)

    def kept(self, kind: str, event: Event) -> Event:
        """Return an event as a watch that keeps what rows need tells it."""
        if kind not in store.KEEP or store.KEEP[kind](event.object) is not None:
            return event
        return Event(event.type, objects.brief_event(event.object), is_brief=True)

    def at(self, version: int) -> datetime:
        """Return the time at which the object was at this version."""
        return BEGAN + timedelta(seconds=version)

    # ── what anti-entropy asks ──────────────────────────────────────────────────────────────────────────────────────
    def identify(self) -> Identity:
        return Identity(self.uid, "v1.35.4")

    def list(self, kind: str, *, fresh: bool = False, keep: Keep | None = None) -> Page:
        return self.page(kind, self.version)

    def heads(self, kind: str, *, keep: Keep | None = None) -> Page:
        heads = [objects.brief(raw) for (of, _), raw in self.states[self.version].items() if of == kind]
        kept = [head for head in heads if keep is None or keep(head) is not None]
        left_out = frozenset(objects.uid(head) for head in heads) - {objects.uid(head) for head in kept}
        return Page(kept, str(self.version), left_out)

    def _object(self, kind: str, name: str) -> Raw:
        if (kind, name) not in self.states[-1]:
            raise NotFound(name)
        return copy.deepcopy(self.states[-1][kind, name])

    def node(self, name: str) -> Raw:
        return self._object("nodes", name)

    def tuning(self, name: str) -> Raw:
        return self._object("nodetunings", name)

    def pod(self, namespace: str, name: str) -> Raw:
        return self._object("pods", name)


class Telling:
    """Delivery of a history, with checks of what rows must never do meanwhile."""

    def __init__(self, history: History, cluster: Cluster) -> None:
        self.history, self.cluster = history, cluster
        self.watched = Watched(cluster, history)
        self.writer = Writer(PACE)
        self.heard = dict.fromkeys(KINDS, 0)
        """Up to which version the watch of each kind has told."""
        self.newest: dict[tuple[str, str], int] = {}
        self.clock = history.version

    def flush(self) -> None:
        while self.writer.flush():
            pass
        assert self.watched.relist == set()
        self._never_back()

    def _never_back(self) -> None:
        present = {
            **{("nodes", uid): v for uid, v in Node.objects.present().values_list("uid", "resource_version")},
            **{("nodetunings", uid): v for uid, v in NodeTuning.objects.values_list("node__uid", "resource_version")},
            **{("pods", uid): v for uid, v in GpuPod.objects.values_list("uid", "resource_version")},
        }
        for key, version in present.items():
            assert int(version) >= self.newest.get(key, 0), f"{key} went back to {version}"
            self.newest[key] = int(version)
        gone = Node.objects.exclude(gone_at=None).values_list("uid", "resource_version")
        for key, version in gone:
            self.newest["nodes", key] = max(self.newest.get(("nodes", key), 0), int(version))
        for kind, key, version in Tombstone.objects.values_list("kind", "key", "resource_version"):
            if (kind, key) not in present:
                self.newest[kind, key] = max(self.newest.get((kind, key), 0), int(version))

    def relist(self, kind: str, read_at: int) -> None:
        """A 410, or a process that begins: a list, and events from there."""
        page = self.history.page(kind, read_at)
        self.writer.post(self.watched, Listed(kind, page, self.history.at(read_at)))
        self.heard[kind] = read_at
        self.flush()

    def watch(self, kind: str, count: int) -> None:
        sent = 0
        while sent < count and self.heard[kind] < self.history.version:
            of, event = self.history.events[self.heard[kind]]
            self.heard[kind] += 1
            if of == kind:
                happened = Happened(kind, self.history.kept(kind, event), self.history.at(self.heard[kind]))
                self.writer.post(self.watched, happened)
                sent += 1
        mark = Event("BOOKMARK", {"metadata": {"resourceVersion": str(self.heard[kind])}})
        self.writer.post(self.watched, Happened(kind, mark, self.history.at(self.heard[kind])))
        self.flush()

    def answer(self, index: int) -> None:
        """Deliver an answer to enrolment or the engine: an object as it was once, at any time later."""
        if not self.history.events:
            return
        kind, event = self.history.events[index % len(self.history.events)]
        if event.type != "DELETED":
            self.clock += 1
            store.OBSERVE[kind](
                self.cluster, [copy.deepcopy(event.object)], complete=False, at=self.history.at(self.clock)
            )
            self._never_back()

    def late_list(self, kind: str, read_at: int) -> None:
        """A refresh of another process, written long after it was read."""
        page = self.history.page(kind, read_at)
        store.OBSERVE[kind](
            self.cluster, page.items, complete=True, at=self.history.at(read_at), version=page.resource_version
        )
        self._never_back()


def reference(history: History) -> dict[str, dict[str, tuple[str, rows.Values]]]:
    """Return the rows that should exist: versions and values of the last state, straight from the objects."""
    last = history.states[-1]
    nodes = {raw["metadata"]["name"]: raw["metadata"]["uid"] for (kind, _), raw in last.items() if kind == "nodes"}
    wanted: dict[str, dict[str, tuple[str, rows.Values]]] = {kind: {} for kind in KINDS}
    for (kind, name), raw in last.items():
        version = raw["metadata"]["resourceVersion"]
        values: rows.Values | None
        if kind == "nodes":
            key, values = name, rows.node(raw)
        elif kind == "pods":
            key, values = name, rows.gpu_pod(raw)
        else:
            key, values = name, rows.tuning(raw, nodes[name]) if name in nodes else None
        if values is not None:
            wanted[kind][key] = (version, values)
    return wanted


def stored() -> dict[str, dict[str, tuple[str, rows.Values]]]:
    def of(queryset: Any, name: str, fields: tuple[str, ...]) -> dict[str, tuple[str, rows.Values]]:
        stored_values = queryset.values_list(name, "resource_version", *fields)
        return {key: (version, dict(zip(fields, values, strict=True))) for key, version, *values in stored_values}

    return {
        "nodes": of(Node.objects.present(), "name", rows.NODE_FIELDS),
        "nodetunings": of(NodeTuning.objects.filter(node__gone_at=None), "node__name", rows.TUNING_FIELDS),
        "pods": of(GpuPod.objects.all(), "name", rows.POD_FIELDS),
    }


kinds = st.sampled_from(KINDS)
changes = st.lists(
    st.tuples(kinds, st.sampled_from(NAMES), st.sampled_from(("put", "put", "put", "delete")), st.integers(0, 3)),
    min_size=1,
    max_size=30,
)
tellings = st.lists(
    st.one_of(
        st.tuples(st.just("watch"), kinds, st.integers(0, 8)),
        st.tuples(st.just("relist"), kinds, st.integers(0, 60)),
        st.tuples(st.just("late_list"), kinds, st.integers(0, 60)),
        st.tuples(st.just("answer"), kinds, st.integers(0, 60)),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=changes, tellings=tellings, order=st.randoms(use_true_random=False))
def test_rows_never_go_back_and_end_up_as_the_objects_are(db, changes, tellings, order):
    for model in (RowCheck, Tombstone, NodeTuning, Node, GpuPod, Cluster):
        model.objects.all().delete()
    cluster = ClusterFactory()
    history = History(cluster.uid)
    for change in changes:
        history.change(*change)
    telling = Telling(history, cluster)
    for what, kind, number in tellings:
        if what == "watch":
            telling.watch(kind, number)
        elif what == "answer":
            telling.answer(number)
        else:
            # No list is older than what this very watch has told: a watch begins where its list ended.
            least = telling.heard[kind] if what == "relist" else 0
            getattr(telling, what)(kind, max(least, number % (history.version + 1)))
    for kind in KINDS:
        telling.watch(kind, 1000)
        telling.watched.proved[kind] = BEGAN
    expected = reference(history)
    for index in order.sample(range(len(history.events)), min(12, len(history.events))):
        telling.answer(index)  # every late answer
    telling.late_list(order.choice(KINDS), order.randrange(history.version + 1))
    # A list passes over what was made and deleted before it, so a late answer can bring that back. And an agent's
    # object may have been told of before its node was. Both are what anti-entropy is needed for.
    if not any(what in ("relist", "late_list") for what, *_ in tellings):
        assert {kind: stored()[kind] for kind in ("nodes", "pods")} == {
            kind: expected[kind] for kind in ("nodes", "pods")
        }
    entropy = AntiEntropy(telling.watched, PACE)
    for kind in KINDS:
        if comparison := entropy.compare_names(kind):
            entropy.settle(comparison)
    telling._never_back()
    assert stored() == reference(history)
    assert all(entropy.compare_names(kind) is None for kind in KINDS)
    assert not RowCheck.objects.exclude(unmended=0).exists()
