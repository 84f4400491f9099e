"""Isolated CPUs as one setting: the set a profile names, and the arguments of the boot that are derived from it.

isolcpus, nohz_full, irqaffinity, rcu_nocbs: Documentation/admin-guide/kernel-parameters.txt, kernel/sched/isolation.c
(which takes the first of two nohz_full or isolcpus that disagree, and warns in the kernel's log alone);
systemd.cpu_affinity: systemd(1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from contract.resource_managers import LARGEST_CPU, cpu_list, cpu_text

KEY = "cpu.isolated"
SIBLINGS = "cpu.siblings"
"""Only observed: which CPUs are threads of one core, as `siblings_text` writes it."""
DOMAIN = "domain"
"""The scheduler balances no load over the isolated CPUs: a thread stays where it was started or pinned."""
SERVICES = "services"
"""systemd and what it starts keep to the other CPUs."""
FLAGS = (DOMAIN, SERVICES)
NONE = "none"
"""How a node is reported that isolates nothing and could. It is no value to set: a revert takes Setpoint's away."""
ISOLCPUS, NOHZ_FULL, RCU_NOCBS = "isolcpus", "nohz_full", "rcu_nocbs"
IRQ_AFFINITY, SERVICE_AFFINITY = "irqaffinity", "systemd.cpu_affinity"
ARGUMENTS = (ISOLCPUS, NOHZ_FULL, RCU_NOCBS, IRQ_AFFINITY, SERVICE_AFFINITY)
_HOUSEKEEPING = (IRQ_AFFINITY, SERVICE_AFFINITY)
_MANAGED = "managed_irq"
RIVALS = tuple(frozenset({KEY, f"cmdline.{name}"}) for name in (NOHZ_FULL, RCU_NOCBS))
"""Keys that set one argument twice: only one of a pair may be wanted."""
WHY_RIVALS = f"{KEY} sets that argument itself"

_SHAPE = "must be a list of CPUs such as 2-15,18-31, with domain, or services, or both before it"
_NOT_TAKEN = {
    ":": "has a group such as 0-31:1/2, which is not taken: write out the CPUs",
    "/": "has a group such as 0-31:1/2, which is not taken: write out the CPUs",
    "^": "excludes CPUs with ^, which is not taken: write out the CPUs that are isolated",
}


@dataclass(frozen=True, slots=True)
class Isolation:
    """A value of cpu.isolated. `of` reads one, and raises ValueError with half a sentence."""

    cpus: frozenset[int]
    has_domain: bool = False
    keeps_services: bool = False

    @classmethod
    def of(cls, text: str) -> Isolation:
        words = text.split(",")
        flags = [word for word in words if word in FLAGS]
        listed = ",".join(words[len(flags) :])
        if words[: len(flags)] != flags or len(flags) != len(set(flags)):
            raise ValueError(_SHAPE)
        for sign, why in _NOT_TAKEN.items():
            if sign in listed:
                raise ValueError(why)
        if "N" in listed or "all" in words:
            raise ValueError("has N or all, which mean other CPUs on each node: write out the CPUs")
        cpus = cpu_list(listed)
        if not cpus:
            raise ValueError(f"{_SHAPE}; CPUs are 1 to {LARGEST_CPU}")
        if 0 in cpus:
            raise ValueError("must not name CPU 0, which boots the kernel and keeps its time: it cannot be isolated")
        return cls(cpus, DOMAIN in flags, SERVICES in flags)

    def to_text(self) -> str:
        """Write the value in the one form that it is compared in."""
        flags = [name for name, is_on in ((DOMAIN, self.has_domain), (SERVICES, self.keeps_services)) if is_on]
        return ",".join([*flags, cpu_text(self.cpus)])

    def arguments(self, present: Iterable[int]) -> dict[str, str]:
        """Return the boot arguments on a machine with these CPUs. Raises ValueError when none would be left."""
        isolated, others = cpu_text(self.cpus), frozenset(present) - self.cpus
        if not others:
            raise ValueError("would leave no CPU to the system")
        flags = [_MANAGED, *([DOMAIN] if self.has_domain else [])]
        out = {ISOLCPUS: ",".join([*flags, isolated]), NOHZ_FULL: isolated, RCU_NOCBS: isolated}
        out[IRQ_AFFINITY] = cpu_text(others)
        return out | ({SERVICE_AFFINITY: cpu_text(others)} if self.keeps_services else {})


def bad_value(value: str) -> str:
    """Return why this is no value of cpu.isolated, as half a sentence; empty when it is one."""
    try:
        isolation = Isolation.of(value)
    except ValueError as error:
        return str(error)
    text = isolation.to_text()
    return "" if text == value else f"is written {text}: domain before services, CPUs rising, each run as a range"


def bad_argument(name: str, value: str) -> str:
    """Return why an argument is none that a value of cpu.isolated makes, as half a sentence; empty when it is."""
    flags, isolated = _flags_of(value) if name == ISOLCPUS else ([], value)
    cpus = cpu_list(isolated)
    if name not in ARGUMENTS or not cpus or set(flags) - {_MANAGED, DOMAIN}:
        return "is no argument that cpu.isolated makes"
    return "" if name in _HOUSEKEEPING or 0 not in cpus else "would isolate CPU 0"


def read_back(given: Mapping[str, str]) -> Isolation | None:
    """Return the isolation that a kernel's arguments, of those above, make together; None when they make none."""
    flags, isolated = _flags_of(given.get(ISOLCPUS, ""))
    cpus = cpu_list(isolated)
    if not cpus or set(flags) not in ({_MANAGED}, {_MANAGED, DOMAIN}):
        return None
    if any(cpu_list(given.get(name, "")) != cpus for name in (NOHZ_FULL, RCU_NOCBS)) or IRQ_AFFINITY not in given:
        return None
    others = [cpu_list(given[name]) for name in _HOUSEKEEPING if name in given]
    if any(not kept or kept & cpus for kept in others):
        return None
    return Isolation(cpus, DOMAIN in flags, SERVICE_AFFINITY in given)


def _flags_of(value: str) -> tuple[list[str], str]:
    words = value.split(",")
    flags = [word for word in words if word[:1].isalpha()]
    return flags, ",".join(word for word in words if word not in flags)


def impossible(value: str, online: frozenset[int] | None, reserved: str = "") -> str:
    """Return why a node with these CPUs, and these reserved for the system, cannot have this value, as half a sentence.

    Empty when it can. None and an empty text: not known, or none. A value that is none is judged by `bad_value`.
    """
    if bad_value(value):
        return ""
    cpus = Isolation.of(value).cpus
    if online is not None and (missing := cpus - online):
        return f"{KEY} names {cpu_text(missing)}, and the node has the CPUs {cpu_text(online)}"
    if online is not None and not online - cpus:
        return f"{KEY} would leave no CPU to the system: the node has {cpu_text(online)}"
    if both := cpus & (cpu_list(reserved) or frozenset()):
        return (
            f"{KEY} names {cpu_text(both)}, which kubelet.reservedSystemCPUs ({reserved}) keeps for the system: a CPU "
            "is one or the other"
        )
    return ""


def siblings_text(cores: Iterable[Iterable[int]]) -> str:
    """Write cores of several threads short: `0-31+32` are the cores 0,32 to 31,63; groups of equal steps end in `;`."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for core in cores:
        first, *rest = sorted(set(core)) or [0]
        if rest:
            groups.setdefault(tuple(cpu - first for cpu in rest), []).append(first)
    return ";".join("+".join([cpu_text(firsts), *map(str, steps)]) for steps, firsts in sorted(groups.items()))


def split_cores(value: str, siblings: str) -> list[frozenset[int]]:
    """Return the cores of which this value isolates some threads only; none of a text that is no list of cores."""
    if bad_value(value):
        return []
    cpus = Isolation.of(value).cpus
    out = []
    for group in siblings.split(";"):
        firsts, *steps = group.split("+")
        for first in sorted(cpu_list(firsts) or ()):
            core = frozenset({first, *(first + int(step) for step in steps if step.isdecimal())})
            if core & cpus and not core <= cpus:
                out.append(core)
    return out
