"""Sparklines on a node's page: means of five minutes, with gaps where data is missing, and the same few queries."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client

from clusters.models import Node
from common.clock import now
from gpus.metrics.buckets import Bucket, Device
from gpus.metrics.samples import Metric
from gpus.models import GpuDevice, GpuPacked, TelemetrySource
from gpus.reports import sparklines
from gpus.storage import codec, sharding
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db
FIVE = timedelta(minutes=5)


@pytest.fixture
def cluster(clock):
    row = ClusterFactory()
    TelemetrySource.objects.create(cluster=row, state="well", read_at=now(), devices=1)
    return row


def node(cluster, *, gpus: int = 1, instances: int = 0) -> Node:
    row = Node.objects.create(cluster=cluster, uid="u1", name="n1", is_ready=True, gpu_count=gpus)
    for index in range(gpus):
        parts = [""] if not instances else ["", *map(str, range(1, instances + 1))]
        for part in parts:
            GpuDevice.objects.create(
                cluster=cluster, node=row, node_name="n1", uuid=f"GPU-{index}", index=str(index), instance=part,
                is_board=bool(instances) and not part, values={"busy": 0.5},
            )  # fmt: skip
    return row


def pack(cluster, ago: int, means: dict[Device, dict[Metric, float]]) -> None:
    """Five minutes that began `ago` steps before the last whole one."""
    start = now().replace(minute=now().minute // 5 * 5, second=0, microsecond=0) - FIVE * (ago + 1)
    data = codec.pack((device, Bucket(start, 1.0, 0.0, values, "")) for device, values in means.items())
    GpuPacked.objects.create(
        cluster=cluster, seconds=300, start=start, of=1, shard=sharding.number("n1", 1), data=data
    )  # fmt: skip


def lines(cluster, gpu_node: Node) -> dict[tuple[str, str], list[sparklines.Sparkline]]:
    client = Client()
    client.force_login(UserFactory(is_superuser=True))
    page = client.get(f"/nodes/{gpu_node.pk}/")
    (panel,) = [panel.context for panel in page.context["panels"] if "tiles" in panel.context]
    return {(tile["gpu"].uuid, tile["gpu"].instance): tile["lines"] for tile in panel["tiles"]}


def test_what_nobody_knows_is_a_gap_and_a_zero_is_a_line(cluster):
    gpu_node, device = node(cluster), Device("GPU-0", "", "n1", "H100")
    for ago, busy in ((0, 0.9), (1, 0.0), (3, 0.4)):
        pack(cluster, ago, {device: {Metric.BUSY: busy}})
    pack(cluster, 2, {device: {Metric.POWER: 300.0}})  # busy was not reported then
    busy, power = lines(cluster, gpu_node)["GPU-0", ""]
    assert busy.values[-4:] == [40.0, None, 0.0, 90.0]
    assert set(busy.values[:-4]) == {None}
    assert power.values[-4:] == [None, 300.0, None, None]
    assert busy.in_words == (
        "Busy in the last 4 hours: least 0 %, median 40 %, most 90 %; 3 h 45 min unknown"
    )  # fmt: skip
    drawn = str(busy.drawn)
    gaps = [(float(x), float(wide)) for x, wide in re.findall(r'x="([\d.]+)%" width="([\d.]+)%"', drawn)]
    assert gaps == [(0.0, pytest.approx(91.67)), (pytest.approx(93.75), pytest.approx(2.08))]
    line = re.search(r'class="on" d="([^"]*)"', drawn)[1]
    assert line == "M44,10.8H45M46,18.0H47V1.8H48"  # the zero is drawn at the foot, the gap is not


def test_a_step_that_no_reading_has_closed_yet_is_no_gap(cluster):
    gpu_node, device = node(cluster), Device("GPU-0", "", "n1", "H100")
    pack(cluster, 1, {device: {Metric.BUSY: 0.3}})
    pack(cluster, 3, {device: {Metric.BUSY: 0.2}})
    (busy,) = lines(cluster, gpu_node)["GPU-0", ""]
    assert (len(busy.values), busy.values[-3:]) == (48, [20.0, None, 30.0])


def test_an_instance_has_its_own_activity_its_boards_heat_and_no_watts(cluster):
    gpu_node = node(cluster, instances=2)
    pack(
        cluster, 0,
        {
            Device("GPU-0", "", "n1", "H100"): {Metric.POWER: 400.0, Metric.TEMPERATURE: 61.0},
            Device("GPU-0", "1", "n1", "H100"): {Metric.ENGINE: 0.25},
        },
    )  # fmt: skip
    by_gpu = lines(cluster, gpu_node)
    assert [(line.kind.word, line.values[-1]) for line in by_gpu["GPU-0", "1"]] == [
        ("Engine", 25.0),
        ("Temperature", 61.0),
    ]
    assert [line.kind.word for line in by_gpu["GPU-0", "2"]] == ["Temperature"]


def test_more_than_the_usual_top_is_not_cut_off(cluster):
    kind = sparklines.POWER
    drawn = str(sparklines.Sparkline(kind, [1000.0, 500.0]).drawn)
    assert 'class="on" d="M0,0.0H1V9.0H2"' in drawn


def test_the_page_costs_as_many_queries_with_sixteen_gpus_as_with_one(cluster, django_assert_max_num_queries):
    gpu_node = node(cluster, gpus=16)
    everything = {Device(f"GPU-{n}", "", "n1", "H100"): {Metric.BUSY: 0.5, Metric.POWER: 1.0} for n in range(16)}
    for ago in range(48):
        pack(cluster, ago, everything)
    client = Client()
    client.force_login(UserFactory(roles=["viewer"]))
    client.get(f"/nodes/{gpu_node.pk}/")  # templates are compiled once
    for address in ("?window=30d", ""):
        with django_assert_max_num_queries(16):  # of all rooms that have something to say of a node
            page = client.get(f"/nodes/{gpu_node.pk}/{address}").content.decode()
    assert page.count('class="spark"') == 16 * 2
