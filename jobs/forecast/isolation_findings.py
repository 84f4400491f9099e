"""Changes of isolated CPUs: what a node's CPUs, or what it reserves for the system, do not agree with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from components.catalog import kernels
from contract import isolation, resource_managers
from contract.isolation import Isolation
from contract.resource_managers import CPUS, NONE, ONLINE
from jobs.diffs.changes import Changes
from jobs.forecast.findings import PlanFinding, node_count

_KEEPS_AFFINITY = ">=6.2"
"""Linux, kernel/sched/core.c: since then a cpuset narrows the CPUs a process asked for; it replaced them before."""


def isolation_findings(
    changes: Mapping[str, Changes], observed: Mapping[str, Mapping[str, str]], releases: Mapping[str, str]
) -> list[PlanFinding]:
    """Judge, by node, what the plan makes of the isolated CPUs and of those reserved for the system.

    `releases`: of the nodes' kernels, as the kubelet reports them.

    No approval gives a node the CPUs that it lacks, so that blocks; its agent would refuse it, too.
    """
    refused: dict[str, list[str]] = defaultdict(list)
    split: dict[str, list[str]] = defaultdict(list)
    freed: list[str] = []
    for name, of_node in changes.items():
        changed = {change.key: change.value or "" for change in of_node.settings()}
        if not changed.keys() & {isolation.KEY, CPUS}:
            continue
        if _keeps_services(changed) and kernels.judge(releases.get(name, ""), _KEEPS_AFFINITY) == kernels.TOO_OLD:
            freed.append(name)
        seen = observed.get(name, {})
        isolated, reserved = (changed.get(key, seen.get(key, "")) for key in (isolation.KEY, CPUS))
        online = resource_managers.cpu_list(seen.get(ONLINE, ""))
        if why := _impossible(changed, isolated, online, "" if reserved == NONE else reserved):
            refused[why].append(name)
        elif cores := isolation.split_cores(changed.get(isolation.KEY, ""), seen.get(isolation.SIBLINGS, "")):
            split[resource_managers.cpu_text(cores[0])].append(name)
    out = [
        PlanFinding(
            "block",
            "isolation-impossible",
            f"CPUs cannot be isolated on {node_count(len(names))}",
            f"{why[0].upper()}{why[1:]}.",
            names,
        )
        for why, names in sorted(refused.items())
    ]
    if freed:
        title = f"Services will not keep off isolated CPUs on {node_count(len(freed))}"
        detail = (
            "Linux before 6.2 gives every process all CPUs again, systemd included, once the kubelet uses cpusets "
            "(cgroup v2): the step fails after its reboot. Leave services out, or bring a newer kernel first."
        )
        out.append(PlanFinding("warn", "services-freed", title, detail, freed))
    return out + [
        PlanFinding(
            "warn",
            "cores-split",
            f"Cores are isolated in part on {node_count(len(names))}",
            f"CPUs {core} are threads of one core, and only some of them are isolated: the others' interrupts and "
            "services slow them down. Isolate all threads of a core, or none.",
            names,
        )
        for core, names in sorted(split.items())
    ]


def _keeps_services(changed: Mapping[str, str]) -> bool:
    value = changed.get(isolation.KEY, "")
    return not isolation.bad_value(value) and Isolation.of(value).keeps_services


def _impossible(changed: Mapping[str, str], isolated: str, online: frozenset[int] | None, reserved: str) -> str:
    rivals = sorted(key for pair in isolation.RIVALS if pair <= changed.keys() for key in pair - {isolation.KEY})
    if rivals and changed[isolation.KEY]:
        return f"{rivals[0]} changes in the same plan, and {isolation.WHY_RIVALS}: take one away in a plan before"
    return isolation.impossible(isolated, online, reserved)
