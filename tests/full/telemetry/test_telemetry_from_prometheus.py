"""A real Prometheus scrapes exporters of both generations in both modes: what is stored is what their raw text says."""

from __future__ import annotations

import itertools
import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

import pytest

from clusters.connection import registry
from gpus.models import GpuDevice, TelemetrySource
from gpus.services import polling
from gpus.telemetry import prometheus
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory
from tests.full.harness.client import eventually
from tests.full.harness.prometheus import Job, Prometheus

pytestmark = [pytest.mark.full, pytest.mark.django_db]

EXPORTERS = Path(__file__).parents[2] / "gpus" / "exporters"
GENERATIONS = ("classic", "base_units")
MIB = 1024**2
# Worked out by hand from the exporter's documentation, apart from `gpus.metrics.nvidia`.
UNITS = {
    "classic": {
        "busy": ("DCGM_FI_DEV_GPU_UTIL", 0.01),
        "tensor": ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 1),
        "memory_used": ("DCGM_FI_DEV_FB_USED", MIB),
        "power": ("DCGM_FI_DEV_POWER_USAGE", 1),
        "energy": ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 0.001),
        "sm_clock": ("DCGM_FI_DEV_SM_CLOCK", 1e6),
        "temperature": ("DCGM_FI_DEV_GPU_TEMP", 1),
    },
    "base_units": {
        "busy": ("DCGM_FI_DEV_GPU_UTIL_RATIO", 1),
        "tensor": ("DCGM_FI_PROF_TENSOR_UTIL_RATIO", 1),
        "memory_used": ("DCGM_FI_DEV_FB_USED_BYTES", 1),
        "power": ("DCGM_FI_DEV_BOARD_POWER_WATTS", 1),
        "energy": ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1),
        "sm_clock": ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1),
        "temperature": ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", 1),
    },
}
CASES = list(itertools.product(GENERATIONS, (False, True)))


def title(generation: str, honors: bool) -> str:
    return f"{generation}-{'on' if honors else 'off'}"


def raw(generation: str) -> str:
    return (EXPORTERS / f"{generation}.prom").read_text()


def only(text: str, name: str) -> str:
    """Return the series of one metric, as an exporter with a list of counters of its own prints."""
    return "".join(line for line in text.splitlines(keepends=True) if re.match(rf"(# \w+ )?{name}\b", line))


@pytest.fixture(scope="module")
def server() -> Iterator[Prometheus]:
    own = {"namespace": "gpu-operator", "pod": "dcgm-exporter-x", "container": "exporter"}
    jobs = [Job(title(gen, honors), raw(gen), honors, {"cluster": title(gen, honors), **own}) for gen, honors in CASES]
    amd = {"namespace": "kube-amd-gpu", "pod": "default-metrics-exporter-x", "container": "exporter"}
    jobs += [Job(title("amd", on), raw("amd"), on, {"cluster": title("amd", on), **amd}) for on in (False, True)]
    lean = {"namespace": "monitoring", "pod": "own-exporter-x", "container": "exporter"}
    jobs.append(Job("lean", only(raw("classic"), "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"), True, {"cluster": "lean", **lean}))
    with Prometheus(jobs) as server:
        yield server


@pytest.fixture
def read(server, settings):
    """The API server, which is asked for exporters' pods, knows of none: labels alone say whose a GPU is."""
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    known = ExitStack()

    def once(selector: str, **fields) -> TelemetrySource:
        cluster = ClusterFactory()
        known.enter_context(registry.override(cluster.pk, SimFleet(SimCluster(seed=1))))
        source = TelemetrySource.objects.create(
            cluster=cluster, kind=TelemetrySource.Kind.PROMETHEUS, url=server.url, selector=selector, **fields
        )

        def has_scraped() -> bool:
            TelemetrySource.objects.update(due_at="2020-01-01T00:00Z")
            assert polling.tick(source.pk)
            source.refresh_from_db()
            # A first scrape in the middle of a reading leaves its ages out, and the next one has them.
            if source.state == source.State.WELL:
                return source.skew_seconds is not None
            return source.state not in (source.State.NEVER, source.State.EMPTY)

        eventually(has_scraped, lambda: source.sentence)
        return source

    with known:
        yield once


@pytest.mark.parametrize(("generation", "honors"), CASES)
def test_what_is_stored_is_what_the_raw_text_says(read, generation, honors):
    source = read(f'cluster="{title(generation, honors)}"')
    assert (source.state, source.sentence) == ("well", "")
    assert source.generations == [generation]
    assert source.honor_labels == ("on" if honors else "off")
    assert abs(source.skew_seconds) < 5
    assert source.asked == len(prometheus.queries())
    raw_values, holders = {}, {}
    for name, labels, value in re.findall(r"^(\w+)\{(.*)\} (\S+)$", raw(generation), re.MULTILINE):
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        raw_values[name, of["UUID"]] = float(value)
        if of.get("pod"):
            holders[of["UUID"]] = [[of["namespace"], of["pod"], of["container"]]]
    devices = {device.uuid: device for device in GpuDevice.objects.filter(cluster=source.cluster_id)}
    assert devices.keys() == {uuid for _, uuid in raw_values}
    assert len(devices) > 1
    for uuid, device in devices.items():
        for metric, (name, scale) in UNITS[generation].items():
            assert device.values[metric] == pytest.approx(raw_values[name, uuid] * scale), (metric, uuid)
        assert device.holders == holders.get(uuid, [])
        assert device.node_name == "gpu-node-07"


def test_an_exporter_with_a_list_of_counters_of_its_own_is_seen_like_any_other(read, server):
    """Its GPUs are counted, its age is known, and its own pod is known from `up` and holds nothing."""
    source = read('cluster="lean"')
    assert (source.state, source.sentence) == ("well", "")
    devices = list(GpuDevice.objects.filter(cluster=source.cluster_id))
    assert len(devices) > 1
    assert {holder[1] for device in devices for holder in device.holders}.isdisjoint({"own-exporter-x"})
    assert source.skew_seconds is not None
    query = urlencode({"query": prometheus.census('cluster="lean"')})
    with urllib.request.urlopen(f"{server.url}/api/v1/query?{query}", timeout=10) as answer:
        result = json.load(answer)["data"]["result"]
    assert [int(sample["value"][1]) for sample in result] == [len(devices)]


@pytest.mark.parametrize("honors", [False, True])
def test_amds_exporter_is_read_alike(read, honors):
    source = read(f'cluster="{title("amd", honors)}"')
    assert (source.state, source.sentence, source.generations) == ("well", "", ["amd"])
    assert source.honor_labels == ("on" if honors else "off")
    devices = {(device.uuid, device.instance): device for device in GpuDevice.objects.filter(cluster=source.cluster_id)}
    assert {uuid: device.holders for (uuid, _), device in devices.items() if device.holders} == {
        "AMD-692409005408-0": [["team-chat", "llama-0", "vllm"]],
        "AMD-692409005410": [["team-vision", "vit-0", "main"]],
    }
    # By hand, from the text and the exporter's documentation
    held, board = devices["AMD-692409005408-0", ""], devices["AMD-692409005410", ""]
    expected = {
        "busy": 0.97, "power": 748, "energy": 1.4e11, "temperature": 76, "sm_clock": 2.1e9, "memory_clock": 1.3e9,
        "memory_used": 183265 * MIB, "tensor": 0.3825,
    }  # fmt: skip
    assert {name: held.values[name] for name in expected} == pytest.approx(expected)
    assert (board.is_board, board.values["power"], held.node_name) == (True, 402, "mi-node-1")
    assert len(devices) == 5


def test_a_selector_that_is_no_promql_is_said_to_be_none(read):
    source = read('cluster="a" or')
    assert source.state == source.State.FAILED
    assert "(400): invalid parameter" in source.sentence
    assert not GpuDevice.objects.filter(cluster=source.cluster_id).exists()


def test_an_address_without_prometheus_is_said_to_have_none(server, read):
    source = read("", username="")
    TelemetrySource.objects.update(url=f"{server.url}/api/v1", due_at="2020-01-01T00:00Z")
    assert polling.tick(source.pk)
    source.refresh_from_db()
    assert source.state == source.State.FAILED
    assert "(404)" in source.sentence
