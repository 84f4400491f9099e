"""Releases that the demo's platform teams had installed with plain helm before Setpoint came.

The chart of an earlier release is made from the demo's own: other versions, and what a later release dropped or added.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from components.charts import archives
from components.helm import client, rendering
from components.helm.client import HelmJob
from config.demo import packing
from config.demo.fleet import ServedCluster
from simfleet.apiserver.definitions import CRDS

HELM_SECONDS = 120.0
EARLIER: Mapping[str, str] = {
    "v26.7.0": "v26.3.3",
    "580.105.08": "570.124.06",
    "v0.20.0": "v0.18.2",
    "v0.18.3": "v0.17.4",
    "openAPIV3Schema: {type": "openAPIV3Schema: {description: As of v26.3, type",
}
"""Words of the GPU Operator's chart, and what an earlier release says in their place."""
CLIENTS = b"""\
apiVersion: v1
kind: ConfigMap
metadata:
  name: default-gpu-clients
  namespace: {{ .Release.Namespace }}
data:
  clients.yaml: |
    version: v1
    clients: [nvidia-device-plugin-daemonset]
"""
"""Which the later release needs no more."""


def earlier_gpu_operator() -> bytes:
    """Archive of the release before the one that the catalog names. It has no hooks yet."""
    folder = packing.CHARTS / "gpu-operator"
    files = packing.files(folder)
    del files["templates/hooks.yaml"]
    for path, content in files.items():
        text = content.decode()
        for word, before in EARLIER.items():
            text = text.replace(word, before)
        files[path] = text.encode()
    return packing.packed(folder.name, files | {"templates/clients.yaml": CLIENTS})


def volcano() -> bytes:
    return packing.pack(packing.CHARTS / "volcano")


def define(entry: ServedCluster, chart: bytes) -> None:
    """Create the definitions of the chart's `crds/`. Their kinds are served a moment later."""
    for text in archives.judge(chart).crds.values():
        for raw, _ in rendering.split(text.encode()):
            entry.sim.store.create(CRDS, raw)


def install(entry: ServedCluster, release: str, namespace: str, chart: bytes) -> None:
    """Install as a person with helm and a kubeconfig does. Raises HelmError."""
    entry.sim.ensure_namespace(namespace)
    job = HelmJob(release, namespace, credentials=entry.by_hand, deadline=time.monotonic() + HELM_SECONDS)
    client.program().install(job, chart, {})
