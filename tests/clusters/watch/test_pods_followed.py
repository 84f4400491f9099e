"""Pods: those without GPUs cost neither a query nor a row, and rows are as the objects are, malformed ones too."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters import objects
from clusters.fleet import Event, FleetUnavailable, Page
from clusters.inventory import job_rows, pod_rows, rows, start_times
from clusters.models import GpuJob, GpuPod, Node, PodStart
from clusters.watch import streams
from clusters.watch.streams import Happened, Listed
from common.clock import now
from tests.clusters.factories import raw_pod
from tests.clusters.inventory.observed import AT
from tests.clusters.inventory.test_untrusted_objects import json_values, rubbish


class Scripted:
    """Pods of a server whose list and events are up to the test; everything else is the simulated fleet's."""

    def __init__(self, here):
        self.here = here
        self.version = 5_000_000

    def raw(self, name, *, gpus=8, **over):
        self.version += 1
        raw = raw_pod(name, gpus=gpus, **over)
        raw["metadata"]["resourceVersion"] = str(self.version)
        return raw

    def lists(self, *raws):
        kept = {raw["metadata"]["uid"]: pod_rows.kept(raw) for raw in raws}
        left_out = frozenset(uid for uid, raw in kept.items() if raw is None)
        page = Page([raw for raw in kept.values() if raw is not None], str(self.version), left_out)
        self.here.writer.post(self.here.watched, Listed("pods", page, now()))
        self.here.flush()

    def happens(self, type_, *raws):
        for raw in raws:
            kept = pod_rows.kept(raw)
            event = Event(type_, objects.brief_event(raw), is_brief=True) if kept is None else Event(type_, kept)
            self.here.writer.post(self.here.watched, Happened("pods", event, now()))
        self.here.flush()


@pytest.fixture
def pods(here):
    here.sim.add_node("n1", gpus=8)
    here.step()
    return Scripted(here)


def test_deleted_pods_are_remembered_for_a_while(pods, monkeypatch):
    pods.lists(pods.raw("p0", gpus=0), pods.raw("p1", gpus=0), pods.raw("p2"))
    pods.happens("DELETED", pods.raw("p1", gpus=0), pods.raw("p2"))
    assert pods.here.watched.rowless == {"uid-of-pod-p0", "uid-of-pod-p1", "uid-of-pod-p2"}

    monkeypatch.setattr(streams, "DEPARTED_SECONDS", -1.0)
    pods.happens("DELETED", pods.raw("p3", gpus=0))
    assert pods.here.watched.rowless == {"uid-of-pod-p0"}
    assert not pods.here.watched.departed


def test_a_list_forgets_no_pod_that_was_deleted_lately(pods):
    pods.lists(pods.raw("p0", gpus=0), pods.raw("p1", gpus=0))
    pods.happens("DELETED", pods.raw("p1", gpus=0))
    pods.lists(pods.raw("p0", gpus=0))
    assert pods.here.watched.rowless == {"uid-of-pod-p0", "uid-of-pod-p1"}


def test_a_deleted_pod_that_is_listed_again_has_a_row_that_ends(pods):
    """A restore of etcd may bring it back."""
    pods.lists(pods.raw("p1"))
    pods.happens("DELETED", pods.raw("p1"))
    pods.lists(pods.raw("p1"))
    assert (stored(), pods.here.watched.rowless) == (["p1"], set())

    pods.happens("MODIFIED", pods.raw("p1", gpus=0))
    assert stored() == []


def test_of_pods_without_gpus_the_writer_is_handed_no_more_than_names(here):
    here.sim.add_node("n1", gpus=8)
    here.sim.add_pod("held", node="n1", gpus=2)
    here.sim.pods.add("plain", node="n1")
    posted, post = [], here.writer.post

    def noted(watched, message):
        posted.append(message)
        post(watched, message)

    for stream in here.streams:
        stream.post = noted
    here.step()
    [page] = [message.page for message in posted if isinstance(message, Listed) and message.kind == "pods"]
    assert [rows.identity(raw)[1] for raw in page.items] == ["held"]
    assert here.fleet.pod("default", "plain")["metadata"]["uid"] in page.left_out

    here.sim.add_pod("later", node="n1", gpus=1)
    here.sim.pods.add("none", node="n1")
    here.step()
    of_pods = [message.event for message in posted if isinstance(message, Happened) and message.kind == "pods"]
    events = {rows.identity(event.object)[1]: event for event in of_pods if event.type == "ADDED"}
    assert {name: (event.is_brief, "spec" in event.object) for name, event in events.items()} == {
        "later": (False, True), "none": (True, False),
    }  # fmt: skip
    assert here.watched.rowless == page.left_out | {rows.identity(events["none"].object)[0]}
    assert stored() == ["held", "later"]

    pod = here.sim.store.find("pods", "none", "default")
    here.sim.store.write("pods", pod.raw | {"status": {"phase": "Failed", "reason": "Evicted"}})
    here.step()
    events = [message.event for message in posted if isinstance(message, Happened) and message.event.is_brief]
    assert events[-1].object["status"] == {"phase": "Failed", "reason": "Evicted"}


def stored():
    return sorted(GpuPod.objects.values_list("name", flat=True))


@pytest.mark.parametrize("count", [1, 40, 400])
def test_events_of_pods_without_rows_cost_no_query(pods, django_assert_num_queries, count):
    pods.lists(*(pods.raw(f"p{number}", gpus=0) for number in range(count)))
    for type_ in ("MODIFIED", "DELETED"):
        changed = [pods.raw(f"p{number}", gpus=0) for number in range(count)]
        with django_assert_num_queries(1):  # the cluster was heard
            pods.happens(type_, *changed)


@pytest.mark.parametrize("count", [1, 40, 400])
def test_queries_of_a_slice_do_not_grow_with_its_events(pods, django_assert_num_queries, count):
    pods.lists()
    pods.happens("ADDED", *(pods.raw(f"before{number}") for number in range(3)))
    with django_assert_num_queries(2):  # none of them has a row; the cluster was heard
        pods.happens("ADDED", *(pods.raw(f"p{number}", gpus=0) for number in range(count)))


@pytest.mark.parametrize("count", [1, 10, 30])  # SQLite takes 33 such rows in a statement
def test_queries_of_a_slice_do_not_grow_with_the_rows_that_it_writes(pods, django_assert_num_queries, count):
    pods.lists()
    pods.happens("ADDED", *(pods.raw(f"before{number}") for number in range(3)))
    with django_assert_num_queries(15):
        pods.happens("ADDED", *(pods.raw(f"held{number}", gpus=1) for number in range(count)))
    assert GpuPod.objects.count() == 3 + count


def test_a_pod_that_is_given_gpus_while_it_is_listed_has_a_row(pods):
    pods.lists(pods.raw("p1", gpus=0))
    pods.happens("MODIFIED", pods.raw("p1", gpus=4))
    assert (stored(), Node.objects.get().gpu_allocated) == (["p1"], 4)

    pods.happens("MODIFIED", pods.raw("p1", gpus=0))
    assert (stored(), Node.objects.get().gpu_allocated) == ([], 0)


def test_gpus_that_come_and_go_within_one_slice_leave_no_row_that_another_process_wrote(pods):
    pods.lists(pods.raw("p1", gpus=0))
    held = pods.raw("p1", gpus=4)
    pod_rows.observe(pods.here.watched.cluster, [held], complete=False)  # a refresh was faster

    pods.here.writer.post(pods.here.watched, Happened("pods", Event("MODIFIED", held), now()))
    pods.happens("MODIFIED", pods.raw("p1", gpus=0))

    assert stored() == []


def test_a_pod_that_lost_its_gpus_between_two_lists_has_no_row(pods):
    pods.lists(pods.raw("p1"), pods.raw("p2"))
    pods.lists(pods.raw("p1", gpus=0), pods.raw("p2"))
    assert stored() == ["p2"]


@pytest.mark.parametrize("gpus", [0, 8])
def test_events_of_pods_that_were_never_listed_are_believed(pods, gpus):
    pods.lists()
    pods.happens("MODIFIED", pods.raw("p1", gpus=gpus))
    assert stored() == ["p1"] * bool(gpus)
    pods.happens("DELETED", pods.raw("p1", gpus=gpus), pods.raw("unheard", gpus=gpus))
    assert stored() == []


@pytest.mark.parametrize(
    ("phase", "outcome", "start"), [("Succeeded", "succeeded", "finished"), ("Failed", "failed", "failed")]
)
def test_a_pod_that_loses_its_share_as_it_finishes_tells_how_its_job_ended(pods, phase, outcome, start):
    """KAI Scheduler's label may go in the event that tells of the end: no GPUs are seen there any more."""
    state = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T09:00:00Z"}

    def shared(labels, **over):
        raw = pods.raw("p1", gpus=0, **over)
        raw["metadata"] |= {"labels": labels, "creationTimestamp": "2026-11-21T09:00:00Z"}
        raw["status"]["conditions"] = [state, {**state, "type": "Ready", "status": "False"}]
        return raw

    pods.lists(shared({"runai-gpu-group": "g1"}))
    assert stored() == ["p1"]

    pods.happens("MODIFIED", shared({}, phase=phase))

    assert (stored(), GpuJob.objects.get().outcome) == ([], outcome)
    assert PodStart.objects.get().outcome == start


@pytest.mark.parametrize(("phase", "outcome"), [("Succeeded", "succeeded"), ("Failed", "failed")])
def test_a_list_tells_how_a_job_ended_whose_pod_is_finished(pods, phase, outcome):
    pods.lists(pods.raw("p1"))
    pods.lists(pods.raw("p1", phase=phase))
    assert (stored(), GpuJob.objects.get().outcome) == ([], outcome)


def test_a_process_that_begins_knows_nothing_and_writes_what_is(pods):
    pods.lists(pods.raw("p1"), pods.raw("gone"), pods.raw("plain", gpus=0))
    pods.here.start()
    pods.here.step()  # the simulated fleet has no pods
    assert stored() == []

    pods.lists(pods.raw("p1"), pods.raw("plain", gpus=0))
    pods.happens("MODIFIED", pods.raw("plain", gpus=0), pods.raw("p1", phase="Failed"))
    assert (stored(), GpuJob.objects.get().outcome) == ([], "failed")


def test_a_list_that_is_cut_changes_no_row(here, monkeypatch):
    here.sim.add_node("n1", gpus=8)
    here.sim.add_pod("p1", node="n1", gpus=2)
    here.step()
    here.sim.store.delete("pods", "p1", "default")
    here.start()
    real = here.fleet.list

    def cut(kind, **how):
        if kind == "pods":
            raise FleetUnavailable("list pods: the connection broke")
        return real(kind, **how)

    monkeypatch.setattr(here.fleet, "list", cut)
    here.step(2)
    assert stored() == ["p1"]
    assert here.row().reach == "unreachable"

    monkeypatch.setattr(here.fleet, "list", real)
    here.step()
    assert stored() == []


def test_a_410_in_the_middle_of_a_watch_keeps_what_came_before_and_lists_the_rest(here, monkeypatch):
    here.sim.add_node("n1", gpus=8)
    here.sim.add_pod("old", node="n1", gpus=2)
    here.step()
    real = here.fleet.watch

    def forgetful(kind, version, **how):
        events = real(kind, version, **how)
        if kind == "pods":
            yield next(events)
            here.sim.store.compact()
            yield from real(kind, version, **how)
        yield from events

    here.sim.add_pod("p1", node="n1", gpus=2)
    here.sim.add_pod("p2", node="n1", gpus=2)
    here.sim.store.delete("pods", "old", "default")
    monkeypatch.setattr(here.fleet, "watch", forgetful)
    here.step()
    assert stored() == ["old", "p1"]

    monkeypatch.setattr(here.fleet, "watch", real)
    here.step()
    assert stored() == ["p1", "p2"]
    assert here.row().reach == "reachable"


@settings(max_examples=300, deadline=None)
@given(raw=rubbish)
def test_what_is_not_kept_of_rubbish_needs_no_row(raw):
    if not isinstance(raw, dict) or pod_rows.kept(raw) is not None:
        return
    assert rows.gpu_pod(raw) is None
    assert not rows.holds_gpus(raw)
    assert not pod_rows.needs_row(raw)


_instants = st.sampled_from(["2026-11-21T09:00:05Z", "2026-11-21T09:07:00Z"]) | json_values
_flags = st.sampled_from(["True", "False"]) | json_values
_names = st.sampled_from(["main", "side"]) | json_values


def _perhaps(**parts):
    return st.fixed_dictionaries({}, optional=parts)


def _several(**parts):
    return st.lists(_perhaps(**parts), max_size=2) | json_values


_types = st.sampled_from(["Ready", "ContainersReady", "PodScheduled"]) | json_values
_of_container = {
    "name": _names, "image": json_values, "args": json_values, "env": json_values, "envFrom": json_values,
    "lifecycle": json_values, "ports": json_values, "readinessProbe": json_values, "startupProbe": json_values,
    "volumeMounts": json_values,
}  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    gpus=st.integers(1, 16),
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    metadata=_perhaps(
        labels=_perhaps(**{"runai-gpu-group": json_values}) | json_values,
        annotations=json_values, creationTimestamp=_instants, deletionTimestamp=_instants,
    ),
    spec=_perhaps(
        resourceClaims=_several(name=_names, resourceClaimName=_names), volumes=json_values,
        ephemeralContainers=_several(**_of_container), schedulingGates=json_values,
        initContainers=st.lists(_perhaps(**_of_container), max_size=2),
    ),
    container=_perhaps(**_of_container),
    status=_perhaps(
        conditions=_several(type=_types, status=_flags, lastTransitionTime=_instants, reason=json_values),
        containerStatuses=_several(name=_names, state=json_values, lastState=json_values, started=_flags),
        initContainerStatuses=_several(name=_names, state=json_values),
        resourceClaimStatuses=_several(name=_names, resourceClaimName=_names),
        startTime=_instants, reason=json_values, message=json_values,
    ),
)  # fmt: skip
def test_what_is_kept_of_a_pod_tells_its_row_its_start_and_its_end_as_the_whole_does(
    gpus, phase, metadata, spec, container, status
):
    raw = raw_pod(gpus=gpus, phase=phase)
    for part, over in (("metadata", metadata), ("spec", spec), ("status", status)):
        raw[part] |= over
    raw["spec"]["containers"][0] |= container

    kept = pod_rows.kept(raw)

    assert kept is not None
    assert outcome_of(kept) == outcome_of(raw)
    assert pod_rows.needs_row(kept) == pod_rows.needs_row(raw)
    assert pod_rows.needs_row(raw) or rows.gpu_pod(raw) is None


def test_what_is_kept_of_a_pod_lacks_what_makes_it_large():
    raw = raw_pod()
    probe = {"httpGet": {"path": "/healthz"}}
    more = {"name": "main", "image": "vllm", "readinessProbe": probe, "env": [{"name": "A"}], "volumeMounts": [1]}
    raw["spec"]["containers"][0] |= more
    raw["spec"] |= {"volumes": [{"name": "v"}], "initContainers": [{"name": "first", "args": ["x"]}]}
    raw["spec"]["ephemeralContainers"] = [{"name": "debug", "env": [{"name": "A"}]}]

    kept = pod_rows.kept(raw)

    assert outcome_of(kept) == outcome_of(raw)
    assert start_times.described(kept)["has_probe"] is True
    assert not set(kept["spec"]["containers"][0]) & {"env", "volumeMounts"}
    assert kept["spec"]["initContainers"] == [{"name": "first"}]
    assert kept["spec"]["ephemeralContainers"] == [{"name": "debug"}]
    assert "volumes" not in kept["spec"]
    assert raw["spec"]["containers"][0]["env"], "what is asked is not changed"


def outcome_of(raw):
    return (
        rows.identity(raw), rows.resource_version(raw), rows.gpu_pod(raw), rows.holds_gpus(raw),
        start_times.progress(raw), start_times.described(raw), start_times.why_not(raw), job_rows.end_of(raw, AT),
    )  # fmt: skip
