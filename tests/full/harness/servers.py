"""Private PostgreSQL and Redis from the system's binaries, on free loopback ports, in a directory that goes away.

Standard library only: `tests/run.py` starts the tier's database with it before pytest is there. Both servers can be
restarted on the same port, which is what the tests of "the database went away" need.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from tests.ports import free_port

START_SECONDS = 30.0
STOP_SECONDS = 20.0


class ServerMissing(RuntimeError):
    """The program is not installed; `.ci/run` installs it."""


class Server:
    """One process in a directory of its own. Use as a context manager, or call `start` and `close`."""

    kind: str
    stop_signal = signal.SIGTERM
    crash_signal = signal.SIGKILL

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"setpoint-{self.kind}-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] = (self.folder / "server.log").open("ab")

    # What a kind of server says of itself.
    url: str

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _is_ready(self) -> bool:
        raise NotImplementedError

    def _prepare(self) -> None:
        """Once, before the first start."""

    def _identity(self) -> dict[str, Any]:
        """Extra arguments of Popen: which user runs it."""
        return {}

    # What a test does with it.
    @property
    def pid(self) -> int:
        if self._process is None:
            raise ProcessLookupError(f"{self.kind} does not run")
        return self._process.pid

    def __enter__(self) -> Any:
        self._prepare()
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Returns when it answers. Raises RuntimeError with the log's end if it does not within START_SECONDS."""
        self._process = subprocess.Popen(
            self._command(),
            stdout=self._log,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            cwd=self.folder,
            **self._identity(),
        )
        deadline = time.monotonic() + START_SECONDS
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.kind} did not start:\n{self.log_end()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Cleanly; its clients lose their connections."""
        self._end(self.stop_signal)

    def crash(self) -> None:
        """Kill the server without a shutdown."""
        self._end(self.crash_signal)

    def restart(self, *, down_seconds: float = 0) -> None:
        """Away for at least `down_seconds`, then back on the same port with the data it had."""
        self.stop()
        time.sleep(down_seconds)
        self.start()

    def close(self) -> None:
        self.stop()
        self._log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_end(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")[-4000:]

    def _end(self, with_signal: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(with_signal)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)


class Postgres(Server):
    """`url` names a database `setpoint` owned by its superuser, so that test databases can be made beside it."""

    kind = "postgresql"
    stop_signal = signal.SIGINT  # "fast": rolls back what is open; SIGTERM would wait for clients for ever
    crash_signal = signal.SIGQUIT  # "immediate": recovers from its log at the next start. SIGKILL would orphan children

    def __init__(self, data: Path | None = None, standby_of: Postgres | None = None, /, **options: str) -> None:
        """`data`: the data directory of a stopped server to begin with a copy of. `standby_of`: it follows that one."""
        super().__init__()
        self.data, self.options = data, options
        self._primary = standby_of
        self.url = f"postgresql://setpoint@127.0.0.1:{self.port}/setpoint"
        self._binaries = postgres_binaries()

    def _identity(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        who = _unprivileged()  # PostgreSQL refuses to run as root
        return {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}

    def _prepare(self) -> None:
        if self.data is not None:
            shutil.copytree(self.data, self.folder / "data")
        if os.geteuid() == 0:
            who = _unprivileged()
            for path in (self.folder, *self.folder.rglob("*")):
                os.chown(path, who.pw_uid, who.pw_gid)
        if self.data is not None:
            return
        if self._primary is not None:
            where = self._primary._where()
            self._run("pg_basebackup", "--pgdata=data", "--write-recovery-conf", "--checkpoint=fast", *where)
            return
        self._run(
            "initdb",
            "--pgdata=data",
            "--username=setpoint",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        )

    def _command(self) -> list[str]:
        # Nothing is synced to disk: the machine does not lose power in a test, and it is three times faster.
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "full_page_writes": "off",
            "synchronous_commit": "off",
            "max_connections": "200",
            **self.options,
        }
        return [
            str(self._binaries / "postgres"),
            "-D",
            "data",
            *(word for name, value in options.items() for word in ("-c", f"{name}={value}")),
        ]

    def start(self) -> None:
        super().start()
        made = self._psql("SELECT 1 FROM pg_database WHERE datname = 'setpoint'")
        if "1" not in made.split():
            self._psql("CREATE DATABASE setpoint")

    def promote(self) -> None:
        """Make a standby the primary; returns when it takes writes."""
        self._psql("SELECT pg_promote()")

    def keep(self, name: str, content: str) -> Path:
        """Write a file that this server's user alone may read, as it demands of its key."""
        path = self.folder / name
        path.write_text(content)
        path.chmod(0o600)
        return path

    def dump(self) -> Path:
        """A backup of the database, as docs/operating.md makes it."""
        file = self.folder / f"backup-{time.monotonic_ns()}"
        self._run("pg_dump", *self._where(), "--format=custom", f"--file={file}", "setpoint")
        return file

    def restore(self, file: Path) -> None:
        """Replace the database with that backup; no client may be connected."""
        self._run("dropdb", *self._where(), "setpoint")
        self._run("createdb", *self._where(), "setpoint")
        self._run("pg_restore", *self._where(), "--exit-on-error", "--dbname=setpoint", str(file))

    def _is_ready(self) -> bool:
        return self.answers_at(self.port)

    def answers_at(self, port: int) -> bool:
        probe = [str(self._binaries / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        return subprocess.run(probe, check=False, timeout=10).returncode == 0

    def _psql(self, statement: str) -> str:
        where = [*self._where(), "--dbname=postgres"]
        return self._run("psql", "--no-psqlrc", "--tuples-only", *where, f"--command={statement}")

    def _where(self) -> list[str]:
        return ["--host=127.0.0.1", f"--port={self.port}", "--username=setpoint"]

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [str(self._binaries / program), *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            **self._identity(),
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr or done.stdout}")
        return done.stdout


class PgBouncer(Server):
    """A pooler in transaction mode with few sessions, so that connections must share them."""

    kind = "pgbouncer"
    stop_signal = signal.SIGTERM
    SESSIONS = 3

    def __init__(self, postgres: Postgres) -> None:
        super().__init__()
        self.url = f"postgresql://setpoint@127.0.0.1:{self.port}/setpoint"
        self._postgres = postgres

    def _identity(self) -> dict[str, Any]:
        return self._postgres._identity()  # it refuses to run as root, too

    def _prepare(self) -> None:
        lines = (
            "[databases]",
            f"* = host=127.0.0.1 port={self._postgres.port}",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {self.port}",
            "unix_socket_dir =",
            "auth_type = trust",
            f"auth_file = {self.folder}/users",
            "pool_mode = transaction",
            f"default_pool_size = {self.SESSIONS}",
            "max_client_conn = 200",
        )
        (self.folder / "pgbouncer.ini").write_text("\n".join(lines))
        (self.folder / "users").write_text('"setpoint" ""\n')
        for path in (self.folder, *self.folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)

    def _command(self) -> list[str]:
        program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            raise ServerMissing("pgbouncer is not installed")
        return [program, str(self.folder / "pgbouncer.ini")]

    def _is_ready(self) -> bool:
        return self._postgres.answers_at(self.port)


class Redis(Server):
    """An empty Redis that keeps nothing over a restart, as a broker may."""

    kind = "redis"

    def __init__(self) -> None:
        super().__init__()
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def _command(self) -> list[str]:
        program = shutil.which("redis-server")
        if program is None:
            raise ServerMissing("redis-server is not on PATH")
        return [program, "--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no"]

    def _is_ready(self) -> bool:
        try:
            return self.ask("PING") == "+PONG"
        except OSError:
            return False

    def flush(self) -> None:
        """Forget every queued message."""
        answer = self.ask("FLUSHALL")
        if answer != "+OK":
            raise RuntimeError(answer)

    def ask(self, command: str) -> str:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(f"{command}\r\n".encode())
            return connection.makefile("r").readline().strip()


class Sentinel(Redis):
    """One Sentinel that watches one Redis."""

    kind = "sentinel"

    def __init__(self, redis: Redis, master: str) -> None:
        super().__init__()
        self.url = f"sentinel://127.0.0.1:{self.port}/0"
        self._line = f"sentinel monitor {master} 127.0.0.1 {redis.port} 1\n"

    def _prepare(self) -> None:
        (self.folder / "sentinel.conf").write_text(f"bind 127.0.0.1\nport {self.port}\n{self._line}")

    def _command(self) -> list[str]:
        program, *_ = super()._command()
        return [program, str(self.folder / "sentinel.conf"), "--sentinel"]


def postgres_binaries() -> Path:
    """The newest of Debian's, else where `postgres` is on PATH. Raises ServerMissing."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    if installed:
        return installed[-1].parent
    if path := shutil.which("postgres"):
        return Path(path).resolve().parent
    raise ServerMissing(
        "PostgreSQL's server is not installed (postgres is neither under /usr/lib/postgresql nor on PATH)"
    )


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServerMissing("neither a user postgres nor nobody to run PostgreSQL as")
