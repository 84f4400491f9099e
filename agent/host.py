"""The node under the agent: files of its kernel, files of its own, and a fixed list of commands.

Everything the agent does to a machine goes through `Host`, so that the same reconciler runs on a real node and on the
simulated fleet's virtual kernel. Paths are absolute and as the node sees them: `/proc/sys/vm/swappiness`,
`/sys/kernel/mm/...`, `/etc/sysctl.d/...`. What the kernel keeps of a network card in no file is read and written
below CARDS, as if it were one: `/nic/eth0/rx_ring`.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import glob as globbing
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from agent.ethtool import Cards

READ_LIMIT = 1 << 20
"""Bytes read of any one file: the kernel's are small, and a host file must not fill the agent's memory."""

PIECE = 4096
"""Bytes asked of the kernel at a time: a page, which is what its files of /proc and /sys answer at most."""

CARDS = "/nic/"
DISK_PIECE = 1 << 16
"""Bytes asked of a disk at a time."""

MOST_LINKS = 40
"""Links followed on the way to one file, as many as the kernel follows; the next is opened as it is."""

COMMAND_SECONDS = 120.0
OUT_OF_TIME = 124
PROGRAM_DIRECTORIES = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin")


class Command(enum.Enum):
    """Every command the agent can run; `run` appends at most checked single words."""

    MODPROBE = ("modprobe", "--")
    """+ module name"""
    UNLOAD = ("rmmod", "--")
    """+ module name. `modprobe -r` would take away what the module depends on, too, where nothing else uses that: the
    driver of the network card with mlx5_ib, the bridge of the pods with br_netfilter."""
    UPDATE_GRUB = ("update-grub",)
    GRUB_TRY = ("grub-editenv", "-", "set")
    """+ name=value"""
    GRUB_TRY_NOTHING = ("grub-editenv", "-", "unset", "setpoint_try")
    GRUBBY_ADD = ("grubby", "--update-kernel=ALL", "--args")
    """+ name=value"""
    GRUBBY_REMOVE = ("grubby", "--update-kernel=ALL", "--remove-args")
    """+ name=value"""
    RELOAD_UNITS = ("systemctl", "daemon-reload")
    RESTART_KUBELET = ("systemctl", "restart", "kubelet.service")
    RESTART_CONTAINERD = ("systemctl", "restart", "containerd.service", "kubelet.service")
    """The kubelet comes back last or beside it: its new run says that the command was carried out."""
    REBOOT = ("systemctl", "reboot")
    MAKE_EXT4 = ("mkfs.ext4", "-q", "-E", "nodiscard")
    """+ -U UUID, perhaps -L label, device. Never -F: it refuses a device that is in use. Without discards, which take
    minutes on some disks; an empty disk has nothing to discard."""
    MAKE_XFS = ("mkfs.xfs", "-q", "-K")
    """+ -m uuid=UUID, perhaps -L label, device. Never -f: it refuses a device that has a signature or is in use."""
    LOAD_RAID0 = ("modprobe", "--", "raid0")
    MAKE_RAID0 = ("mdadm", "--create", "--level=0", "--metadata=1.2", "--homehost=any")
    """+ --uuid, --name, --raid-devices, array, members. Never --run or --force: it asks about a member with a
    superblock, an ext file system or a partition, gets no answer and ends; it refuses one that is in use."""
    ASSEMBLE_ARRAY = ("mdadm", "--assemble")
    """+ --uuid, array, members. Never --run or --force: it starts an array only of all its members."""
    MOUNT_UNIT = ("systemctl", "enable", "--now", "--")
    """+ unit of a layout's disk"""
    UNMOUNT_UNIT = ("systemctl", "stop", "--")
    """+ unit of a layout's disk"""
    FORGET_UNIT = ("systemctl", "disable", "--")
    """+ unit of a layout's disk"""


_WRITTEN_BY = {
    Command.UPDATE_GRUB: ("/boot/grub/grub.cfg",),
    Command.GRUB_TRY: ("/boot/grub/grubenv",),
    Command.GRUB_TRY_NOTHING: ("/boot/grub/grubenv",),
}
"""Files that these programs leave to the page cache. Where /boot is a file system of its own, nothing else that the
agent does writes them through. GRUB itself replays no journal: a boot within seconds may still be given the old ones.
"""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command. `code` is 127 when the host has no such program, 124 when it ran out of time.

    It is negative when a signal ended the command: -15 for SIGTERM.
    """

    code: int
    output: str = ""
    """The end of stdout and stderr together, one line, at most 300 characters."""

    @property
    def is_known(self) -> bool:
        """True when the command ended by itself; otherwise what it asked for may be on its way."""
        return self.code >= 0 and self.code != OUT_OF_TIME


class Host(Protocol):
    def read_text(self, path: str) -> str | None:
        """A file's content, trailing newline and all; None if there is no such file. Raises OSError."""

    def write_text(self, path: str, value: str) -> None:
        """Hand `value` to the kernel in one write. Raises OSError with the kernel's errno: EINVAL, EACCES, ENOENT..."""

    def age(self, path: str) -> float | None:
        """Seconds since a file or directory last changed, or was put in its place; None if there is none. Raises
        OSError."""

    def glob(self, pattern: str) -> list[str]:
        """Paths that match, sorted. `*` does not cross a `/`."""

    def persist(self, path: str, text: str | None, *, executable: bool = False) -> None:
        """Replace a file of the node atomically and durably, making directories; None removes it. Raises OSError."""

    def has(self, program: str) -> bool:
        """Return whether the node has this program, by its bare name."""

    def run(self, command: Command, *words: str) -> CommandResult:
        """Run a command in the node's namespaces. Never raises for a command that fails."""

    def read_disk(self, name: str, offset: int, count: int) -> bytes:
        """Bytes of a whole disk of the node by its kernel's name; fewer at its end. Raises OSError."""

    def hold_disk(self, name: str, *, exclusively: bool = False) -> contextlib.AbstractContextManager[None]:
        """Keep a disk open, so that no other one can come by its name. Exclusively: raises OSError (EBUSY) while
        anything mounts, formats or otherwise claims it, and nothing can meanwhile. Raises OSError.
        """

    def boot_id(self) -> str: ...

    def kernel(self) -> str:
        """Release, such as 6.8.0-45-generic."""


class LinuxHost:
    """The machine the agent runs on.

    `root` is where the node's own file system is mounted (`/host` in the DaemonSet), `proc` and `sys` where its /proc
    and /sys are. Commands enter the namespaces of `init_pid`; None runs them where we are, those of `root` first.
    """

    def __init__(
        self, *, root: str = "/host", proc: str = "/proc", sys: str = "/sys", init_pid: int | None = 1
    ) -> None:
        self._roots = {"proc": proc.rstrip("/"), "sys": sys.rstrip("/")}
        self._root = root.rstrip("/")
        self._init_pid = init_pid
        self._cards = Cards()

    def _place(self, path: str) -> str:
        first, _, rest = path.lstrip("/").partition("/")
        if first in self._roots:
            return f"{self._roots[first]}/{rest}"
        return followed(self._root, path)

    def read_text(self, path: str) -> str | None:
        if path.startswith(CARDS):
            interface, _, name = path.removeprefix(CARDS).partition("/")
            return self._cards.read(interface, name)
        try:
            fd = os.open(self._place(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            # In pieces: asking for the limit at once would allocate it for each of several hundred small files.
            parts, left = [], READ_LIMIT
            while left and (part := os.read(fd, min(left, PIECE))):
                parts.append(part)
                left -= len(part)
            return b"".join(parts).decode(errors="replace")
        finally:
            os.close(fd)

    def age(self, path: str) -> float | None:
        try:
            # The time of the last change of the inode: a file that is moved here brings its old time of writing along.
            return time.time() - os.stat(self._place(path)).st_ctime
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write_text(self, path: str, value: str) -> None:
        if path.startswith(CARDS):
            interface, _, name = path.removeprefix(CARDS).partition("/")
            self._cards.write(interface, name, value)
            return
        # Unbuffered and not created: the kernel must see one write(2), and a missing key must stay missing.
        fd = os.open(self._place(path), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, value.encode() + b"\n")
        finally:
            os.close(fd)

    def glob(self, pattern: str) -> list[str]:
        first = pattern.lstrip("/").partition("/")[0]
        prefix, root = (f"/{first}", self._roots[first]) if first in self._roots else ("", self._root)
        return sorted(prefix + path[len(root) :] for path in globbing.glob(self._place(pattern)))

    def persist(self, path: str, text: str | None, *, executable: bool = False) -> None:
        place, root = self._root + path, os.path.realpath(self._root or "/")
        folder = os.path.realpath(os.path.dirname(place))
        if os.path.commonpath([root, folder]) != root:  # an absolute link of the node's leads into our own container
            raise OSError(errno.ELOOP, f"its folder is a link to {folder}, which is not the node's", path)
        replace_file(place, text, mode=0o755 if executable else 0o644)
        if text is None and folder.endswith(".service.d"):  # systemd needs none, and the agent may have made it
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    def has(self, program: str) -> bool:
        return any(os.access(followed(self._root, f"{place}/{program}"), os.X_OK) for place in PROGRAM_DIRECTORIES)

    def run(self, command: Command, *words: str) -> CommandResult:
        import subprocess  # a megabyte of memory that most nodes never need

        argv = [*command.value, *words]
        if self._init_pid is None:
            path = ":".join([*(self._root + place for place in PROGRAM_DIRECTORIES), os.environ.get("PATH", "")])
        else:
            path = ":".join(PROGRAM_DIRECTORIES)
            argv = ["nsenter", "-t", str(self._init_pid), "-m", "-u", "-i", "-n", "-p", "--", *argv]
        try:
            done = subprocess.run(  # noqa: S603 - a Command and words that contract.keys let through
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={"PATH": path, "LC_ALL": "C"},
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except FileNotFoundError:
            return CommandResult(127, f"{argv[0]}: no such program")
        except subprocess.TimeoutExpired:
            return CommandResult(OUT_OF_TIME, f"{argv[0]}: no end after {COMMAND_SECONDS:.0f} s")
        except OSError as error:
            return CommandResult(126, f"{argv[0]}: {error.strerror}")
        for path in _WRITTEN_BY.get(command, ()) if not done.returncode else ():
            try:
                self._flush(path)
            except OSError as error:
                return CommandResult(126, f"{path}: {error.strerror}")
        return CommandResult(done.returncode, " ".join(done.stdout.decode(errors="replace").split())[-300:])

    def _flush(self, path: str) -> None:
        """Write a file, if there is one, through to the disk, as the program that made it did not. Raises OSError."""
        try:
            fd = os.open(self._place(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _opened(self, name: str, flags: int = 0) -> Iterator[int]:
        path = f"/dev/{name}"
        flags |= os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY
        fd = os.open(self._place(path), flags)
        try:
            device = os.fstat(fd)
            number = f"{os.major(device.st_rdev)}:{os.minor(device.st_rdev)}"
            if not stat.S_ISBLK(device.st_mode) or number != (self.read_text(f"/sys/block/{name}/dev") or "").strip():
                raise OSError(errno.ENODEV, f"it is not the disk that the kernel calls {name}", path)
            yield fd
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def hold_disk(self, name: str, *, exclusively: bool = False) -> Iterator[None]:
        with self._opened(name, os.O_EXCL if exclusively else 0):
            yield

    def read_disk(self, name: str, offset: int, count: int) -> bytes:
        with self._opened(name) as fd:
            parts, at = [], offset
            while at < offset + count and (part := os.pread(fd, min(DISK_PIECE, offset + count - at), at)):
                parts.append(part)
                at += len(part)
            return b"".join(parts)

    def boot_id(self) -> str:
        return (self.read_text("/proc/sys/kernel/random/boot_id") or "").strip()

    def kernel(self) -> str:
        return (self.read_text("/proc/sys/kernel/osrelease") or "").strip()


def followed(root: str, path: str) -> str:
    """Follow a path's links as the node does, whose root this is: `/usr/sbin/modprobe` may be a link to `/bin/kmod`.

    Opened as it is, such a path would lead into the agent's own container.
    """
    done: list[str] = []
    parts = path.split("/")[::-1]
    links = 0
    while parts:
        part = parts.pop()
        if part == "..":
            done = done[:-1]
        elif part not in ("", "."):
            place = "/".join([root, *done, part])
            if links < MOST_LINKS and os.path.islink(place):
                links += 1
                target = os.readlink(place)
                done = [] if target.startswith("/") else done
                parts += target.split("/")[::-1]
            else:
                done.append(part)
    return "/".join([root, *done])


def replace_file(path: str, text: str | None, *, mode: int = 0o644) -> None:
    """Replace, or with None remove, a file so that a power cut leaves the old or the new one, whole. Raises OSError."""
    folder = os.path.dirname(path)
    if text is None:
        try:
            os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            return
    else:
        os.makedirs(folder, exist_ok=True)
        new = f"{path}.new"  # one name, so that a crash leaves at most one, and the next write takes it over
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)  # never written through: it may be a link to another file, or a pipe without a reader
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            with open(fd, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(new)
            raise
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
