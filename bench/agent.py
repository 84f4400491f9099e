"""Cost of one agent to a node: the real process, on this machine's own /proc and /sys, in mode observe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import Table, load, usage
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
        ["over", "keys observed", "RSS at the end, MiB", "PSS, MiB", "CPU, % of a core", "API requests", "load"],
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
    command, environment = _as_in_its_image()
    command += [f"--{name}={value}" for name, value in options.items()]
    since = stage.plane.audit_position()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        time.sleep(10)  # started, listed, reported once
        before = _cpu_seconds(process.pid)
        time.sleep(minutes * 60)
        after, spent = usage(process.pid), _cpu_seconds(process.pid) - before
    except ProcessLookupError:
        raise RuntimeError(f"the agent ended: {(folder / 'log').read_text()[-2000:]}") from None
    finally:
        process.terminate()
        process.wait(10)
    requests = sum(1 for event in stage.plane.audit(since) if "setpoint-agent" in event["user"]["username"])
    cpu = spent / (minutes * 60) * 100
    return f"{minutes:g} min", keys, after.rss, after.pss, f"{cpu:.3f}", requests, load()


def _as_in_its_image() -> tuple[list[str], dict[str, str]]:
    """The entry point and environment that deploy/agent.Dockerfile gives it."""
    lines = (ROOT / "deploy" / "agent.Dockerfile").read_text().splitlines()
    entry = next(json.loads(line.removeprefix("ENTRYPOINT ")) for line in lines if line.startswith("ENTRYPOINT "))
    given = next(line.removeprefix("ENV ") for line in lines if line.startswith("ENV "))
    return [sys.executable, *entry[1:]], {"PATH": os.environ["PATH"], **dict(pair.split("=") for pair in given.split())}


def _cpu_seconds(pid: int) -> float:
    """Sum the CPU seconds of all its threads, by the scheduler's own clock: ticks of 10 ms would be too coarse."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in threads) / 1e9


def _observed() -> tuple[str, ...]:
    from profiles.catalog import known_settings

    return tuple(sorted(known_settings.observable_keys()))
