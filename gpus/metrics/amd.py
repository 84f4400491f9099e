"""AMD's device-metrics-exporter: its names, units and labels, made into what the rest of this room knows.

By its list of metrics (github.com/ROCm/device-metrics-exporter, docs/configuration/metricslist.md) and its source
(pkg/amdgpu/gpuagent/gpuagent_gpu_metrics.go, pkg/exporter/utils/utils.go). Left out, for their meaning is not
documented or they are seen to be wrong: violations ("residency accumulated", without a unit), GPU_PROF_* but the tensor
pipe's (GUI_UTIL is 44 % on an idle board), activity of engines one by one, links, voltages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpus.metrics.nvidia import MHZ, MIB, MICRO, PERCENT, Labeled, Name
from gpus.metrics.samples import SHARED_OUT, Generation, Metric

IMAGE = "device-metrics-exporter"
"""In the exporter's image, wherever it was mirrored to."""
TITLE = "AMD device-metrics-exporter"
POD_LABEL, PORT = "app.kubernetes.io/name=metrics-exporter", "5000"
"""Of AMD's GPU operator and of the exporter's chart: kubernetes-helm.md. Other exporters call themselves so as well."""
PREFIXES = ("", "amd_")
"""None, and what the configuration's `MetricsFieldPrefix` is wherever one is set."""
_ONES_16, _ONES_32 = 0xFFFF, 0xFFFFFFFF
"""All ones in the field's width are "not available"; older agents let them through as a number (its issue 662)."""
PARTITIONS: Mapping[str, int] = {"dpx": 2, "tpx": 3, "qpx": 4, "cpx": 8}
"""Into how many devices a board of a mode is split; `spx` is the whole."""
_NO_SERIAL = frozenset({"", "0", "N/A", "NA", "unknown"})


def _name(raw: str, means: Metric | Labeled, scale: float = 1.0, *, rank: int = 0, zero: bool = True) -> Name:
    return Name(raw, means, scale, Generation.AMD, rank=rank, zero_is_blank=not zero)


def _unprefixed_names() -> Iterator[Name]:
    m = Metric
    yield _name("gpu_gfx_activity", m.BUSY, PERCENT)
    yield _name("gpu_umc_activity", m.MEMORY_COPY, PERCENT)
    yield _name("gpu_prof_tensor_active_percent", m.TENSOR, PERCENT)
    yield _name("gpu_used_vram", m.MEMORY_USED, MIB)
    yield _name("gpu_free_vram", m.MEMORY_FREE, MIB)
    yield _name("gpu_total_vram", m.MEMORY_CAPACITY, MIB, zero=False)
    # Of these the first that a board has: MI300 and later, MI200, either
    yield _name("gpu_package_power", m.POWER, zero=False)
    yield _name("gpu_average_package_power", m.POWER, rank=1, zero=False)
    yield _name("gpu_power_usage", m.POWER, rank=2, zero=False)
    yield _name("gpu_energy_consumed", m.ENERGY, MICRO, zero=False)
    yield _name("gpu_junction_temperature", m.TEMPERATURE, zero=False)
    yield _name("gpu_edge_temperature", m.TEMPERATURE, rank=1, zero=False)
    yield _name("gpu_memory_temperature", m.MEMORY_TEMPERATURE, zero=False)
    yield _name("pcie_replay_count", m.PCIE_REPLAYS)
    yield _name("gpu_ecc_correct_total", m.ECC_CORRECTED_VOLATILE)
    yield _name("gpu_ecc_uncorrect_total", m.ECC_UNCORRECTED_VOLATILE)
    yield _name("gpu_clock", Labeled.CLOCK)
    yield _name("gpu_max_clock", Labeled.CLOCK)


def names() -> Iterator[Name]:
    for prefix in PREFIXES:
        yield from (replace(name, raw=f"{prefix}{name.raw}") for name in _unprefixed_names())


# Each of a board's clock domains has a series; the highest counts
_CLOCKS: Mapping[tuple[str, str], Name] = {
    ("gpu_clock", "system"): Name("gpu_clock", Metric.SM_CLOCK, MHZ, Generation.AMD, zero_is_blank=True),
    ("gpu_clock", "memory"): Name("gpu_clock", Metric.MEMORY_CLOCK, MHZ, Generation.AMD, zero_is_blank=True),
    ("gpu_max_clock", "system"): Name("gpu_max_clock", Metric.MAX_SM_CLOCK, MHZ, Generation.AMD, zero_is_blank=True),
}


def clock(raw: str, labels: Mapping[str, str]) -> Name | None:
    """Return the meaning of a clock's series; None for those of video, fabric and data."""
    kind = labels.get("clock_type", "").lower().removeprefix("gpu_clock_type_")
    return _CLOCKS.get((raw.removeprefix("amd_"), kind))


def translated(labels: Mapping[str, str]) -> Mapping[str, str] | None:
    """The same in NVIDIA's words; None where they are no GPU's of this exporter: others use such names, too.

    A board is its serial number, and which of the node's GPUs it is, for two of an MI250 share the number. What is
    split into partitions is labeled as MIG's instances are.
    """
    get = labels.get
    index, serial = get("gpu_id", ""), get("serial_number")
    if not index or serial is None:
        return None
    mode, partition = get("gpu_compute_partition_type", "").lower(), get("gpu_partition_id", "")
    host = get("hostname", "")
    known = f"{host}-{index}" if serial in _NO_SERIAL else serial
    translation = {
        "UUID": f"AMD-{known}" if mode in PARTITIONS or serial in _NO_SERIAL else f"AMD-{known}-{index}",
        "gpu": index,
        "hostname": host,
        "modelName": get("card_series") or get("card_model", ""),
        "DCGM_FI_DRIVER_VERSION": get("driver_version", ""),
    }
    if mode in PARTITIONS:
        translation |= {"GPU_I_ID": partition, "GPU_I_PROFILE": mode}
    return translation | {name: text for name in _KEPT if (text := get(name))}


_KEPT = (
    "instance", "node", "service", "namespace", "pod", "container", "exported_namespace", "exported_pod",
    "exported_container",
)  # fmt: skip


def is_applicable(name: Name, raw: float, labels: Mapping[str, str]) -> bool:
    """False for what says "not available" with a number: also the board's own of all partitions but the first."""
    if raw == _ONES_32 or (raw == _ONES_16 and name.scale != MIB) or (raw == 0.0 and name.zero_is_blank):
        return False
    return labels.get("GPU_I_ID", "0") == "0" or name.means in SHARED_OUT
