"""One simulated machine: its kernel, power and kubelet, and the door through which the real agent works on it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import random
import uuid
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from agent import trial_files
from agent.host import Command, CommandResult
from simfleet.machines import kubelet, local_disks
from simfleet.machines.hardware import Hardware
from simfleet.machines.kernel import VirtualKernel

if TYPE_CHECKING:
    from simfleet.core import SimCluster

KUBELET_RESTART_SECONDS = 4.0
KUBELET_START_SECONDS = 8.0
"""From the kernel's start to the first Ready."""
_PIDS = {"containerd": 811, "kubelet": 923}
_KUBELET_FLAGS = f"/usr/bin/kubelet\0--config={kubelet.CONFIG}\0--config-dir={kubelet.CONFIG_DIR}\0"
_KUBELET_CONFIG = "kind: KubeletConfiguration\ncpuManagerPolicy: none\ntopologyManagerPolicy: none\n"
_UNITS = {
    "containerd": "[Service]\nExecStart=/usr/bin/containerd\nKillMode=process\n",
    "kubelet": "[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n",
}
_LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max open files            {nofile:<20} {nofile:<20} files
Max locked memory         {memlock:<20} {memlock:<20} bytes"""
_DEFAULTS = {"LimitMEMLOCK": "8388608", "LimitNOFILE": "524288"}
"""What systemd gives a service that asks for nothing (DefaultLimitMEMLOCK, DefaultLimitNOFILE's hard one)."""


@lru_cache(maxsize=64)
def _limits(memlock: str, nofile: str) -> str:
    """Content of /proc/<pid>/limits: one text for all machines."""
    return _LIMITS.format(memlock=memlock, nofile=nofile)


class Machine:
    """Outlives its Node object: a Node may be deleted and its machine join again."""

    def __init__(self, cluster: SimCluster, node: str, hardware: Hardware, seed: str) -> None:
        self._cluster, self.node, self.hardware = cluster, node, hardware
        self._random = random.Random(seed)
        self.kernel = VirtualKernel(hardware, self._uuid)
        self.is_up = True
        """Powered and booted."""
        self.has_kubelet = True
        """The kubelet runs and answers."""
        self.dies_at_reboot = False
        """Fault: the next reboot never comes back."""
        self.kubelet_breaks = False
        """Fault: the kubelet does not come up again after its next restart."""
        self.managers_break = False
        """Fault: the kubelet does not come up with any change of its resource managers."""
        self.kubelet_runs = 0
        made_at = cluster.clock.now()

        def seconds() -> float:
            return (cluster.clock.now() - made_at).total_seconds()

        self.kernel.seconds = seconds
        self._unit_limits: dict[str, dict[str, str]] = {}
        """Of each service, as systemd read it last."""
        self._has_script = False
        """Setpoint's script runs before each start of the kubelet, as systemd read its unit last."""
        self.on_boot: list[Callable[[], None]] = []
        self.seen_huge_pages: dict[int, int] = {}
        """Pages per size in kB, as the kubelet counted them when it last started."""
        self.kubelet_config: dict[str, str] = {}
        """What the kubelet that runs was started with."""
        self.drives: dict[str, dict[int, bytes]] = {}
        """By disk, the bytes that are not zeros, by their offsets."""
        self.mounts: dict[str, tuple[str, str]] = {}
        """By folder, the disk that systemd mounted there and its file system."""
        self._serial = hashlib.sha256(f"{seed}/{node}".encode()).hexdigest()[:8].upper()
        self._boots = 0
        self._seed_processes()
        self._run_service("kubelet")
        self._kubelet_started()

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def drive_serial(self, name: str) -> str:
        """Return the serial number of a local disk: no two of a fleet share it, and it outlives boots."""
        return f"S6{self._serial}{int(name.removeprefix('nvme').partition('n')[0]):02}"

    # ── power ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def reboot(self) -> None:
        """Go down now, as told by systemd; be back after the hardware's boot time, with another boot id."""
        if not self.is_up:
            return
        self.is_up = self.has_kubelet = False
        self._boots += 1
        boot = self._boots
        self._cluster.nodes.went_down(self.node)
        if not self.dies_at_reboot:
            self._cluster.after(self.hardware.boot_seconds, lambda: self._booted(boot))

    def power_off(self) -> None:
        """Fail without a word."""
        self.is_up = self.has_kubelet = False
        self._boots += 1

    def power_on(self) -> None:
        if not self.is_up:
            self._booted(self._boots)

    def _booted(self, boot: int) -> None:
        if boot != self._boots or self.is_up:
            return
        self.is_up = True
        self.kernel.boot()
        self.mounts.clear()
        local_disks.mount_enabled(self)
        self._seed_processes()
        self._cluster.after(KUBELET_START_SECONDS, lambda: self._kubelet_up(boot, is_boot=True))
        for action in self.on_boot:
            action()

    # ── kubelet ───────────────────────────────────────────────────────────────────────────────────────────────────
    def restart_kubelet(self) -> None:
        """Restart as systemctl does: the Node stays Ready, for the grace period is longer than the restart."""
        self.has_kubelet = False
        boot = self._boots
        if self.kubelet_breaks:
            self._cluster.after(40.0, lambda: self._cluster.nodes.set_ready(self.node, is_ready=False))
            return
        self._run_service("kubelet")
        self._cluster.after(KUBELET_RESTART_SECONDS, lambda: self._kubelet_up(boot))

    def restart_containerd(self) -> None:
        """Restart it and the kubelet; containers run on, for systemd ends only the process itself."""
        self._run_service("containerd")
        self.restart_kubelet()

    def reload_units(self) -> None:
        """Read the drop-ins of the units, as `systemctl daemon-reload` does: the next start goes by them."""
        self._has_script = trial_files.UNIT in self.kernel.disk
        for name in _PIDS:
            lines = [
                line
                for path in self.kernel.glob(f"/etc/systemd/system/{name}.service.d/*.conf")
                for line in self.kernel.disk[path].splitlines()
            ]
            given = dict(line.split("=", 1) for line in lines if line.startswith(tuple(_DEFAULTS)))
            self._unit_limits[name] = _DEFAULTS | given

    def _kubelet_up(self, boot: int, *, is_boot: bool = False) -> None:
        if boot != self._boots or not self.is_up:
            return
        if is_boot:
            self._run_service("kubelet")
        self.has_kubelet = True
        self._kubelet_started()
        self._cluster.nodes.kubelet_started(self.node)

    def _kubelet_started(self) -> None:
        """Count huge pages, once, as a kubelet that starts does."""
        self.seen_huge_pages = {kb: self.kernel.huge_pages(kb) for kb in (2048, 1048576)}

    def _run_service(self, name: str) -> None:
        """Start a process of the service, with the limits that systemd has for it."""
        self.kubelet_runs += name == "kubelet"
        pid, start = _PIDS[name], int(self.kernel.seconds() * 100) + self.kubelet_runs
        memlock, nofile = (value.replace("infinity", "unlimited") for value in self._unit_limits[name].values())
        self.kernel.set(f"/proc/{pid}/comm", name)
        self.kernel.set(f"/proc/{pid}/stat", f"{pid} ({name}) S 1 {'0 ' * 17}{start} 0")
        self.kernel.set(f"/proc/{pid}/limits", _limits(memlock, nofile))
        if name == "kubelet":
            self.kernel.set(f"/proc/{pid}/cmdline", _KUBELET_FLAGS)
            breaks_with = kubelet.OWN if self.managers_break else ""
            config = kubelet.start(self.kernel, has_script=self._has_script, breaks_with=breaks_with)
            self.kubelet_config = config or {}

    def _seed_processes(self) -> None:
        self.kernel.disk.setdefault(kubelet.CONFIG, _KUBELET_CONFIG)
        for name, unit in _UNITS.items():
            self.kernel.disk.setdefault(f"/usr/lib/systemd/system/{name}.service", unit)
        self.reload_units()
        self._run_service("containerd")


class Hosting(Protocol):
    """A machine as VirtualHost needs it, with a simulated cluster around it or without."""

    hardware: Hardware
    kernel: VirtualKernel
    drives: dict[str, dict[int, bytes]]
    mounts: dict[str, tuple[str, str]]

    def drive_serial(self, name: str) -> str: ...
    def reload_units(self) -> None: ...
    def restart_kubelet(self) -> None: ...
    def restart_containerd(self) -> None: ...
    def reboot(self) -> None: ...


class VirtualHost:
    """`agent.host.Host` over a machine."""

    def __init__(self, machine: Hosting) -> None:
        self._machine, self._kernel = machine, machine.kernel

    def read_text(self, path: str) -> str | None:
        if path == "/proc/1/mountinfo":
            return local_disks.mount_table(self._machine)
        if path == "/proc/uptime":
            return f"{self._kernel.seconds():.2f} 0.00\n"
        if path.endswith("/device/serial") and self._kernel.exists(path):
            return f"{self._machine.drive_serial(path.split('/')[3])}\n"
        text = self._kernel.read(path)
        return text if text is None or not path.startswith(("/proc/", "/sys/")) else text + "\n"

    def write_text(self, path: str, value: str) -> None:
        self._kernel.write(path, value)

    def age(self, path: str) -> float | None:
        return self._kernel.age(path)

    def glob(self, pattern: str) -> list[str]:
        return self._kernel.glob(pattern)

    def persist(self, path: str, text: str | None, *, executable: bool = False) -> None:
        self._kernel.store(path, text)

    def has(self, program: str) -> bool:
        return program in self._machine.hardware.programs

    def run(self, command: Command, *words: str) -> CommandResult:
        match command:
            case Command.MODPROBE:
                return _ran(self._kernel.load(words[0]))
            case Command.UNLOAD:
                return _ran(self._kernel.unload(words[0]))
            case Command.UPDATE_GRUB if self.has("update-grub"):
                self._kernel.update_grub()
            case Command.GRUBBY_ADD | Command.GRUBBY_REMOVE if self.has("grubby"):
                self._kernel.grubby(words[0], remove=command is Command.GRUBBY_REMOVE)
            case Command.RELOAD_UNITS:
                self._machine.reload_units()
            case Command.RESTART_KUBELET:
                self._machine.restart_kubelet()
            case Command.RESTART_CONTAINERD:
                self._machine.restart_containerd()
            case Command.REBOOT:
                self._machine.reboot()
            case Command.MAKE_EXT4 | Command.MAKE_XFS if self.has(command.value[0]):
                local_disks.format_disk(self._machine, command.value[0].removeprefix("mkfs."), words)
            case Command.LOAD_RAID0:
                self._kernel.set("/proc/mdstat", "Personalities : [raid0]")
            case Command.MAKE_RAID0 if self.has("mdadm"):
                local_disks.join(self._machine, words)
            case Command.ASSEMBLE_ARRAY if self.has("mdadm"):
                local_disks.assemble(self._machine)
            case Command.MOUNT_UNIT | Command.UNMOUNT_UNIT | Command.FORGET_UNIT:
                return _ran(local_disks.systemctl(self._machine, command, words[0]))
            case _:
                return CommandResult(127, f"{command.value[0]}: no such program")
        return CommandResult(0)

    def read_disk(self, name: str, offset: int, count: int) -> bytes:
        sectors = self._kernel.read(f"/sys/block/{name}/size")
        if sectors is None:
            raise OSError(errno.ENOENT, "No such file or directory", f"/dev/{name}")
        blank = _blank(max(0, min(count, int(sectors) * 512 - offset)))
        for at, data in self._machine.drives.get(name, {}).items():
            if offset < at + len(data) and at < offset + len(blank):
                before, skipped = blank[: max(0, at - offset)], data[max(0, offset - at) :]
                blank = (before + skipped + blank[len(before) + len(skipped) :])[: len(blank)]
        return blank

    @contextlib.contextmanager
    def hold_disk(self, name: str, *, exclusively: bool = False) -> Iterator[None]:
        if not self._kernel.exists(f"/sys/block/{name}/size"):
            raise OSError(errno.ENOENT, "No such file or directory", f"/dev/{name}")
        if exclusively and any(device == name for device, _ in self._machine.mounts.values()):
            raise OSError(errno.EBUSY, "Device or resource busy", f"/dev/{name}")
        yield

    def boot_id(self) -> str:
        return self._kernel.boot_id

    def kernel(self) -> str:
        return self._machine.hardware.release


@lru_cache(maxsize=8)
def _blank(count: int) -> bytes:
    return bytes(count)


def _ran(complaint: str) -> CommandResult:
    return CommandResult(1 if complaint else 0, complaint)


class DiskJournal:
    """`agent.journal.Store` on the machine's disk: survives agents and boots, dies with the machine."""

    PATH = "/var/lib/setpoint/journal"

    def __init__(self, machine: Hosting) -> None:
        self._disk = machine.kernel.disk

    def load(self) -> str | None:
        return self._disk.get(self.PATH)

    def save(self, text: str) -> None:
        self._disk[self.PATH] = text
