"""Kinds of machines that simulated nodes are. All nodes of a kind share one description, so thousands fit in memory."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from simfleet.machines.instances import Layout
from simfleet.machines.sysctls import SYSCTLS

THP_DEFAULTS = {
    "enabled": "always [madvise] never",
    "defrag": "always defer defer+madvise [madvise] never",
}
POOL_KB = (2048, 1048576)
BLOCK_DEFAULTS = {
    "read_ahead_kb": "128",
    "scheduler": "[none] mq-deadline kyber bfq",
    "nr_requests": "1023",
    "rq_affinity": "1",
    "nomerges": "0",
    "max_sectors_kb": "1280",
    "wbt_lat_usec": "2000",
    "add_random": "0",
    "iostats": "1",
}
DRIVE_BYTES = 3840755982336
"""A local disk of 3.84 TB."""
MODULE_PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "nvme_core": {"io_timeout": "30", "max_retries": "5", "default_ps_max_latency_us": "100000"},
    "nvme": {"poll_queues": "0", "write_queues": "0"},
    "nf_conntrack": {"hashsize": "262144", "expect_hashsize": "4096"},
    "zswap": {"enabled": "N", "max_pool_percent": "20", "accept_threshold_percent": "90"},
    "workqueue": {"power_efficient": "N"},
    "ib_ipoib": {"send_queue_size": "128", "recv_queue_size": "256"},
}
BUILT_IN = frozenset({"zswap", "workqueue"})
CARD_DEFAULTS: Mapping[str, str] = {
    "rx_ring": "1024",
    "tx_ring": "1024",
    "combined_channels": "63",
    "gro": "1",
    "gso": "1",
    "tso": "1",
}
CARD_MAXIMA: Mapping[str, str] = {"rx_ring": "8192", "tx_ring": "8192", "combined_channels": "63", "mtu": "9978"}
"""As mlx5 has them on a ConnectX-7."""
_ROUTES = """\
Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eno1 00000000 0100000A 0003 0 0 0 00000000 0 0 0
eno1 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0"""


@dataclass(frozen=True)
class Hardware:
    """`gpus` GPUs of `gpu_product` behind `cpus` logical CPUs and `memory_gib` GiB, spread evenly over `numa_nodes`."""

    gpus: int = 0
    has_plugin: bool = True
    """Something outside the simulation offers the GPUs to pods; else they wait for a device plugin's pod."""
    gpu_product: str = "NVIDIA-H100-80GB-HBM3"
    mig: Layout = ()
    """What each GPU is split into; empty: MIG is off."""
    instance_type: str = "bm.gpu.h100.8"
    architecture: str = "amd64"
    cpus: int = 192
    numa_nodes: int = 2
    memory_gib: int = 2048
    nvme_disks: int = 4
    rdma_cards: int = 2
    """Network cards with an RDMA device, beside the one with the default route. Real servers have one for each GPU."""
    frequency_policies: int = 4
    """CPU frequency policies; real x86 servers have one per CPU, which would only make this slower. 0: none."""
    governor: str = "schedutil"
    release: str = "6.8.0-45-generic"
    os_image: str = "Ubuntu 24.04.1 LTS"
    cmdline: str = "BOOT_IMAGE=/vmlinuz-6.8.0-45-generic root=UUID=0e1d ro console=tty1 console=ttyS0"
    boot_loader: str = "grub"
    """grub (update-grub), grubby, or none: kernel arguments cannot be changed there."""
    modules: tuple[str, ...] = (
        "overlay",
        "br_netfilter",
        "nf_conntrack",
        "nvme",
        "nvme_core",
        "mlx5_core",
        "ib_uverbs",
    )
    installable: tuple[str, ...] = (
        "ib_umad",
        "ib_ipoib",
        "rdma_ucm",
        "nvidia_peermem",
        "tcp_bbr",
        "sch_fq",
        "dummy",
        "loop",
    )
    """Modules that modprobe finds."""
    lacks: frozenset[str] = frozenset()
    """Sysctls that this kernel does not have."""
    sysctls: Mapping[str, str] = field(default_factory=dict, hash=False, compare=False)
    """Boot-time values that differ from the usual kernel's, such as vm.max_map_count on Ubuntu 24.04."""
    boot_seconds: float = 180.0

    @property
    def programs(self) -> frozenset[str]:
        extra = {"grub": {"update-grub"}, "grubby": {"grubby"}}.get(self.boot_loader, set())
        always = {
            "modprobe",
            "systemctl",
            "nsenter",
            "mkfs.ext4",
            "mkfs.xfs",
            "mdadm",
            "sh",
            "mv",
            "rm",
            "cat",
            "sleep",
        }
        return frozenset(always | extra)


CPU_SERVER = Hardware(
    gpus=0,
    instance_type="bm.std.64",
    cpus=64,
    memory_gib=256,
    nvme_disks=2,
    rdma_cards=0,
    frequency_policies=2,
    boot_seconds=90.0,
)


@lru_cache(maxsize=64)
def booted(hardware: Hardware) -> dict[str, str]:
    """Files of /proc and /sys that all freshly booted machines of this kind have. Never change the result."""
    files = {
        f"/proc/sys/{key.replace('.', '/')}": hardware.sysctls.get(key, rule.default)
        for key, rule in SYSCTLS.items()
        if key not in hardware.lacks and (not rule.module or rule.module in hardware.modules)
    }
    files["/proc/sys/kernel/osrelease"] = hardware.release
    files["/proc/meminfo"] = f"MemTotal:       {hardware.memory_gib * 1024 * 1024} kB\nHugepagesize:       2048 kB"
    files["/proc/sys/vm/nr_hugepages"] = "0"
    for name in ("online", "possible"):
        files[f"/sys/devices/system/cpu/{name}"] = f"0-{hardware.cpus - 1}"
    files["/sys/devices/system/cpu/nohz_full"], files["/sys/devices/system/cpu/isolated"] = "(null)", ""
    files["/proc/irq/default_smp_affinity"] = f"{2**hardware.cpus - 1:x}"
    files["/proc/1/status"] = f"Cpus_allowed_list:\t0-{hardware.cpus - 1}"
    files["/sys/devices/system/node/online"] = f"0-{hardware.numa_nodes - 1}" if hardware.numa_nodes > 1 else "0"
    for name, text in THP_DEFAULTS.items():
        files[f"/sys/kernel/mm/transparent_hugepage/{name}"] = text
    for kb in POOL_KB:
        files[f"/sys/kernel/mm/hugepages/hugepages-{kb}kB/nr_hugepages"] = "0"
        for node in range(hardware.numa_nodes):
            files[f"/sys/devices/system/node/node{node}/hugepages/hugepages-{kb}kB/nr_hugepages"] = "0"
    for policy in range(hardware.frequency_policies):
        folder = f"/sys/devices/system/cpu/cpufreq/policy{policy}"
        files[f"{folder}/scaling_governor"] = hardware.governor
        files[f"{folder}/scaling_available_governors"] = (
            "conservative ondemand userspace powersave performance schedutil"
        )
        # As many CPUs as policies: a look at each of hundreds would cost the fleet more than it shows.
        files[f"/sys/devices/system/cpu/cpu{policy}/power/pm_qos_resume_latency_us"] = "0"
        files["/sys/devices/system/cpu/cpuidle/current_driver"] = "intel_idle"
    for disk in range(hardware.nvme_disks):
        for name, text in BLOCK_DEFAULTS.items():
            files[f"/sys/block/nvme{disk}n1/queue/{name}"] = text
        files |= _drive_files(disk)
    files |= card_files(hardware.rdma_cards)
    for module in sorted({*hardware.modules, *BUILT_IN}):
        files |= module_files(module)
    return files


def _drive_files(number: int) -> dict[str, str]:
    """Return the files that say what a local disk is. The first holds the node's own system, in a partition."""
    folder = f"/sys/block/nvme{number}n1"
    system = {f"{folder}/nvme{number}n1p1/partition": "1"} if number == 0 else {}
    return system | {
        f"{folder}/size": str(DRIVE_BYTES // 512),
        f"{folder}/ro": "0",
        f"{folder}/dev": f"259:{number}",
        f"{folder}/stat": "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
        f"{folder}/queue/rotational": "0",
        f"{folder}/device/model": "SAMSUNG MZQL23T8HCLS-00A07",
        f"{folder}/device/transport": "pcie",
        f"{folder}/device/serial": f"{number}",
    }


def module_files(module: str) -> dict[str, str]:
    """Return the files of a loaded module in /sys/module."""
    folder = f"/sys/module/{module}"
    files = {f"{folder}/parameters/{name}": value for name, value in MODULE_PARAMETERS.get(module, {}).items()}
    if module not in BUILT_IN:
        files |= {f"{folder}/initstate": "live", f"{folder}/refcnt": "0"}
    return files


def card_files(rdma_cards: int) -> dict[str, str]:
    """Return the files of a card with the default route and of those with RDMA devices, as agent.host reads them."""
    files = {"/proc/net/route": _ROUTES}
    for name in ("eno1", *(f"roce{number}" for number in range(rdma_cards))):
        files |= {f"/nic/{name}/{attribute}": value for attribute, value in CARD_DEFAULTS.items()}
        files |= {f"/nic/{name}/{attribute}_max": value for attribute, value in CARD_MAXIMA.items()}
        folder = f"/sys/class/net/{name}"
        files |= {f"{folder}/mtu": "1500", f"{folder}/carrier": "1", f"{folder}/device/vendor": "0x15b3"}
    for number in range(rdma_cards):
        files[f"/sys/class/infiniband/mlx5_{number}/device/net/roce{number}/ifindex"] = str(number + 3)
    return files


@lru_cache(maxsize=64)
def _names(hardware: Hardware) -> tuple[str, ...]:
    return tuple(sorted(with_folders(booted(hardware))))


def with_folders(paths: Mapping[str, object]) -> set[str]:
    names = set(paths)
    for path in paths:
        while (path := path.rpartition("/")[0]) and path not in names:
            names.add(path)
    return names


@lru_cache(maxsize=512)
def pattern(glob: str) -> re.Pattern[str]:
    """A shell pattern whose `*` stops at a `/`."""
    return re.compile(fnmatch.translate(glob).replace(".*", "[^/]*"), re.DOTALL)


@lru_cache(maxsize=2048)
def matching(hardware: Hardware, glob: str) -> tuple[str, ...]:
    """Paths of a freshly booted machine that match, sorted."""
    wanted = pattern(glob)
    return tuple(name for name in _names(hardware) if wanted.fullmatch(name))
