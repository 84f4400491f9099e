"""The components of the catalog as the real charts are tried: versions, presets, values, and with which helm."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from components.catalog import catalog
from profiles.document import document
from tests.components.charts.test_real_archives import ARCHIVES

NEEDS_CHARTS = pytest.mark.skipif(not ARCHIVES.is_dir(), reason=f"needs charts: there are none in {ARCHIVES}")
"""Third parties' charts are not ours to commit. Where the folder is there and lacks one, the test fails."""

EVERY_RUN = {
    "v3": ("gpu-operator",),
    "v4": ("cilium",),
}
"""Tried in every run; the rest of components and helms where SETPOINT_ALL_CHARTS asks for it: some minutes each."""
DISKS = [{"name": "nvme", "hostDir": "/mnt/nvme", "volumeMode": "Filesystem", "storageClass": True}]


@dataclass(frozen=True)
class Case:
    """A component and its way: `old` is upgraded to `new` with `values`."""

    name: str
    old: str
    new: str
    presets: tuple[str, ...] = ()
    base: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    adopted: str = ""
    """Release that plain helm makes and Setpoint adopts; empty: called as the component."""

    custom: str = ""
    """Object of a kind that goes with the release: approvers type that it is destroyed."""
    consent: str = ""

    is_renewed: bool = False
    """A hook of the chart renews its definitions before an upgrade."""

    @property
    def versions(self) -> str:
        return self.new if self.old == self.new else f"{self.old} → {self.new}"

    def source(self, version: str, values: Mapping[str, Any]) -> str:
        """Return a profile of this component alone, with these values above the case's own."""
        entry = {"version": version, "presets": list(self.presets), "values": merged(self.base, values)}
        return document.dump({"components": {self.name: entry}})


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(below)
    for key, value in above.items():
        there = out.get(key)
        out[key] = merged(there, value) if isinstance(there, Mapping) and isinstance(value, Mapping) else value
    return out


FLAVOR = "{apiVersion: kueue.x-k8s.io/v1beta1, kind: ResourceFlavor, metadata: {name: spot}}"
TOPOLOGY = """
apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata: {name: charts-1}
topologyPolicies: [None]
zones: [{name: node-0, type: Node}]
"""
ONE = "destroy 1 object in atlas"
CASES = (
    Case("cert-manager", "v1.21.1", "v1.21.1", ("ha",), values={"webhook": {"replicaCount": 2}}, adopted="certs"),
    Case("cilium", "1.19.6", "1.20.0", ("tunnel", "multus"), {"MTU": 1450}),
    Case("gpu-operator", "v26.3.3", "v26.7.0", ("host-driver", "mig-single"), is_renewed=True,
         adopted="gpu-operator-1764057600"),
    Case("kube-prometheus-stack", "88.5.3", "88.5.3", ("every-monitor", "no-kube-proxy"),
         values={"prometheus": {"prometheusSpec": {"retention": "5d"}}}, adopted="monitor"),
    Case("kueue", "0.18.6", "0.19.2", ("opt-in", "ha"), custom=FLAVOR, consent=ONE),
    Case("local-static-provisioner", "2.0.0", "2.9.0", base={"classes": DISKS}, adopted="disks"),
    Case("network-operator", "26.1.2", "26.4.1", adopted="network-operator-1764057600"),
    Case("node-feature-discovery", "0.18.3", "0.19.0", ("topology",), adopted="nfd", custom=TOPOLOGY, consent=ONE),
    Case("volcano", "1.14.4", "1.15.1", ("ha", "gang-and-reclaim"), adopted="batch", consent=ONE),
)  # fmt: skip
PATIENT = {"livenessProbe": {"timeoutSeconds": 30, "failureThreshold": 10}}
"""A busy emulated processor takes longer than a probe's second, which is no reason to restart."""
NFD = Case("node-feature-discovery", "0.19.0", "0.19.0", base=dict.fromkeys(("master", "worker", "gc"), PATIENT))
KUEUE = Case(
    "kueue", "0.19.2", "0.19.2", ("opt-in",),
    # The archive is the repository's own, which names staging images.
    {"controllerManager": {**PATIENT, "manager": {
        "image": {"repository": "registry.k8s.io/kueue/kueue", "tag": "v0.19.2", "pullPolicy": "IfNotPresent"},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    }}},
)  # fmt: skip
VOLCANO = Case("volcano", "1.15.1", "1.15.1", ("pull-once",))
ON_A_NODE = (NFD, KUEUE, VOLCANO)
"""Whose own programs run on a machine in QEMU."""


def chosen(helm: str) -> list[Case]:
    """Return the cases of a run with this helm."""
    every = os.environ.get("SETPOINT_ALL_CHARTS") == "1"
    return [case for case in CASES if every or case.name in EVERY_RUN[helm]]


def archive(name: str, version: str) -> Path:
    """Return the file of a component's chart. Raises LookupError."""
    chart = catalog.get(name).chart.chart
    for path in (ARCHIVES / f"{chart}-{version}.tgz", ARCHIVES / f"{chart}-v{version}.tgz"):
        if path.exists():
            return path
    raise LookupError(f"{ARCHIVES} has no {chart}-{version}.tgz")
