"""Peak performance of boards, where the exporter does not report it."""

from __future__ import annotations

from typing import Protocol

from gpus.metrics.samples import Metric

MHZ = 1e6


class MetricValues(Protocol):
    """Values by metric: a reading's mapping, or a stored row's, whose keys are the metrics' names."""

    def get(self, metric: Metric, /) -> float | None: ...


MAX_SM_CLOCKS: tuple[tuple[str, float], ...] = (
    # `nvidia-smi -q -d CLOCK`, "Max Clocks, SM", by what the model's name contains; the first that fits
    ("GB200", 2062), ("B200", 1965), ("GH200", 1980), ("H200", 1980), ("H100 PCIe", 1755), ("H100 NVL", 1785),
    ("H100", 1980), ("A100", 1410), ("A800", 1410), ("H800", 1980), ("L40S", 2520), ("L40", 2490), ("L4", 2040),
    ("A40", 1740), ("A30", 1440), ("A10", 1695), ("V100", 1530), ("T4", 1590),
)  # fmt: skip
"""MHz. A ratio of before to after is the same for any value here: it cancels."""


def max_sm_clock(values: MetricValues, model: str) -> float | None:
    """Hz: as exported, else by the model; None of a model that is not known."""
    if exported := values.get(Metric.MAX_SM_CLOCK):
        return exported
    plain = model.replace("-", " ")
    return next((clock * MHZ for name, clock in MAX_SM_CLOCKS if name in plain), None)


def ofu(values: MetricValues, model: str) -> float | None:
    """Tensor activity times SM clock over its maximum (arXiv 2605.20799); None where one of them is not known."""
    tensor, clock, top = values.get(Metric.TENSOR), values.get(Metric.SM_CLOCK), max_sm_clock(values, model)
    return None if tensor is None or clock is None or not top else tensor * clock / top
