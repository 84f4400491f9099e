"""Telemetry as the rest of this app, and every app above, knows it: no exporter's name, no exporter's unit.

Sources make `Series`; `normalization.normalize` makes one `Reading` of them; storage, pages and alerts read only that.
Standard library only. What was not reported is absent from `Sample.values`: absent is never zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class Metric(StrEnum):
    """One measured quantity in one unit, whichever exporter said it. `docs/gpu.md` has the names that it comes from."""

    BUSY = "busy"
    """Ratio 0–1 of time in which any kernel ran. Not how much of the GPU it used. Absent on MIG by design."""
    ENGINE = "engine"
    """Ratio 0–1 of time in which the graphics or compute engine was active. Works on MIG."""
    SM = "sm"
    """Ratio 0–1: at least one warp was on an SM, averaged over time and SMs. Effective use needs 0.8."""
    OCCUPANCY = "occupancy"
    """Ratio 0–1 of resident warps to the most that fit."""
    TENSOR = "tensor"
    """Ratio 0–1 of cycles in which the tensor pipe was active."""
    MEMORY_BANDWIDTH = "memory_bandwidth"
    """Ratio 0–1 of cycles in which the memory interface moved data (profiling). In practice it peaks near 0.8."""
    MEMORY_COPY = "memory_copy"
    """Ratio 0–1 of time in which device memory was read or written (driver). Duty, not capacity."""
    MEMORY_USED = "memory_used"
    """Bytes of device memory in use."""
    MEMORY_FREE = "memory_free"
    """Bytes of device memory free."""
    MEMORY_RESERVED = "memory_reserved"
    """Bytes that the driver keeps for itself, in neither of the two above."""
    MEMORY_CAPACITY = "memory_capacity"
    """Bytes of device memory altogether."""
    POWER = "power"
    """Watts of the whole board."""
    ENERGY = "energy"
    """Joules of the whole board since the driver was loaded: a counter that starts again."""
    TEMPERATURE = "temperature"
    """Degrees Celsius of the GPU."""
    MEMORY_TEMPERATURE = "memory_temperature"
    """Degrees Celsius of the memory; absent where the board has no such sensor."""
    SLOWDOWN_TEMPERATURE = "slowdown_temperature"
    """Degrees Celsius of the GPU at which the board slows itself down. Not exported by default."""
    THERMAL_MARGIN = "thermal_margin"
    """Degrees Celsius between the GPU and its nearest slowdown; below 0 it is past it. Not exported by default."""
    MEMORY_TEMPERATURE_LIMIT = "memory_temperature_limit"
    """Degrees Celsius: the highest at which the board's memory may operate. Not exported by default."""
    SM_CLOCK = "sm_clock"
    """Hertz."""
    MEMORY_CLOCK = "memory_clock"
    """Hertz."""
    MAX_SM_CLOCK = "max_sm_clock"
    """Hertz: the highest that the board supports. Not exported by default."""
    POWER_THROTTLED = "power_throttled"
    """Seconds held back by the power limit: a counter."""
    THERMAL_THROTTLED = "thermal_throttled"
    """Seconds held back by heat: a counter."""
    PCIE_REPLAYS = "pcie_replays"
    """PCIe packets sent again: a counter."""
    PCIE_LINK_GENERATION = "pcie_link_generation"
    """Of the PCIe link now; an idle board lowers it to save power. Not exported by default."""
    PCIE_LINK_GENERATION_LIMIT = "pcie_link_generation_limit"
    """The highest that the board and its slot can have. Not exported by default."""
    PCIE_LINK_WIDTH = "pcie_link_width"
    """Lanes of the PCIe link now. Not exported by default."""
    PCIE_LINK_WIDTH_LIMIT = "pcie_link_width_limit"
    """The most lanes that the board and its slot can have. Not exported by default."""
    NVLINK_CRC_ERRORS = "nvlink_crc_errors"
    """NVLink CRC errors of flow control and data, of all links, added: a counter. A few are ordinary."""
    NVLINK_REPLAYS = "nvlink_replays"
    """NVLink replays and recoveries of all links, added: a counter. None is ordinary."""
    NVLINK_PAYLOAD = "nvlink_payload"
    """Bytes a second over all NVLinks without protocol headers, sent and received, added. Not exported by default."""
    NVLINK_TRAFFIC = "nvlink_traffic"
    """Bytes a second over all NVLinks, both directions: a rate, though lists of counters call it a counter."""
    ROWS_REMAPPED_CORRECTABLE = "rows_remapped_correctable"
    """Memory rows remapped after correctable errors: a counter."""
    ROWS_REMAPPED_UNCORRECTABLE = "rows_remapped_uncorrectable"
    """Memory rows remapped after uncorrectable errors: a counter."""
    ROW_REMAP_FAILED = "row_remap_failed"
    """1 where a row could not be remapped, 0 where none failed."""
    ROW_REMAP_PENDING = "row_remap_pending"
    """1 where a remapped row waits for a reset of the GPU, 0 where none does."""
    ECC_CORRECTED_VOLATILE = "ecc_corrected_volatile"
    """Single-bit ECC errors since the driver was loaded: a counter."""
    ECC_UNCORRECTED_VOLATILE = "ecc_uncorrected_volatile"
    """Double-bit ECC errors since the driver was loaded: a counter."""
    ECC_CORRECTED_LIFETIME = "ecc_corrected_lifetime"
    """Single-bit ECC errors in the board's life: a counter."""
    ECC_UNCORRECTED_LIFETIME = "ecc_uncorrected_lifetime"
    """Double-bit ECC errors in the board's life: a counter."""
    DCGM_HEALTH = "dcgm_health"
    """Worst of DCGM's own health watches: 0 pass, 10 warning, 20 failure. Not exported by default."""


PROFILING = frozenset({Metric.ENGINE, Metric.SM, Metric.OCCUPANCY, Metric.TENSOR, Metric.MEMORY_BANDWIDTH})
"""Come from the profiling module: absent without its privilege or on old boards, and sometimes silently 0."""

SHARED_OUT = PROFILING | {
    Metric.MEMORY_USED,
    Metric.MEMORY_FREE,
    Metric.MEMORY_RESERVED,
    Metric.MEMORY_CAPACITY,
}
"""What a MIG instance has of its own. Everything else is the board's, and is in `Reading.boards`."""


class Generation(StrEnum):
    """Metric names that an exporter uses. Names that both have identify neither."""

    CLASSIC = "classic"
    """dcgm-exporter up to 4.8: percent, MiB, MHz, mJ, ns."""
    AMD = "amd"
    """AMD's device-metrics-exporter: percent, MiB, MHz, µJ."""
    BASE_UNITS = "base_units"
    """dcgm-exporter from 4.9: ratios, bytes, hertz, joules, seconds."""


class HonorLabels(StrEnum):
    """Owner of the namespace and pod labels, the exporter or the workload, inferred from the series themselves."""

    OFF = "off"
    """Prometheus renamed the workload's to `exported_*`: plain `pod` is the exporter's own."""
    ON = "on"
    """Plain `pod` is the workload's, and the exporter's own on GPUs that no pod holds."""
    DIRECT = "direct"
    """Read from the exporters themselves: plain `pod` is the workload's."""
    MIXED = "mixed"
    """Several of these at once: targets are scraped with different settings."""
    UNKNOWN = "unknown"
    """No series carries a workload's labels, so both modes would look like this."""


class Code(StrEnum):
    """Anomalies of a reading. Counts are of the thing named."""

    LINES_REFUSED = "lines_refused"
    """Lines that are not in the text format: cut off, garbled."""
    LABELS_TOO_LONG = "labels_too_long"
    """Labels left out because no name in Kubernetes is that long."""
    SERIES_OVER_LIMIT = "series_over_limit"
    """Series left unread because there were too many."""
    NOT_FINITE = "not_finite"
    """NaN and infinite values, dropped."""
    ABSURD = "absurd"
    """Values that no hardware has, dropped."""
    BLANK = "blank"
    """Blank markers of the vendor's library that leaked out as numbers; dropped."""
    NOT_THERE = "not_there"
    """Values of sensors that a board lacks, which its exporter prints all the same; dropped."""
    STALE = "stale"
    """Series whose own time is too old to count, dropped."""
    TARGET_DOWN = "target_down"
    """Exporters that Prometheus could not scrape (`up` is 0): the values that it still has of them are dropped."""
    FROM_THE_FUTURE = "from_the_future"
    """Series whose own time is ahead of ours: one of the two clocks is wrong. Kept, dated now."""
    UNKNOWN_NAMES = "unknown_names"
    """Names of the exporter's that Setpoint neither uses nor leaves aside: renamed once more? Names, not series."""
    NO_DEVICE = "no_device"
    """Series without a GPU's UUID, or with what cannot be one, dropped."""
    DUPLICATES = "duplicates"
    """Values said more than once for one device (an upgrade, two scrape jobs), dropped but for the best."""
    BOTH_GENERATIONS = "both_generations"
    """Devices whose values come under old and new names at once."""
    RATIO_IS_PERCENT = "ratio_is_percent"
    """Exporters whose `…_RATIO` is percent (DCGM 4.6), scaled by 1/100."""
    PERCENT_IS_RATIO = "percent_is_ratio"
    """Exporters whose percent had been made a ratio on the way; taken as ratio."""
    RATIO_AMBIGUOUS = "ratio_ambiguous"
    """Values that are 1 where neither percent nor ratio could be proven, dropped."""
    EXPORTER_POD = "exporter_pod"
    """Devices on which the exporter's own pod stood where a workload's should be; not made a holder."""
    NO_HOLDERS = "no_holders"
    """Devices read, all without any pod. 0 pods can be true; often the exporter's Kubernetes mode is off."""
    SHARED = "shared"
    """Devices held by several pods at once (time slicing, MPS): their values are the device's, not any pod's."""
    NODE_UNKNOWN = "node_unknown"
    """Devices of which neither labels nor pods say the node."""
    NODE_MISNAMED = "node_misnamed"
    """Devices whose exporter gives `localhost` or its own pod as host name."""
    TWO_NODES = "two_nodes"
    """Devices reported from two nodes at once: moved, or a UUID used twice. The newest report counts."""
    PROFILING_ABSENT = "profiling_absent"
    """Devices without any profiling metric: module, privilege or an old board."""
    SUSPECT = "suspect"
    """Devices on which utilization and profiling contradict each other. Zeros of profiling are withheld."""
    XID_LAST = "xid_last"
    """Devices with an XID known only as "the last one": the gauge sticks until the driver is loaded again."""


class XidEvidence(StrEnum):
    LAST = "last"
    """The last one that the driver saw, at any time since it was loaded. Sticks."""
    WINDOW = "window"
    """Counted by the exporter in its window, 5 minutes by default."""
    TOTAL = "total"
    """Counted by the exporter since it started: a counter."""


class Series(NamedTuple):
    """One number as a source gives it, before normalization; only sources and `normalization` handle it.

    It must be an instant value: averages over time would break the proof of percent or ratio.
    """

    name: str
    labels: Mapping[str, str]
    """Without `__name__`. May be shared between series: never change it."""
    value: float
    time: datetime | None = None
    """When it was measured, aware; None is the reading's own time."""
    exporter: str = ""
    """`namespace/pod` of the exporter that was asked directly; empty when Prometheus was."""


@dataclass(frozen=True, slots=True)
class ExporterPod:
    """An exporter's pod as the API server knows it. Normalization works without, and better with."""

    namespace: str
    name: str
    node: str = ""
    ip: str = ""
    image: str = ""
    """With its tag, which carries the exporter's version."""


MAX_UUID, MAX_INSTANCE = 80, 20
"""Characters. NVIDIA's have 40, and MIG's instances one or two."""


@dataclass(frozen=True, slots=True, order=True)
class DeviceKey:
    """A GPU, or one MIG instance of it, within a cluster. Index and address are reused; these are not."""

    uuid: str
    """The vendor's, of the whole GPU, also for an instance."""
    instance: str = ""
    """GPU instance id (`GPU_I_ID`) of a MIG instance, else empty."""


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A container that has the device, by the kubelet's word."""

    namespace: str
    pod: str
    container: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Xid:
    code: int
    """As in NVIDIA's catalog."""
    count: int
    """1 where `evidence` is LAST."""
    evidence: XidEvidence


@dataclass(frozen=True, slots=True)
class Sample:
    """One device at one time."""

    device: DeviceKey
    node: str
    """The Node's name; empty when unknown."""
    index: str
    """The number that tools on the node show. For people; never a key."""
    model: str
    profile: str
    """MIG profile such as 3g.40gb, else empty."""
    driver: str
    holders: tuple[Holder, ...]
    """Sorted. Several where the device is shared: `values` are the device's and must not be added up per holder."""
    values: Mapping[Metric, float]
    xids: tuple[Xid, ...] = ()
    """Sorted, one per code, by the best evidence there is. XID 0 (none) is left out."""
    clock_events: Mapping[str, int] | None = None
    """Times clocks were held back in the exporter's window, by reason (`hw_thermal`, …); None: not exported."""
    suspect: bool = False
    """Utilization and profiling contradict each other: do not call this device idle."""


@dataclass(frozen=True, slots=True)
class ReadingFinding:
    code: Code
    count: int
    """How many of the thing that the code names; never 0."""
    example: str = ""
    """One of them, short, for people: a name, a UUID, a piece of a line."""


@dataclass(frozen=True, slots=True)
class Reading:
    """All devices of a cluster at one time, and what is to be thought of the source."""

    when: datetime
    samples: tuple[Sample, ...]
    """One for each device that can be held: whole GPUs, and instances instead of a GPU that MIG splits. Sorted."""
    boards: tuple[Sample, ...] = ()
    """GPUs that MIG splits, as a whole, once each: power, energy, heat, clocks, XIDs. Never counted as devices."""
    generations: frozenset[Generation] = frozenset()
    honor_labels: HonorLabels = HonorLabels.UNKNOWN
    profiling: bool = False
    """Whether any device has profiling metrics."""
    exporter_versions: frozenset[str] = frozenset()
    """From the pods' images; empty when unknown."""
    series: int = 0
    """Number read, including those left out later."""
    findings: tuple[ReadingFinding, ...] = ()
    """Sorted by code."""

    def hardware(self) -> Iterator[Sample]:
        """Each physical GPU once: what may be added up of power, energy, heat and errors."""
        yield from self.boards
        yield from (sample for sample in self.samples if not sample.device.instance)

    def finding(self, code: Code) -> ReadingFinding | None:
        return next((finding for finding in self.findings if finding.code == code), None)
