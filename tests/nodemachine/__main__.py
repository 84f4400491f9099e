"""A cluster of one node to try Setpoint on: a control plane and a machine in QEMU, until Ctrl-C (`make node`)."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
import tempfile
from pathlib import Path

from tests.controlplane.admin import Admin
from tests.controlplane.fixtures import MANIFESTS
from tests.controlplane.plane import Plane
from tests.nodemachine.guest import MODULE
from tests.nodemachine.node import Node, images

NAME = "node-a"
READY = """\
The cluster is up, with the agent of deploy/setpoint.yaml on its node {name}. Ctrl-C ends it.

  export KUBECONFIG={kubeconfig} PATH={bin}:$PATH NODE={name}
  on_node() {{ {inside} "$@"; }}

Setpoint reaches its API server at a loopback address: SETPOINT_ALLOW_NETWORKS=127.0.0.0/8 make up
"""


def main() -> None:
    archives = images()
    with tempfile.TemporaryDirectory(prefix="setpoint-node-") as folder, Plane() as plane:
        plane.kubectl("apply", "-f", str(MANIFESTS))
        node = Node(plane, Admin(plane), Path(folder), NAME, archives)
        print(f"{NAME} boots", flush=True)
        try:
            node.start()
            inside = shlex.join([sys.executable, "-m", MODULE, str(node.machine.folder)])
            print(READY.format(name=NAME, kubeconfig=plane.kubeconfig, bin=plane.bin, inside=inside), flush=True)
            signal.pause()
        finally:
            node.machine.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        main()
