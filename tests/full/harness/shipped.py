"""An installation whose every process and command runs from the server's image, as docker-compose.yml says.

with Images() as images, Shipped(images.build("deploy/server.Dockerfile"), postgres.url, redis.url) as setpoint:
    setpoint.migrate()
    setpoint.start("web", "worker", "helm", "gpus", "beat", "watch")
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from types import TracebackType
from typing import IO, Any

from tests.full.harness.containers import Container
from tests.full.harness.images import Image
from tests.full.harness.processes import STOP_SECONDS, Installation


class Shipped(Installation):
    def __init__(
        self, image: Image, database_url: str, broker_url: str, settings: Mapping[str, str] | None = None, **how: Any
    ) -> None:
        super().__init__(database_url, broker_url, settings, **how)
        self.image = image
        self.containers: dict[str, Container] = {}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            super().__exit__(kind, error, at)
        finally:
            for container in self.containers.values():
                container.close()

    def stop(self, name: str) -> int:
        """Stop the container's first process as an orchestrator does. Returns its exit status."""
        process, container = self._running.pop(name), self.containers.pop(name)
        container.signal("TERM")
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            container.signal("KILL")
            return process.wait(STOP_SECONDS)
        finally:
            container.close()

    def kill(self, name: str) -> None:
        self._running.pop(name)
        self.containers.pop(name).close()

    def health(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run the service's own health check."""
        kind, *words = self.services[name]["healthcheck"]["test"]
        words = [word.replace("$$", "$").replace(":8000/", f":{self.port}/") for word in words]
        return self.containers[name].execute(*(["sh", "-c", *words] if kind == "CMD-SHELL" else words))

    def _spawned(self, name: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        service = self.services[name.partition("-")[0]]
        command = [word.replace("=0.0.0.0:8000", f"=127.0.0.1:{self.port}") for word in service["command"]]
        self.containers[name] = container = self._container(name, {**service, "command": command})
        return container.run(log)

    def attempt(self, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command in a container of its own with the rights of `migrate`, as `docker compose run` makes one."""
        service = {**self.services["migrate"], "command": ["python", "manage.py", *arguments]}
        container = self._container(arguments[0], service)
        try:
            process = container.run(subprocess.PIPE, stdin=subprocess.PIPE)
            output, complaint = process.communicate((text or "").encode(), timeout=300)
            return subprocess.CompletedProcess(arguments, process.returncode, output.decode(), complaint.decode())
        finally:
            container.close()

    def _container(self, name: str, service: Mapping[str, Any]) -> Container:
        """Container with this installation's variables only; the image decides where it keeps its files."""
        given = {key: value for key, value in self._environment(name).items() if key.startswith("SETPOINT_")}
        del given["SETPOINT_VAR"]
        return Container(self.image, service, given, hostname=name)
