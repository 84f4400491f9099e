"""Commands of Setpoint's chart as plain processes, with the variables and files that each container is given there,
on a real PostgreSQL and a real Redis; and its probes, while broker and worker come and go."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.full.harness import base_environment
from tests.full.harness.servers import Postgres, Redis
from tests.platform.chart.rendering import CHART, PROCESSES, ROOT, containers, pods, secret_files, template
from tests.ports import free_port

pytestmark = pytest.mark.full

PATIENCE_SECONDS = 240.0
WORKERS = ("worker", "helm")


@dataclass
class Rendered:
    """The chart's containers, with this computer's folders and port in place of the pod's."""

    folder: Path
    secrets: dict[str, dict[str, str]]
    port: int = field(default_factory=free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        values = {"url": f"http://127.0.0.1:{self.port}", "secrets": {"owner": {"existing": "setpoint-owner"}},
                  "settings": {"SETPOINT_ALLOW_NETWORKS": "127.0.0.0/8"}}  # fmt: skip
        self.pods = dict(pods(template(values)))

    def container(self, component: str, name: str) -> dict[str, Any]:
        (container,) = [each for each in containers(self.pods[component]) if each["name"] == name]
        return container

    def here(self, text: str) -> str:
        return (
            text.replace("/run/secrets/setpoint", str(self.folder))
            .replace("0.0.0.0:8000", f"127.0.0.1:{self.port}")
            .replace("/tmp/", f"{self.folder}/tmp/")
            .replace("find /tmp ", f"find {self.folder}/tmp ")
            .replace("/var/lib/setpoint", str(self.folder))
        )

    def environment(self, component: str, name: str) -> dict[str, str]:
        """Return the container's variables, its files written where they name them; nothing of the tests' own."""
        container = self.container(component, name)
        own = f"/run/secrets/setpoint/{component}-{name}"
        for path, (secret, key) in secret_files(self.pods[component], container).items():
            file = Path(self.here(path.replace("/run/secrets/setpoint", own)))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.secrets[secret][key] + "\n")
        given = {entry["name"]: entry.get("value", "127.0.0.1") for entry in container["env"]}
        given = {k: v.replace("$(POD_IP)", "127.0.0.1").replace("/run/secrets/setpoint", own) for k, v in given.items()}
        (self.folder / "tmp").mkdir(exist_ok=True)
        return {"PATH": f"{base_environment.programs()}:/usr/bin:/bin", "PYTHONUNBUFFERED": "1"} | {
            key: self.here(value) for key, value in given.items()
        }

    def spawn(self, component: str, name: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{component}-{name}.log").open("ab") as log:
            self.running[f"{component}-{name}"] = process = subprocess.Popen(
                [self.here(word) for word in self.container(component, name)["command"]],
                cwd=ROOT,
                env=self.environment(component, name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return process

    def finish(self, component: str, name: str) -> None:
        process = self.spawn(component, name)
        assert process.wait(PATIENCE_SECONDS) == 0, self.log(component, name)

    def log(self, component: str, name: str) -> str:
        return (self.folder / f"{component}-{name}.log").read_text(errors="replace")[-4000:]

    def probe(self, component: str, kind: str) -> bool:
        """Return whether the kubelet would take this probe for a success now."""
        what = self.container(component, component)[kind]
        if "httpGet" in what:
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{self.port}{what['httpGet']['path']}", timeout=10
                ) as got:
                    return int(got.status) == 200
            except OSError:
                return False
        command = [self.here(word) for word in what["exec"]["command"]]
        done = subprocess.run(command, cwd=ROOT, env=self.environment(component, component), capture_output=True,
                              check=False, timeout=PATIENCE_SECONDS)  # fmt: skip
        return done.returncode == 0

    def kill(self, component: str) -> None:
        os.killpg(self.running[f"{component}-{component}"].pid, signal.SIGKILL)

    def close(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


@pytest.fixture(scope="module")
def chart(
    empty_postgres: Postgres, redis_server: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rendered]:
    """Processes on an empty database, whose application's role the migration makes."""
    files = runpy.run_path(str(ROOT / "deploy" / "new_environment.py"))["files"]()
    secrets = {
        secret: dict(line.split("=", 1) for line in files[file].splitlines() if line and not line.startswith("#"))
        for secret, file in (
            ("setpoint", "setpoint.env"),
            ("setpoint-helm", "helm.env"),
            ("setpoint-owner", "owner.env"),
        )
    }
    here = {"@postgres:5432/": f"@127.0.0.1:{empty_postgres.port}/", "redis://redis:6379/0": redis_server.url}
    for there, address in here.items():
        secrets = {
            secret: {key: value.replace(there, address) for key, value in keys.items()}
            for secret, keys in secrets.items()
        }
    made = Rendered(tmp_path_factory.mktemp("chart"), secrets)
    try:
        yield made
    finally:
        made.close()


def eventually(what: Callable[[], bool], says: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < deadline, says()
        time.sleep(0.5)


def test_a_pod_waits_for_the_migration_and_then_every_process_starts_and_is_alive(chart: Rendered) -> None:
    waiting = chart.spawn("beat", "migrated")
    eventually(lambda: "not migrated to this version yet" in chart.log("beat", "migrated"), lambda: "it does not wait")
    chart.finish("migrate", "migrate")
    chart.finish("migrate", "library")
    assert waiting.wait(PATIENCE_SECONDS) == 0
    for process in PROCESSES:
        chart.spawn(process, process)
    for process in PROCESSES:
        eventually(lambda of=process: chart.probe(of, "startupProbe"), lambda of=process: chart.log(of, of))  # type: ignore[misc]
        assert chart.probe(process, "livenessProbe")
    eventually(lambda: chart.probe("web", "readinessProbe"), lambda: chart.log("web", "web"))


def test_the_charts_own_test_passes(chart: Rendered) -> None:
    pages = [sys.executable, str(CHART / "pages.py")]
    done = subprocess.run([*pages, f"http://127.0.0.1:{chart.port}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "'status'" in done.stdout


@pytest.mark.parametrize(("component", "name", "may"), [("web", "web", "False"), ("migrate", "migrate", "True")])
def test_only_the_migration_connects_as_a_role_that_could_change_the_record(
    chart: Rendered, component: str, name: str, may: str
) -> None:
    asked = "import django; django.setup(); from audit.database_roles import powers; print(powers())"
    environment = {**chart.environment(component, name), "DJANGO_SETTINGS_MODULE": "config.settings"}
    done = subprocess.run(
        ["python", "-c", asked], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == may, done.stderr


@pytest.mark.parametrize("process", WORKERS)
def test_without_its_broker_a_worker_is_not_restarted_and_a_dead_one_is(
    chart: Rendered, redis_server: Redis, process: str
) -> None:
    redis_server.stop()
    try:
        assert chart.probe(process, "livenessProbe")
        assert not chart.probe(process, "startupProbe"), "a rollout does not continue with a worker that gets no work"
    finally:
        redis_server.start()
    eventually(lambda: chart.probe(process, "startupProbe"), lambda: chart.log(process, process))
    chart.kill(process)
    assert not chart.probe(process, "livenessProbe")
