"""The one page for an on-call person: everything that a sick GPU reports is on its node's page."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client

from clusters.models import Node
from common.clock import now
from gpus.models import GpuDevice, TelemetrySource
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db
VALUES = {
    "busy": 0.31, "sm": 0.2, "tensor": 0.1, "power": 402, "temperature": 91, "sm_clock": 1.11e9,
    "memory_clock": 2.222e9,
    "power_throttled": 33.0, "thermal_throttled": 44.0, "pcie_replays": 55, "nvlink_crc_errors": 60,
    "nvlink_replays": 6,
    "rows_remapped_uncorrectable": 7, "rows_remapped_correctable": 8, "row_remap_failed": 1, "row_remap_pending": 1,
    "ecc_uncorrected_volatile": 12, "ecc_corrected_volatile": 13, "ecc_uncorrected_lifetime": 14,
    "ecc_corrected_lifetime": 15,
}  # fmt: skip
XIDS = {
    13: "application", 63: "watch", 46: "reset the GPU", 79: "restart the node", 48: "reset the GPU", 142: "vendor",
    154: "as stated",
}  # fmt: skip


def page(**fields) -> str:
    cluster = ClusterFactory()
    TelemetrySource.objects.create(cluster=cluster, state="well", read_at=now(), devices=1)
    node = Node.objects.create(cluster=cluster, uid="u1", name="n1", is_ready=True, gpu_count=1)
    GpuDevice.objects.create(
        cluster=cluster, node=node, node_name="n1", uuid="GPU-0", index="0", model="NVIDIA H100 80GB HBM3", **fields
    )  # fmt: skip
    client = Client()
    client.force_login(UserFactory(is_superuser=True))
    content = client.get(f"/nodes/{node.pk}/").content.decode()
    part = content[content.index('id="gpus"') :].partition("</section>")[0]
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", part)))


def test_a_sick_gpu_says_all_of_it_and_what_to_do(clock):
    shown = page(
        values=VALUES, holders=[["team", "llm-0", "main"], ["team", "llm-1", "main"]],
        xids=[[code, 2, "window"] for code in XIDS],
        clock_events={"hw_thermal": 21, "power_cap": 22, "hw_power_brake": 23},
    )  # fmt: skip
    for code, word in XIDS.items():
        assert re.search(rf" {code} ([a-z][^0-9]* )?{word} 2 in the exporter's window", shown), code
    for code in XIDS.keys() - {13}:  # the application's own needs no action
        assert f": XID {code}" in shown, code
    for expected in (
        "team/llm-0, team/llm-1", "12 / 13", "14 / 15 in its life", "7 + 8", "heat 44 s", "power 33 s",
        "hardware, heat: 21", "power limit: 22", "power brake: 23", "1110 / 1980 MHz", "memory 2222 MHz", "55 / 66",
        "Row remapping failed", "A row remap is pending", "12 uncorrected ECC errors", "Clocks are throttled",
        "402 W", "91 °C",
    ):  # fmt: skip
        assert expected in shown, expected


def test_what_a_gpu_does_not_say_is_a_dash_and_no_zero(clock):
    shown = page(values={"busy": 0.31})
    assert "– / –" in shown
    assert not re.search(r"\b0\b(?! ·)", shown.split("Link errors")[1].split("is not reported")[0].replace("GPU 0", ""))
