"""The automatic kind: which of a cluster's ways to telemetry it finds, what it says of it, and whom it never bills."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest

from clusters.connection import registry
from gpus.models import GpuDevice, TelemetrySource
from gpus.reports import data_quality
from gpus.services import polling
from gpus.telemetry import autodetect
from tests.clusters.factories import ClusterFactory
from tests.gpus.exporting import Exporting, Gpu, labels

pytestmark = pytest.mark.django_db
State = TelemetrySource.State
SERVICE = "monitoring/prometheus-operated:9090"


class World:
    """Two nodes with exporters whose pods have names of their own, and a Prometheus once `serve` is called."""

    def __init__(self, clock) -> None:
        self.clock, self.sim, self.asked = clock, Exporting(), []
        self.sim.node("n1", Gpu("GPU-1"), Gpu("GPU-2", busy=0, holder=None))
        self.cluster = ClusterFactory(uid=self.sim.cluster.uid)
        self.source = TelemetrySource.objects.create(cluster=self.cluster)
        self.status = 200
        self.is_empty = False

    def serve(self) -> None:
        service = {"metadata": {"name": "prometheus-operated", "namespace": "monitoring"}, "spec": {}}
        self.sim.cluster.store.create("services", service)
        self.sim.cluster.proxies.answerers["services"].append(self._answer)

    def _answer(self, _service, port, path, query):
        if (port, path) != ("9090", "api/v1/query"):
            return None
        self.asked.append(query["query"])
        result = [] if self.is_empty else self._result(query["query"])
        body = {"status": "success", "data": {"resultType": "vector", "result": result}}
        return self.status, json.dumps(body)

    def _result(self, query: str) -> list:
        if query.startswith("count("):
            return [{"metric": {}, "value": [0, "2"]}]
        if "timestamp" in query or query.startswith("up") or "DCGM_FI_DEV_GPU_UTIL|" not in query:
            return []
        # honorLabels is true: a GPU without a holder inherits the exporter's pod; the host's name is the pod's, too.
        results = []
        for index, gpu in enumerate(self.sim.gpus["n1"]):
            own = dict(re.findall(r'(\w+)="([^"]*)"', labels("localhost", index, gpu)))
            target = {"namespace": "gpu-operator", "pod": "dcgm-n1", "instance": "10.9.9.9:9400"}
            metric = {"__name__": "DCGM_FI_DEV_GPU_UTIL"} | target | own
            results.append({"metric": metric, "value": [0, str(gpu.busy)]})
        return results

    def read(self, minutes: int = 10) -> TelemetrySource:
        self.clock.forward(seconds=60 * minutes)
        TelemetrySource.objects.update(due_at=self.clock.at)
        with registry.override(self.cluster.pk, self.sim.fleet):
            assert polling.tick(self.source.pk)
        self.source.refresh_from_db()
        return self.source


@pytest.fixture
def world(clock):
    return World(clock)


def test_without_a_prometheus_the_exporters_are_read_and_the_panel_says_why(world):
    source = world.read()
    assert (source.state, source.chosen, source.devices) == (State.WELL, "exporters", 2)
    sentence = data_quality.reads(source)
    assert sentence.startswith("Auto-detected: the exporters themselves. None of the 8 services")
    read_count = world.sim.fleet.calls["get", "services/proxy"]
    assert read_count == len(autodetect.WELL_KNOWN)
    world.read(minutes=2)
    assert world.sim.fleet.calls["get", "services/proxy"] == read_count  # what was found is believed for an hour


def test_a_prometheus_that_has_its_gpus_is_preferred_and_found_within_the_hour(world):
    world.read()
    world.serve()
    assert world.read().chosen == "exporters"
    source = world.read(minutes=70)
    assert (source.state, source.chosen, source.devices) == (State.WELL, SERVICE, 2)
    assert "Prometheus at monitoring/prometheus-operated:9090 has series of 2 GPUs." in data_quality.reads(source)


def test_one_that_knows_no_gpu_is_named_and_not_read(world):
    world.serve()
    world.is_empty = True
    source = world.read()
    assert source.chosen == "exporters"
    assert f"Without any: {SERVICE}." in source.chosen_because


def test_one_that_breaks_is_left_for_the_exporters_in_some_minutes(world):
    world.serve()
    assert world.read().chosen == SERVICE
    world.status = 500
    source = world.read(minutes=2)
    assert (source.state, source.chosen) == (State.FAILED, SERVICE)
    assert (world.read(minutes=6).state, world.source.chosen) == (State.WELL, "exporters")


def test_the_exporters_own_pod_is_never_the_holder_whatever_it_is_called(world):
    world.serve()
    world.read()
    held = {gpu.uuid: gpu.holders for gpu in GpuDevice.objects.all()}
    assert held == {"GPU-1": [["team", "trainer-0", "main"]], "GPU-2": []}
    # And the API server knows where it runs, though the exporter calls its host localhost.
    assert set(GpuDevice.objects.values_list("node_name", flat=True)) == {"n1"}


def test_a_pod_that_asks_for_gpus_is_no_exporter_whatever_its_labels(world):
    labels_ = {"app": "nvidia-dcgm-exporter"}
    world.sim.cluster.add_pod("trainer-0", node="n1", namespace="team", gpus=1, labels=labels_)
    world.serve()
    world.read()
    assert GpuDevice.objects.get(uuid="GPU-1").holders == [["team", "trainer-0", "main"]]


def test_an_api_server_that_is_away_is_looked_at_again(world):
    world.sim.cluster.faults.outage = True
    source = world.read()
    assert (source.state, source.chosen) == (State.FAILED, "")
    world.sim.cluster.faults.outage = False
    assert world.read().chosen == "exporters"


def test_what_was_found_is_forgotten_in_time(world):
    source = world.read()
    assert autodetect.remembered(source)
    source.chosen_at -= timedelta(hours=2)
    assert autodetect.remembered(source) is None
