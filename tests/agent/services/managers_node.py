"""A node whose kubelet has resource managers: it runs the unit's script first, and does not start where they disagree.

Its rules are written from the kubelet's own source, apart from `contract.resource_managers`, which they judge.
"""

from __future__ import annotations

import json
import math
from typing import Any

import yaml

from agent import trial_files
from tests.agent.services.node import CONFIG, DEFAULTS, FOLDER, ServicesNode

OWN = f"{FOLDER}/{trial_files.DROP_IN}"
CPU_STATE, MEMORY_STATE = "/var/lib/kubelet/cpu_manager_state", "/var/lib/kubelet/memory_manager_state"
STATES = (CPU_STATE, MEMORY_STATE)
MANAGERS = {
    "cpuManagerPolicy": "none",
    "memoryManagerPolicy": "None",
    "topologyManagerPolicy": "none",
    "topologyManagerScope": "container",
}
OPTIONS = {
    "full-pcpus-only",
    "distribute-cpus-across-numa",
    "strict-cpu-reservation",
    "prefer-align-cpus-by-uncorecache",
}
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
STARTS = 6
"""How often systemd starts a kubelet that ends, before the test looks."""


class ManagersNode(ServicesNode):
    def __init__(self, files: dict[str, str] | None = None, *, cpus: int = 8, nodes: int = 2, **more: Any):
        self.cpus, self.nodes = cpus, nodes
        self.broken = False
        """Fault: the kubelet does not come up with any drop-in of Setpoint's for its managers."""
        self.stuck = False
        """Fault: it runs with one, and its managers never start."""
        self.unit_read = ""
        self.state_files: dict[str, str] = {}
        self.refusals: list[str] = []
        self.starts = 0
        super().__init__(files, **more)

    def read_text(self, path: str) -> str | None:
        if path == "/sys/devices/system/cpu/online":
            return f"0-{self.cpus - 1}\n"
        if path == "/sys/devices/system/node/online":
            return f"0-{self.nodes - 1}\n"
        return self.state_files[path] if path in self.state_files else super().read_text(path)

    def _read_units(self) -> None:
        super()._read_units()
        self.unit_read = self.disk.get(trial_files.UNIT, "")

    def start(self, service: str) -> None:
        """Start it as systemd does, with Restart=always; what comes up in the end runs."""
        if service != "kubelet":
            super().start(service)
            return
        self.starts += 1
        for _ in range(STARTS):
            if self.unit_read:
                self._run_script()
            merged = self.merged()
            if why := self._refusal(merged):
                self.refusals.append(why)
                self.seconds += 2
                continue
            super().start(service)
            self.seconds += 1
            if not (self.stuck and OWN in self.disk):
                self._make_states(merged)
            return
        for name in ("comm", "stat", "cmdline", "limits"):
            self.live.pop(f"/proc/4242/{name}", None)

    # ── what the kubelet does ─────────────────────────────────────────────────────────────────────────────────────
    def merged(self) -> dict[str, Any]:
        out: dict[str, Any] = {**DEFAULTS, **MANAGERS}
        for path in (CONFIG, *self.glob(f"{FOLDER}/*.conf")):
            for name, value in (yaml.safe_load(self.read_text(path) or "") or {}).items():
                out[name] = out.get(name, {}) | value if isinstance(value, dict) else value
        return out

    def _refusal(self, merged: dict[str, Any]) -> str:
        if self.broken and OWN in self.disk:
            return "broken"
        reserved = _cpus(merged.get("reservedSystemCPUs", ""))
        count = len(reserved) or math.ceil(
            sum(_cores(merged.get(n, {}).get("cpu")) for n in ("kubeReserved", "systemReserved"))
        )
        if any(cpu >= self.cpus for cpu in reserved) or count > self.cpus:
            return "CPUs that are not there"
        options = merged.get("cpuManagerPolicyOptions", {})
        if merged["cpuManagerPolicy"] == "static":
            if not count or not options.keys() <= OPTIONS:
                return "static"
            if options.get("distribute-cpus-across-numa") == options.get("prefer-align-cpus-by-uncorecache") == "true":
                return "options"
        elif options:
            return "options of the none policy"
        if merged["memoryManagerPolicy"] == "Static":
            wants = {entry["numaNode"]: _size(entry["limits"]["memory"]) for entry in merged.get("reservedMemory", [])}
            thresholds = merged.get("evictionHard", {"memory.available": "100Mi"})
            total = sum(_size(merged.get(n, {}).get("memory", "0")) for n in ("kubeReserved", "systemReserved"))
            if (
                sum(wants.values()) != total + _size(thresholds.get("memory.available", "0"))
                or not set(range(self.nodes)) >= wants.keys()
            ):
                return "reservedMemory"
        if merged["topologyManagerPolicy"] != "none" and self.nodes > 8:
            return "NUMA nodes"
        return self._states_disagree(merged)

    def _states_disagree(self, merged: dict[str, Any]) -> str:
        for path, made in self._states_of(merged).items():
            if path in self.state_files and json.loads(self.state_files[path]) != made:
                return f"{path} differs"
        return ""

    def _states_of(self, merged: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return what each manager holds its file against: policy, the shared CPUs, and memory by NUMA node."""
        cpu, memory = merged["cpuManagerPolicy"], merged["memoryManagerPolicy"]
        strict = merged.get("cpuManagerPolicyOptions", {}).get("strict-cpu-reservation") == "true"
        shared = str(self.cpus) + (str(merged.get("reservedSystemCPUs", "")) if strict else "")
        pages = self.live.get("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
        return {
            CPU_STATE: {"policyName": cpu} | ({"defaultCpuSet": shared} if cpu == "static" else {}),
            MEMORY_STATE: {"policyName": memory}
            | ({"machineState": [merged.get("reservedMemory", []), pages]} if memory == "Static" else {}),
        }

    def _make_states(self, merged: dict[str, Any]) -> None:
        for path, made in self._states_of(merged).items():
            self.state_files.setdefault(path, json.dumps(made))

    # ── what the script does, line by line ────────────────────────────────────────────────────────────────────────
    def _run_script(self) -> None:
        self._effect(("script",), lambda: run_script(self.disk, self.state_files, self.boot_id(), OWN))
        for path in (OWN, trial_files.NEW):
            self._touch(path)
        self.seconds += 1


def run_script(disk: dict[str, str], states: dict[str, str], boot: str, own: str) -> None:
    """Do what trial_files.script does, on files in memory; a test holds both against each other."""
    at = trial_files.AT

    def put(path: str) -> None:
        if path in disk:
            text = disk.pop(path)
            if text:
                disk[own] = text
            else:
                disk.pop(own, None)

    if disk.get(trial_files.BOOT, "").strip() != boot:
        for path in STATES:
            states.pop(path, None)
        disk[trial_files.BOOT] = f"{boot}\n"
    if trial_files.APPLY in disk:
        for path in STATES:
            if path in states:
                disk[f"{at}.{path.rpartition('/')[2]}"] = states.pop(path)
        put(trial_files.NEW)
        disk[trial_files.TRIED] = disk.pop(trial_files.APPLY)
    elif trial_files.TRIED in disk:
        for path in STATES:
            states.pop(path, None)
        put(trial_files.OLD)
        for path in STATES:
            if (kept := f"{at}.{path.rpartition('/')[2]}") in disk:
                states[path] = disk.pop(kept)
        disk[trial_files.FAILED] = disk.pop(trial_files.TRIED)


def _cpus(text: str) -> set[int]:
    out: set[int] = set()
    for part in filter(None, str(text).split(",")):
        low, _, high = part.partition("-")
        out |= set(range(int(low), int(high or low) + 1))
    return out


def _cores(amount: Any) -> float:
    text = str(amount or 0)
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)


def _size(amount: Any) -> int:
    text = str(amount)
    return int(text[:-2]) * UNITS[text[-2:]] if text[-2:] in UNITS else int(text)
