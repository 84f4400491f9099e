"""Plausibility of values: blank markers of the vendor's library, and figures that no hardware has."""

from __future__ import annotations

from gpus.metrics.nvidia import Name
from gpus.metrics.samples import Metric

_AGES = 20 * 365 * 86400.0
"""Longer in seconds than any GPU has run."""
_MOST_BYTES = 16 * 1024.0**4
_MOST_WATTS = 10_000.0
_RATIO = (0.0, 1.05)
"""Averages of hardware counters overshoot 1 a little."""
_COUNTER = (0.0, 1e15)
_LINK = (0.0, 1e13)
"""Bytes a second: several times what all NVLinks of a GPU carry."""

LIMITS: dict[Metric, tuple[float, float]] = {
    Metric.BUSY: _RATIO,
    Metric.ENGINE: _RATIO,
    Metric.SM: _RATIO,
    Metric.OCCUPANCY: _RATIO,
    Metric.TENSOR: _RATIO,
    Metric.MEMORY_BANDWIDTH: _RATIO,
    Metric.MEMORY_COPY: _RATIO,
    Metric.MEMORY_USED: (0.0, _MOST_BYTES),
    Metric.MEMORY_FREE: (0.0, _MOST_BYTES),
    Metric.MEMORY_RESERVED: (0.0, _MOST_BYTES),
    Metric.MEMORY_CAPACITY: (0.0, _MOST_BYTES),
    Metric.POWER: (0.0, _MOST_WATTS),
    Metric.ENERGY: (0.0, _MOST_WATTS * _AGES),
    Metric.TEMPERATURE: (-50.0, 200.0),
    Metric.MEMORY_TEMPERATURE: (-50.0, 200.0),
    Metric.SLOWDOWN_TEMPERATURE: (0.0, 200.0),
    Metric.THERMAL_MARGIN: (-100.0, 200.0),
    Metric.MEMORY_TEMPERATURE_LIMIT: (0.0, 200.0),
    Metric.SM_CLOCK: (0.0, 1e10),
    Metric.MEMORY_CLOCK: (0.0, 1e11),
    Metric.MAX_SM_CLOCK: (0.0, 1e10),
    Metric.POWER_THROTTLED: (0.0, _AGES),
    Metric.THERMAL_THROTTLED: (0.0, _AGES),
    Metric.PCIE_REPLAYS: _COUNTER,
    Metric.PCIE_LINK_GENERATION: (0.0, 20.0),
    Metric.PCIE_LINK_GENERATION_LIMIT: (0.0, 20.0),
    Metric.PCIE_LINK_WIDTH: (0.0, 64.0),
    Metric.PCIE_LINK_WIDTH_LIMIT: (0.0, 64.0),
    Metric.NVLINK_CRC_ERRORS: _COUNTER,
    Metric.NVLINK_REPLAYS: _COUNTER,
    Metric.NVLINK_PAYLOAD: _LINK,
    Metric.NVLINK_TRAFFIC: _LINK,
    Metric.ROWS_REMAPPED_CORRECTABLE: _COUNTER,
    Metric.ROWS_REMAPPED_UNCORRECTABLE: _COUNTER,
    Metric.ROW_REMAP_FAILED: (0.0, 1.0),
    Metric.ROW_REMAP_PENDING: (0.0, 1.0),
    Metric.ECC_CORRECTED_VOLATILE: _COUNTER,
    Metric.ECC_UNCORRECTED_VOLATILE: _COUNTER,
    Metric.ECC_CORRECTED_LIFETIME: _COUNTER,
    Metric.ECC_UNCORRECTED_LIFETIME: _COUNTER,
    Metric.DCGM_HEALTH: (0.0, 20.0),
}
"""Least and most of each, in its own unit; far beyond today's hardware, and far below what a wrong unit makes of it."""
_CLOCKS = frozenset({Metric.SM_CLOCK, Metric.MEMORY_CLOCK, Metric.MAX_SM_CLOCK})
_SLOWEST_CLOCK = 1e6
"""Hertz; below it, other than 0, an exporter took MHz for Hz."""

_SMALL = frozenset(
    {
        Metric.BUSY, Metric.MEMORY_COPY, Metric.TEMPERATURE, Metric.MEMORY_TEMPERATURE, Metric.POWER,
        Metric.SLOWDOWN_TEMPERATURE, Metric.THERMAL_MARGIN, Metric.MEMORY_TEMPERATURE_LIMIT,
        Metric.PCIE_LINK_GENERATION, Metric.PCIE_LINK_GENERATION_LIMIT, Metric.PCIE_LINK_WIDTH,
        Metric.PCIE_LINK_WIDTH_LIMIT, Metric.NVLINK_TRAFFIC, Metric.DCGM_HEALTH,
    }
)  # fmt: skip
"""Far below DCGM's 32-bit blanks."""

LEAST_BLANK, _INT64_BLANK, _FP64_BLANK = 0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0, 140737488355328.0
_KINDS_OF_BLANK = 16
"""Not specified, not found, not supported, not permitted: each one more than the last (dcgm_structs.h)."""


def is_blank(raw: float, name: Name) -> bool:
    """Return whether a raw value is one of DCGM's blank markers. Exporters leave them out; other collectors do not."""
    if raw >= _INT64_BLANK or _FP64_BLANK <= raw < _FP64_BLANK + _KINDS_OF_BLANK:
        return True
    # Bytes, hertz and counters reach two thousand million by themselves, and are 64 bits wide
    return name.means in _SMALL and LEAST_BLANK <= raw < LEAST_BLANK + _KINDS_OF_BLANK


def plausible(metric: Metric, value: float) -> float | None:
    """The value as hardware can have it, in the metric's unit; None if it cannot."""
    limits = LIMITS[metric]
    if not limits[0] <= value <= limits[1]:
        return None
    if limits is _RATIO:
        return min(value, 1.0)
    return None if metric in _CLOCKS and 0.0 < value < _SLOWEST_CLOCK else value
