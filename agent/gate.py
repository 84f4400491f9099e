"""The one gate that every change of the node passes, on every path.

Handlers are given no other host than this one. It knows which key a path or a command's word belongs to and has the
contract judge the value, so that what may never be set is not set by a restore, a repair or a journal either.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

from agent import cards, trial_files
from agent.host import Command, CommandResult, Host
from agent.kinds import formatting
from agent.kinds.base import WriteRefused
from contract import disk_layouts, fitness, isolation, judging, keys, nics
from contract.disk_layouts import Layout, Volume
from contract.judging import NodeCapacity
from contract.key_lists import CPU_LATENCY

FILES = frozenset(
    {
        "/etc/sysctl.d/99-zz-setpoint.conf",
        "/etc/modules-load.d/setpoint.conf",
        "/etc/modprobe.d/setpoint.conf",
        "/etc/tmpfiles.d/setpoint.conf",
        "/etc/default/grub.d/90-setpoint.cfg",
        "/etc/grub.d/06_setpoint",
        "/etc/kubernetes/kubelet.conf.d/99-zz-setpoint.conf",
        "/etc/kubernetes/kubelet/config.json.d/99-zz-setpoint.conf",
        "/etc/openshift/kubelet.conf.d/99-zz-setpoint.conf",
        "/etc/systemd/system/containerd.service.d/99-zz-setpoint.conf",
        "/etc/systemd/system/kubelet.service.d/99-zz-setpoint.conf",
        *trial_files.FILES,
    }
)
"""Every file of the node that the agent may replace, besides its journal and the units that mount its disks."""

_TRIAL = re.compile("setpoint_try=[0-9a-f]{16}")
_UNITS = (Command.MOUNT_UNIT, Command.UNMOUNT_UNIT, Command.FORGET_UNIT)
_SIZES = {"2048": "2Mi", "1048576": "1Gi"}
_PATHS = (
    (re.compile(r"/proc/sys/(.+)"), lambda m: m[1].replace("/", ".")),
    (
        re.compile(r"/sys/kernel/mm/hugepages/hugepages-(2048|1048576)kB/nr_hugepages"),
        lambda m: f"hugepages-{_SIZES[m[1]]}",
    ),
    (
        re.compile(r"/sys/devices/system/node/(node\d+)/hugepages/hugepages-(2048|1048576)kB/nr_hugepages"),
        lambda m: f"hugepages-{_SIZES[m[2]]}.{m[1]}",
    ),
    (re.compile(r"/sys/kernel/mm/transparent_hugepage/(\w+)"), lambda m: f"transparent_hugepage.{m[1]}"),
    (re.compile(r"/sys/devices/system/cpu/cpufreq/policy\d+/scaling_governor"), lambda m: "cpu.scaling_governor"),
    (re.compile(r"/sys/devices/system/cpu/cpu\d+/power/pm_qos_resume_latency_us"), lambda m: CPU_LATENCY),
    (re.compile(r"/sys/module/(\w+)/parameters/(\w+)"), lambda m: f"module_parameter.{m[1]}.{m[2]}"),
    (re.compile(r"/sys/block/(nvme|sd|vd|xvd)\w+/queue/(\w+)"), lambda m: f"block.{m[1]}.{m[2]}"),
)
_ANY_CARD = nics.OTHER
"""Values of a card are judged alike in every class."""


class Denied(WriteRefused):
    """The key is on no allow-list, or on the deny-list. `str()` is half a sentence."""


def key_of(path: str) -> str | None:
    """The key that a file of the kernel belongs to; None for a file that belongs to none."""
    if card := cards.parsed(path):
        return f"nic.{_ANY_CARD}.{card[1]}"
    for pattern, key in _PATHS:
        if match := pattern.fullmatch(path):
            return key(match)
    return None


class Gate:
    """A Host that lets through only what the contract permits. Reading is free."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._facts: NodeCapacity | None = None
        self.read_text, self.glob, self.has, self.age = host.read_text, host.glob, host.has, host.age
        self.read_disk, self.boot_id, self.kernel = host.read_disk, host.boot_id, host.kernel

    def refusal(self, key: str, value: str) -> str | None:
        """Return the reason why this value may not be written to this key here, as half a sentence; None if it may."""
        facts = self.facts()
        if fitness.takes_memory(key) and not facts.memory_kib:
            return "this node does not say how much memory it has"
        return judging.refusal(key, value, facts)

    def refuses_argument(self, key: str, value: str) -> str | None:
        """Return why this kernel argument may not be written here: neither wished for nor of isolated CPUs."""
        reason = self.refusal(key, value)
        return reason if reason and isolation.bad_argument(key.removeprefix("cmdline."), value) else None

    def facts(self) -> NodeCapacity:
        """Read once: memory that is plugged in later counts from the agent's next start on."""
        if self._facts is None or not self._facts.memory_kib:
            lines = (self._host.read_text("/proc/meminfo") or "").splitlines()
            totals = (line.split()[1] for line in lines if line.startswith("MemTotal:"))
            self._facts = NodeCapacity(memory_kib=int(next(totals, "0")))
        return self._facts

    def write_text(self, path: str, value: str) -> None:
        """Raises Denied, OSError."""
        key = key_of(path)
        if key is None:
            raise Denied(f"{path} belongs to no key that may be set")
        if (card := cards.parsed(path)) and not cards.is_card(self._host, card[0]):
            raise Denied(f"{card[0]} is no network card of the machine's own")
        self._judge(key, value)
        self._host.write_text(path, value)

    def persist(self, path: str, text: str | None, *, executable: bool = False) -> None:
        """Raises Denied, OSError. What the text says was judged when it was made (`persisted.sync`)."""
        if path not in FILES and not disk_layouts.is_unit_file(path):
            raise Denied(f"{path} is no file of Setpoint's")
        self._host.persist(path, text, executable=executable)

    def run(self, command: Command, *words: str) -> CommandResult:
        """Raises Denied."""
        if command in formatting.OWN_COMMANDS:
            raise Denied(f"{command.name} runs for a layout's disks alone")
        if command in (Command.MODPROBE, Command.UNLOAD):
            for word in words:
                self._judge(f"module.{word}", "loaded")
        elif command is Command.GRUBBY_ADD:
            for word in words:
                name, equals, value = word.partition("=")
                if why := self.refuses_argument(f"cmdline.{name}", value if equals else "present"):
                    raise Denied(f"cmdline.{name}: {why}")
        elif command is Command.GRUBBY_REMOVE:
            for word in words:
                name = word.partition("=")[0]
                if not keys.is_allowed(f"cmdline.{name}") and name not in isolation.ARGUMENTS:
                    raise Denied(f"{word}: it is not on the list of keys that may be set")
        elif command in _UNITS:
            if len(words) != 1 or disk_layouts.where_of(words[0]) is None:
                raise Denied(f"{command.name} takes the unit of a layout's disk")
        elif words and not (command is Command.GRUB_TRY and _TRIAL.fullmatch(" ".join(words))):
            raise Denied(f"{command.name} takes no such words")
        return self._host.run(command, *words)

    def hold_disk(self, name: str, *, exclusively: bool = False) -> AbstractContextManager[None]:
        return self._host.hold_disk(name, exclusively=exclusively)

    def format_volume(self, layout: Layout, volume: Volume) -> None:
        """Raises Denied, NotTouched, WriteRefused; see agent.kinds.formatting."""
        self._judge(disk_layouts.KEY, layout.to_text())
        formatting.format_volume(self._host, layout, volume)

    def make_array(self, layout: Layout, volume: Volume) -> None:
        """Raises Denied, NotTouched, WriteRefused; see agent.kinds.formatting."""
        self._judge(disk_layouts.KEY, layout.to_text())
        formatting.make_array(self._host, layout, volume)

    def assemble(self, layout: Layout, volume: Volume) -> None:
        """Raises Denied, NotTouched; see agent.kinds.formatting."""
        self._judge(disk_layouts.KEY, layout.to_text())
        formatting.assemble(self._host, layout, volume)

    def _judge(self, key: str, value: str) -> None:
        if reason := self.refusal(key, value):
            raise Denied(f"{key}: {reason}")
