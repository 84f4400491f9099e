"""kube-proxy as kubeadm writes it, on a real API server: removed by the identities of the manifests, and restored.

What may go wrong between, and a worker that dies anywhere, is tried on the simulated fleet:
tests/components/release/test_kube_proxy.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clusters.connection import helm_credentials, registry
from clusters.kube.apiserver import ApiServer
from clusters.models import Cluster
from components.catalog import catalog
from components.charts import archives
from components.helm.errors import HelmRefused, HelmWaits
from components.plans.prepared import Prepared
from components.release import conformance, work
from contract import names
from profiles.content.cluster import WantedComponent
from tests.clusters.factories import ClusterFactory, reached_with
from tests.components.packing import entry, versioned
from tests.components.release import proxies
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.components.test_rights import fenced
from tests.full.harness.client import eventually

__all__ = ["fenced"]
pytestmark = pytest.mark.django_db
NETWORK = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: {{ .Release.Name }}}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      tolerations: [{operator: Exists}]
      containers:
      - {name: main, image: registry.example.org/net, env: [{name: REPLACES, value: {{ .Values.replaces | quote }}}]}
"""
REPLACES = """
replaces:
  - of: kube-proxy
    preset: alone
    why: Both balance Services.
    when: {replaces: true}
    needs: {host: Nodes would lose the API server.}
    sources: [S]
presets:
  alone: {title: Alone, why: For tests, values: {replaces: true, host: 192.0.2.1}, sources: [S]}
blast:
  unknown: network
  install: {class: network, nodes: all, why: Another network.}
  remove: {class: network, nodes: all, why: No network.}
  changes: [{kind: DaemonSet, class: network, nodes: all, why: Services are balanced elsewhere.}]
"""
BOTH = ("daemonsets", "configmaps")


class Stage:
    """A network that does kube-proxy's work, planned by setpoint-controller and installed by setpoint-helm."""

    def __init__(self, cluster: Cluster, name: str, admin: ApiServer) -> None:
        self.cluster, self.name, self.admin = cluster, name, admin
        self.wish = WantedComponent(name, "1.0.0", presets=("alone",))

    def prepare(self) -> Prepared:
        return Prepared.from_json(work.prepare(self.cluster, self.wish).to_json())

    def carry_out(self, prepared: Prepared, direction: str = "forward") -> list[str]:
        """Again and again while it waits, as the engine does; then until it is ready."""
        lines: list[str] = []
        until = time.monotonic() + 90
        while time.monotonic() < until:
            how: dict[str, Any] = {"deadline": time.monotonic() + 60, "stop": lambda: False, "tell": lines.append}
            try:
                work.carry_out(self.cluster, prepared, direction=direction, **how)
            except HelmWaits as waits:
                lines.append(str(waits))
                time.sleep(0.2)
                continue
            eventually(lambda: work.check_readiness(self.cluster, prepared, direction=direction).is_ready, seconds=60)
            return lines
        raise AssertionError(lines[-1])

    def seen(self) -> dict[str, Any]:
        return {plural: proxies.meaning(proxies.there(self.admin, plural)) for plural in BOTH}


@pytest.fixture
def stage(
    helm: str, fenced: Plane, cluster_admin: Admin, a_node: Callable[..., dict[str, Any]], settings: Any, tmp_path: Path
) -> Iterator[Stage]:
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    name = f"net-{helm}-{time.monotonic_ns() % 10**8}"
    archives.store(versioned(name, "1.0.0", NETWORK, "replaces: false\nhost: ''\n"), origin="uploaded", by="admin")
    text = entry(name, "1.0.0", workload=f"DaemonSet/{name}", more=REPLACES)
    (tmp_path / f"{name}.yaml").write_text(text)
    cluster = reached_with(ClusterFactory(), fenced.credentials(token=cluster_admin.controller_token()))
    helm_credentials.store(cluster, cluster_admin.token(names.HELM_ISSUER_SERVICE_ACCOUNT), by="a test")
    for _ in range(2):
        a_node(labels={"kubernetes.io/os": "linux"})
    with catalog.extended(tmp_path), registry.server_of(fenced.admin) as admin:
        yield Stage(cluster, name, admin)
    fenced.kubectl("delete", "secret", "-l", "owner=helm", "-n", f"{name}-system", "--ignore-not-found")
    fenced.kubectl("delete", "namespace", f"{name}-system", "--wait=false", "--ignore-not-found")
    fenced.kubectl("delete", "daemonset,configmap", "kube-proxy", "-n", proxies.SPACE, "--ignore-not-found")


def test_it_is_planned_removed_and_put_back_and_a_foreign_edit_is_refused(stage: Stage) -> None:
    proxies.install(stage.admin)
    eventually(lambda: (proxies.there(stage.admin, "daemonsets") or {}).get("status", {}).get("numberReady", 0) >= 2)
    before = stage.seen()
    first = stage.prepare()
    assert [note.title for note in first.notes if note.severity == "block"] == []
    assert [str(each) for each in first.replaced] == [
        "DaemonSet kube-system/kube-proxy",
        "ConfigMap kube-system/kube-proxy",
    ]
    assert first.blast is not None
    assert (first.blast.worst, set(first.blast.deleted)) == (
        "network",
        {"DaemonSet kube-system/kube-proxy", "ConfigMap kube-system/kube-proxy"},
    )
    assert first.authority is not None
    used = [right for right in first.authority.rights if right.use == "replaced"]
    assert {(right.names, right.verbs, right.lacks) for right in used} == {
        (("kube-proxy",), ("get", "delete"), ()),
        ((), ("create",), ()),
    }

    proxies.change(stage.admin, "daemonsets", {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 7}}}})
    with pytest.raises(HelmRefused, match="DaemonSet kube-system/kube-proxy was changed since the plan"):
        stage.carry_out(first)
    assert None not in stage.seen().values()
    proxies.replace(stage.admin, proxies.daemonset())

    prepared = stage.prepare()
    lines = stage.carry_out(prepared)
    assert stage.seen() == dict.fromkeys(BOTH)
    assert any("is removed; the plan keeps it" in line for line in lines)
    assert conformance.conform(stage.cluster, stage.wish).state == "compliant"
    assert stage.prepare().action == "none"

    lines = stage.carry_out(prepared, "revert")
    assert stage.seen() == before
    ready = proxies.there(stage.admin, "daemonsets")
    assert ready is not None
    assert ready["status"]["numberReady"] >= 2, "its pods are at work again before the other network has gone"
    assert any(line.startswith(f"{stage.name} stays until DaemonSet kube-system/kube-proxy") for line in lines)


def test_one_that_kubeadm_brings_back_is_drift_and_removed_by_a_plan(stage: Stage) -> None:
    proxies.install(stage.admin)
    stage.carry_out(stage.prepare())
    proxies.install(stage.admin)
    look = conformance.conform(stage.cluster, stage.wish)
    assert (look.state, look.sentence) == (
        "drifted",
        "DaemonSet kube-system/kube-proxy is there, and was to be removed.",
    )
    assert look.differences[0].at
    stage.carry_out(stage.prepare())
    assert stage.seen() == dict.fromkeys(BOTH)
