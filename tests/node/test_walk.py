"""docs/real-cluster.md does what it says: its blocks, word for word, on a machine with a kernel of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane.plane import Plane
from tests.full.harness.site import Site
from tests.nodemachine.guest import MODULE
from tests.nodemachine.node import Node

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/real-cluster.md"
ON_NODE = 'docker exec "$NODE" "$@"'
SECONDS = 600.0

pytestmark = pytest.mark.usefixtures("judged")


def test_the_walk_leads_to_a_change_its_repair_and_back(site: Site, deployed: Plane, node: Node) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 7
    script = "\n".join(blocks)
    assert script.count(ON_NODE) == 1, "a machine in QEMU is reached in another way than a container"
    inside = shlex.join([sys.executable, "-m", MODULE, str(node.machine.folder)]) + ' "$@"'
    environment = os.environ | {
        "SETPOINT_URL": site.setpoint.url,
        "NODE": node.name,
        "OPERATOR": site.operator.token,
        "APPROVER": site.approver.token,
        "KUBECONFIG": str(deployed.kubeconfig),
        "PATH": f"{deployed.bin}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script.replace(ON_NODE, inside)],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
