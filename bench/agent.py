"""What one agent costs a node: the real process, on this machine's own /proc and /sys, in mode observe."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import Table, usage
from bench.stage import Stage
from tests.controlplane.admin import Admin

ROOT = Path(__file__).resolve().parent.parent
NODE = "bench-agent"


def measure(stage: Stage, minutes: float) -> list[Table]:
    from contract import names
    from contract.nodetuning import Mode, Spec

    raw = stage.admin.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    uid = raw["metadata"]["uid"]
    keys = _observed()
    spec = Spec(node_uid=uid, mode=Mode.OBSERVE, observe=keys)
    controller = Admin(stage.plane, stage.plane.credentials(token=stage.admin.controller_token()))
    controller.create(
        "nodetunings",
        {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {
                "name": NODE,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid}],
            },
            "spec": {name: value for name, value in spec.to_json().items() if value is not None},
        },
    )
    table = Table(
        "The agent",
        ["over", "keys observed", "RSS at the end, MiB", "PSS, MiB", "CPU, % of a core", "API requests"],
        "One real agent process in mode observe: it looks every 5 s, reports what changed, renews a Lease a minute.",
    )
    with tempfile.TemporaryDirectory(prefix="setpoint-bench-agent-") as folder:
        table.add(*_run(stage, Path(folder), minutes, len(keys)))
    return [table]


def _run(stage: Stage, folder: Path, minutes: float, keys: int) -> tuple[object, ...]:
    (folder / "token").write_text(stage.admin.agent_token(NODE))
    (folder / "ca.crt").write_text(stage.plane.authority.pem)
    options = {
        "server": stage.plane.url,
        "token-file": str(folder / "token"),
        "ca-file": str(folder / "ca.crt"),
        "host-root": "/",
        "journal": str(folder / "journal"),
        "nsenter": "no",
        "init-pid": str(os.getpid()),  # in a container, process 1 may be out of sight; this one shares its namespaces
    }
    # As in its image: no site-packages to import by accident.
    command = [sys.executable, "-S", "-m", "agent", *(f"--{name}={value}" for name, value in options.items())]
    since = stage.plane.audit_position()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    try:
        time.sleep(10)  # started, listed, reported once
        before = usage(process.pid)
        time.sleep(minutes * 60)
        after = usage(process.pid)
    except ProcessLookupError:
        raise RuntimeError(f"the agent ended: {(folder / 'log').read_text()[-2000:]}") from None
    finally:
        process.terminate()
        process.wait(10)
    asked = sum(1 for event in stage.plane.audit(since) if "setpoint-agent" in event["user"]["username"])
    cpu = (after.cpu - before.cpu) / (minutes * 60) * 100
    return f"{minutes:g} min", keys, after.rss, after.pss, f"{cpu:.2f}", asked


def _observed() -> tuple[str, ...]:
    from profiles import catalogue

    return tuple(sorted(catalogue.observable_keys()))
