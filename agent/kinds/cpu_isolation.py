"""Isolated CPUs: arguments of the next boot, derived from one set, and judged by what the running kernel keeps to.

Nothing is moved before that boot. It starts every interrupt on the other CPUs, and irqbalance keeps them there: it
reads the same two files of /sys. Interrupts that a driver manages itself no one can move: managed_irq keeps them off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.host import Command, Host
from agent.journal import Journal
from agent.kinds.base import AtStart, EffectiveValue, Unsupported, WriteRefused
from agent.kinds.cmdline import arguments, uses_drop_in
from contract import isolation
from contract.isolation import ARGUMENTS, NONE, Isolation
from contract.nodetuning import MAX_VALUE, RestartAction
from contract.resource_managers import cpu_list, cpu_text

CPUS = "/sys/devices/system/cpu"
DEFAULT_AFFINITY = "/proc/irq/default_smp_affinity"
FIRST_PROCESS = "/proc/1/status"
_SIBLINGS = f"{CPUS}/cpu*/topology/thread_siblings_list"


def possible_cpus(host: Host) -> frozenset[int]:
    """Return the CPUs that the kernel made room for: not changed by one that is plugged in or taken offline."""
    for name in ("possible", "online"):
        if cpus := cpu_list((host.read_text(f"{CPUS}/{name}") or "").strip()):
            return cpus
    return frozenset()


def siblings(host: Host) -> str | None:
    """Return the cores of several threads; None where the kernel names none."""
    listed = {(host.read_text(path) or "").strip() for path in host.glob(_SIBLINGS)}
    cores = sorted(sorted(cpus) for text in listed if (cpus := cpu_list(text)))
    return isolation.siblings_text(cores)[:MAX_VALUE] or None


def keeps_in_part(key: str, written: str | None, answer: str | None) -> bool:
    """Return whether the kernel booted with what was written, which it may keep to in part: `2-3 services:2`.

    No other party wrote these arguments, so they are Setpoint's to take away.
    """
    return key == isolation.KEY and bool(written) and (answer or "").partition(" ")[0] == written


class CpuIsolation(AtStart):
    restart = RestartAction.REBOOT

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def read(self, host: Host, key: str) -> EffectiveValue:
        line = arguments(host.read_text("/proc/cmdline") or "")
        given = {name: line[name] for name in ARGUMENTS if name in line}
        if not given:  # a key that is absent tells the control plane that the node, or its agent, cannot have it
            return EffectiveValue(NONE if _can(host) else None)
        made = isolation.read_back(given)
        words = [made.to_text(), *_kept_otherwise(host, made)] if made else [f"{n}={v}" for n, v in given.items()]
        return EffectiveValue(" ".join(words)[:MAX_VALUE])

    def check(self, host: Host, key: str, value: str) -> None:
        if not _has_boot_loader(host):
            raise Unsupported("unsupported here: the host has neither update-grub nor grubby")
        if host.read_text(f"{CPUS}/nohz_full") is None:
            raise Unsupported("unsupported here: this kernel is built without CONFIG_NO_HZ_FULL and ignores nohz_full")
        if not cpu_list((host.read_text(f"{CPUS}/online") or "").strip()):
            raise Unsupported("unsupported here: the kernel does not list its CPUs")
        line = arguments(host.read_text("/proc/cmdline") or "")
        foreign = [f"{name}={line[name]}" for name in ARGUMENTS if name in line]
        if foreign and self._journal.content.entries.get(key) is None:
            raise WriteRefused(
                f"the node boots with {' '.join(foreign)}, which Setpoint did not set by {key}: of two that disagree "
                "the kernel takes the first, so take it out of the boot loader's own configuration first"
            )

    def write(self, host: Host, key: str, operator: str, value: str) -> None:
        if uses_drop_in(host):
            return
        wanted, before = _derived(host, value), self._before(host, key)
        added: list[str] = []
        try:
            for word in _words(wanted):
                _grubby(host, Command.GRUBBY_ADD, [word])
                added.append(word)
        except WriteRefused:
            _grubby(host, Command.GRUBBY_REMOVE, added)
            _grubby(host, Command.GRUBBY_ADD, _words(before))
            raise
        _grubby(host, Command.GRUBBY_REMOVE, _words({n: v for n, v in before.items() if n not in wanted}))

    def take_away(self, host: Host, key: str, written: str, original: EffectiveValue) -> None:
        """Undo write: the arguments go. Before the first write there were none. Raises WriteRefused."""
        if not uses_drop_in(host) and written:
            _grubby(host, Command.GRUBBY_REMOVE, _words(_derived(host, written)))

    def _before(self, host: Host, key: str) -> dict[str, str]:
        entry = self._journal.content.entries.get(key)
        return _derived(host, entry.before) if entry and entry.before else {}


def _has_boot_loader(host: Host) -> bool:
    return uses_drop_in(host) or host.has("grubby")


def _can(host: Host) -> bool:
    return _has_boot_loader(host) and host.read_text(f"{CPUS}/nohz_full") is not None


def _derived(host: Host, value: str) -> dict[str, str]:
    try:
        return Isolation.of(value).arguments(possible_cpus(host))
    except ValueError as error:
        raise WriteRefused(f"{isolation.KEY} {error}") from error


def _words(given: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in given.items()]


def _grubby(host: Host, command: Command, words: Iterable[str]) -> None:
    for word in words:
        ran = host.run(command, word)
        if ran.code:
            raise WriteRefused(f"grubby answered {ran.code}: {ran.output}")


def _kept_otherwise(host: Host, made: Isolation) -> list[str]:
    """Return what the running kernel and systemd keep to otherwise than the arguments ask."""
    out = []
    ticks, unbalanced = _listed(host, "nohz_full"), _listed(host, "isolated")
    if ticks != made.cpus:
        out.append(f"nohz_full:{_shown(ticks)}")
    if made.has_domain and not made.cpus <= (unbalanced or frozenset()):  # cpusets may isolate others while it runs
        out.append(f"isolated:{_shown(unbalanced)}")
    mask = (host.read_text(DEFAULT_AFFINITY) or "").strip().replace(",", "")
    interrupted = _bits(mask) & made.cpus
    if interrupted:
        out.append(f"interrupts:{cpu_text(interrupted)}")
    if made.keeps_services and (serving := _first_process(host) & made.cpus):
        out.append(f"services:{cpu_text(serving)}")
    return out


def _listed(host: Host, name: str) -> frozenset[int] | None:
    """Return a list of the kernel's; empty where it is written (null) or empty, None where there is no such file."""
    text = host.read_text(f"{CPUS}/{name}")
    return None if text is None else cpu_list(text.strip()) or frozenset()


def _shown(cpus: frozenset[int] | None) -> str:
    return "unknown" if cpus is None else cpu_text(cpus) or "none"


def _bits(mask: str) -> frozenset[int]:
    try:
        number = int(mask or "0", 16)
    except ValueError:
        return frozenset()
    return frozenset(cpu for cpu in range(number.bit_length()) if number >> cpu & 1)


def _first_process(host: Host) -> frozenset[int]:
    lines = (host.read_text(FIRST_PROCESS) or "").splitlines()
    listed = next((line.partition(":")[2] for line in lines if line.startswith("Cpus_allowed_list:")), "")
    return cpu_list(listed.strip()) or frozenset()
