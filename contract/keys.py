"""Keys and values of settings: one grammar and one judgment by contract.key_lists for control plane and agent.

A profile that asks for more is refused when it is published, and the agent refuses it again on the node, so that
neither side has to trust the other.
"""

from __future__ import annotations

import enum
import re
from functools import lru_cache

from contract import disk_layouts, isolation, kubelet, nics, resource_managers
from contract.key_lists import (
    ALLOWED,
    BLOCK_CLASSES,
    CNI_OWNED,
    COUPLED,
    CPU_LATENCY,
    DENIED,
    DENIED_FAMILIES,
    DENIED_VALUES,
    KUBELET_OWNED,
    NEW_PODS,
    READ_ONLY,
    SYSCTL_WORDS,
)
from contract.nodetuning import MAX_KEY, MAX_VALUE, Operator


class BadKey(ValueError):
    """A key outside the grammar. The message names the key and what is wrong with it."""


class BadValue(ValueError):
    """A value that no key of this kind can take. The message names the key and what is wrong."""


class KeyKind(enum.StrEnum):
    SYSCTL = "sysctl"
    HUGEPAGES = "hugepages"
    THP = "transparent_hugepage"
    GOVERNOR = "cpu_governor"
    CPU_LATENCY = "cpu_latency"
    """The longest that a CPU may take to wake."""
    CPU_ISOLATION = "cpu_isolation"
    """CPUs kept from interrupts, timer ticks and, by choice, the scheduler and services."""
    MODULE = "module"
    MODULE_PARAMETER = "module_parameter"
    BLOCK = "block"
    CMDLINE = "cmdline"
    KUBELET = "kubelet"
    """A field of the kubelet's configuration."""
    KUBELET_MANAGER = "kubelet_manager"
    """A field of the kubelet's CPU, memory or topology manager: its state files must agree with it."""
    SERVICE_LIMIT = "service_limit"
    """A limit that systemd starts containerd or the kubelet with."""
    NIC = "nic"
    """An attribute of every network card of a class."""
    DISK_LAYOUT = "disk_layout"
    """What becomes of the node's empty local disks."""
    READ_ONLY = "read_only"


KERNEL_ARGUMENTS = (KeyKind.CMDLINE, KeyKind.CPU_ISOLATION)
"""Kinds that the boot loader gives to the kernel."""
AT_START = (*KERNEL_ARGUMENTS, KeyKind.KUBELET, KeyKind.KUBELET_MANAGER, KeyKind.SERVICE_LIMIT)
"""Kinds whose value is what the kernel, or a service, was started with: written to a file, effective at the next
start."""


class ApplyClass(enum.StrEnum):
    """Action needed before a written value takes effect, in rising order of disturbance."""

    LIVE = "live"
    NEW_PODS = "new-pods"
    KUBELET_RESTART = "kubelet-restart"
    CONTAINERD_RESTART = "containerd-restart"
    DRAIN = "drain"
    """What runs on the node would be disturbed; for the kubelet's resource managers it restarts, too."""
    REBOOT = "reboot"


MIXED = "mixed:"
"""Prefix of an effective value that is not the same in all places: `mixed:128,4096`."""

SYSCTL_ROOTS = frozenset({"vm", "net", "fs", "kernel"})

_GRAMMAR = re.compile(r"[A-Za-z0-9_.-]+")
_HUGEPAGES = re.compile(r"hugepages-(2Mi|1Gi)(?:\.node(0|[1-9][0-9]{0,3}))?")
_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")
# Values end in files that shells, grub and systemd read: nothing that any of them expands, and no ';', which ends a
# command in grub.cfg.
_VALUE = re.compile(r"[A-Za-z0-9_.,:=+@/ -]*")
_WORD = re.compile(r"[A-Za-z0-9_.,:=+@/-]+")
NO_LATENCY = "n/a"
"""How the kernel writes that a CPU may not sleep at all: an original that goes back, and no value of a profile."""
_COUNT = re.compile(r"0|[1-9][0-9]{0,9}")
_OTHER_BASE = re.compile(r"[+-]?0[0-9A-Za-z]+")
"""What the kernel takes for an octal or a hexadecimal number."""
_NUMBER = re.compile(r"[+-]?[0-9]+")
_LARGEST_NUMBER = 2**64 - 1
"""Kernels before 5.1, RHEL 8's among them, read a greater one as what is left of it in 64 bits."""


def normalize(key: str) -> str:
    """One spelling: `vm/swappiness` becomes `vm.swappiness`, `module.ib-umad` `module.ib_umad`. Raises BadKey."""
    if key.partition("/")[0] in SYSCTL_ROOTS and "." not in key:
        key = key.replace("/", ".")
    if key.startswith("module."):
        key = "module." + key.removeprefix("module.").replace("-", "_")
    check_key(key)
    return key


def check_key(key: str) -> None:
    """Accept a key of the grammar, known or not. Raises BadKey."""
    kind_of(key)


def kind_of(key: str) -> KeyKind:
    """Return the kind of setting that a key names. Raises BadKey."""
    try:
        return _known_kind(key)
    except TypeError:  # not hashable, so not text either
        raise BadKey("a key must be text, and not empty") from None


@lru_cache(maxsize=1024)  # the same few hundred keys on every look at a machine
def _known_kind(key: str) -> KeyKind:
    if not isinstance(key, str) or not key:
        raise BadKey("a key must be text, and not empty")
    shown = key[:40].encode("unicode_escape").decode()
    if len(key) > MAX_KEY:
        raise BadKey(f"{shown}…: longer than {MAX_KEY} characters")
    if not _GRAMMAR.fullmatch(key):
        bad = next(c for c in key if not _GRAMMAR.fullmatch(c))
        raise BadKey(f"{shown}: contains {bad!a}; allowed are letters, digits, '.', '-' and '_'")
    if not all(_SEGMENT.fullmatch(part) for part in key.split(".")):
        raise BadKey(f"{shown}: has an empty part ('..', or a dot at an end)")
    kind = _kind(key)
    if kind is None:
        raise BadKey(f"{shown}: is of no known kind")
    return kind


def _kind(key: str) -> KeyKind | None:
    first, *rest = key.split(".")
    if key in READ_ONLY:
        return KeyKind.READ_ONLY
    if _HUGEPAGES.fullmatch(key):
        return KeyKind.HUGEPAGES
    if key in ("transparent_hugepage.enabled", "transparent_hugepage.defrag"):
        return KeyKind.THP
    if key == "cpu.scaling_governor":
        return KeyKind.GOVERNOR
    if key == CPU_LATENCY:
        return KeyKind.CPU_LATENCY
    if key == isolation.KEY:
        return KeyKind.CPU_ISOLATION
    if first in SYSCTL_ROOTS and rest:
        return KeyKind.SYSCTL
    if first == "module" and len(rest) == 1:
        return KeyKind.MODULE
    if first == "module_parameter" and len(rest) == 2:
        return KeyKind.MODULE_PARAMETER
    if first == "block" and len(rest) == 2 and rest[0] in BLOCK_CLASSES:
        return KeyKind.BLOCK
    if first == "cmdline" and rest:
        return KeyKind.CMDLINE
    if first == "nic" and len(rest) == 2 and rest[0] in nics.CLASSES:
        return KeyKind.NIC
    if key == disk_layouts.KEY:
        return KeyKind.DISK_LAYOUT
    if key in kubelet.SERVICE_LIMITS:
        return KeyKind.SERVICE_LIMIT
    if key in kubelet.FIELDS:
        return KeyKind.KUBELET
    if key in resource_managers.FLAGS:
        return KeyKind.KUBELET_MANAGER
    return None


def canonical_value(value: str) -> str:
    """A value as it is compared and reported: runs of blanks and tabs are one space, none at the ends."""
    return " ".join(value.split())


def check_value(key: str, value: str) -> None:
    """Check that this text could be a value of this key at all; ranges are the catalog's. Raises BadKey, BadValue."""
    kind = kind_of(key)
    if not isinstance(value, str) or not value or len(value) > MAX_VALUE:
        raise BadValue(f"{key}: a value must be text of 1 to {MAX_VALUE} characters")
    if value.startswith(MIXED):
        raise BadValue(f"{key}: {MIXED} is how places that differ are reported, and no value")
    if not _VALUE.fullmatch(value) or value != canonical_value(value):
        raise BadValue(f"{key}: a value may hold letters, digits, single spaces and any of _ . , : = + @ / -")
    if kind is KeyKind.SYSCTL and any(_OTHER_BASE.fullmatch(word) for word in value.split()):
        # `0x3` and `03` are 3 to the kernel: no list of values and no range would know them.
        raise BadValue(f"{key}: a number is written in decimal, and begins with no 0")
    if kind is KeyKind.SYSCTL and len(value.split()) != (count := SYSCTL_WORDS.get(key, 1)):
        raise BadValue(
            f"{key}: takes {count} value{'s' if count > 1 else ''}, and the kernel would ignore what follows"
        )
    if kind is KeyKind.SYSCTL and any(_NUMBER.fullmatch(w) and abs(int(w)) > _LARGEST_NUMBER for w in value.split()):
        raise BadValue(f"{key}: the kernel's numbers have 64 bits")
    if kind is KeyKind.HUGEPAGES and not _COUNT.fullmatch(value):
        raise BadValue(f"{key}: must be a whole number of pages")
    if kind is KeyKind.CPU_LATENCY and not (value == NO_LATENCY or _COUNT.fullmatch(value)):
        raise BadValue(f"{key}: must be a whole number of microseconds, 0 for no limit")
    if kind is KeyKind.MODULE and value != "loaded":
        raise BadValue(f"{key}: can only be 'loaded'")
    if kind in (KeyKind.KUBELET, KeyKind.SERVICE_LIMIT) and (why := kubelet.bad_value(key, value)):
        raise BadValue(f"{key}: {why}")
    if kind is KeyKind.KUBELET_MANAGER and (why := resource_managers.bad_value(key, value)):
        raise BadValue(f"{key}: {why}")
    if kind is KeyKind.CPU_ISOLATION and (why := isolation.bad_value(value)):
        raise BadValue(f"{key}: {why}")
    if kind is KeyKind.NIC and (why := nics.bad_value(key, value)):
        raise BadValue(f"{key}: {why}")
    if kind is KeyKind.DISK_LAYOUT and (why := disk_layouts.bad_value(value)):
        raise BadValue(f"{key}: {why}")
    if kind is not KeyKind.SYSCTL and not _WORD.fullmatch(value):
        raise BadValue(f"{key}: must be one word")


def parts(effective: str) -> list[str]:
    """The different values of a key in its places; one, unless they are `mixed:`."""
    return effective.removeprefix(MIXED).split(",") if effective.startswith(MIXED) else [effective]


def is_observable(key: str) -> bool:
    """Return whether the agent reports this key if `spec.observe` names it: one that may be set, or that others own."""
    return is_allowed(key) or key in READ_ONLY or key in CNI_OWNED


def is_allowed(key: str) -> bool:
    """Return whether the key is on the allow-list; `denied_reason` also applies the deny-list and the owners."""
    return key in ALLOWED or bool(_HUGEPAGES.fullmatch(key))


def denied_reason(key: str, value: str) -> str | None:
    """Return the reason why no profile may set this key to this value, as half a sentence; None if one may."""
    value = canonical_value(value)
    if reason := DENIED.get(key) or DENIED_VALUES.get((key, value)):
        return reason
    for prefix, reason in DENIED_FAMILIES:
        if key.startswith(prefix):
            return reason
    if key in CNI_OWNED or key.endswith(".forwarding"):
        return "the network plugin owns it"
    if key in KUBELET_OWNED and value != KUBELET_OWNED[key]:
        return f"the kubelet owns it and insists on {KUBELET_OWNED[key]}"
    if key in READ_ONLY:
        return "it is only observed, for now"
    if not is_allowed(key):
        return "it is not on the list of keys that may be set"
    return None


def apply_class(key: str) -> ApplyClass:
    """Return the action that must follow a write before it takes effect. Raises BadKey."""
    kind = kind_of(key)
    if kind in KERNEL_ARGUMENTS:
        return ApplyClass.REBOOT
    if kind in (KeyKind.HUGEPAGES, KeyKind.KUBELET):
        return ApplyClass.KUBELET_RESTART
    if kind in (KeyKind.READ_ONLY, KeyKind.SERVICE_LIMIT):
        live = dict.fromkeys(("disk", "cpu"), ApplyClass.LIVE)
        of_kind = live | {"containerd": ApplyClass.CONTAINERD_RESTART, "boot": ApplyClass.REBOOT}
        return of_kind.get(key.partition(".")[0], ApplyClass.KUBELET_RESTART)
    if kind in (KeyKind.KUBELET_MANAGER, KeyKind.DISK_LAYOUT):
        return ApplyClass.DRAIN
    if kind is KeyKind.NIC:
        return ApplyClass.DRAIN if nics.attribute_of(key) in nics.DRAINED else ApplyClass.LIVE
    return ApplyClass.NEW_PODS if key in NEW_PODS else ApplyClass.LIVE


def coupled_with(key: str) -> frozenset[str]:
    """The other keys that a write to this one changes."""
    return next((group - {key} for group in COUPLED if key in group), frozenset())


def satisfied(operator: str, wanted: str, effective: str | None) -> bool:
    """Return whether the kernel's answer is the wanted value, or better for >= and <=.

    Numbers compare as numbers (`010` is 10), lists element by element and only with as many elements. Text that is no
    number satisfies >= and <= only by being equal. `mixed:a,b` (disks or CPUs that differ) needs every part to satisfy.
    """
    if effective is None:
        return False
    if effective.startswith(MIXED):
        return all(satisfied(operator, wanted, part) for part in parts(effective))
    want, have = wanted.split(), effective.split()
    if len(want) != len(have):
        return False
    return all(_one_satisfied(operator, w, h) for w, h in zip(want, have, strict=True))


_SPREAD = (KeyKind.BLOCK, KeyKind.GOVERNOR, KeyKind.CPU_LATENCY, KeyKind.NIC)
"""Kinds of several places, of which some may have gone or come since the original was read."""


def is_restored(key: str, original: str | None, effective: str | None) -> bool:
    """Return whether this answer of the kernel is the original, judged by the value alone.

    A key that is gone has nothing left to put back. Where disks or CPUs come and go, one that both know suffices.
    """
    if effective == original:
        return True
    if kind_of(key) is KeyKind.DISK_LAYOUT:  # file systems stay where they were made, so fewer disks are empty
        return effective is None or disk_layouts.is_absent(effective)
    if effective is None or original is None:
        # Of other kinds: it is gone, or did not exist when the plan was made, so the plan names no value.
        return kind_of(key) not in (KeyKind.MODULE, *AT_START)
    if satisfied(Operator.EQUALS, original, effective):
        return True
    if kind_of(key) not in _SPREAD or MIXED not in (original[: len(MIXED)], effective[: len(MIXED)]):
        return False
    had, has = set(parts(original)), set(parts(effective))
    return bool(had & has)


def _one_satisfied(operator: str, wanted: str, effective: str) -> bool:
    if not (_NUMBER.fullmatch(wanted) and _NUMBER.fullmatch(effective)):
        return wanted == effective
    want, have = int(wanted), int(effective)
    if operator == Operator.AT_LEAST:
        return have >= want
    if operator == Operator.AT_MOST:
        return have <= want
    return have == want
