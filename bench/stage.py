"""Stage of a scenario: the real control plane with kwok nodes, PostgreSQL, Redis, and this process as Setpoint."""

from __future__ import annotations

import os
import random
import string
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from clusters.net.egress import Policy
from tests.controlplane.admin import FAKE, Admin
from tests.controlplane.plane import Plane
from tests.full.harness.processes import Installation
from tests.full.harness.servers import Postgres, Redis, Server

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
WRITERS = 16
GPUS = 8
PATIENCE_SECONDS = 900.0


class Stage:
    """Everything that runs while scenarios measure. Grows to the number of nodes that a scenario asks for."""

    def __init__(self, **database: str) -> None:
        """`database`: options of PostgreSQL that differ from the tests'."""
        self._database = database
        self._stack = ExitStack()
        self.plane: Plane
        self.admin: Admin
        self.installation: Installation
        self.servers: dict[str, Server]
        self._made: list[str] = []

    def __enter__(self) -> Stage:
        with ExitStack() as stack:
            postgres = stack.enter_context(Postgres(**self._database))
            redis = stack.enter_context(Redis())
            self.servers = {"PostgreSQL": postgres, "Redis": redis}
            self.installation = stack.enter_context(
                Installation(postgres.url, redis.url, ready_seconds=PATIENCE_SECONDS)
            )
            _become(self.installation)
            self.plane = stack.enter_context(Plane(is_calm=True))
            self.admin = Admin(self.plane)
            stack.callback(self.admin.close)
            self.deploy()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def deploy(self) -> None:
        """The CRD, roles and admission policies that a cluster has; not the DaemonSet, whose image nothing runs."""
        import yaml

        kept = [
            raw
            for raw in yaml.safe_load_all((DEPLOY / "setpoint.yaml").read_text())
            if raw and raw["kind"] != "DaemonSet"
        ]
        # The namespace and the CRD first: what follows lives in them.
        kept.sort(key=lambda raw: raw["kind"] not in ("Namespace", "CustomResourceDefinition"))
        self.plane.kubectl("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(kept))
        self.plane.kubectl("wait", "--for=condition=Established", "crd/nodetunings.setpoint.dev", "--timeout=60s")

    def grow(self, count: int, *, padding: int = 0) -> None:
        """Grow the fleet to `count` kwok nodes, each padded to about `padding` bytes of JSON, all Ready."""
        wanted = [f"node-{number:05d}" for number in range(count)]
        new = wanted[len(self._made) :]
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(lambda name: self.admin.create("nodes", _node(name, padding)), new))
        self._made += new
        self._wait_ready(len(self._made))

    def _wait_ready(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            states = self.plane.kubectl(
                "get",
                "nodes",
                "-o",
                "jsonpath={range .items[*]}{.status.conditions[?(@.type=='Ready')].status}{' '}{end}",
            ).split()
            if states.count("True") >= count:
                return
            time.sleep(2)
        raise RuntimeError(f"{count} nodes are not Ready after {PATIENCE_SECONDS:.0f} s")


def _become(installation: Installation) -> None:
    """This process reads and writes the installation's own database, as a worker would."""
    os.environ.update(installation.environment)
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", interactive=False, verbosity=0)


LOOPBACK = Policy.of(["127.0.0.0/8"])


def _node(name: str, padding: int) -> dict[str, Any]:
    """Return a GPU node, padded in place of real nodes' image lists, feature labels and operators' annotations."""
    capacity = {"cpu": "192", "memory": "2048Gi", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    words = random.Random(name)
    filler = "".join(words.choices(string.ascii_lowercase + "     ", k=max(0, padding - 3000)))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
                "nvidia.com/gpu.count": str(GPUS),
            },
            "annotations": {**FAKE, **({"bench.setpoint.dev/padding": filler} if filler else {})},
        },
        "status": {"capacity": capacity, "allocatable": capacity},
    }
