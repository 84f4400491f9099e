"""Runs helm on Setpoint's chart: lint, and template into objects."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from components.helm import process
from tests.platform.chart.value_sets import VALUE_SETS

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy" / "chart" / "setpoint"
RELEASE, NAMESPACE = "control", "setpoint"
PROCESSES = ("web", "worker", "helm", "gpus", "beat", "watch")


def packaged() -> str:
    """Return helm v3, which comes as a Python package."""
    return process.find_program("", os.environ)


def run(
    *arguments: str, values: Mapping[str, Any], program: str = "", kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run helm with a HOME of its own and the values in a file."""
    with tempfile.TemporaryDirectory() as home:
        file = Path(home, "values.json")
        file.write_text(json.dumps(values))
        return subprocess.run(
            [program or packaged(), *arguments, f"--values={file}"],
            capture_output=True,
            text=True,
            check=False,
            env={"HOME": home, "KUBECONFIG": str(kubeconfig or Path(home, "none"))},
            timeout=300,
        )


def template(values: Mapping[str, Any], *flags: str, program: str = "") -> list[dict[str, Any]]:
    """Render all objects of the chart, hooks and tests included."""
    done = run("template", RELEASE, str(CHART), f"--namespace={NAMESPACE}", *flags, values=values, program=program)
    assert done.returncode == 0, done.stderr
    return [raw for raw in yaml.load_all(done.stdout, yaml.CSafeLoader) if raw]


@lru_cache
def rendered(name: str, *flags: str, program: str = "") -> tuple[dict[str, Any], ...]:
    return tuple(template(VALUE_SETS[name], *flags, program=program))


def of_kind(objects: tuple[dict[str, Any], ...] | list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {raw["metadata"]["name"]: raw for raw in objects if raw["kind"] == kind}


def component(raw: Mapping[str, Any]) -> str:
    return str(raw["metadata"]["labels"].get("app.kubernetes.io/component", ""))


def pods(objects: tuple[dict[str, Any], ...] | list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield component and pod (metadata and spec) of everything that makes one."""
    for raw in objects:
        if raw["kind"] == "Pod":
            yield component(raw), raw
        elif raw["kind"] in ("Deployment", "Job"):
            yield component(raw), raw["spec"]["template"]
        elif raw["kind"] == "CronJob":
            yield component(raw), raw["spec"]["jobTemplate"]["spec"]["template"]


def containers(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def secret_files(pod: Mapping[str, Any], container: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Map each file that a container is given from a Secret to the Secret's name and key."""
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", ())}
    files = {}
    for mount in container.get("volumeMounts", ()):
        for source in volumes[mount["name"]].get("projected", {}).get("sources", ()):
            for item in source["secret"]["items"]:
                path = f"{mount['mountPath']}/{item['path']}"
                assert path not in files, "a file has two sources"
                files[path] = (source["secret"]["name"], item["key"])
    return files
