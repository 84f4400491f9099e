"""Runs an image's processes as docker-compose.yml has them run, with runc alone: no engine, no daemon, no network of
their own, so that they find the test's PostgreSQL, Redis and API server on this machine's loopback address.

What the service says is what the container gets: user, command, read-only root, tmpfs, capabilities, no new privileges.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.full.harness.images import Image, ran

PLAIN = ["noexec", "nosuid", "nodev"]
"""What an engine mounts a tmpfs with that says nothing else."""
DEFAULT_CAPABILITIES = [
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD", "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
]  # fmt: skip
"""Without `cap_drop`, what an engine leaves a container."""


class Container:
    """One container. `run` returns its foreground process; `kill` and `execute` reach into it."""

    def __init__(
        self,
        image: Image,
        service: Mapping[str, Any],
        environment: Mapping[str, str],
        *,
        mounts: Sequence[Mapping[str, Any]] = (),
        capabilities: Sequence[str] | None = None,
        hostname: str = "container",
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="setpoint-container-"))
        self.id = self._folder.name
        self.image = image
        drops_all = service.get("cap_drop") == ["ALL"]
        held = list(capabilities) if capabilities is not None else [] if drops_all else DEFAULT_CAPABILITIES
        words = [*(image.config.get("Entrypoint") or []), *(service.get("command") or image.config.get("Cmd") or [])]
        env = [*image.config.get("Env", []), *(f"{name}={value}" for name, value in environment.items())]
        config = {
            "ociVersion": "1.0.2",
            "hostname": hostname,
            "root": {"path": str(image.root), "readonly": bool(service.get("read_only"))},
            "process": {
                "terminal": False,
                "user": user(image),
                "args": words,
                "env": env,
                "cwd": image.config.get("WorkingDir") or "/",
                "noNewPrivileges": "no-new-privileges:true" in service.get("security_opt", ()),
                "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), held),
            },
            "mounts": [*_system_mounts(), *map(_tmpfs, service.get("tmpfs", ())), *mounts],
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")],
                "maskedPaths": ["/proc/kcore", "/sys/firmware"],
                "resources": {},
            },
        }
        (self._folder / "config.json").write_text(json.dumps(config))
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, log: IO[bytes] | int, *, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Run the container's command without an init: as process 1 it gets no signal that it does not handle."""
        self._process = subprocess.Popen(
            [*self._runc, "run", "--bundle", str(self._folder), self.id],
            stdin=stdin, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        return self._process

    def signal(self, name: str) -> None:
        """Send a signal to the container's first process, if it still runs."""
        subprocess.run([*self._runc, "kill", self.id, name], check=False, capture_output=True, timeout=60)

    def execute(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A program in the running container, with its user, environment and rights: a health check."""
        return subprocess.run(
            [*self._runc, "exec", self.id, *words], capture_output=True, text=True, check=False, timeout=120
        )

    def pids(self) -> list[int]:
        """Return the container's process ids as this machine numbers them."""
        return [int(pid) for pid in json.loads(ran(*self._runc, "ps", "--format=json", self.id))]

    def close(self) -> None:
        self.signal("KILL")
        if self._process is not None:
            self._process.wait(60)
        subprocess.run([*self._runc, "delete", "--force", self.id], check=False, capture_output=True, timeout=60)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _runc(self) -> list[str]:
        return ["runc", "--root", str(self._folder / "state")]


def user(image: Image) -> dict[str, Any]:
    """The image's user with the group that its own /etc/passwd gives it; root where it names none."""
    named = str(image.config.get("User") or "0").partition(":")[0]
    for line in (image.root / "etc/passwd").read_text().splitlines():
        name, _, uid, gid, *_ = line.split(":")
        if named in (name, uid):
            return {"uid": int(uid), "gid": int(gid), "additionalGids": []}
    return {"uid": int(named), "gid": 0, "additionalGids": []}


def bind(source: Path | str, target: str, *options: str) -> dict[str, Any]:
    return {"destination": target, "type": "bind", "source": str(source), "options": ["rbind", *(options or ("ro",))]}


def _tmpfs(text: str) -> dict[str, Any]:
    """`/path` or `/path:mode=0700,uid=10001`."""
    path, _, options = text.partition(":")
    if not path.startswith("/"):
        raise ValueError(f"no engine mounts a tmpfs at {path!r}")
    return {
        "destination": path, "type": "tmpfs", "source": "tmpfs", "options": [*PLAIN, *filter(None, options.split(","))]
    }  # fmt: skip


def _system_mounts() -> list[dict[str, Any]]:
    def mount(path: str, kind: str, *options: str) -> dict[str, Any]:
        return {"destination": path, "type": kind, "source": kind, "options": list(options)}

    return [
        mount("/proc", "proc"),
        mount("/dev", "tmpfs", "nosuid", "mode=755", "size=65536k"),
        mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
        mount("/dev/shm", "tmpfs", *PLAIN, "mode=1777", "size=65536k"),
        bind("/sys", "/sys", "ro", "nosuid", "noexec", "nodev"),
        bind("/etc/hosts", "/etc/hosts"),
        bind("/etc/resolv.conf", "/etc/resolv.conf"),
    ]
