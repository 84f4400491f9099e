"""The kubelet's resource managers (CPUs, memory, topology) as settings, with the kubelet's own rules for them.

Rules: pkg/kubelet/cm (cpumanager/policy_options.go, policy_none.go, cpu_manager.go; memorymanager/memory_manager.go;
topologymanager/topology_manager.go), cmd/kubelet/app/server.go and apis/config/validation of Kubernetes 1.28 to 1.34.
A kubelet that one of them is broken for does not start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from contract import quantities

CPU_POLICY = "kubelet.cpuManagerPolicy"
CPUS = "kubelet.reservedSystemCPUs"
MEMORY_POLICY = "kubelet.memoryManagerPolicy"
MEMORY = "kubelet.reservedMemory"
TOPOLOGY = "kubelet.topologyManagerPolicy"
SCOPE = "kubelet.topologyManagerScope"
OPTION = "kubelet.cpuManagerPolicyOptions."
NONE = "none"
"""What a list that is not given is reported as. It is no value to set: a revert takes Setpoint's away."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    CPU_POLICY: ("none", "static"),
    MEMORY_POLICY: ("None", "Static"),
    TOPOLOGY: ("none", "best-effort", "restricted", "single-numa-node"),
    SCOPE: ("container", "pod"),
}
OPTIONS: Mapping[str, int] = {
    "full-pcpus-only": 22,
    "distribute-cpus-across-numa": 33,
    "strict-cpu-reservation": 33,
    "prefer-align-cpus-by-uncorecache": 34,
}
"""Per option the minor version of Kubernetes since which it is there without a feature gate: beta or stable."""
ALPHA_OPTIONS = frozenset({"align-by-socket", "distribute-cpus-across-cores"})
"""Hidden behind the gate CPUManagerPolicyAlphaOptions, so they cannot be set."""
_RIVALS = ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa")
FLAGS: Mapping[str, tuple[str, str]] = {
    CPU_POLICY: ("cpu-manager-policy", "none"),
    CPUS: ("reserved-cpus", NONE),
    MEMORY_POLICY: ("memory-manager-policy", "None"),
    MEMORY: ("reserved-memory", NONE),
    TOPOLOGY: ("topology-manager-policy", "none"),
    SCOPE: ("topology-manager-scope", "container"),
    **{f"{OPTION}{name}": ("cpu-manager-policy-options", "false") for name in OPTIONS},
}
"""Per key that may be set its flag, which wins over every file, and the value of a kubelet that is given none."""

ONLINE, NODES, RESERVED = "cpu.online", "cpu.numaNodes", "kubelet.reserved"
FACTS = (ONLINE, NODES, RESERVED)
"""Keys that are only observed: what of a node decides whether a kubelet starts."""
MOST_NODES = 8
"""NUMA nodes that the topology manager takes (topology_manager.go, maxAllowableNUMANodes)."""
LARGEST_CPU = 8191
"""The most that a kernel is built for (CONFIG_NR_CPUS on x86)."""

_RANGE = re.compile(r"(0|[1-9][0-9]{0,3})(?:-(0|[1-9][0-9]{0,3}))?")
_RESERVATION = re.compile(r"(0|[1-9][0-9]{0,3}):memory=([1-9][0-9]{0,15}(?:[KMGT]i)?)")


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts of a node; None where it is not known, and nothing is judged by it."""

    cpus: frozenset[int] | None = None
    nodes: frozenset[int] | None = None
    reserved_cpu: int | None = None
    """Thousandths of a CPU that kubeReserved and systemReserved take together."""
    reserved_memory: int | None = None
    """Bytes that kubeReserved, systemReserved and evictionHard take together."""
    minor: int | None = None
    """Of the kubelet's version: 34 for 1.34."""

    @classmethod
    def of(cls, observed: Mapping[str, str], kubelet: str = "") -> NodeFacts:
        """Read what an agent reports, and a version as a Node object has it (`v1.34.1`)."""
        reserved = dict(part.partition("=")[::2] for part in observed.get(RESERVED, "").split(","))
        version = re.match(r"v1\.([0-9]{1,3})(\.|$)", kubelet)
        return cls(
            cpu_list(observed.get(ONLINE, "")) or None,
            cpu_list(observed.get(NODES, "")) or None,
            int(reserved["cpu"]) if reserved.get("cpu", "").isdecimal() else None,
            int(reserved["memory"]) if reserved.get("memory", "").isdecimal() else None,
            int(version[1]) if version else None,
        )


def cpu_list(text: str) -> frozenset[int] | None:
    """Return the CPUs of a list as the kernel and the kubelet write it (`0-3,8`), in any order; None if it is none."""
    out: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            return None
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low or high > LARGEST_CPU:
            return None
        out |= set(range(low, high + 1))
    return frozenset(out)


def cpu_text(cpus: Iterable[int]) -> str:
    """Write a list of CPUs in the one form that it is compared in: rising, each run as a range."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def memory_list(text: str) -> dict[int, int] | None:
    """Return bytes per NUMA node of `0:memory=1Gi,1:memory=512Mi`; None if it is no such list."""
    out: dict[int, int] = {}
    for part in text.split(","):
        match = _RESERVATION.fullmatch(part)
        if match is None or int(match[1]) in out:
            return None
        out[int(match[1])] = quantities.count(match[2])
    return out


def memory_text(reserved: Mapping[int, int]) -> str:
    """Write reserved memory in the one form that it is compared in: by rising node, in the largest whole unit."""
    return ",".join(f"{node}:memory={_amount(size)}" for node, size in sorted(reserved.items()))


def _amount(size: int) -> str:
    units = [unit for unit in ("Ti", "Gi", "Mi", "Ki") if size and size % (1 << quantities.BINARY[unit]) == 0]
    return f"{size >> quantities.BINARY[units[0]]}{units[0]}" if units else str(size)


def bad_value(key: str, value: str) -> str:
    """Return why no kubelet takes this value of this key, as half a sentence; empty when some do."""
    if key in CHOICES:
        return "" if value in CHOICES[key] else f"must be one of {', '.join(CHOICES[key])}"
    if key.startswith(OPTION):
        return "" if value in ("true", "false") else "must be true or false"
    if key == CPUS:
        cpus = cpu_list(value)
        if cpus is None:
            return "must be a list of CPUs, such as 0-1,64-65"
        return "" if value == cpu_text(cpus) else f"is written {cpu_text(cpus)}, rising and each run as a range"
    reserved = memory_list(value)
    if reserved is None:
        return "must be an amount for each NUMA node, such as 0:memory=1Gi,1:memory=1Gi"
    return "" if value == memory_text(reserved) else f"is written {memory_text(reserved)}"


def unstartable(given: Mapping[str, str], facts: NodeFacts = NodeFacts()) -> tuple[str, str]:
    """Return the key, and why no kubelet on such a node starts with what it is given; ("", "") when one does.

    `given` are keys with values, without those that are not given: an option that is false was given, too. Values may
    be a hostile spec's.
    """
    for key, value in given.items():
        if key in FLAGS and (why := bad_value(key, value)):
            return key, f"{key} {value!r}: it {why}"
    rules = (_options, _cpus, _reserved_cpus, _memory, _topology)
    return next((problem for rule in rules if (problem := rule(given, facts))[1]), ("", ""))


def _options(given: Mapping[str, str], facts: NodeFacts) -> tuple[str, str]:
    options = {key.removeprefix(OPTION): key for key in given if key.startswith(OPTION)}
    if options and given.get(CPU_POLICY, "none") != "static":
        return next(iter(options.values())), (
            f"the kubelet does not start with an option of the CPU manager, be it false, while {CPU_POLICY} is none: "
            "set it to static"
        )
    on = [name for name in _RIVALS if given.get(OPTION + name) == "true"]
    if len(on) == len(_RIVALS):
        return OPTION + on[0], f"the kubelet takes only one of the options {on[0]} and {on[1]}"
    for name, key in options.items():
        since = OPTIONS.get(name)
        if since and facts.minor is not None and facts.minor < since:
            return key, f"the option {name} is there since Kubernetes 1.{since}, and the kubelet is 1.{facts.minor}"
    if given.get(TOPOLOGY) == "single-numa-node" and given.get(f"{OPTION}align-by-socket") == "true":
        return TOPOLOGY, "the kubelet does not start with single-numa-node and the option align-by-socket"
    return "", ""


def _cpus(given: Mapping[str, str], facts: NodeFacts) -> tuple[str, str]:
    if given.get(CPU_POLICY) == "static" and CPUS not in given and facts.reserved_cpu == 0:
        return CPU_POLICY, (
            "the static policy needs CPUs that are reserved, and this kubelet reserves none: set "
            f"{CPUS}, such as 0, or give it a kubeReserved or systemReserved with cpu"
        )
    return "", ""


def _reserved_cpus(given: Mapping[str, str], facts: NodeFacts) -> tuple[str, str]:
    cpus = cpu_list(given[CPUS]) if CPUS in given else None
    if not cpus or facts.cpus is None:
        return "", ""
    if missing := cpus - facts.cpus:
        return CPUS, f"{CPUS} names {cpu_text(missing)}, and the node has the CPUs {cpu_text(facts.cpus)}"
    return (
        (CPUS, f"{CPUS} would leave no CPU to pods: the node has {cpu_text(facts.cpus)}")
        if cpus == facts.cpus
        else ("", "")
    )


def _memory(given: Mapping[str, str], facts: NodeFacts) -> tuple[str, str]:
    if given.get(MEMORY_POLICY) != "Static":
        return "", ""
    reserved = memory_list(given[MEMORY]) or {} if MEMORY in given else {}
    if facts.nodes is not None and (missing := reserved.keys() - facts.nodes):
        return MEMORY, f"{MEMORY} names the NUMA node {min(missing)}, and the node has {cpu_text(facts.nodes)}"
    total = sum(reserved.values())
    if facts.reserved_memory is not None and total != facts.reserved_memory:
        needs = f"must be {_amount(facts.reserved_memory)} over all NUMA nodes, as kubeReserved, systemReserved and "
        return MEMORY, f"{MEMORY} is {_amount(total)} in sum, and {needs}evictionHard take together"
    return "", ""


def _topology(given: Mapping[str, str], facts: NodeFacts) -> tuple[str, str]:
    if given.get(TOPOLOGY, "none") != "none" and facts.nodes is not None and len(facts.nodes) > MOST_NODES:
        return (
            TOPOLOGY,
            f"the topology manager takes at most {MOST_NODES} NUMA nodes, and the node has {len(facts.nodes)}",
        )
    return "", ""
