"""Every name that NVIDIA's exporter uses, in both of its generations, with its unit; AMD's are beside it, in `amd`.

dcgm-exporter 4.9 renamed 23 of its default fields, and 11 of them changed their unit (release notes of 4.9.0; field
identifiers of DCGM 4.7). Custom counter lists may mix both. Names without a generation were never renamed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from gpus.metrics.samples import Generation, Metric

PERCENT, MIB, MHZ, MEGA, MILLI, MICRO, NANO = 0.01, 1024.0 * 1024.0, 1e6, 1e6, 1e-3, 1e-6, 1e-9


class Guard(Enum):
    """Ratios of the driver, whose scale the name does not prove."""

    PERCENT = auto()
    """By name percent; some collectors divide it by 100 and keep the name."""
    RATIO = auto()
    """By name a ratio; DCGM 4.6 gave the name to whole percents."""


class Labeled(Enum):
    """Series whose meaning is in a label; none is a metric."""

    XID_LAST = auto()
    """The value is the code."""
    XID_WINDOW = auto()
    """Label `xid` is the code, the value how many in the window."""
    XID_TOTAL = auto()
    """Label `xid` is the code, the value how many since the exporter's start."""
    CLOCK_EVENTS = auto()
    """Label `clock_event` is the reason, the value how many in the window."""
    CLOCK = auto()
    """Label `clock_type` is which clock; AMD's."""
    TARGET = auto()
    """Prometheus' own `up`: its labels are the exporter's pod, and no other pod's."""


@dataclass(frozen=True, slots=True, eq=False)
class Name:
    """One raw name. Compared by identity: there is one of each."""

    raw: str
    means: Metric | Labeled
    scale: float = 1.0
    """Multiplies the raw value into the unit of `means`."""
    generation: Generation | None = None
    guard: Guard | None = None
    proves_units: bool = False
    """Exists only in an exporter whose units are those of its generation: settles what a guarded ratio is."""
    adds: bool = False
    """One of several names, or links, whose values are added up to the metric."""
    rank: int = 0
    """Of several names of one generation that mean the same, the least counts."""
    zero_is_blank: bool = False
    """0 means "not available": no board is at 0 °C or draws no watts."""
    is_highest: bool = False
    """One series for each of several checks of a board, of which the highest counts."""
    part: tuple[Name, str] = field(init=False)
    """Itself, and no link."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "part", (self, ""))


def _renamed(
    metric: Metric, classic: str, base: str, scale: float = 1.0, *, adds: bool = False, proves: bool | None = None
) -> Iterator[Name]:
    changes_unit = scale != 1.0 if proves is None else proves
    yield Name(f"DCGM_FI_{classic}", metric, scale, Generation.CLASSIC, proves_units=changes_unit, adds=adds)
    yield Name(f"DCGM_FI_{base}", metric, 1.0, Generation.BASE_UNITS, proves_units=changes_unit, adds=adds)


def _table() -> Iterator[Name]:
    m, classic, base = Metric, Generation.CLASSIC, Generation.BASE_UNITS
    yield Name("DCGM_FI_DEV_GPU_UTIL", m.BUSY, PERCENT, classic, Guard.PERCENT)
    yield Name("DCGM_FI_DEV_GPU_UTIL_RATIO", m.BUSY, 1.0, base, Guard.RATIO)
    yield Name("DCGM_FI_DEV_MEM_COPY_UTIL", m.MEMORY_COPY, PERCENT, classic, Guard.PERCENT, proves_units=True)
    yield Name("DCGM_FI_DEV_MEMORY_UTIL_RATIO", m.MEMORY_COPY, 1.0, base, Guard.RATIO, proves_units=True)
    # Profiling was a ratio always
    yield from _renamed(m.ENGINE, "PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO")
    yield from _renamed(m.SM, "PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO")
    yield from _renamed(m.OCCUPANCY, "PROF_SM_OCCUPANCY", "PROF_SM_OCCUPANCY_RATIO")
    yield from _renamed(m.TENSOR, "PROF_PIPE_TENSOR_ACTIVE", "PROF_TENSOR_UTIL_RATIO")
    yield from _renamed(m.MEMORY_BANDWIDTH, "PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO")
    yield from _renamed(m.MEMORY_USED, "DEV_FB_USED", "DEV_FB_USED_BYTES", MIB)
    yield from _renamed(m.MEMORY_FREE, "DEV_FB_FREE", "DEV_FB_FREE_BYTES", MIB)
    yield from _renamed(m.MEMORY_RESERVED, "DEV_FB_RESERVED", "DEV_FB_RESERVED_BYTES", MIB)
    yield from _renamed(m.MEMORY_CAPACITY, "DEV_FB_TOTAL", "DEV_FB_CAPACITY_BYTES", MIB)
    yield from _renamed(m.POWER, "DEV_POWER_USAGE", "DEV_BOARD_POWER_WATTS")
    yield from _renamed(m.ENERGY, "DEV_TOTAL_ENERGY_CONSUMPTION", "DEV_GPU_ENERGY_JOULES_TOTAL", MILLI)
    yield from _renamed(m.TEMPERATURE, "DEV_GPU_TEMP", "DEV_GPU_TEMP_CELSIUS")
    yield from _renamed(m.MEMORY_TEMPERATURE, "DEV_MEMORY_TEMP", "DEV_MEMORY_TEMP_CELSIUS")
    # Fields 158, 153 and 151: DCGM_DEPRECATED_ALIASES of dcgm_fields.py has both names
    yield from _renamed(m.SLOWDOWN_TEMPERATURE, "DEV_SLOWDOWN_TEMP", "DEV_GPU_TEMP_SLOWDOWN_CELSIUS")
    yield from _renamed(m.THERMAL_MARGIN, "DEV_GPU_TEMP_LIMIT", "DEV_GPU_TEMP_MARGIN_CELSIUS")
    yield from _renamed(m.MEMORY_TEMPERATURE_LIMIT, "DEV_MEM_MAX_OP_TEMP", "DEV_MEMORY_MAX_OP_TEMP_CELSIUS")
    yield from _renamed(m.SM_CLOCK, "DEV_SM_CLOCK", "DEV_SM_CLOCK_HERTZ", MHZ)
    yield from _renamed(m.MEMORY_CLOCK, "DEV_MEM_CLOCK", "DEV_MEMORY_CLOCK_HERTZ", MHZ)
    yield from _renamed(m.MAX_SM_CLOCK, "DEV_MAX_SM_CLOCK", "DEV_MAX_SM_CLOCK_HERTZ", MHZ)
    # Old help texts say µs; the library counts nanoseconds (dcgm-exporter #589)
    yield from _renamed(m.POWER_THROTTLED, "DEV_POWER_VIOLATION", "DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL", NANO)
    yield from _renamed(m.THERMAL_THROTTLED, "DEV_THERMAL_VIOLATION", "DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", NANO)
    yield from _renamed(m.PCIE_REPLAYS, "DEV_PCIE_REPLAY_COUNTER", "DEV_PCIE_REPLAY_TOTAL")
    # Fields 235 to 238
    yield Name("DCGM_FI_DEV_PCIE_LINK_GEN", m.PCIE_LINK_GENERATION)
    yield Name("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", m.PCIE_LINK_GENERATION_LIMIT)
    yield Name("DCGM_FI_DEV_PCIE_LINK_WIDTH", m.PCIE_LINK_WIDTH)
    yield Name("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", m.PCIE_LINK_WIDTH_LIMIT)
    yield from _of_nvlink()
    correctable, uncorrectable = "DEV_ROW_REMAP_CORRECTABLE_TOTAL", "DEV_ROW_REMAP_UNCORRECTABLE_TOTAL"
    yield from _renamed(m.ROWS_REMAPPED_CORRECTABLE, "DEV_CORRECTABLE_REMAPPED_ROWS", correctable)
    yield from _renamed(m.ROWS_REMAPPED_UNCORRECTABLE, "DEV_UNCORRECTABLE_REMAPPED_ROWS", uncorrectable)
    yield from _renamed(m.ROW_REMAP_FAILED, "DEV_ROW_REMAP_FAILURE", "DEV_ROW_REMAP_FAILED")
    yield Name("DCGM_FI_DEV_ROW_REMAP_PENDING", m.ROW_REMAP_PENDING)
    yield Name("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", m.ECC_CORRECTED_VOLATILE)
    yield Name("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", m.ECC_UNCORRECTED_VOLATILE)
    yield Name("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", m.ECC_CORRECTED_LIFETIME)
    yield Name("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", m.ECC_UNCORRECTED_LIFETIME)
    yield Name("DCGM_EXP_GPU_HEALTH_STATUS", m.DCGM_HEALTH, is_highest=True)
    yield Name("DCGM_FI_DEV_XID_ERRORS", Labeled.XID_LAST, generation=classic)
    yield Name("DCGM_FI_DEV_XID_ERROR", Labeled.XID_LAST, generation=base)
    yield Name("DCGM_EXP_XID_ERRORS_COUNT", Labeled.XID_WINDOW)
    yield Name("DCGM_EXP_XID_ERRORS_TOTAL", Labeled.XID_TOTAL)
    yield Name("DCGM_EXP_CLOCK_EVENTS_COUNT", Labeled.CLOCK_EVENTS)
    yield Name("up", Labeled.TARGET)


def _of_nvlink() -> Iterator[Name]:
    m = Metric
    for kind, metric in (
        ("CRC_FLIT", m.NVLINK_CRC_ERRORS), ("CRC_DATA", m.NVLINK_CRC_ERRORS),
        ("REPLAY", m.NVLINK_REPLAYS), ("RECOVERY", m.NVLINK_REPLAYS),
    ):  # fmt: skip
        old, new = f"DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL", f"DEV_NVLINK_{kind}_ERROR_TOTAL"
        yield from _renamed(metric, old, new, adds=True)
    # Fields 1011 and 1012, never renamed. Field 449 is a rate in MB/s by DcgmCacheManager.cpp's
    # ReadAndCacheNvLinkBandwidth, also under its new name, of which the old one is an alias (dcgm-exporter #658).
    for way in ("TX", "RX"):
        yield Name(f"DCGM_FI_PROF_NVLINK_{way}_BYTES", m.NVLINK_PAYLOAD, adds=True)
    yield Name("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", m.NVLINK_TRAFFIC, MEGA, Generation.CLASSIC)
    yield Name("DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL", m.NVLINK_TRAFFIC, MEGA, Generation.BASE_UNITS)


NVIDIA: dict[str, Name] = {name.raw: name for name in _table()}
"""By raw name."""

PREFIX = "DCGM_"


def converted(raw: float, scale: float) -> float:
    """`raw` times `scale`, and exactly what the decimal number would be: 57 % is 0.57, not 0.5700000000000001."""
    return raw / round(1 / scale) if scale < 1 else raw * scale


_LEFT_ASIDE = (
    "DCGM_FI_DEV_ENC_UTIL",
    "DCGM_FI_DEV_DEC_UTIL",
    "DCGM_FI_DEV_PCIE_",
    "DCGM_FI_PROF_PCIE_",
    "DCGM_FI_DEV_NVLINK_",
    "DCGM_FI_PROF_NVLINK_",
    "DCGM_FI_PROF_PIPE_",
    "DCGM_FI_PROF_FP",
    "DCGM_FI_DEV_VGPU_",
    "DCGM_FI_DEV_RETIRED_",
    "DCGM_FI_DEV_PAGE_RETIRED_",
    "DCGM_FI_DEV_FB_USED_",
    "DCGM_FI_DEV_ECC_",
    "DCGM_EXP_",
)


def is_unknown(raw: str) -> bool:
    """Return whether a name is the exporter's, yet neither used nor knowingly ignored: perhaps renamed once more."""
    if not raw.startswith(PREFIX) or raw in NVIDIA or raw.startswith(_LEFT_ASIDE):
        return False
    return not raw.endswith("_VIOLATION") and "_THROTTLE_SECONDS_" not in raw
