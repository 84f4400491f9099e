"""A machine in QEMU: it boots from its own disk through GRUB, and is looked at and broken from outside.

Its only network is QEMU's user mode: 10.0.2.2 is this computer's loopback address, nothing else is reached, and
nothing reaches it but a port that is forwarded.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.controlplane.plane import end_with_parent
from tests.full.harness.images import ran
from tests.nodemachine.disk import PACKAGES, disk
from tests.nodemachine.guest import Guest, MachineError

ACCELERATOR = os.environ.get("SETPOINT_NODE_ACCELERATOR", "tcg,thread=multi")
"""Emulation works everywhere; `kvm` is some ten times as fast where the machine is real."""
PROCESSORS = os.environ.get("SETPOINT_NODE_PROCESSORS", "2")
"""Emulated ones stop each other at each change of a page table: one alone starts programs in half their time."""
MODEL = "max,-erms,-fsrm"
"""All that is emulated but fast byte-wise copies, which are the slowest here: the kernel would clear pages by them."""
MEMORY_MIB = 4096
BOOT_SECONDS = 900.0
"""Half a minute on a quiet machine, and five where it does the work of fifteen."""
LOOK_SECONDS = 5.0
"""How long a machine that boots is given for one answer, before it is asked again."""
HOST = "10.0.2.2"
"""This computer, as the machine sees it."""


class NodeMachine(Guest):
    """One machine; its disk is a copy-on-write file in `folder` that outlives power cuts and ends with the folder."""

    def __init__(
        self,
        folder: Path,
        name: str,
        parts: Path,
        *,
        serial: str = "SN0001",
        forwards: Mapping[int, int] | None = None,
        packages: Sequence[str] = PACKAGES,
    ) -> None:
        """`forwards`: ports of this computer's loopback address, and those of the machine that they lead to."""
        super().__init__(folder, name)
        self._packages = packages
        self._parts, self._serial, self._forwards = parts, serial, forwards or {}
        self._process: subprocess.Popen[bytes] | None = None
        self.more_disks: tuple[str, ...] = ()
        """Serial numbers of further NVMe disks, of 2 GiB each; the machine has them from its next start on."""
        self.console = folder / "console.log"
        folder.mkdir(parents=True, exist_ok=True)
        self.renew()

    def renew(self) -> None:
        """Cut the power, and give the machine disks on which nothing was ever written."""
        self.power_off()
        disks = self.folder / "disk.qcow2", self.folder / "nvme.img"
        ran("qemu-img", "create", "-q", "-f", "qcow2", "-b", str(disk(self._packages)), "-F", "raw", str(disks[0]))
        with disks[1].open("wb") as file:
            file.truncate(1 << 30)

    # ── power ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def power_on(self) -> None:
        for name in ("agent.sock", "monitor.sock"):
            (self.folder / name).unlink(missing_ok=True)
        with (self.folder / "qemu.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - one call of prctl, which takes no lock
            )  # fmt: skip

    def power_off(self) -> None:
        """Cut the power: what the machine's kernel had not written to its disk is lost."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)
            self._process = None

    def close(self) -> None:
        self.power_off()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def is_on(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def await_boot(self, *, other_than: str = "", seconds: float = BOOT_SECONDS) -> str:
        """Wait until the machine answers, in a boot other than the given one; return the boot's id."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._ask("guest-ping", {}, patience=LOOK_SECONDS)
                boot = self.read("/proc/sys/kernel/random/boot_id")
                if boot != other_than:
                    return boot
            except MachineError as error:
                if not self.is_on:
                    raise MachineError(f"{self.name} ended: {self._tail('qemu.log')}") from error
            if time.monotonic() > deadline:
                raise MachineError(f"{self.name} has not booted: {self._tail('console.log')}")
            time.sleep(1)

    # ── the cable ─────────────────────────────────────────────────────────────────────────────────────────────────
    def unplug(self) -> None:
        self._monitor("set_link", {"name": "net0", "up": False})

    def plug(self) -> None:
        self._monitor("set_link", {"name": "net0", "up": True})

    # ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def _command(self) -> Sequence[str]:
        folder = self.folder
        forwards = "".join(f",hostfwd=tcp:127.0.0.1:{here}-:{there}" for here, there in self._forwards.items())
        return [
            "qemu-system-x86_64", "-accel", ACCELERATOR, "-cpu", MODEL, "-smp", PROCESSORS, "-m", str(MEMORY_MIB),
            "-display", "none", "-nodefaults",
            "-drive", f"file={folder}/disk.qcow2,format=qcow2,if=virtio",
            "-drive", f"file={self._parts},format=raw,if=virtio,readonly=on",
            "-drive", f"file={folder}/nvme.img,format=raw,if=none,id=nvme0",
            "-device", f"nvme,serial={self._serial},drive=nvme0",
            *self._more_disks(),
            "-netdev", f"user,id=net0{forwards}", "-device", "virtio-net-pci,netdev=net0,id=card0",
            "-device", "virtio-rng-pci",
            "-chardev", f"file,id=console,path={self.console},append=on", "-serial", "chardev:console",
            "-device", "virtio-serial",
            "-chardev", f"socket,id=agent,path={folder}/agent.sock,server=on,wait=off",
            "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
            "-qmp", f"unix:{folder}/monitor.sock,server=on,wait=off",
        ]  # fmt: skip

    def _more_disks(self) -> Sequence[str]:
        out: list[str] = []
        for serial in self.more_disks:
            image = self.folder / f"{serial}.img"
            if not image.exists():
                with image.open("wb") as file:
                    file.truncate(2 << 30)
            out += ["-drive", f"file={image},format=raw,if=none,id={serial}"]
            out += ["-device", f"nvme,serial={serial},drive={serial}"]
        return out

    def _monitor(self, command: str, arguments: dict[str, Any]) -> None:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(10)
            line.connect(str(self.folder / "monitor.sock"))
            heard = line.makefile("rb")
            heard.readline()  # its greeting
            for message in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                line.sendall(json.dumps(message).encode() + b"\n")
                while "return" not in (answer := json.loads(heard.readline())):
                    if "error" in answer:
                        raise MachineError(f"{command}: {answer['error']}")

    def _tail(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(errors="replace")[-3000:] if path.exists() else "nothing"
