"""The pages of GPUs: their figures are the truth of the simulated fleet, through exporters, readings and rows."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime

import pytest
from django.test import Client

from clusters.connection import registry
from clusters.inventory import store
from clusters.models import GpuPod, Node
from gpus.alerts import idle
from gpus.metrics import states
from gpus.models import GpuDevice, TelemetrySource
from gpus.services import polling
from simfleet.core import SimCluster
from simfleet.fleets import training_cluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory
from tests.demo.glossary import hooks
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db


class World:
    def __init__(self, sim: SimCluster) -> None:
        self.sim, self.fleet = sim, SimFleet(sim)
        self.cluster = ClusterFactory(uid=sim.uid, name="atlas")
        store.observe_nodes(self.cluster, self.fleet.list("nodes").items, complete=True)
        store.observe_pods(self.cluster, self.fleet.list("pods").items, complete=True)
        polling.reconcile()
        self.source = TelemetrySource.objects.get()
        self.client = Client()
        self.person = UserFactory(is_superuser=True)
        self.client.force_login(self.person)

    def read(self) -> None:
        with registry.override(self.cluster.pk, self.fleet):
            assert polling.tick(self.source.pk)

    def text(self, path: str) -> str:
        answer = self.client.get(path)
        assert answer.status_code == 200
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))

    def summary(self) -> dict:
        return self.client.get("/api/v1/gpus/summary").json()


@pytest.fixture
def world(clock):
    return World(training_cluster("atlas", nodes=24))


def expected(sim: SimCluster) -> Counter:
    """Counted from the truth alone."""
    totals = Counter()
    for gpu in sim.gpus.fleet():
        totals["total"] += 1
        totals["allocated"] += gpu.pod is not None
        if gpu.node in sim.exporters.silent:
            totals["no_telemetry"] += 1
            continue
        if gpu.pod is None:
            totals["free"] += 1
        elif gpu.busy < 0.05 and gpu.engine < 0.05:
            totals["held_idle"] += 1
        else:
            totals["active"] += 1
            totals["effective" if gpu.sm >= 0.5 else "low"] += 1
    return totals


def test_the_funnel_is_the_truth_through_the_whole_path(world):
    world.read()
    truth, summary = expected(world.sim), world.summary()
    assert min(truth[name] for name in ("held_idle", "low", "free", "effective")) > 0
    assert truth["no_telemetry"] == 8
    assert {name: summary[name] for name in truth} == truth
    assert (
        sum(summary[name] for name in ("effective", "low", "held_idle", "free", "out", "no_telemetry"))
        == summary["total"]
    )
    assert [model["total"] for model in summary["models"]] == [truth["total"]]
    page = world.text("/gpus/")
    assert f"{truth['total']} GPUs on 24 nodes" in page
    assert (
        f"{truth['effective']} do effective work, {truth['held_idle']} are held idle, 8 are without telemetry" in page
    )


def test_find_the_idle_holder_open_its_node_see_its_xid(world):
    world.read()
    page = world.client.get("/gpus/").content.decode()
    (sick,) = {gpu.node for gpu in world.sim.gpus.fleet() if gpu.xid}
    holder = next(gpu.pod for gpu in world.sim.gpus.fleet() if gpu.node == sick and gpu.pod)
    row = next(part for part in page.split("<tr>") if f"{holder[0]}/{holder[1]}" in part)
    node = world.text(re.search(r'href="(/nodes/\d+/)#gpus"', row)[1])
    assert "XID 48, double-bit ECC error" in node
    assert "then reset this GPU" in node
    assert "Held idle" in node
    # Its ECC errors and remapped row, and the links' errors
    row = r"GPU \d 48 double-bit ECC error reset the GPU .{0,60} 1 / 7 .{0,9}1 \+ 0 .{0,60}MHz .{0,40} 0 / 0"
    assert re.search(row, node)


def test_each_figure_of_the_heatmap_is_its_gpus(world):
    world.read()
    cells = world.client.get(f"/gpus/clusters/{world.cluster.pk}/?metric=temperature").context["cells"]
    truth = {(gpu.node, str(gpu.index)): gpu for gpu in world.sim.gpus.fleet()}
    seen = 0
    for _pk, name, _group, known, missing in cells["nodes"]:
        assert missing == (8 if name in world.sim.exporters.silent else 0)
        for index in range(known):
            gpu, at, seen = truth[name, str(index)], seen, seen + 1
            pod = cells["pod"][at]
            assert (cells["value"][at], cells["heat"][at]) == (gpu.temperature, gpu.temperature)
            assert (cells["busy"][at], cells["power"][at]) == (round(gpu.busy * 100), round(gpu.power))
            assert cells["xid"].get(at, 0) == gpu.xid
            assert (cells["pods"][pod] if pod >= 0 else None) == ("/".join(gpu.pod[:2]) if gpu.pod else None)
            assert (states.STATES[int(cells["states"][at])] == "free") == (gpu.pod is None)
    assert seen == 23 * 8


def test_before_the_first_reading_nothing_is_zero_or_idle(world):
    summary = world.summary()
    assert summary["no_telemetry"] == summary["total"]
    assert summary["held_idle"] == summary["free"] == summary["active"] == 0
    assert "Telemetry has not been read yet" in world.text(f"/gpus/clusters/{world.cluster.pk}/")


def test_what_is_too_old_is_unknown(world, clock):
    world.read()
    clock.forward(seconds=600)
    summary = world.summary()
    assert summary["no_telemetry"] == summary["total"]
    assert summary["allocated"] == expected(world.sim)["allocated"]
    page = world.text(f"/gpus/clusters/{world.cluster.pk}/")
    assert "The figures are too old" in page
    node = GpuDevice.objects.exclude(node=None).first().node_id
    assert "As last known" in world.text(f"/nodes/{node}/")


def test_a_source_that_fails_says_why(world):
    TelemetrySource.objects.update(state="failed", sentence="The exporters' pods could not be listed: forbidden.")
    page = world.text(f"/gpus/clusters/{world.cluster.pk}/")
    assert "The last reading failed" in page
    assert "could not be listed: forbidden" in page


def test_the_trust_panel_says_what_is_odd(world):
    world.read()
    page = world.text(f"/gpus/clusters/{world.cluster.pk}/")
    assert "1 of 24 did not answer" in page
    assert "184 of 192 GPUs report" in page
    assert "Two exporter generations at once" in page
    assert "4.8.3, 4.9.0" in page


def test_a_fleet_without_gpus_says_so(clock):
    cluster = ClusterFactory()
    client = Client()
    client.force_login(UserFactory(is_superuser=True))
    assert b"No node offers a GPU" in client.get("/gpus/").content
    assert b"No node of this cluster offers a GPU" in client.get(f"/gpus/clusters/{cluster.pk}/").content


@pytest.mark.parametrize(
    ("path", "most"),
    [("/gpus/", 17), ("/gpus/clusters/{}/", 19), ("/api/v1/gpus/summary", 15), ("/api/v1/gpus/held-idle", 15)],
)
def test_pages_cost_the_same_few_queries_at_any_size(world, django_assert_max_num_queries, path, most):
    world.read()
    with django_assert_max_num_queries(most):  # two of them are the first page of a session's
        assert world.client.get(path.format(world.cluster.pk)).status_code == 200


def test_the_list_of_devices_is_the_truth(world):
    world.read()
    rows = world.client.get("/api/v1/gpus/devices?cluster=atlas&limit=200").json()
    assert rows["count"] == 23 * 8
    truth = {gpu.uuid: gpu for gpu in world.sim.gpus.fleet()}
    for row in rows["results"]:
        gpu = truth[row["uuid"]]
        assert (row["node_name"], row["values"]["memory_used"]) == (gpu.node, gpu.memory_used)
    refused = world.client.get("/api/v1/gpus/summary?cluster=atlas")
    assert refused.status_code == 422 or refused.status_code == 400


def test_a_pod_that_only_the_api_server_knows_is_held_and_unknown(world):
    world.read()
    before = world.summary()
    node = Node.objects.filter(gpu_count=8, gpu_allocated=0).exclude(name__in=world.sim.exporters.silent).first()
    Node.objects.filter(pk=node.pk).update(gpu_allocated=3)
    after = world.summary()
    assert after["allocated"] == before["allocated"] + 3
    assert after["no_telemetry"] == before["no_telemetry"] + 3
    assert after["free"] == before["free"] - 3
    assert GpuPod.objects.exists()


def test_who_holds_gpus_idle_and_since_when_is_the_same_on_every_page_over_rest_and_in_alerts(world, clock):
    world.read()
    for _ in range(3):
        clock.forward(minutes=10)
        world.sim.tick(600)
        world.read()
    body = world.client.get("/api/v1/gpus/held-idle").json()
    assert body["gpus"] > 1
    assert body["count"] > 1
    assert world.summary()["held_idle"] == body["gpus"]
    for path in ("/gpus/", f"/gpus/clusters/{world.cluster.pk}/"):
        page = world.client.get(path).content.decode()
        assert hooks(page, "held-idle") == {(body["gpus"],)}, path
        assert hooks(page, "idle-pods") == {(body["count"],)}, path
        pods = {(match[0], _second(match[1])) for match in re.findall(r'data-pod="([^"]+)" data-since="([^"]+)"', page)}
        assert pods == {(f"{pod['namespace']}/{pod['pod']}", _second(pod["idle_since"])) for pod in body["pods"]}, path
    assert hooks(world.client.get("/gpus/").content.decode(), "idle-there") == {(body["gpus"],)}

    since = {f"{pod['namespace']}/{pod['pod']}": datetime.fromisoformat(pod["idle_since"]) for pod in body["pods"]}
    conditions = idle.held_idle(world.cluster.pk, 5.0).conditions
    assert {member.name: member.since for condition in conditions for member in condition.members} == since


def _second(text):
    return datetime.fromisoformat(text).replace(microsecond=0)
