"""Starts of pods with GPUs: what their conditions and containers tell of them, and when a row is written."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.inventory import start_times, store
from clusters.inventory.start_times import Progress
from clusters.models import GpuPod, PodStart
from tests.clusters.factories import ClusterFactory

T0 = datetime(2026, 11, 27, 8, tzinfo=UTC)
_versions = iter(range(1, 10**9))
IMAGE = "registry.example/vllm:0.11"


def stamp(seconds):
    return f"{T0 + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def condition(type_, since, status="True"):
    return {"type": type_, "status": status, "lastProbeTime": None, "lastTransitionTime": stamp(since)}


def pod(name="a", *, scheduled=None, kubelet=None, running=None, ready=None, lost=None, restarts=0, probe=True, **meta):
    """A pod as a kubelet of 1.34 writes it; each argument is the second of a step that it has taken.

    `lost`: when a pod that had been ready was not any more.
    """
    conditions = [condition("PodScheduled", scheduled)] if scheduled is not None else []
    status = {"phase": "Pending", "qosClass": "Burstable"}
    if kubelet is not None:
        since = lost if lost is not None else ready if ready is not None else kubelet
        state = "True" if ready is not None and lost is None else "False"
        conditions += [
            condition("PodReadyToStartContainers", kubelet + 2),
            condition("Initialized", kubelet + 3),
            condition("Ready", since, state),
            condition("ContainersReady", since, state),
        ]
        waiting = {"waiting": {"reason": "ContainerCreating"}}
        status |= {
            "startTime": stamp(kubelet),
            "phase": "Pending" if running is None else "Running",
            "containerStatuses": [
                {
                    "name": "server", "image": IMAGE, "imageID": "", "restartCount": restarts, "lastState": {},
                    "ready": state == "True", "started": running is not None,
                    "state": waiting if running is None else {"running": {"startedAt": stamp(running)}},
                }
            ],
        }  # fmt: skip
    container = {"name": "server", "image": IMAGE, "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    if probe:
        container["readinessProbe"] = {"httpGet": {"path": "/health", "port": 8000}, "periodSeconds": 10}
    return {
        "metadata": {
            "name": name, "namespace": "serving", "uid": f"uid-{name}", "resourceVersion": str(next(_versions)),
            "creationTimestamp": stamp(0), "labels": {"model": "llama-70b"}, **meta,
        },
        "spec": {"nodeName": "n1" if scheduled is not None else "", "containers": [container]},
        "status": status | {"conditions": conditions},
    }  # fmt: skip


STEPS = (
    {},
    {"scheduled": 30},
    {"scheduled": 30, "kubelet": 31},
    {"scheduled": 30, "kubelet": 31, "running": 90},
    {"scheduled": 30, "kubelet": 31, "running": 90, "ready": 330},
)


@pytest.fixture
def cluster(db):
    return ClusterFactory()


def see(cluster, *raws, complete=False, deleted=(), after=1000, version=""):
    at = T0 + timedelta(seconds=after)
    return store.observe_pods(cluster, list(raws), complete=complete, at=at, deleted=list(deleted), version=version)


# ── what one state of a pod tells ─────────────────────────────────────────────────────────────────────────────────────
def test_each_step_until_the_first_readiness_proves_that_the_pod_was_never_ready():
    assert [start_times.progress(pod(**step)) for step in STEPS] == [Progress.NOT_READY_YET] * 4 + [Progress.READY]


@pytest.mark.parametrize(
    "later",
    [
        {"ready": 330, "lost": 400},
        {"restarts": 1},
        {"restarts": 1, "running": None},
    ],
)
def test_a_pod_that_may_have_been_ready_before_proves_nothing(later):
    assert start_times.progress(pod(**STEPS[3] | later)) is Progress.UNKNOWN


def test_the_parts_of_a_start_are_the_times_between_its_steps():
    parts = start_times.described(pod(**STEPS[4]))
    assert (parts["queue_seconds"], parts["prepare_seconds"], parts["load_seconds"]) == (30, 60, 240)
    assert (parts["image"], parts["model"], parts["has_probe"], parts["dropped"]) == (IMAGE, "llama-70b", True, 0)


def test_without_a_probe_there_is_no_load_time_and_a_startup_probe_is_one():
    raw = pod(**STEPS[4], probe=False)
    parts = start_times.described(raw)
    assert (parts["has_probe"], parts["load_seconds"], parts["prepare_seconds"]) == (False, None, 60)
    raw["spec"]["containers"][0]["startupProbe"] = {"tcpSocket": {"port": 8000}}
    assert start_times.described(raw)["load_seconds"] == 240


def test_the_probe_of_a_container_without_gpus_says_nothing_of_the_model():
    raw = pod(**STEPS[4], probe=False)
    raw["spec"]["containers"].insert(0, {"name": "proxy", "image": "envoy", "readinessProbe": {"tcpSocket": {}}})
    raw["status"]["containerStatuses"].insert(
        0, {"name": "proxy", "state": {"running": {"startedAt": stamp(40)}}, "restartCount": 0}
    )
    parts = start_times.described(raw)
    assert (parts["image"], parts["has_probe"], parts["load_seconds"], parts["prepare_seconds"]) == (
        IMAGE,
        False,
        None,
        60,
    )


def test_readiness_gates_are_no_part_of_the_load_time():
    raw = pod(**STEPS[4])
    raw["status"]["conditions"] = [
        condition("Ready", 900) if entry["type"] == "Ready" else entry for entry in raw["status"]["conditions"]
    ]
    assert start_times.described(raw)["load_seconds"] == 240


def test_a_run_after_a_restart_has_no_preparation_and_no_load_time():
    parts = start_times.described(pod(**STEPS[4] | {"restarts": 2}))
    assert (parts["queue_seconds"], parts["prepare_seconds"], parts["load_seconds"], parts["dropped"]) == (
        30,
        None,
        None,
        0,
    )


@pytest.mark.parametrize(
    ("step", "dropped"),
    [
        ({"scheduled": -5}, {"queue_seconds"}),
        ({"running": 29}, {"prepare_seconds"}),
        ({"ready": 89}, {"load_seconds"}),
        ({"ready": 90 + 31 * 86_400}, {"load_seconds"}),
    ],
)
def test_a_span_that_cannot_be_true_is_dropped_and_counted_and_never_zero(step, dropped):
    parts = start_times.described(pod(**STEPS[4] | step))
    assert {name for name in start_times.SPANS if parts[name] is None} == dropped
    assert parts["dropped"] == 1


def _anything(rng, depth=0):
    texts = ("", "True", "Ready", stamp(5), "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "\0", "\ud800", "x" * 9000)
    kind = rng.randrange(9 if depth < 4 else 6)
    if kind < 3:
        return rng.choice(texts)
    if kind < 6:
        return rng.choice([None, True, -1, 2**70, 1.5, float("nan")])
    if kind < 7:
        return [_anything(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(("name", "state", "running", "resources")): _anything(rng, depth + 1) for _ in range(3)}


def _spoil(rng, value):
    """Replace random parts of an object by rubbish, and put its lists in any order."""
    if rng.random() < 0.08:
        return _anything(rng)
    if isinstance(value, dict):
        return {key: _spoil(rng, part) for key, part in value.items() if rng.random() > 0.05}
    if isinstance(value, list):
        return [_spoil(rng, part) for part in rng.sample(value, len(value))] * rng.choice((1, 1, 1, 2))
    return value


@pytest.mark.parametrize("seed", range(40))
def test_rubbish_raises_nothing_and_what_is_told_fits_its_columns_and_is_true(seed):
    rng = random.Random(seed)
    for _ in range(50):
        raw = _spoil(rng, pod(**rng.choice(STEPS)))
        raw = raw if isinstance(raw, dict) else {}
        parts = start_times.described(raw)
        assert isinstance(start_times.progress(raw), Progress)
        for name, most in (("image", 512), ("model", 63)):
            assert len(parts[name]) <= most
            parts[name].encode()
            assert "\0" not in parts[name]
        assert len(start_times.why_not(raw)) <= 80
        for name, (first, last) in start_times.SPANS.items():
            if parts[name] is not None:
                assert parts[name] == (parts[last] - parts[first]).total_seconds() >= 0
        assert parts["load_seconds"] is None or (parts["has_probe"] and not parts["restarts"])


def test_the_order_of_conditions_and_containers_changes_nothing():
    rng = random.Random(3)
    for step in STEPS:
        raw = pod(**step)
        raw["spec"]["containers"] += [{"name": "log", "image": "log"}]
        parts, state = start_times.described(raw), start_times.progress(raw)
        rng.shuffle(raw["status"]["conditions"])
        rng.shuffle(raw["spec"]["containers"])
        assert (start_times.described(raw), start_times.progress(raw)) == (parts, state)


def test_a_pod_of_ten_thousand_containers_is_bounded():
    raw = pod(**STEPS[4])
    raw["status"]["containerStatuses"] *= 10_000
    raw["status"]["containerStatuses"][0]["restartCount"] = 2**70
    assert start_times.described(raw)["restarts"] == start_times.MOST_RESTARTS


# ── what is written ───────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_start_is_written_once_when_the_pod_is_ready_and_never_again(cluster):
    for step in STEPS[:4]:
        see(cluster, pod(**step))
        assert not PodStart.objects.exists()
    see(cluster, pod(**STEPS[4]))
    start = PodStart.objects.get()
    assert (start.outcome, start.load_seconds, start.node_name, start.gpus) == ("ready", 240, "n1", 8)
    assert start.job_key == GpuPod.objects.get().job_key

    see(cluster, pod(**STEPS[4] | {"lost": 400}))
    see(cluster, pod(**STEPS[4] | {"restarts": 1, "running": 500, "ready": 800}))
    see(cluster, deleted=[pod(**STEPS[4])])
    assert list(PodStart.objects.values_list("pk", "load_seconds")) == [(start.pk, 240)]


@pytest.mark.parametrize("first_seen", [{"lost": 400}, {"restarts": 1}, {}])
def test_a_watch_that_begins_late_invents_no_start(cluster, first_seen):
    see(cluster, pod(**STEPS[4] | first_seen), complete=True)
    see(cluster, pod(**STEPS[4] | {"lost": 400}))
    see(cluster, pod(**STEPS[4] | {"ready": 500}))
    see(cluster, deleted=[pod(**STEPS[4])])
    assert not PodStart.objects.exists()


def test_a_watch_that_begins_between_two_steps_has_the_whole_start(cluster):
    see(cluster, pod(**STEPS[3]), complete=True)
    see(cluster, pod(**STEPS[4]), complete=True)
    assert PodStart.objects.get().queue_seconds == 30


def test_a_crash_while_loading_is_one_start_without_a_load_time(cluster):
    see(cluster, pod(**STEPS[3]))
    see(cluster, pod(**STEPS[3] | {"restarts": 1, "running": 200}))
    see(cluster, pod(**STEPS[4] | {"restarts": 1, "running": 200}))
    start = PodStart.objects.get()
    assert (start.outcome, start.restarts, start.load_seconds) == ("ready", 1, None)


@pytest.mark.parametrize(
    ("how", "outcome", "reason"),
    [("deleted", "deleted", "ImagePullBackOff"), ("failed", "failed", "OOMKilled"), ("unlisted", "deleted", "")],
)
def test_a_pod_that_ends_before_it_is_ready_is_a_start_that_never_ended(cluster, how, outcome, reason):
    see(cluster, pod(**STEPS[3]))
    raw = pod(**STEPS[3])
    (entry,) = raw["status"]["containerStatuses"]
    if how == "unlisted":
        see(cluster, complete=True, after=2000)
    elif how == "failed":
        raw["status"]["phase"], entry["state"] = "Failed", {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
        see(cluster, raw)
    else:
        entry["state"] = {"waiting": {"reason": "ImagePullBackOff"}}
        see(cluster, deleted=[raw])
    start = PodStart.objects.get()
    assert (start.outcome, start.reason, start.load_seconds, start.ready_at) == (outcome, reason, None, None)
    assert start.job_name == "a"


def test_a_pod_that_was_ready_and_is_gone_at_the_next_look_was_ready(cluster):
    see(cluster, pod(**STEPS[3]))
    see(cluster, deleted=[pod(**STEPS[4])])
    assert PodStart.objects.get().outcome == "ready"


def test_two_watches_of_one_cluster_write_a_start_once_and_a_late_event_none(cluster):
    before, after = pod(**STEPS[3]), pod(**STEPS[4])
    for _ in range(2):
        see(cluster, before)
    for _ in range(2):
        see(cluster, after)
        see(cluster, before)
    see(cluster, after, complete=True)
    assert PodStart.objects.count() == 1
    assert not GpuPod.objects.get().is_starting


def test_equal_uids_in_two_clusters_are_two_starts(cluster):
    for place in (cluster, ClusterFactory()):
        see(place, pod(**STEPS[3]))
        see(place, pod(**STEPS[4]))
    assert PodStart.objects.count() == 2


def test_a_pod_that_is_ready_without_gpus_of_its_own_is_no_start(cluster):
    raws = [pod(**step) for step in STEPS[3:]]
    for raw in raws:
        raw["spec"]["containers"][0]["resources"] = {}
        see(cluster, raw)
    assert not PodStart.objects.exists()


def test_a_thousand_starts_cost_as_many_queries_as_one_for_each_five_hundred(cluster):
    def cost(names):
        see(cluster, *(pod(name, **STEPS[3]) for name in names))
        with CaptureQueriesContext(
            connection,
        ) as queries:
            see(cluster, *(pod(name, **STEPS[4]) for name in names))
        return len([query for query in queries if "podstart" in query["sql"]]), len(queries)

    assert cost(["one"]) == (1, cost(["two"])[1])
    assert cost([f"n{number}" for number in range(400)])[0] <= 400 // 30  # SQLite: 999 variables
    with CaptureQueriesContext(connection) as quiet:
        see(cluster, pod("one", **STEPS[4]))
    assert not [query for query in quiet if "podstart" in query["sql"]]
