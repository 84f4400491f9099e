"""Values that leave a node unusable: limits of a key, in itself and relative to the node's memory and cores.

Judged at publishing without a machine, when planned for each node, and by the agent with the node's own numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from contract import nics
from contract.key_lists import SYSCTL_WORDS
from contract.nodetuning import Operator

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40


@dataclass(frozen=True, slots=True)
class MachineSize:
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
    """Of the node's memory that all of them may take. A judgment: the rest is for the system and its pods."""
    of: str = ""
    """What the minimum counts, where that is not the value itself."""


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
    # Below these a node loses the network over which the value could be restored. A judgment each: well below what any
    # node needs, and above what cuts it off. The kernel itself takes 1 of most, and of some 0.
    "net.core.netdev_budget": Limit(minimum=64),
    "net.core.netdev_budget_usecs": Limit(minimum=500),
    "net.core.dev_weight": Limit(minimum=16),
    "net.core.netdev_max_backlog": Limit(minimum=128),
    "net.core.somaxconn": Limit(minimum=128),
    "net.core.optmem_max": Limit(minimum=4096),
    # Network plugins that load programs into the kernel fail when their compiled code has no room.
    "net.core.bpf_jit_limit": Limit(minimum=16 * MIB),
    "net.ipv4.tcp_rmem": Limit(minimum=4096, of=" each"),
    "net.ipv4.tcp_wmem": Limit(minimum=4096, of=" each"),
    "net.ipv4.tcp_mem": Limit(minimum=8192, of=" each"),
    "net.ipv4.udp_mem": Limit(minimum=8192, of=" each"),
    "net.ipv4.ip_local_port_range": Limit(minimum=1024, of=" ports"),
    "net.ipv4.tcp_retries2": Limit(minimum=3),
    "net.ipv4.neigh.default.gc_thresh3": Limit(minimum=512),
    "net.ipv6.neigh.default.gc_thresh3": Limit(minimum=512),
    "net.netfilter.nf_conntrack_buckets": Limit(minimum=1024),
    "module_parameter.nf_conntrack.hashsize": Limit(minimum=1024),
    "net.netfilter.nf_conntrack_tcp_timeout_established": Limit(minimum=300),
    "net.netfilter.nf_conntrack_udp_timeout": Limit(minimum=5),
    "net.netfilter.nf_conntrack_udp_timeout_stream": Limit(minimum=5),
    # Below the kernel's own defaults the kubelet cannot watch its files, and no container gets a session keyring.
    "fs.inotify.max_user_instances": Limit(minimum=128),
    "fs.inotify.max_user_watches": Limit(minimum=8192),
    "kernel.keys.maxkeys": Limit(minimum=200),
    "kernel.keys.maxbytes": Limit(minimum=20000),
    "hugepages-2Mi": Limit(unit=2 * MIB, share=_HUGE),
    "hugepages-1Gi": Limit(unit=GIB, share=_HUGE),
    # The size is another argument's to say; the smallest that there is costs the least.
    "cmdline.hugepages": Limit(unit=2 * MIB, share=_HUGE),
    "cmdline.crashkernel": Limit(minimum=1, unit=1, share=0.25),
    **{f"nic.{of}.{name}": Limit(minimum=least) for of in nics.CLASSES for name, least in nics.LEAST.items()},
}

AT_BOOT = frozenset({"cmdline.hugepages", "cmdline.hugepagesz", "cmdline.default_hugepagesz"})

# Decimal only: the kernel reads 0x14 and 024 as 20, and what is judged must be what it reads.
_COUNT = re.compile(r"0|[1-9][0-9]{0,29}")
_OF_NODES = re.compile(r"[0-9]{1,4}:[0-9]{1,29}(,[0-9]{1,4}:[0-9]{1,29})*")
_SIZE = re.compile(r"(0|[1-9][0-9]{0,29})([KMGTPE]?)", re.IGNORECASE)
_UNITS = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": TIB, "P": TIB << 10, "E": TIB << 20}


def unfit(key: str, operator: str, value: str, machine: MachineSize) -> str:
    """Return the reason why a node with this value could not be used, as half a sentence; empty when it could.

    A setting that only raises cannot put a node below a minimum, and one that only lowers cannot take more of it.
    """
    limit = LIMITS.get(_whole(key))
    if limit is None:
        return ""
    try:
        amount = _amount(key, value, machine)
    except _Unreadable:
        return f"{value} cannot be read as {_WRITTEN.get(key, 'a whole number, written in decimal')}"
    if amount is None:
        return ""
    least = max(limit.minimum, min(limit.per_core * machine.cores, limit.ceiling))
    raises = operator == Operator.AT_LEAST and _is_count(value)  # `>=` of what is no number raises nothing
    if amount < least and not raises:
        because = f" with {machine.cores} cores" if least > limit.minimum else ""
        return f"{value} is too low for a node{because}: at least {least}{limit.of}"
    if limit.unit and operator != Operator.AT_MOST:
        memory = machine.memory or LARGEST_MEMORY
        if amount * limit.unit > memory * limit.share:
            of = "the node's" if machine.memory else "any node's"
            most = int(memory * limit.share)
            return f"{value} would take {_size(amount * limit.unit)}; {_share(limit)} of {of} memory is {_size(most)}"
    return ""


def together(wishes: Iterable[tuple[str, str, str]], machine: MachineSize) -> str:
    """Return the reason why huge pages that would each fit leave a node unusable together; empty when they do not.

    `wishes` are key, operator and value. For one size counts the whole node's number or its NUMA nodes', the larger.
    For pages on the command line count and size are two arguments.
    """
    wishes = list(wishes)
    return _pools(wishes, machine) or _at_boot({key: value for key, _, value in wishes}, machine)


def after(desired: Mapping[str, tuple[str, str]], standing: Mapping[str, str], machine: MachineSize) -> str:
    """Return why huge pages leave a node unusable after a step, those it does not set included; empty if they do not.

    `desired` is operator and value by key, of settings and of originals that go back; `standing` the node's values by
    key, or, for arguments, those of its next boot. A step may leave or lower pages of which others took too many.
    """
    if not any(key.startswith("hugepages-") or key in AT_BOOT for key in desired):
        return ""  # the step leaves all pages as they are
    left = list(_left(desired, standing))
    grows = any(count > now for _, count, now in left)
    wishes = [(key, str(Operator.EQUALS), str(count)) for key, count, _ in left if grows]
    if desired.keys() & AT_BOOT:
        line = {key: standing[key] for key in AT_BOOT if key in standing} | {key: desired[key][1] for key in desired}
        wishes += [(key, str(Operator.EQUALS), value) for key, value in line.items() if key in AT_BOOT]
    return together(wishes, machine)


def _left(desired: Mapping[str, tuple[str, str]], standing: Mapping[str, str]) -> Iterator[tuple[str, int, int]]:
    """Key, pages after the step and pages now: of a size the whole node's, its NUMA nodes', or both."""
    for size in (key for key in LIMITS if key.startswith("hugepages-")):
        parts = {key for key in (*desired, *standing) if key.startswith(f"{size}.")}
        by_part = bool(parts & desired.keys())
        for key in sorted(parts) if by_part else ():
            yield key, *_counted(key, desired, standing)
        if size in desired or not by_part:
            yield size, *_counted(size, desired, standing)


def _counted(key: str, desired: Mapping[str, tuple[str, str]], standing: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of pages after the step, and now."""
    operator, value = desired.get(key, ("", ""))
    now = int(standing[key]) if _COUNT.fullmatch(standing.get(key, "")) else 0
    if not _COUNT.fullmatch(value):  # not asked for, or refused by itself
        return now, now
    lowest = now if operator == Operator.AT_LEAST else 0
    highest = now if operator == Operator.AT_MOST else int(value)
    return max(lowest, min(int(value), highest)), now


def _at_boot(desired: Mapping[str, str], machine: MachineSize) -> str:
    size = desired.get("cmdline.hugepagesz", desired.get("cmdline.default_hugepagesz", ""))
    try:
        amount, unit = (
            _amount("cmdline.hugepages", desired.get("cmdline.hugepages", "0"), machine),
            _bytes(size or "2M"),
        )
    except _Unreadable:  # a count is refused by itself, and of a size that the kernel cannot read it makes no pages
        return ""
    return _beyond_memory((amount or 0) * unit, machine)


def _pools(wishes: Iterable[tuple[str, str, str]], machine: MachineSize) -> str:
    counts: dict[str, int] = {}
    parts: dict[str, int] = {}
    for key, operator, value in wishes:
        size = _whole(key)
        if key.startswith("hugepages-") and size in LIMITS and operator != Operator.AT_MOST and _COUNT.fullmatch(value):
            of = counts if size == key else parts
            of[size] = of.get(size, 0) + int(value)
    sizes = counts.keys() | parts
    return _beyond_memory(sum(max(counts.get(s, 0), parts.get(s, 0)) * LIMITS[s].unit for s in sizes), machine)


def _beyond_memory(taken: int, machine: MachineSize) -> str:
    most = int((machine.memory or LARGEST_MEMORY) * _HUGE)
    if taken <= most:
        return ""
    return f"all huge pages together would take {_size(taken)}; {_HUGE:.0%} of the memory is {_size(most)}"


def takes_memory(key: str) -> bool:
    """Return whether a value of this key can only be judged by a node's memory."""
    limit = LIMITS.get(_whole(key))
    return limit is not None and limit.unit > 0


def _whole(key: str) -> str:
    """Huge pages of one NUMA node take of the same memory."""
    return key.partition(".")[0] if key.startswith("hugepages-") else key


_PORTS = "net.ipv4.ip_local_port_range"
_WRITTEN = {"cmdline.crashkernel": "crashkernel=: write 512M, 512M,high or 1G-64G:256M,64G-:512M"}
_ZONES = frozenset({"high", "low"})


class _Unreadable(ValueError):
    """A value that is not understood, so not known to be harmless."""


def _amount(key: str, value: str, machine: MachineSize) -> int | None:
    """None: nothing that this module knows of. Raises _Unreadable."""
    if key == "cmdline.crashkernel":
        return _crash_kernel(value, machine)
    if key == "cmdline.hugepages" and _OF_NODES.fullmatch(value):
        return sum(int(part.partition(":")[2]) for part in value.split(","))
    if not _is_count(value) or len(value.split()) != SYSCTL_WORDS.get(key, 1):
        raise _Unreadable
    numbers = [int(word) for word in value.split()]
    return numbers[1] - numbers[0] + 1 if key == _PORTS else min(numbers)


def _is_count(value: str) -> bool:
    """Return whether each of its words is a number, and there is one."""
    return bool(value) and all(_COUNT.fullmatch(word) for word in re.split(r"[ \t]+", value))


def _crash_kernel(value: str, machine: MachineSize) -> int | None:
    """Bytes that are kept, as the kernel reads it: `512M`, `512M,high`, `1G@16M`, or the first range that fits.

    `auto` is the distribution's to say. Raises _Unreadable.
    """
    if value == "auto":
        return None
    sizes, at, offset = value.partition("@")
    if at:
        _bytes(offset)
    if ":" not in sizes:
        size, comma, where = sizes.partition(",")
        if comma and where not in _ZONES:
            raise _Unreadable
        return _bytes(size)
    kept = [_range(part) for part in sizes.split(",")]
    fitting = [size for low, high, size in kept if not machine.memory or low <= machine.memory < high]
    if machine.memory:
        return fitting[0] if fitting else None
    return min(fitting)


def _range(part: str) -> tuple[int, int, int]:
    span, _, size = part.partition(":")
    low, dash, high = span.partition("-")
    if not dash:
        raise _Unreadable
    return _bytes(low), _bytes(high) if high else LARGEST_MEMORY + 1, _bytes(size)


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if not match:
        raise _Unreadable
    return int(match[1]) * _UNITS[match[2].upper()]


def _size(amount: int) -> str:
    unit = next((name for name in ("T", "G", "M", "K") if amount >= _UNITS[name]), "")
    return f"{amount / _UNITS[unit]:.1f} {unit}iB" if unit else f"{amount} bytes"


def _share(limit: Limit) -> str:
    return f"{limit.share:.0%}"
