"""Kinds that are plain files of /sys: transparent huge pages, CPU governor and latency, disks, module parameters."""

from __future__ import annotations

import re

from agent.host import Host
from agent.kinds.base import Handler, Unsupported, WriteRefused, bracketed, choices

THP = "/sys/kernel/mm/transparent_hugepage/"


class TransparentHugepage(Handler):
    def paths(self, host: Host, key: str) -> list[str]:
        return [THP + key.partition(".")[2]]

    def parse(self, text: str) -> str:
        return bracketed(text)

    def check(self, host: Host, key: str, value: str) -> None:
        offered = choices(host.read_text(self.paths(host, key)[0]) or "")
        if offered and value not in offered:
            raise WriteRefused(f"the kernel offers {', '.join(offered)}")


class Governor(Handler):
    """One governor for all CPUs, set per frequency policy. Virtual machines often have none."""

    PATTERN = "/sys/devices/system/cpu/cpufreq/policy[0-9]*/scaling_governor"

    def paths(self, host: Host, key: str) -> list[str]:
        return host.glob(self.PATTERN)

    def check(self, host: Host, key: str, value: str) -> None:
        for path in self.paths(host, key):
            offered = (host.read_text(path.replace("_governor", "_available_governors")) or "").split()
            if offered and value not in offered:
                raise WriteRefused(f"the CPUs offer {', '.join(offered)}")


class ResumeLatency(Handler):
    """The longest that any CPU may take to wake, in µs: the idle governor then chooses no deeper state."""

    PATTERN = "/sys/devices/system/cpu/cpu[0-9]*/power/pm_qos_resume_latency_us"

    def paths(self, host: Host, key: str) -> list[str]:
        return host.glob(self.PATTERN)

    def check(self, host: Host, key: str, value: str) -> None:
        driver = (host.read_text("/sys/devices/system/cpu/cpuidle/current_driver") or "").strip()
        if driver in ("", "none") and value != "0":
            raise Unsupported("unsupported here: the kernel has no cpuidle driver, so no limit would be kept")


class Block(Handler):
    """One attribute of every whole disk of a class; partitions share their disk's queue."""

    DISKS = {
        "nvme": re.compile(r"nvme\d+n\d+"),
        "sd": re.compile(r"sd[a-z]+"),
        "vd": re.compile(r"vd[a-z]+"),
        "xvd": re.compile(r"xvd[a-z]+"),
    }

    def paths(self, host: Host, key: str) -> list[str]:
        _, of, attribute = key.split(".")
        matches = host.glob(f"/sys/block/{of}*/queue/{attribute}")
        return [path for path in matches if self.DISKS[of].fullmatch(path.split("/")[3])]

    def parse(self, text: str) -> str:
        return bracketed(text)

    def check(self, host: Host, key: str, value: str) -> None:
        if key.endswith(".scheduler"):
            for path in self.paths(host, key):
                offered = choices(host.read_text(path) or "")
                if offered and value not in offered:
                    raise WriteRefused(f"{path.split('/')[3]} offers {', '.join(offered)}")


class ModuleParameter(Handler):
    def paths(self, host: Host, key: str) -> list[str]:
        _, module, parameter = key.split(".")
        return [f"/sys/module/{module}/parameters/{parameter}"]
