"""The commands of docs/operating.md, "Install with Helm", as they are written there, on a real API server.

Left out is what needs containers that run: the image, the chart's own test, and the command inside of web.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.plane import Plane
from tests.platform.chart.rendering import ROOT, packaged

pytestmark = pytest.mark.full

PAGE = ROOT / "docs" / "operating.md"
NEEDS_CONTAINERS = ("helm test", "kubectl -n setpoint exec")


def section() -> str:
    return PAGE.read_text().partition("### Install with Helm\n")[2].partition("\n### ")[0]


def commands() -> list[str]:
    blocks = re.findall(r"^```console\n(.*?)^```", section(), re.MULTILINE | re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]


def values() -> str:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", section(), re.MULTILINE | re.DOTALL)
    return str(block)


def test_the_walk_installs_a_release_whose_pods_are_admitted_and_ready(
    plane: Plane, a_node: Callable[..., Any], tmp_path: Path
) -> None:
    a_node()
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy", ignore=shutil.ignore_patterns("*.env"))
    (tmp_path / "values.yaml").write_text(values())
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kubectl").symlink_to(plane.bin / "kubectl")
    (tmp_path / "bin" / "helm").symlink_to(packaged())
    environment = {"PATH": f"{tmp_path}/bin", "HOME": str(tmp_path), "KUBECONFIG": str(plane.kubeconfig)}
    try:
        done = []
        for command in commands():
            if command.startswith(NEEDS_CONTAINERS):
                continue
            words = shlex.split(command)
            if words == ["make", "secrets"]:  # its recipe, in a copy of the repository without a virtual environment
                words = [sys.executable, "deploy/new_environment.py"]
            result = subprocess.run(
                words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
            )
            assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
            done.append(words[0])
        assert done.count("helm") == 1
        assert done.count("kubectl") == 5
        ready = plane.kubectl("get", "deployments", "-n", "setpoint", "-o", "name").split()
        assert "deployment.apps/setpoint-web" in ready, "the next command of the walk names it"
        pods = plane.kubectl("get", "pods", "-n", "setpoint", "-o", "jsonpath={.items[*].status.phase}").split()
        assert len(pods) == 11
        assert set(pods) == {"Running"}
        for word in ("helm uninstall setpoint", "helm rollback setpoint", "--set paused=true"):
            assert word in section()
        words = ["helm", "uninstall", "setpoint", "--namespace=setpoint", "--wait"]
        subprocess.run(words, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=120)
        left = plane.kubectl("get", "secrets,services,ingresses,jobs,networkpolicies", "-n", "setpoint", "-o", "name")
        assert set(left.split()) == {f"secret/setpoint{suffix}" for suffix in ("", "-helm", "-owner")}
    finally:
        plane.kubectl("delete", "namespace", "setpoint", "--wait=false", "--ignore-not-found")
