"""dcgm-exporter as it answers on a node: the text of both of its generations, and what Prometheus makes of it.

Of a GPU that MIG splits it prints its instances, as dcgm-exporter does unless told otherwise (`--devices f`): each with
its own memory and activity, and with its board's power, heat, clocks and errors.

Written from the exporter's own documentation and source, not from what Setpoint reads: tests hold the one to the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simfleet.apiserver.store import Raw
from simfleet.controllers.placing import node_of
from simfleet.machines.boards import GpuState
from simfleet.manifests import EXPORTER_IMAGES

if TYPE_CHECKING:
    from simfleet.core import SimCluster

NAME, NAMESPACE, PORT = "nvidia-dcgm-exporter", "gpu-operator", "9400"
OLD, NEW = "4.8.3", "4.9.0"
DRIVER = "570.124.06"
MIB = 1024 * 1024
Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    old: str
    new: str
    help: str
    kind: str = "gauge"
    is_default: bool = True
    """In the counter list that the exporter comes with."""


_PROF = "DCGM_FI_PROF_"
_DEV = "DCGM_FI_DEV_"
FAMILIES: Mapping[str, Family] = {
    "sm_clock": Family(f"{_DEV}SM_CLOCK", f"{_DEV}SM_CLOCK_HERTZ", "SM clock frequency."),
    "memory_clock": Family(f"{_DEV}MEM_CLOCK", f"{_DEV}MEMORY_CLOCK_HERTZ", "Memory clock frequency."),
    "memory_temperature": Family(f"{_DEV}MEMORY_TEMP", f"{_DEV}MEMORY_TEMP_CELSIUS", "Memory temperature (in C)."),
    "temperature": Family(f"{_DEV}GPU_TEMP", f"{_DEV}GPU_TEMP_CELSIUS", "GPU temperature (in C)."),
    "power": Family(f"{_DEV}POWER_USAGE", f"{_DEV}BOARD_POWER_WATTS", "Power draw (in W)."),
    "energy": Family(
        f"{_DEV}TOTAL_ENERGY_CONSUMPTION", f"{_DEV}GPU_ENERGY_JOULES_TOTAL", "Energy consumption since boot.", "counter"
    ),
    "busy": Family(f"{_DEV}GPU_UTIL", f"{_DEV}GPU_UTIL_RATIO", "GPU utilization."),
    "memory_copy": Family(f"{_DEV}MEM_COPY_UTIL", f"{_DEV}MEMORY_UTIL_RATIO", "Memory utilization."),
    "xid": Family(f"{_DEV}XID_ERRORS", f"{_DEV}XID_ERROR", "Value of the last XID error encountered."),
    "free": Family(f"{_DEV}FB_FREE", f"{_DEV}FB_FREE_BYTES", "Framebuffer memory free."),
    "used": Family(f"{_DEV}FB_USED", f"{_DEV}FB_USED_BYTES", "Framebuffer memory used."),
    "reserved": Family(f"{_DEV}FB_RESERVED", f"{_DEV}FB_RESERVED_BYTES", "Framebuffer memory reserved."),
    "remapped": Family(
        f"{_DEV}UNCORRECTABLE_REMAPPED_ROWS",
        f"{_DEV}ROW_REMAP_UNCORRECTABLE_TOTAL",
        "Number of remapped rows for uncorrectable errors.",
        "counter",
    ),
    "remap_failed": Family(
        f"{_DEV}ROW_REMAP_FAILURE", f"{_DEV}ROW_REMAP_FAILED", "Whether remapping of rows has failed."
    ),
    "engine": Family(
        f"{_PROF}GR_ENGINE_ACTIVE", f"{_PROF}GR_ENGINE_UTIL_RATIO", "Ratio of time the graphics engine is active."
    ),
    "tensor": Family(
        f"{_PROF}PIPE_TENSOR_ACTIVE", f"{_PROF}TENSOR_UTIL_RATIO", "Ratio of cycles the tensor (HMMA) pipe is active."
    ),
    "dram": Family(
        f"{_PROF}DRAM_ACTIVE", f"{_PROF}DRAM_UTIL_RATIO", "Ratio of cycles the device memory interface is active."
    ),
    "sm": Family(
        f"{_PROF}SM_ACTIVE", f"{_PROF}SM_UTIL_RATIO", "Ratio of cycles an SM has at least 1 warp.", is_default=False
    ),
    "thermal": Family(
        f"{_DEV}THERMAL_VIOLATION",
        f"{_DEV}GPU_THERMAL_THROTTLE_SECONDS_TOTAL",
        "Throttling duration due to thermal constraints.",
        "counter",
        is_default=False,
    ),
    "remapped_correctable": Family(
        f"{_DEV}CORRECTABLE_REMAPPED_ROWS",
        f"{_DEV}ROW_REMAP_CORRECTABLE_TOTAL",
        "Number of remapped rows for correctable errors.",
        "counter",
    ),
    "pcie_replays": Family(
        f"{_DEV}PCIE_REPLAY_COUNTER", f"{_DEV}PCIE_REPLAY_TOTAL", "Total number of PCIe retries.", "counter"
    ),
    "ecc_corrected": Family(
        f"{_DEV}ECC_SBE_VOL_TOTAL", f"{_DEV}ECC_SBE_VOL_TOTAL", "Single-bit volatile ECC errors.", "counter", False
    ),
    "ecc_uncorrected": Family(
        f"{_DEV}ECC_DBE_VOL_TOTAL", f"{_DEV}ECC_DBE_VOL_TOTAL", "Double-bit volatile ECC errors.", "counter", False
    ),
    "nvlink_traffic": Family(
        f"{_DEV}NVLINK_BANDWIDTH_TOTAL",
        f"{_DEV}NVLINK_THROUGHPUT_TOTAL",
        "Total number of NVLink bandwidth counters for all lanes",
        "counter",
    ),
    "nvlink": Family(
        f"{_DEV}NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        f"{_DEV}NVLINK_CRC_FLIT_ERROR_TOTAL",
        "NVLink flow-control CRC errors.",
        "counter",
        is_default=False,
    ),
}


class Exporters:
    """`whole_list` adds to the default counters what the facts of GPU metrics recommend."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self.whole_list = False
        self._upgraded: set[str] = set()
        self.silent: set[str] = set()
        """Nodes whose exporter does not listen: it waits for a driver that hangs."""
        cluster.proxies.answerers["pods"].append(self._answer)

    def _answer(self, pod: Raw, port: str, path: str, query: Mapping[str, str]) -> tuple[int, str] | None:
        node = node_of(pod)
        if not pod["metadata"]["name"].startswith(f"{NAME}-") or port != PORT or node in self.silent:
            return None
        machine = self._cluster.nodes.machine(node)
        if machine is None or not machine.is_up:
            return None
        return (200, self.text(node)) if path == "metrics" else (404, "404 page not found\n")

    def upgrade(self, node: str) -> None:
        """The exporter of this node is of the newer generation from now on. Raises LookupError."""
        pod = self._pod(node)
        container = pod["spec"]["containers"][0] | {"image": EXPORTER_IMAGES[NEW]}
        self._cluster.store.write("pods", pod | {"spec": pod["spec"] | {"containers": [container]}})
        self._upgraded.add(node)

    def is_new(self, node: str) -> bool:
        return node in self._upgraded

    def answers_on(self, node: str) -> bool:
        """Return whether this node has an exporter, and it listens."""
        names = (stored.key[1] for stored in self._cluster.store.on_node(node))
        return node not in self.silent and any(name.startswith(f"{NAME}-") for name in names)

    def text(self, node: str) -> str:
        """Return the answer of a node's exporter to GET /metrics."""
        is_new = self.is_new(node)
        labeled = [(gpu, _words(_labels(gpu, is_new=is_new))) for gpu in self._cluster.gpus.truth(node)]
        lines = []
        for key, family in self._families():
            name = family.new if is_new else family.old
            rows = [(*row, value) for row in labeled if (value := _value(key, row[0], is_new=is_new)) is not None]
            if rows:
                lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
            for gpu, words, value in rows:
                more = f",{_words(error)}" if key == "xid" and (error := _error(gpu)) else ""
                lines.append(f"{name}{{{words}{more}}} {value}")
        return "\n".join([*lines, ""])

    def stored(self, node: str, *, honor_labels: bool) -> Iterator[tuple[str, Labels, float]]:
        """Name, labels and value of each series as Prometheus keeps it, scraped with or without `honorLabels`."""
        pod = self._pod(node)
        target = {
            "namespace": NAMESPACE,
            "pod": pod["metadata"]["name"],
            "container": NAME,
            "service": NAME,
            "job": NAME,
            "instance": f"{_address(node)}:{PORT}",
        }
        is_new = self.is_new(node)
        for key, family in self._families():
            for gpu in self._cluster.gpus.truth(node):
                value = _value(key, gpu, is_new=is_new)
                if value is None:
                    continue
                own = _labels(gpu, is_new=is_new) | (_error(gpu) if key == "xid" else {})
                if honor_labels:
                    labels = target | own
                else:
                    labels = {f"exported_{k}" if k in target else k: v for k, v in own.items()} | target
                yield family.new if is_new else family.old, labels, float(value)

    def _pod(self, node: str) -> Raw:
        """Raises LookupError where the node has no exporter."""
        for stored in self._cluster.store.on_node(node):
            if stored.key[1].startswith(f"{NAME}-"):
                return stored.raw
        raise LookupError(node)

    def _families(self) -> Iterator[tuple[str, Family]]:
        return ((key, family) for key, family in FAMILIES.items() if family.is_default or self.whole_list)


def _labels(gpu: GpuState, *, is_new: bool) -> Labels:
    labels = {
        "gpu": str(gpu.index),
        "UUID": gpu.uuid,
        "pci_bus_id": f"00000000:{gpu.index * 16 + 27:02X}:00.0",
        "device": f"nvidia{gpu.index}",
        "modelName": gpu.board.name,
    }
    if gpu.instance:
        labels |= {"GPU_I_PROFILE": gpu.profile, "GPU_I_ID": gpu.instance}
    labels |= {"hostname" if is_new else "Hostname": gpu.node, "DCGM_FI_DRIVER_VERSION": DRIVER}
    if gpu.pod:
        labels |= {"container": gpu.pod[2], "namespace": gpu.pod[0], "pod": gpu.pod[1]}
    return labels


def _error(gpu: GpuState) -> Labels:
    """Return the extra labels of the XID's own series."""
    return {"err_code": str(gpu.xid), "err_msg": _MESSAGES.get(gpu.xid, "")} if gpu.xid else {}


_OF_WHOLE_GPUS = frozenset({"busy", "memory_copy", "nvlink_traffic"})
"""The driver has no utilization of an instance (DCGM issue 80), and instances have no NVLink."""
_MESSAGES = {48: "Double Bit ECC Error", 79: "GPU has fallen off the bus", 95: "Uncontained memory error"}


def _address(node: str) -> str:
    number = sum(ord(letter) * place for place, letter in enumerate(node, 1))
    return f"10.244.{number >> 8 & 255}.{number & 255}"


def _words(labels: Labels) -> str:
    return ",".join(f'{key}="{value}"' for key, value in labels.items())


def _value(key: str, gpu: GpuState, *, is_new: bool) -> str | None:
    """Format a value as the exporter does: whole numbers bare, others with six decimals; None for a blank."""
    if key == "xid":
        return str(gpu.xid)
    if gpu.is_lost or (gpu.instance and key in _OF_WHOLE_GPUS):
        return None
    ratios = {"engine": gpu.engine, "tensor": gpu.tensor, "dram": gpu.bandwidth, "sm": gpu.sm, "power": gpu.power}
    if key in ratios:
        return f"{ratios[key]:.6f}"
    if key in ("busy", "memory_copy"):
        ratio = gpu.busy if key == "busy" else round(gpu.bandwidth, 2)
        return f"{ratio:.6f}" if is_new else str(round(ratio * 100))
    if key == "nvlink_traffic":  # MB/s, though its type is counter; blank, and so left out, of a board without links
        return str(int(gpu.nvlink / 1e6)) if gpu.board.nvlink else None
    if key == "energy":
        return f"{gpu.energy:.6f}" if is_new else str(int(gpu.energy * 1000))
    if key == "thermal":
        return f"{gpu.thermal_throttled:.6f}" if is_new else str(int(gpu.thermal_throttled * 1e9))
    whole = {
        "sm_clock": (gpu.sm_clock, 10**6),
        "memory_clock": (gpu.board.memory_mhz * 1e6, 10**6),
        "free": (gpu.memory_free, MIB),
        "used": (gpu.memory_used, MIB),
        "reserved": (gpu.memory_reserved, MIB),
        "temperature": (gpu.temperature, 1),
        "memory_temperature": (gpu.memory_temperature, 1),
        "remapped": (gpu.rows_remapped, 1),
        "remap_failed": (0, 1),
        "remapped_correctable": (0, 1),
        "pcie_replays": (0, 1),
        "ecc_corrected": (7 * gpu.rows_remapped, 1),
        "ecc_uncorrected": (gpu.rows_remapped, 1),
        "nvlink": (0, 1),
    }
    value, unit = whole[key]
    return str(int(value) if is_new else int(value) // unit)
