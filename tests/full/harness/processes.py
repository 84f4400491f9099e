"""Setpoint's processes as production starts them: the commands of docker-compose.yml, here, on free ports, from an
environment that holds what the server image holds.

with Installation(postgres.url, redis.url) as setpoint:
    setpoint.migrate()
    setpoint.start("web", "worker", "beat", "watch")
    setpoint.kill("worker")
"""

from __future__ import annotations

import os
import runpy
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import yaml

from tests.full.harness import base_environment
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
READY_SECONDS = 240.0
STOP_SECONDS = 30.0
AUDIT_KEY = "the same in each installation: rows that a copied database begins with carry its marks"


class Installation:
    """One installation on one database and one broker. Everything is stopped, by its own process id, on leaving."""

    def __init__(
        self,
        database_url: str,
        broker_url: str,
        settings: Mapping[str, str] | None = None,
        *,
        owner_url: str = "",
        ready_seconds: float = READY_SECONDS,
    ) -> None:
        """`owner_url`: what migrates connects with it, everything else with `database_url`, as another role."""
        self._ready_seconds = ready_seconds
        self._owners = {
            "SETPOINT_DATABASE_URL": owner_url or database_url,
            **({"SETPOINT_APPLICATION_DATABASE_URL": database_url} if owner_url else {}),
        }
        self.folder = Path(tempfile.mkdtemp(prefix="setpoint-installation-"))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SETPOINT_", "DJANGO_"))}
        self.environment = {
            **clean,
            "PYTHONUNBUFFERED": "1",
            **_fresh_keys(),
            "SETPOINT_AUDIT_KEY": AUDIT_KEY,
            "SETPOINT_EMBEDDED": "false",
            "SETPOINT_VAR": str(self.folder),
            "SETPOINT_URL": self.url,
            "SETPOINT_DATABASE_URL": database_url,
            "SETPOINT_BROKER_URL": broker_url,
            "SETPOINT_ALLOW_NETWORKS": "127.0.0.0/8",
            **(settings or {}),
        }
        self.helms = {**self.environment, **_fresh_keys("helm.env")}
        """What the worker of helm has besides, as in docker-compose.yml."""
        services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
        self.services: dict[str, Any] = {name: service for name, service in services.items() if "build" in service}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Installation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for name in reversed(list(self._running)):
            self.stop(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def migrate(self) -> None:
        self.manage("migrate", "--no-input")

    def manage(self, *arguments: str, text: str | None = None) -> str:
        """Output of a management command. Raises RuntimeError with its complaint."""
        done = self.attempt(*arguments, text=text)
        if done.returncode:
            raise RuntimeError(f"manage.py {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def attempt(self, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """A management command, whether it succeeds or not."""
        return subprocess.run(
            [str(base_environment.programs() / "python"), "manage.py", *arguments],
            cwd=ROOT,
            env=self._environment(arguments[0]),
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def _environment(self, name: str) -> dict[str, str]:
        """Environment of a service or command: helm's keys only where helm runs, the owner's only for `migrate`."""
        keys = {key: value for key, value in self.helms.items() if key == "SETPOINT_HELM_CREDENTIAL_KEYS"}
        return self.environment | (keys if name.startswith("helm") else self._owners if name == "migrate" else {})

    def start(self, *names: str) -> None:
        """Services of docker-compose.yml by name; `worker-2` is a second `worker`. Waits for web to be ready."""
        for name in names:
            with (self.folder / f"{name}.log").open("ab") as log:
                self._running[name] = self._spawned(name, log)
        if "web" in names:
            self.wait_ready()

    def _spawned(self, name: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(name),
            cwd=ROOT,
            env=self._environment(name),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # so that a kill takes what the process has forked, too
        )

    def command(self, name: str) -> list[str]:
        """The command of docker-compose.yml, with this machine's paths and port."""
        program, *arguments = self.services[name.partition("-")[0]]["command"]
        here = {
            "--bind=0.0.0.0:8000": f"--bind=127.0.0.1:{self.port}",
            "--schedule=/tmp/beat-schedule": f"--schedule={self.folder}/beat-schedule",
            "--alive-file=/tmp/watch-alive": f"--alive-file={self.folder}/{name}-alive",
            "--hostname=worker@%h": f"--hostname={name}@test-{self.port}",
            "--hostname=helm@%h": f"--hostname={name}@test-{self.port}",
            "--hostname=gpus@%h": f"--hostname={name}@test-{self.port}",
        }
        beside = base_environment.programs() / program
        return [str(beside if beside.exists() else program), *(here.get(word, word) for word in arguments)]

    def wait_ready(self) -> None:
        """Wait until /readyz answers 200. Raises RuntimeError with the log's end."""
        deadline = time.monotonic() + self._ready_seconds
        while self.status("/readyz") != 200:
            if time.monotonic() > deadline or not self.is_running("web"):
                raise RuntimeError(f"web is not ready:\n{self.log('web')}")
            time.sleep(0.2)

    def status(self, path: str) -> int:
        """Return the HTTP status of a GET; 0 without an answer."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def is_running(self, name: str) -> bool:
        return name in self._running and self._running[name].poll() is None

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def stop(self, name: str) -> int:
        """Stop as an orchestrator does: SIGTERM, then patience, then SIGKILL. Returns the exit status."""
        process = self._running.pop(name)
        if process.poll() is None:
            process.terminate()
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait(STOP_SECONDS)

    def kill(self, name: str) -> None:
        """kill -9 of the process and all it has forked."""
        process = self._running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_SECONDS)

    def log(self, name: str, *, characters: int = 4000) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace")[-characters:] if path.exists() else ""


def _fresh_keys(file: str = "setpoint.env") -> dict[str, str]:
    """Return what `make secrets` would write, so that a new key is known here as soon as it exists."""
    content = runpy.run_path(str(ROOT / "deploy" / "new_environment.py"))["files"]()[file]
    return dict(line.split("=", 1) for line in content.splitlines() if line and not line.startswith("#"))
