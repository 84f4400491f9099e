"""Reads helm's records and the cluster's objects outside Setpoint, and runs helm by hand."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from clusters.kube.apiserver import ApiServer
from components.helm import client, releases
from tests.controlplane import helm4
from tests.controlplane.plane import LOOPBACK, Plane
from tests.full.harness.client import eventually
from tests.full.harness.equipping import NAMESPACES
from tests.full.harness.site import Site

KINDS = (
    "configmaps,secrets,serviceaccounts,services,deployments,daemonsets,clusterroles,clusterrolebindings,roles,"
    "rolebindings,priorityclasses,validatingwebhookconfigurations,customresourcedefinitions"
)
"""Every kind of object in the charts."""


class Releases:
    """helm's records and the cluster's objects, read outside Setpoint."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane

    def history(self, name: str) -> releases.ReleaseHistory:
        server = ApiServer(self.plane.admin, policy=LOOPBACK)
        try:
            return releases.history(server, NAMESPACES[name], name)
        finally:
            server.close()

    def pending(self) -> list[str]:
        return [
            f"{name} {revision.number} {revision.status}"
            for name in NAMESPACES
            for revision in self.history(name).revisions
            if revision.is_pending
        ]

    def live(self, name: str) -> set[tuple[str, str]]:
        """(kind, name) of everything that says it is the release's."""
        listing = yaml.load(
            self.plane.kubectl("get", KINDS, "-A", "-l", "app.kubernetes.io/managed-by=Helm", "-o", "json"),
            yaml.CSafeLoader,
        )
        return {
            (raw["kind"], raw["metadata"]["name"])
            for raw in listing["items"]
            if (raw["metadata"].get("annotations") or {}).get("meta.helm.sh/release-name") == name
        }

    def recorded(self, name: str) -> set[tuple[str, str]]:
        """(kind, name) of what the revision in force consists of; empty: there is none."""
        deployed = self.history(name).deployed
        if deployed is None:
            return set()
        documents = yaml.load_all(deployed.read().manifest, yaml.CSafeLoader)
        return {(raw["kind"], raw["metadata"]["name"]) for raw in documents if raw}

    def values(self, name: str) -> Mapping[str, Any] | None:
        deployed = self.history(name).deployed
        return deployed.read().values if deployed else None


def program(plane: Plane, *arguments: str) -> None:
    """Run helm by hand, as an operator with cluster-admin."""
    done = subprocess.run(
        [client.program().program, *arguments, f"--kubeconfig={plane.kubeconfig}"],
        capture_output=True,
        text=True,
        check=False,
        env={"HOME": str(plane.folder)},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def with_helm_4(site: Site) -> None:
    """Switch all of Setpoint to the other helm."""
    program = helm4.program()
    if site.setpoint.environment.get("SETPOINT_HELM") == program:
        return
    site.setpoint.environment["SETPOINT_HELM"] = program
    for name in ("web", "worker", "helm", "helm-2"):
        site.setpoint.stop(name)
        site.setpoint.start(name)


def whole(stage: Releases, names: Sequence[str]) -> None:
    """Check that nothing is pending and each release's objects are those that helm recorded, no more and no fewer."""
    assert stage.pending() == []
    for name in names:
        eventually(
            lambda name=name: stage.live(name) == stage.recorded(name),
            lambda name=name: f"{name} differs from its record: {sorted(stage.live(name) ^ stage.recorded(name))}",
            seconds=120,
        )
