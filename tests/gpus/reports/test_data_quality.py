"""Trustworthiness of figures: where the API server and telemetry know different GPUs, each with its remedy."""

from __future__ import annotations

from datetime import timedelta

import pytest

from clusters.models import Node
from common.clock import now
from gpus.models import GpuDevice, NodeTally, TelemetrySource
from gpus.reports import data_quality, selectors
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster(clock):
    row = ClusterFactory()
    TelemetrySource.objects.create(cluster=row, state="well", read_at=now(), devices=9)
    for name, offered, held in (("even", 2, 2), ("silent", 8, 4), ("more", 1, 0)):
        Node.objects.create(
            cluster=row, uid=name, name=name, is_ready=True, gpu_count=offered, gpu_allocated=held
        )  # fmt: skip
    for number, (name, holder) in enumerate((("even", "a"), ("even", ""), ("more", ""), ("more", ""), ("", ""))):
        GpuDevice.objects.create(
            cluster=row,
            uuid=str(number),
            index=str(number),
            node=Node.objects.filter(name=name).first(),
            values={"busy": 0.0},
            holders=[["team", holder, "main"]] if holder else [],
        )
    return row


def texts_by_title(cluster) -> dict[str, str]:
    person, source = UserFactory(is_superuser=True), TelemetrySource.objects.get()
    source = selectors.sources(person).annotate(strays=selectors.strays()).get()
    nodes = selectors.nodes(person, [source], cluster)
    meeting = selectors.meeting(nodes, source.strays)
    points = data_quality.points(source, selectors.total(nodes), meeting)
    return {point.title: f"{point.severity}: {point.text}" for point in points}


def test_gpus_that_one_of_the_two_does_not_know_are_counted_both_ways(cluster):
    by_title = texts_by_title(cluster)
    assert by_title["3 of 12 GPUs report"] == (
        "warn: Known to the API server alone: silent (8). Look at these nodes' exporters. "
        "Of 1 more, telemetry says too little, or other than the API server. They are drawn hatched."
    )  # fmt: skip
    assert "more (1)" in by_title["1 GPU is known to telemetry alone"]
    assert "label matchers" in by_title["1 GPU is on nodes that the API server does not know"]


def test_the_share_of_gpus_that_name_their_pod_is_of_what_telemetry_sees(cluster):
    assert "Kubernetes mode" in texts_by_title(cluster)["1 of 2 allocated GPUs name their pod"]
    GpuDevice.objects.filter(uuid="1").update(holders=[["team", "b", "main"]])
    assert texts_by_title(cluster)["2 of 2 allocated GPUs name their pod"].startswith("ok: 100 %")


def test_of_a_reading_that_is_too_old_nothing_is_compared(cluster, clock):
    clock.forward(seconds=600)
    assert not any("known to" in title for title in texts_by_title(cluster))


def test_nothing_is_said_twice(cluster):
    GpuDevice.objects.update(holders=[])
    findings = [["profiling_absent", 9, "x"], ["no_holders", 9, "x"]]
    TelemetrySource.objects.update(findings=findings, has_profiling=False)
    by_title = texts_by_title(cluster)
    assert "No GPU has profiling figures" in by_title
    assert "0 of 2 allocated GPUs name their pod" in by_title
    assert not {"Profiling is missing on 9 GPUs", "No GPU names a pod"} & by_title.keys()
    TelemetrySource.objects.update(has_profiling=True)  # some have it
    assert "Profiling is missing on 9 GPUs" in texts_by_title(cluster)


def test_of_those_that_report_nothing_each_is_counted_once(cluster):
    Node.objects.filter(name="even").update(gpu_allocated=1)
    assert texts_by_title(cluster)["4 of 12 GPUs report"] == (
        "warn: Known to the API server alone: silent (8). Look at these nodes' exporters. They are drawn hatched."
    )  # fmt: skip


@pytest.mark.parametrize("is_rest", [False, True])
def test_gpus_of_virtual_machines_are_no_fault_of_an_exporter(cluster, client, is_rest):
    Node.objects.filter(name="silent").update(gpu_virtual=6)
    for name, counts in {"even": {"held": 1, "free": 1}, "more": {"free": 2}}.items():
        NodeTally.objects.create(node=Node.objects.get(name=name), **counts)
    by_title = texts_by_title(cluster)
    if is_rest:
        client.force_login(UserFactory(is_superuser=True))
        (row,) = client.get("/api/v1/gpus/summary").json()["clusters"]
        by_title = {point["title"]: point["text"] for point in row["trust"]}
    text = by_title["3 of 12 GPUs report"]
    assert "silent (2). Look at these nodes' exporters. For virtual machines: silent (6)." in text
    assert "Of 1 more," in text


@pytest.mark.parametrize("is_old", [False, True])
def test_rest_says_what_the_page_says(cluster, client, is_old):
    for name, counts in {"even": {"held": 1, "free": 1}, "more": {"free": 2}}.items():
        NodeTally.objects.create(node=Node.objects.get(name=name), **counts)
    if is_old:
        TelemetrySource.objects.update(read_at=now() - timedelta(minutes=10))
    client.force_login(UserFactory(is_superuser=True))
    (row,) = client.get("/api/v1/gpus/summary").json()["clusters"]
    assert {point["title"]: f"{point['severity']}: {point['text']}" for point in row["trust"]} == texts_by_title(
        cluster
    )


def test_dcgms_blanks_are_told(cluster):
    TelemetrySource.objects.update(findings=[["blank", 4, "DCGM_FI_DEV_GPU_TEMP"]])
    assert texts_by_title(cluster)["4 values are DCGM’s blanks"].endswith("DCGM_FI_DEV_GPU_TEMP")
