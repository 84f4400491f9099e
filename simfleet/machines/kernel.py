"""A virtual kernel and its disk: the files of /proc and /sys as far as tuning touches them, and what a boot does.

Every file lives in one of three places: shared with all machines of its kind (`hardware.booted`), changed since boot
(`_live`), or on the disk, which survives. Reading is two dictionary look-ups, because thousands of these run at once.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable

from contract.resource_managers import cpu_list
from simfleet.machines.hardware import (
    MODULE_PARAMETERS,
    POOL_KB,
    Hardware,
    booted,
    matching,
    module_files,
    pattern,
    with_folders,
)
from simfleet.machines.sysctls import SYSCTLS, answer

PROC_SYS = "/proc/sys/"
_POOL = re.compile(r"/sys/(?:kernel/mm|devices/system/node/node(\d+))/hugepages/hugepages-(\d+)kB/nr_hugepages")
_ASSIGNMENT = re.compile(r"""^\s*(\w+)=["']?(.*?)["']?\s*$""")
_SIZES = {"2M": 2048, "2048kB": 2048, "1G": 1048576}
_ABSENT = object()
RUNTIME_SHARE = 0.6
"""Of a NUMA node's memory, what the kernel finds for huge pages at run time; at boot it finds RUNTIME_SHARE + 0.3."""


class VirtualKernel:
    """One machine's kernel, powered on. All methods raise OSError as the system calls would."""

    def __init__(self, hardware: Hardware, new_boot_id: Callable[[], str]) -> None:
        self.hardware = hardware
        self._shared = booted(hardware)
        self._new_boot_id = new_boot_id
        self.disk: dict[str, str] = {}
        self.changed_at: dict[str, float] = {}
        """When files and directories of the disk changed last, in `seconds`; none: before all else."""
        self.seconds: Callable[[], float] = lambda: 0.0
        """Since this machine was made; its own uptime, too, which no boot sets back here."""
        self.next_cmdline = hardware.cmdline
        """What the boot loader hands to the next kernel."""
        self.breaks_with = ""
        """A kernel argument with which no boot comes up: GRUB then boots once with those of the boot before."""
        self.fragmentation = 0.0
        """0 to 1: share of the memory for huge pages that is too fragmented to use, so that allocation is partial."""
        self.watchers: list[Callable[[str], None]] = []
        """Told the path of each file that a write changed."""
        self._live: dict[str, object] = {}
        self._moved: tuple[set[str], set[str]] | None = None
        self._pools: dict[tuple[int, int], int] = {}
        self.boot_id = ""
        self.boot()

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def read(self, path: str) -> str | None:
        """Content without the trailing newline; None if there is no such file."""
        content = self._live.get(path)
        if content is None:
            content = self._shared.get(path)
            if content is None:
                return self.disk.get(path)
        return None if content is _ABSENT else str(content)

    def store(self, path: str, text: str | None) -> None:
        """Replace a file of the disk; None removes it."""
        if text is None:
            self.disk.pop(path, None)
        else:
            self.disk[path] = text
        self.changed_at[path] = self.changed_at[path.rpartition("/")[0]] = self.seconds()

    def age(self, path: str) -> float:
        return self.seconds() - self.changed_at.get(path, 0.0)

    def exists(self, path: str) -> bool:
        return self.read(path) is not None

    def glob(self, wanted: str) -> list[str]:
        shaped = pattern(wanted)
        if not wanted.startswith(("/proc/", "/sys/")):
            return sorted(p for p in with_folders(self.disk) if shaped.fullmatch(p))
        came, went = self._moved = self._moved or self._since_boot()
        there, more = matching(self.hardware, wanted), [p for p in came if shaped.fullmatch(p)]
        return sorted({*there, *more} - went) if more or went else list(there)

    def _since_boot(self) -> tuple[set[str], set[str]]:
        """Names that came and went: asked for by every look of an agent, changed by few writes."""
        came = {p: "" for p, text in self._live.items() if text is not _ABSENT and p not in self._shared}
        return with_folders(came), {p for p, text in self._live.items() if text is _ABSENT}

    def write(self, path: str, text: str) -> None:
        """One write(2) to a file of /proc or /sys."""
        current = self.read(path)
        if current is None:
            raise OSError(errno.ENOENT, "No such file or directory", path)
        text = text.strip()
        if pool := _POOL.fullmatch(path):
            self._resize(pool[1], int(pool[2]), text)
        elif path == "/proc/sys/vm/nr_hugepages":
            self._resize(None, 2048, text)
        elif path.startswith(PROC_SYS):
            self._write_sysctl(path, current, text)
        elif path.startswith(("/sys/class/net/", "/nic/")):
            self._write_card(path, text)
        elif path.startswith("/sys/"):
            self._write_sysfs(path, current, text)
        else:
            raise OSError(errno.EACCES, "Permission denied", path)

    def set(self, path: str, text: str) -> None:
        """Let the kernel hold a value by its own doing, without the checks of a write."""
        self._put(path, text)

    def sysctl(self, key: str) -> str | None:
        """Return a value as `sysctl -n` prints it; None if there is no such key."""
        return self.read(PROC_SYS + key.replace(".", "/"))

    def _put(self, path: str, text: str) -> None:
        if self.read(path) != text:
            if path not in self._shared or self._live.get(path) is _ABSENT:
                self._moved = None
            self._live[path] = text
            for watcher in self.watchers:
                watcher(path)

    def _write_sysctl(self, path: str, current: str, text: str) -> None:
        key = path.removeprefix(PROC_SYS).replace("/", ".")
        rule = SYSCTLS.get(key)
        if rule is None:
            raise OSError(errno.EACCES, "Permission denied", path)
        if (
            key == "net.ipv4.tcp_congestion_control"
            and text == "bbr"
            and not self.exists("/sys/module/tcp_bbr/initstate")
        ):
            raise OSError(errno.ENOENT, "No such file or directory", path)
        new = answer(key, rule, current, text)
        self._put(path, new)
        # Linux zeroes the twin only when the value really changed; for the background pair at any write.
        if rule.zeroes and (new != current or "background" in key):
            self._put(PROC_SYS + rule.zeroes.replace(".", "/"), "0")

    def _write_sysfs(self, path: str, current: str, text: str) -> None:
        if "[" in current:
            words = [word.strip("[]") for word in current.split()]
            if text not in words:
                raise OSError(errno.EINVAL, "Invalid argument", path)
            self._put(path, " ".join(f"[{w}]" if w == text else w for w in words))
        elif path.endswith("/scaling_governor"):
            if text not in (self.read(path.replace("_governor", "_available_governors")) or "").split():
                raise OSError(errno.EINVAL, "Invalid argument", path)
            self._put(path, text)
        elif path.endswith("/pm_qos_resume_latency_us"):
            if text != "n/a" and not (text.isdigit() and int(text) < 2**31 - 1):
                raise OSError(errno.EINVAL, "Invalid argument", path)
            self._put(path, text)
        elif path.startswith("/sys/block/"):
            if not text.isdigit():
                raise OSError(errno.EINVAL, "Invalid argument", path)
            # Read-ahead is kept in pages of 4 KiB: 4097 is answered 4096.
            self._put(path, str(int(text) // 4 * 4) if path.endswith("/read_ahead_kb") else text)
        elif "/parameters/" in path:
            yes_no = current in ("Y", "N")
            if not (text in ("Y", "N", "1", "0") if yes_no else text.isdigit()):
                raise OSError(errno.EINVAL, "Invalid argument", path)
            self._put(path, {"1": "Y", "0": "N"}.get(text, text) if yes_no else text)
        else:
            raise OSError(errno.EACCES, "Permission denied", path)

    def _write_card(self, path: str, text: str) -> None:
        """Take what the card's driver takes: at most its maximum, and of an offload 0 or 1."""
        _, *_, interface, attribute = path.split("/")
        most = int(self.read(f"/nic/{interface}/{attribute}_max") or "1")
        if attribute.endswith("_max") or not text.isdigit() or int(text) > most:
            raise OSError(errno.EINVAL, "Invalid argument", path)
        self._put(path, text)

    # ── huge pages ────────────────────────────────────────────────────────────────────────────────────────────────
    def _resize(self, node: str | None, kb: int, text: str, share: float = RUNTIME_SHARE) -> None:
        """Bring a pool to `text` pages, or as near as free memory allows: the write succeeds all the same."""
        if not text.isdigit():
            raise OSError(errno.EINVAL, "Invalid argument", text)
        count, nodes = int(text), range(self.hardware.numa_nodes)
        if node is not None:
            self._pools[int(node), kb] = min(count, self._room(int(node), kb, share))
        else:
            for number in nodes:
                even = count // len(nodes) + (number < count % len(nodes))
                self._pools[number, kb] = min(even, self._room(number, kb, share))
            for number in nodes:  # what one NUMA node lacked, the others give
                missing = count - sum(self._pools[n, kb] for n in nodes)
                self._pools[number, kb] = min(self._pools[number, kb] + missing, self._room(number, kb, share))
        total = 0
        for number in nodes:
            have = self._pools.get((number, kb), 0)
            total += have
            self._put(f"/sys/devices/system/node/node{number}/hugepages/hugepages-{kb}kB/nr_hugepages", str(have))
        self._put(f"/sys/kernel/mm/hugepages/hugepages-{kb}kB/nr_hugepages", str(total))
        if kb == 2048:
            self._put("/proc/sys/vm/nr_hugepages", str(total))

    def _room(self, node: int, kb: int, share: float) -> int:
        memory = self.hardware.memory_gib * 1024 * 1024 // self.hardware.numa_nodes
        taken = sum(self._pools.get((node, other), 0) * other for other in POOL_KB if other != kb)
        return max(0, int(memory * share * (1 - self.fragmentation)) - taken) // kb

    def huge_pages(self, kb: int) -> int:
        return sum(self._pools.get((node, kb), 0) for node in range(self.hardware.numa_nodes))

    # ── modules ───────────────────────────────────────────────────────────────────────────────────────────────────
    def load(self, module: str) -> str:
        """Load a module as modprobe does: return "" on success, else what it prints."""
        module = module.replace("-", "_")
        if self.exists(f"/sys/module/{module}/initstate") or self.read(f"/sys/module/{module}/parameters") is not None:
            return ""
        if module not in self.hardware.installable and module not in self.hardware.modules:
            return f"modprobe: FATAL: Module {module} not found in directory /lib/modules/{self.hardware.release}"
        options = self._module_options(module)
        for path, text in module_files(module).items():
            self._live.pop(path, None)
            self._put(path, options.get(path.rpartition("/")[2], text) if "/parameters/" in path else text)
        for key, rule in SYSCTLS.items():
            if rule.module == module and key not in self.hardware.lacks:
                self._live[PROC_SYS + key.replace(".", "/")] = rule.default
        self._moved = None
        return ""

    def unload(self, module: str) -> str:
        """Unload a module as rmmod does: return "" on success, else what it prints."""
        users = self.read(f"/sys/module/{module}/refcnt")
        if users is None:
            return f"rmmod: ERROR: Module {module} is builtin."
        if users != "0":
            return f"rmmod: ERROR: Module {module} is in use"
        for path in module_files(module):
            self._live[path] = _ABSENT
        for key, rule in SYSCTLS.items():
            if rule.module == module:
                self._live[PROC_SYS + key.replace(".", "/")] = _ABSENT
        self._moved = None
        for watcher in self.watchers:
            watcher(f"/sys/module/{module}")
        return ""

    def _module_options(self, module: str) -> dict[str, str]:
        options: dict[str, str] = {}
        for path in self.glob("/etc/modprobe.d/*.conf"):
            for line in self.disk[path].splitlines():
                words = line.split()
                if words[:2] == ["options", module]:
                    options |= dict(word.split("=", 1) for word in words[2:] if "=" in word)
        return {k: v for k, v in options.items() if k in MODULE_PARAMETERS.get(module, {})}

    # ── boot ──────────────────────────────────────────────────────────────────────────────────────────────────────
    def boot(self) -> None:
        """Power on: what was only in memory is gone, what is on the disk is read."""
        line = self._line()
        self._live.clear()
        self._moved = None
        self._pools.clear()
        self.boot_id = self._new_boot_id()
        self._live["/proc/sys/kernel/random/boot_id"] = self.boot_id
        self._live["/proc/cmdline"] = line
        self._obey(line)
        for path in self.glob("/etc/modules-load.d/*.conf"):
            for line in self.disk[path].splitlines():
                if line.strip() and not line.startswith("#"):
                    self.load(line.strip())
        for module in self.hardware.modules:
            for name, value in self._module_options(module).items():
                self._put(f"/sys/module/{module}/parameters/{name}", value)
        self._run_tmpfiles()
        self.reload_sysctl_files()

    def _line(self) -> str:
        """Return the arguments of this boot: those in the menu, or those of the boot before where these fail."""
        before = self._live.get("/proc/cmdline", self.hardware.cmdline)
        fails = self.breaks_with in self.next_cmdline.split()
        return f"{before} setpoint.fallback=1" if fails else self.next_cmdline

    def _obey(self, line: str) -> None:
        kb = 2048
        for word in line.split():
            name, _, value = word.partition("=")
            if name in ("default_hugepagesz", "hugepagesz"):
                kb = _SIZES.get(value, kb)
            elif name == "hugepages" and value.isdigit():
                self._resize(None, kb, value, RUNTIME_SHARE + 0.3)
            elif name == "transparent_hugepage":
                self._try("/sys/kernel/mm/transparent_hugepage/enabled", value)
            elif name == "nohz_full":
                self._put("/sys/devices/system/cpu/nohz_full", value)
            elif name == "isolcpus" and "domain" in value:
                self._put("/sys/devices/system/cpu/isolated", value.rpartition("domain,")[2])
            elif name == "irqaffinity" and (cpus := cpu_list(value)):
                self._put("/proc/irq/default_smp_affinity", f"{sum(1 << cpu for cpu in cpus | {0}):x}")
            elif name == "systemd.cpu_affinity":
                self._put("/proc/1/status", f"Cpus_allowed_list:\t{value}")
            elif name == "numa_balancing":
                self._try("/proc/sys/kernel/numa_balancing", {"enable": "1", "disable": "0"}.get(value, value))

    def reload_sysctl_files(self) -> None:
        """Apply sysctl files as systemd-sysctl does: by file name; the first folder with a name hides the others'."""
        by_name: dict[str, str] = {}
        for folder in ("/etc/sysctl.d", "/run/sysctl.d", "/usr/lib/sysctl.d"):
            for path in self.glob(f"{folder}/*.conf"):
                by_name.setdefault(path.rpartition("/")[2], path)
        for path in [*(by_name[name] for name in sorted(by_name)), "/etc/sysctl.conf"]:
            for line in self.disk.get(path, "").splitlines():
                key, equals, value = line.partition("=")
                if equals and not line.lstrip().startswith(("#", ";")):
                    name = key.strip().lstrip("-").replace("/", ".")
                    self._try(PROC_SYS + name.replace(".", "/"), value)

    def _run_tmpfiles(self) -> None:
        for path in self.glob("/etc/tmpfiles.d/*.conf"):
            for line in self.disk[path].splitlines():
                words = line.split(None, 6)
                if len(words) == 7 and words[0] == "w":
                    for target in self.glob(words[1]):
                        self._try(target, words[6])

    def _try(self, path: str, text: str) -> None:
        """Write as boot scripts do, which log a refused write and continue."""
        try:
            self.write(path, text)
        except OSError:
            return

    def update_grub(self) -> None:
        """Compose the next boot's command line from /etc/default/grub and its drop-ins, as grub-mkconfig does."""
        names = {"GRUB_CMDLINE_LINUX": "", "GRUB_CMDLINE_LINUX_DEFAULT": ""}
        for path in ["/etc/default/grub", *self.glob("/etc/default/grub.d/*.cfg")]:
            for line in self.disk.get(path, "").splitlines():
                match = _ASSIGNMENT.match(line)
                if match and match[1] in names:
                    value = match[2]
                    for name in sorted(names, key=len, reverse=True):
                        value = value.replace(f"${{{name}}}", names[name]).replace(f"${name}", names[name])
                    names[match[1]] = value
        added = f"{names['GRUB_CMDLINE_LINUX']} {names['GRUB_CMDLINE_LINUX_DEFAULT']}"
        self.next_cmdline = " ".join(f"{self.hardware.cmdline} {added}".split())

    def grubby(self, argument: str, *, remove: bool) -> None:
        words = [w for w in self.next_cmdline.split() if w != argument]
        self.next_cmdline = " ".join(words if remove else [*words, argument])
