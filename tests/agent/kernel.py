"""A node in memory for the agent's tests: files that answer as the kernel's do, and a fuse that cuts power."""

from __future__ import annotations

import errno
import fnmatch
import re
from collections.abc import Callable
from typing import Any

from agent.boot_loader import DROP_IN
from agent.host import Command, CommandResult
from agent.journal import Journal
from agent.kinds.cmdline import arguments
from agent.persisted import MODULES, SYSCTL, TMPFILES
from agent.reconcile import Reconciler
from agent.restarts import Confirmed
from contract.nodetuning import Restore, Spec, Wanted

SYS = "/proc/sys/"
EXPIRES = "1970-01-01T01:00:00Z"
"""Of grants: an hour after the time that these API servers answer."""
DIRTY = {
    "vm/dirty_ratio": "vm/dirty_bytes",
    "vm/dirty_bytes": "vm/dirty_ratio",
    "vm/dirty_background_ratio": "vm/dirty_background_bytes",
    "vm/dirty_background_bytes": "vm/dirty_background_ratio",
}
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
HUGE = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
DEFAULTS = {
    SYS + "vm/swappiness": "60",
    SYS + "vm/max_map_count": "65530",
    SYS + "vm/dirty_ratio": "20",
    SYS + "vm/dirty_bytes": "0",
    SYS + "vm/dirty_background_ratio": "10",
    SYS + "vm/dirty_background_bytes": "0",
    SYS + "vm/overcommit_memory": "0",
    SYS + "net/core/rmem_max": "212992",
    SYS + "net/ipv4/tcp_rmem": "4096\t131072\t6291456",
    SYS + "kernel/osrelease": "6.8.0-45-generic",
    THP: "always [madvise] never",
    HUGE: "0",
    "/sys/block/nvme0n1/queue/read_ahead_kb": "128",
    "/sys/block/nvme1n1/queue/read_ahead_kb": "8192",
    "/sys/block/nvme0n1/queue/scheduler": "[none] mq-deadline",
    "/sys/block/nvme1n1/queue/scheduler": "[none] mq-deadline",
    "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave",
    "/sys/devices/system/cpu/cpufreq/policy0/scaling_available_governors": "performance powersave",
    "/proc/meminfo": "MemTotal:       16384000 kB\n",
    "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet",
    "/proc/4242/comm": "kubelet",
    "/proc/4242/stat": "4242 (kubelet) S 1 " + " ".join(["0"] * 17) + " 1000 0",
}


class PowerCut(BaseException):
    """A power cut. Not an Exception: nothing may catch it."""


class Kernel:
    """Implements agent.host.Host. `fuse` n cuts the power at the n-th effect, before it if `before`, else after it."""

    def __init__(self, **more: str) -> None:
        self.live = DEFAULTS | more
        self.disk: dict[str, str] = {}
        self.programs = {"modprobe", "update-grub"}
        self.refusing: dict[str, int] = {}
        self.rounding: dict[str, Any] = {}
        self.brings: dict[str, dict[str, str]] = {"nf_conntrack": {SYS + "net/netfilter/nf_conntrack_max": "262144"}}
        self.free_pages = 10_000
        self.effects: list[tuple[str, ...]] = []
        self.fuse: int | None = None
        self.before = True
        self.boots = 1
        self.journal: str | None = None
        self.grub_done = ""
        self.codes: dict[Command, int] = {}

    # ── the port ──────────────────────────────────────────────────────────────────────────────────────────────────
    def read_text(self, path: str) -> str | None:
        if path == "/proc/sys/kernel/random/boot_id":
            return self.boot_id()
        text = self.live.get(path, self.disk.get(path))
        return text + "\n" if text is not None and path in self.live else text

    def write_text(self, path: str, value: str) -> None:
        if path not in self.live:
            raise OSError(errno.ENOENT, "No such file or directory")
        if path in self.refusing:
            raise OSError(self.refusing[path], "Invalid argument")
        self._effect(("write", path, value), lambda: self._take(path, value))

    def glob(self, pattern: str) -> list[str]:
        folders = {p.rsplit("/", n)[0] for p in (*self.live, *self.disk) for n in range(1, p.count("/"))}
        return sorted(
            p
            for p in {*self.live, *self.disk, *folders}
            if p.count("/") == pattern.count("/") and fnmatch.fnmatchcase(p, pattern)
        )

    def age(self, path: str) -> float | None:
        return None

    def read_disk(self, name: str, offset: int, count: int) -> bytes:
        raise OSError(errno.ENOENT, "No such file or directory")

    def hold_disk(self, name: str, *, exclusively: bool = False) -> Any:
        raise OSError(errno.ENOENT, "No such file or directory")

    def persist(self, path: str, text: str | None, *, executable: bool = False) -> None:
        if path in self.refusing:
            raise OSError(self.refusing[path], "Read-only file system")

        def act() -> None:
            if text is None:
                self.disk.pop(path, None)
            else:
                self.disk[path] = text

        self._effect(("persist", path, text or ""), act)

    def has(self, program: str) -> bool:
        return program in self.programs

    def run(self, command: Command, *words: str) -> CommandResult:
        if code := self.codes.get(command):
            return CommandResult(code, "it failed")
        self._effect(("run", command.name, *words), lambda: self._run(command, *words))
        return CommandResult(0)

    def boot_id(self) -> str:
        return f"boot-{self.boots}"

    def kernel(self) -> str:
        return "6.8.0-45-generic"

    # ── the journal's store ───────────────────────────────────────────────────────────────────────────────────────
    def load(self) -> str | None:
        return self.journal

    def save(self, text: str) -> None:
        def act() -> None:
            self.journal = text

        self._effect(("journal",), act)

    # ── how it behaves ────────────────────────────────────────────────────────────────────────────────────────────
    def _effect(self, what: tuple[str, ...], act: Any) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0 and self.before:
                raise PowerCut
        act()
        self.effects.append(what)
        if self.fuse is not None and self.fuse < 0:
            raise PowerCut

    def _take(self, path: str, value: str) -> None:
        old = self.live[path]
        if path.startswith("/sys") and "[" in old:
            offered = re.sub(r"[\[\]]", "", old).split()
            if value not in offered:
                raise OSError(errno.EINVAL, "Invalid argument")
            self.live[path] = " ".join(f"[{word}]" if word == value else word for word in offered)
            return
        key = path.removeprefix(SYS)
        if key in DIRTY:
            if key.endswith("_bytes") and int(value) < 8192:
                raise OSError(errno.EINVAL, "Invalid argument")
            if value != old:  # the kernel's own order: an unchanged ratio zeroes nothing
                self.live[SYS + DIRTY[key]] = "0"
        if path == HUGE:
            value = str(min(int(value), self.free_pages))
        self.live[path] = self.rounding.get(path, lambda v: v)(value)

    def _run(self, command: Command, *words: str) -> None:
        if command is Command.MODPROBE:
            self.live[f"/sys/module/{words[0]}/initstate"] = "live"
            self.live[f"/sys/module/{words[0]}/refcnt"] = "0"
            self.live |= self.brings.get(words[0], {})
        elif command is Command.UNLOAD:
            for path in self.glob(f"/sys/module/*/holders/{words[0]}"):
                del self.live[path]
                self._count(path.split("/")[3], -1)
            for path in [p for p in self.live if p.startswith(f"/sys/module/{words[0]}/")]:
                del self.live[path]
            for path in self.brings.get(words[0], {}):
                self.live.pop(path, None)
        elif command is Command.UPDATE_GRUB:
            self.grub_done = self.disk.get(DROP_IN, "")
        elif command is Command.RESTART_KUBELET:
            self.live["/proc/4242/stat"] = self.live["/proc/4242/stat"].replace(" 1000 0", " 2000 0")
        elif command is Command.REBOOT:
            self.reboot()

    def hold(self, module: str, *users: str) -> None:
        """Let these modules use one that is loaded."""
        for user in users:
            self.live[f"/sys/module/{module}/holders/{user}"] = ""
            self._count(module, 1)

    def _count(self, module: str, more: int) -> None:
        path = f"/sys/module/{module}/refcnt"
        self.live[path] = str(int(self.live[path]) + more)

    def reboot(self) -> None:
        """A fresh kernel, then what the files of the node say."""
        self.boots += 1
        blocks = {p: v for p, v in self.live.items() if p.startswith("/sys/block/")}
        self.live = DEFAULTS | {p: v for p, v in blocks.items() if p not in DEFAULTS}
        for line in re.findall(r'GRUB_CMDLINE_LINUX="\$GRUB_CMDLINE_LINUX (.*)"', self.grub_done):
            self.live["/proc/cmdline"] += f" {line}"
        for name in _lines(self.disk.get(MODULES)):
            self._run(Command.MODPROBE, name)
        for line in _lines(self.disk.get(SYSCTL)):
            key, _, value = line.partition(" = ")
            self._take(SYS + key.replace(".", "/"), value)
        for line in _lines(self.disk.get(TMPFILES)):
            pattern, value = line.split()[1], line.split()[-1]
            for path in self.glob(pattern):
                self._take(path, value)

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────
    def value(self, key: str) -> str:
        return " ".join(self.live[SYS + key.replace(".", "/")].split())

    def writes(self) -> list[tuple[str, ...]]:
        return [effect for effect in self.effects if effect[0] == "write"]

    def cmdline(self) -> dict[str, str]:
        return arguments(self.live["/proc/cmdline"])

    def tuned(self) -> dict[str, str]:
        """Everything that Setpoint could have changed."""
        return {p: " ".join(v.split()) for p, v in self.live.items() if not p.startswith("/proc/4242")}


def _lines(text: str | None) -> list[str]:
    return [line for line in (text or "").splitlines() if line and not line.startswith("#")]


class Agent:
    """The agent's core on a Kernel; `restart()` forgets everything but the node's disk."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.now = 1_000_000.0
        self.generation = 0
        self.restart()

    def restart(self) -> None:
        self.core = Reconciler(
            self.kernel, Journal(self.kernel), lambda: self.now, node_uid="uid-1", agent_version="0.1.0"
        )

    def ask(self, *settings: Wanted, restore: tuple[Restore, ...] = (), mode: str = "apply", **more: Any) -> Any:
        """A new generation with this spec."""
        self.generation += 1
        self.spec = Spec(node_uid="uid-1", mode=mode, settings=settings, restore=restore, **more)
        return self.again()

    def confirm(self, spec: Spec | None = None, date: float | None = 0.0) -> Confirmed:
        """Return the API server's answer just before a restart."""
        return Confirmed(spec or self.spec, date)

    def again(self) -> Any:
        return self.core.reconcile(self.spec, self.generation)


def through(agent: Agent, ask: Callable[[], Any]) -> Any:
    """Run, and after a power cut restart the agent until the same generation gets through."""
    for _ in range(3):
        try:
            return ask()
        except PowerCut:
            agent.kernel.fuse = None
            agent.restart()
            ask = agent.again
    raise AssertionError("cut more often than the fuse allows")


def want(key: str, value: str, expect: str | None, operator: str = "=") -> Wanted:
    return Wanted(key, operator, value, expect)


def states(status: Any) -> dict[str, str]:
    return {s.key: s.state for s in status.settings}
