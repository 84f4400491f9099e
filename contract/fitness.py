"""Values that leave a node unusable: limits of a key, in itself and relative to the node's memory and cores.

Judged at publishing without a machine, when planned for each node, and by the agent with the node's own numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from contract.nodetuning import Operator

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40


@dataclass(frozen=True, slots=True)
class Machine:
    """0: not known, and nothing is judged by it."""

    memory: int = 0
    """Bytes."""
    cores: int = 0


@dataclass(frozen=True, slots=True)
class Limit:
    minimum: int = 0
    """Below it no node of any size works: a node runs some thousand processes before the first job."""
    per_core: int = 0
    """The minimum grows with the cores: each has kernel threads of its own."""
    ceiling: int = 0
    """The kernel takes no more, so the minimum does not grow beyond it."""
    unit: int = 0
    """Bytes of memory that one takes; 0: none to speak of."""
    share: float = 1.0
    """Of the node's memory that all of them may take. A judgement: the rest is for the system and its pods."""


LARGEST_MEMORY = 64 * TIB
"""Of a node: what x86 addresses with four levels of page tables."""
_HUGE = 0.9
"""As agent/kinds/hugepages.py has it."""
LIMITS: Mapping[str, Limit] = {
    # The kernel's own default is the greater of 32768 and 1024 a CPU (include/linux/threads.h).
    "kernel.pid_max": Limit(minimum=32768, per_core=1024, ceiling=4194304),
    "kernel.threads-max": Limit(minimum=16384, per_core=256, ceiling=1073741823),
    "fs.file-max": Limit(minimum=8192),
    "fs.nr_open": Limit(minimum=8192),
    "vm.max_map_count": Limit(minimum=32768),
    # Documentation/admin-guide/sysctl/vm.rst: below 1024 KiB it deadlocks under load, too high it is out of memory.
    "vm.min_free_kbytes": Limit(minimum=1024, unit=KIB, share=0.1),
    "vm.admin_reserve_kbytes": Limit(unit=KIB, share=0.25),
    "vm.user_reserve_kbytes": Limit(unit=KIB, share=0.25),
    # An entry of connection tracking is 320 bytes on 64 bits.
    "net.netfilter.nf_conntrack_max": Limit(minimum=16384, unit=320, share=0.25),
    "hugepages-2Mi": Limit(unit=2 * MIB, share=_HUGE),
    "hugepages-1Gi": Limit(unit=GIB, share=_HUGE),
    # The size is another argument's to say; the smallest that there is costs the least.
    "cmdline.hugepages": Limit(unit=2 * MIB, share=_HUGE),
    "cmdline.crashkernel": Limit(unit=1, share=0.25),
}

_SIZE = re.compile(r"([0-9]+)([KMGT]?)", re.IGNORECASE)
_UNITS = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": TIB}


def unfit(key: str, operator: str, value: str, machine: Machine) -> str:
    """Why a node that is given this value could not be used, as half a sentence; empty when it could.

    What only raises cannot lower a node below a minimum, and what only lowers cannot take more of it.
    """
    limit = LIMITS.get(_whole(key))
    amount = None if limit is None else _amount(key, value, machine)
    if limit is None or amount is None:
        return ""
    least = max(limit.minimum, min(limit.per_core * machine.cores, limit.ceiling))
    if amount < least and operator != Operator.AT_LEAST:
        because = f" with {machine.cores} cores" if least > limit.minimum else ""
        return f"{value} is too low for a node{because}: at least {least}"
    if limit.unit and operator != Operator.AT_MOST:
        memory = machine.memory or LARGEST_MEMORY
        if amount * limit.unit > memory * limit.share:
            of = "the node's" if machine.memory else "any node's"
            most = int(memory * limit.share)
            return f"{value} would take {_size(amount * limit.unit)}; {_share(limit)} of {of} memory is {_size(most)}"
    return ""


def _whole(key: str) -> str:
    """Huge pages of one NUMA node take of the same memory."""
    return key.partition(".")[0] if key.startswith("hugepages-") else key


def _amount(key: str, value: str, machine: Machine) -> int | None:
    if key == "cmdline.crashkernel":
        return _crash_kernel(value, machine)
    return int(value) if re.fullmatch(r"[0-9]{1,30}", value) else None


def _crash_kernel(value: str, machine: Machine) -> int | None:
    """Bytes that are kept, as the kernel reads it: `512M`, `512M,high`, `1G@16M`, or the first range that fits."""
    parts = value.partition("@")[0].split(",")
    if ":" not in value:
        return _bytes(parts[0])
    sizes = []
    for part in parts:
        span, _, size = part.partition(":")
        start, _, end = span.partition("-")
        low, high, kept = _bytes(start), _bytes(end) if end else LARGEST_MEMORY, _bytes(size)
        if low is None or high is None or kept is None:
            continue
        if machine.memory and low <= machine.memory < high:
            return kept
        sizes.append(kept)
    return None if machine.memory or not sizes else min(sizes)


def _bytes(text: str) -> int | None:
    found = _SIZE.fullmatch(text)
    return int(found[1]) * _UNITS[found[2].upper()] if found else None


def _size(amount: int) -> str:
    unit = next((name for name in ("T", "G", "M", "K") if amount >= _UNITS[name]), "")
    return f"{amount / _UNITS[unit]:.1f} {unit}iB" if unit else f"{amount} bytes"


def _share(limit: Limit) -> str:
    return f"{limit.share:.0%}"
