"""Places of settings on a host: paths under /sys, and back from a path to the key that it is a place of."""

from __future__ import annotations

import re

from contract import keys
from contract.key_lists import CPU_LATENCY
from contract.keys import KeyKind

PAGE_SIZES = {"hugepages-2Mi": ("2048kB", "2M"), "hugepages-1Gi": ("1048576kB", "1G")}
"""(directory under /sys/kernel/mm/hugepages, the boot argument's spelling)"""
THP = "/sys/kernel/mm/transparent_hugepage"
GOVERNOR = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
LATENCY = "/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us"
DISKS = {"nvme": "nvme*n*", "sd": "sd*", "vd": "vd*", "xvd": "xvd*"}
"""Names under /sys/block of each class of disks."""

_SIZES = {folder: key for key, (folder, _) in PAGE_SIZES.items()}
_CLASSES = {glob: disks for disks, glob in DISKS.items()} | {"nvme*": "nvme"}
_PAGES = re.compile(
    r"/sys/(?:kernel/mm|devices/system/node/(node[0-9]{1,4}))/hugepages/hugepages-([0-9]+kB)/nr_hugepages"
)
_QUEUE = re.compile(r"/sys/(?:block|class/block)/([^/]+)/queue/([a-z_]+)")
_PARAMETER = re.compile(r"/sys/module/([A-Za-z0-9_-]+)/parameters/([A-Za-z0-9_-]+)")
_LATENCIES = re.compile(r"/sys/devices/system/cpu/cpu(?:\*|\[0-9\]\*)/power/pm_qos_resume_latency_us")
_GOVERNORS = re.compile(r"/sys/devices/system/cpu/(?:cpu(?:\*|\[0-9\]\*)/cpufreq|cpufreq/policy\*)/scaling_governor")


def sysfs_path(key: str) -> str | None:
    """Return the path of a setting under /sys, as a glob; None where it is not there."""
    match keys.kind_of(key):
        case KeyKind.THP:
            return f"{THP}/{key.rpartition('.')[2]}"
        case KeyKind.GOVERNOR:
            return GOVERNOR
        case KeyKind.CPU_LATENCY:
            return LATENCY
        case KeyKind.BLOCK:
            _, disks, attribute = key.split(".")
            return f"/sys/block/{DISKS[disks]}/queue/{attribute}"
        case KeyKind.MODULE_PARAMETER:
            _, module, parameter = key.split(".")
            return f"/sys/module/{module}/parameters/{parameter}"
        case KeyKind.HUGEPAGES:
            size, _, node = key.partition(".")
            root = f"/sys/devices/system/node/{node}" if node else "/sys/kernel/mm"
            return f"{root}/hugepages/hugepages-{PAGE_SIZES[size][0]}/nr_hugepages"
    return None


def key_of_path(path: str) -> str | None:
    """Return the key of exactly this path or glob; None where a profile has none.

    A single disk or CPU has none: a profile speaks of whole classes.
    """
    if path in (f"{THP}/enabled", f"{THP}/defrag"):
        return f"transparent_hugepage.{path.rpartition('/')[2]}"
    if _GOVERNORS.fullmatch(path):
        return "cpu.scaling_governor"
    if _LATENCIES.fullmatch(path):
        return CPU_LATENCY
    if (pages := _PAGES.fullmatch(path)) and (size := _SIZES.get(pages[2])):
        return f"{size}.{pages[1]}" if pages[1] else size
    if (queue := _QUEUE.fullmatch(path)) and (disks := _CLASSES.get(queue[1])):
        return f"block.{disks}.{queue[2]}"
    if parameter := _PARAMETER.fullmatch(path):
        return f"module_parameter.{parameter[1]}.{parameter[2]}"
    return None
