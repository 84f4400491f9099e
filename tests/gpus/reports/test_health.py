"""Faults of a GPU's hardware and their remedies: by its own counters, and never by what it did not report."""

from __future__ import annotations

import pytest

from gpus.metrics import xids
from gpus.metrics.samples import Metric
from gpus.models import GpuDevice
from gpus.reports import health


def device(index: str = "0", *, xids: list | None = None, clock_events: dict | None = None, **values) -> GpuDevice:
    figures = {str(Metric[name.upper()]): value for name, value in values.items()}
    return GpuDevice(
        index=index, model="NVIDIA H100 80GB HBM3", values=figures, xids=xids or [], clock_events=clock_events
    )


@pytest.mark.parametrize(
    ("given", "severity", "word"),
    [
        ({"xids": [[31, 1, "last"]]}, "ok", "application"),
        ({"xids": [[94, 2, "window"]]}, "warn", "watch"),
        ({"xids": [[95, 1, "total"]]}, "bad", "reset the GPU"),
        ({"xids": [[79, 1, "last"]]}, "bad", "restart the node"),
        ({"xids": [[48, 1, "last"]]}, "bad", "reset the GPU"),
        ({"xids": [[142, 1, "last"]]}, "bad", "vendor"),
        ({"row_remap_failed": 1}, "bad", "vendor"),
        ({"row_remap_pending": 1}, "warn", "reset the GPU"),
        ({"ecc_uncorrected_volatile": 3}, "bad", "reset the GPU"),
        ({"clock_events": {"hw_thermal": 4, "gpu_idle": 9}}, "warn", "site"),
    ],
)
def test_what_needs_somebody_says_whom(given, severity, word):
    (judged,) = health.of_devices([device(**given)])
    assert [(fact.severity, fact.word) for fact in judged.facts] == [(severity, word)]


def test_nothing_reported_is_nothing_wrong_and_no_zero():
    (judged,) = health.of_devices([device()])
    assert (judged.facts, judged.ecc, judged.rows, judged.reasons, judged.pcie) == (
        [],
        (None, None),
        (None, None),
        None,
        None,
    )
    (judged,) = health.of_devices([device(ecc_uncorrected_volatile=0, clock_events={"power_cap": 3, "gpu_idle": 2})])
    assert (judged.facts, judged.ecc) == ([], (0, None))
    assert judged.reasons == [("idle", 2), ("power limit", 3)]


def test_the_worst_stands_first_and_clocks_are_in_megahertz():
    judged = health.of_devices([device("10"), device("2", sm_clock=1.2e9), device("3", xids=[[79, 1, "last"]])])
    assert [gpu.name for gpu in judged] == ["3", "2", "10"]
    assert (judged[1].clock, judged[1].clock_top) == (1200, 1980)
    assert judged[0].xids == [(79, "fell off the bus", "the last one since the driver was loaded", xids.REBOOT)]
