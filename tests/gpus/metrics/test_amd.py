"""AMD's device-metrics-exporter in its own words: the same metrics in the same units; what it lacks stays absent."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from clusters import objects
from clusters.connection import registry
from gpus.metrics import amd, vendors
from gpus.metrics.nvidia import MHZ, MIB, MICRO, PERCENT
from gpus.metrics.samples import Code, ExporterPod, Generation, Holder, HonorLabels, Metric
from gpus.models import GpuDevice, TelemetrySource
from gpus.reports import data_quality
from gpus.services import polling
from gpus.telemetry import prometheus as asking
from tests.clusters.factories import ClusterFactory
from tests.gpus.exporting import Exporting
from tests.gpus.scrapes import counts, direct, fixture, prometheus, read, sample

EXPORTER = "kube-amd-gpu/default-metrics-exporter-vvvkm"
TARGET = {
    "instance": "10.42.1.221:5000",
    "job": "gpu-exporter",
    "namespace": "kube-amd-gpu",
    "pod": "default-metrics-exporter-vvvkm",
    "container": "metrics-exporter-container",
    "service": "default-metrics-exporter",
}
HELD, FREE, BOARD = "AMD-692409005408-0", "AMD-692409005409-1", "AMD-692409005410"
PAGE = (Path(__file__).parents[3] / "docs" / "gpu.md").read_text()


def test_an_exporter_of_amds_in_our_units():
    reading = read(direct(fixture("amd"), EXPORTER))
    held, free = sample(reading, HELD), sample(reading, FREE)
    assert (held.node, held.index, held.model, held.driver) == ("mi-node-1", "0", "AMD Instinct MI300X OAM", "6.12.12")
    assert held.holders == (Holder("team-chat", "llama-0", "vllm"),)
    assert held.values == {
        Metric.BUSY: 0.97,
        Metric.MEMORY_COPY: 0.41,
        Metric.TENSOR: 0.3825,
        Metric.POWER: 748,  # of two names for it, the package's
        Metric.ENERGY: 1.4e11,
        Metric.TEMPERATURE: 76,
        Metric.MEMORY_TEMPERATURE: 58,
        Metric.MEMORY_CAPACITY: 196_592 * MIB,
        Metric.MEMORY_USED: 183_265 * MIB,
        Metric.MEMORY_FREE: 13_327 * MIB,
        Metric.SM_CLOCK: 2.1e9,  # of eight clock domains the highest
        Metric.MAX_SM_CLOCK: 2.1e9,
        Metric.MEMORY_CLOCK: 1.3e9,
        Metric.ECC_CORRECTED_VOLATILE: 3,
        Metric.ECC_UNCORRECTED_VOLATILE: 0,
        Metric.PCIE_REPLAYS: 2,
    }
    assert (free.holders, free.values[Metric.BUSY], free.values[Metric.TENSOR]) == ((), 0, 0)
    assert (held.xids, held.clock_events) == ((), None)
    assert (reading.generations, reading.honor_labels) == ({Generation.AMD}, HonorLabels.DIRECT)
    assert counts(reading).keys() <= {Code.NOT_THERE, Code.PROFILING_ABSENT}


def test_partitions_are_instances_of_one_board_and_its_watts_stand_once():
    reading = read(direct(fixture("amd"), EXPORTER))
    first, second = sample(reading, BOARD, "0"), sample(reading, BOARD, "1")
    assert (first.profile, first.holders[0].pod, second.holders) == ("dpx", "vit-0", ())
    for partition in (first, second):
        assert partition.values.keys() == {Metric.MEMORY_CAPACITY, Metric.MEMORY_USED, Metric.MEMORY_FREE}
    (board,) = reading.boards
    # The second partition says 0 W, 0 °C and a counter of all ones: not available, and no values
    assert board.values == {Metric.POWER: 402, Metric.ENERGY: 3.3e10, Metric.TEMPERATURE: 55, Metric.PCIE_REPLAYS: 1}
    assert len(list(reading.hardware())) == 3


@pytest.mark.parametrize("honor_labels", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_through_prometheus_it_is_the_same_and_the_exporter_gets_no_bill(honor_labels, known):
    pods = [ExporterPod("kube-amd-gpu", TARGET["pod"], "mi-node-1", "10.42.1.221")] if known else []
    series = prometheus(fixture("amd"), honor_labels=honor_labels, target=TARGET)
    random.Random(4).shuffle(series)
    reading, straight = read(series, pods), read(direct(fixture("amd"), EXPORTER))
    assert (reading.samples, reading.boards) == (straight.samples, straight.boards)


def test_a_prefix_older_clock_names_and_what_is_not_available():
    text = fixture("amd").replace('clock_type="', 'clock_type="GPU_CLOCK_TYPE_')
    text = re.sub(r"^(gpu|pcie)_", r"amd_\1_", text, flags=re.MULTILINE)
    text = text.replace("CLOCK_TYPE_system", "CLOCK_TYPE_SYSTEM").replace("CLOCK_TYPE_memory", "CLOCK_TYPE_MEMORY")
    assert read(direct(text, EXPORTER)).samples == read(direct(fixture("amd"), EXPORTER)).samples
    lost = re.sub(
        r"^(gpu_(?:clock|package_power|junction_temperature).*) \d+$", r"\1 65535", fixture("amd"), flags=re.M
    )
    values = sample(read(direct(lost, EXPORTER)), HELD).values
    assert Metric.TEMPERATURE not in values
    assert Metric.SM_CLOCK not in values
    assert values[Metric.POWER] == 740  # the next best name


def test_series_of_others_that_are_called_alike_are_no_gpus():
    reading = read(direct('gpu_clock{clock="graphics",id="0"} 1200\ngpu_power_usage{gpu="0"} 3\n', "x/y"))
    assert (reading.samples, reading.findings, reading.generations) == ((), (), frozenset())


def test_boards_without_a_serial_number_are_told_apart_by_their_place():
    text = re.sub(r'serial_number="69240900540[89]"', 'serial_number="N/A"', fixture("amd"))
    uuids = {gpu_sample.device.uuid for gpu_sample in read(direct(text, EXPORTER)).samples}
    assert uuids == {"AMD-mi-node-1-0", "AMD-mi-node-1-1", BOARD}


def test_what_nodes_offer_and_pods_ask_for_is_counted_in_devices():
    assert objects.gpu_count({"amd.com/gpu": "8", "cpu": "96"}) == 8
    assert objects.gpu_count({"amd.com/spx_nps1": "5", "amd.com/cpx_nps4": "24", "amd.com/nic": "8"}) == 29
    limits = {"resources": {"limits": {"amd.com/cpx_nps4": "2"}}}
    assert objects.pod_gpus({"spec": {"containers": [limits]}}) == 2


def test_prometheus_is_asked_for_them_in_the_same_queries():
    queries = "\n".join(asking.queries())
    assert all(name.raw in queries for name in amd.names())
    assert "gpu_junction_temperature" in asking.ages()
    assert "by (UUID, serial_number, gpu_id)" in asking.census()


@pytest.mark.django_db
def test_the_trust_panel_says_whose_exporter_it_is():
    source = TelemetrySource(
        cluster=ClusterFactory(), state="well", devices=4, has_profiling=True, honor_labels="direct",
        generations=["amd"], exporter_versions=["AMD device-metrics-exporter v1.4.1"],
    )  # fmt: skip
    text_by_title = {point.title: point.text for point in data_quality.of_reading(source)}
    assert text_by_title["AMD's exporter"] == "AMD device-metrics-exporter v1.4.1, with its own names and units."
    assert "One exporter generation" not in text_by_title
    source.generations, source.exporter_versions = ["amd", "classic"], ["4.8.1", *source.exporter_versions]
    text_by_title = {point.title: point.text for point in data_quality.of_reading(source)}
    assert text_by_title["One exporter generation"] == "dcgm-exporter 4.8.1, with the names of up to 4.8."
    assert "Two exporter generations at once" not in text_by_title


@pytest.mark.django_db
def test_its_pods_are_found_and_read_through_the_proxy(clock):
    world = Exporting()
    world.cluster.add_node("mi-node-1", gpus=0)
    image = "docker.io/rocm/device-metrics-exporter:v1.4.1"
    labels = {"app.kubernetes.io/name": "metrics-exporter"}
    world.cluster.add_pod(TARGET["pod"], node="mi-node-1", namespace="kube-amd-gpu", labels=labels)
    world.cluster.add_pod("postgres-metrics-exporter-1", node="mi-node-1", namespace="db", labels=labels)
    requests = []

    def answer(pod, port, path, _query):
        requests.append((pod["metadata"]["name"], port, path))
        return (200, fixture("amd")) if port == amd.PORT else None

    world.cluster.proxies.answerers["pods"].append(answer)
    stored = next(stored for stored in world.cluster.store.on_node("mi-node-1") if stored.key[1] == TARGET["pod"])
    container = stored.raw["spec"]["containers"][0] | {"image": image}
    world.cluster.store.write("pods", stored.raw | {"spec": stored.raw["spec"] | {"containers": [container]}})
    cluster = ClusterFactory(uid=world.cluster.uid)
    TelemetrySource.objects.create(cluster=cluster, kind="exporters")
    with registry.override(cluster.pk, world.fleet):
        assert polling.tick(TelemetrySource.objects.get().pk)
    source = TelemetrySource.objects.get()
    assert requests == [(TARGET["pod"], "5000", "metrics")]
    assert (source.state, source.devices, source.exporter_versions) == (
        "well", 4, ["AMD device-metrics-exporter v1.4.1"],
    )  # fmt: skip
    assert GpuDevice.objects.get(uuid=HELD).holders == [["team-chat", "llama-0", "vllm"]]


def test_the_table_is_the_names_that_are_read():
    part = PAGE[PAGE.index("\n### AMD") :].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|.*\|$", part, re.MULTILINE))
    scales = {PERCENT: " ÷ 100", MIB: " × 2²⁰", MHZ: " × 10⁶", MICRO: " ÷ 10⁶", 1.0: ""}
    plain = [name for name in amd.names() if not name.raw.startswith("amd_") and isinstance(name.means, Metric)]
    clocks = {"sm_clock": "gpu_clock", "memory_clock": "gpu_clock", "max_sm_clock": "gpu_max_clock"}
    wanted = {metric: f"`{raw}` × 10⁶" for metric, raw in clocks.items()}
    for name in sorted(plain, key=lambda name: name.rank):
        cell = f"`{name.raw}`{scales[name.scale]}"
        wanted[str(name.means)] = f"{wanted[str(name.means)]}, else {cell}" if name.rank else cell
    assert rows == wanted
    assert set(vendors.NAMES) >= {name.raw for name in plain}
