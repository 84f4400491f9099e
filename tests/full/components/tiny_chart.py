"""A chart of three versions, a cluster row and a helm of either version, on the real control plane."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clusters.connection import registry
from clusters.models import Cluster
from components.catalog import catalog
from components.charts import archives
from components.helm import client, releases
from components.helm.client import Stopped
from components.plans.prepared import Prepared
from components.release import work
from profiles.content.cluster import WantedComponent
from tests.clusters.factories import ClusterFactory, reached_with
from tests.components.packing import entry, versioned
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane

COMPONENTS = Path(__file__).resolve().parents[3] / "deploy" / "setpoint-components.yaml"
VALUES = "color: green\ngiven: ''\n"
TEMPLATE = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-settings}
data:
  color: {{ .Values.color }}
{{- if eq .Chart.Version "1.0.0" }}
  old: "only in the first"
{{- end }}
---
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-made}
stringData:
  {{- $there := lookup "v1" "Secret" .Release.Namespace (printf "%s-made" .Release.Name) }}
  password: {{ if $there }}{{ $there.data.password | b64dec }}{{ else }}{{ randAlphaNum 20 }}{{ end }}
  given: {{ .Values.given | quote }}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: {{ .Release.Name }}-agent}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      nodeSelector: {pool: {{ .Release.Namespace }}}
      containers:
      - name: main
        image: registry.example.org/agent:{{ .Chart.Version }}
        env:
        - {name: COLOR, value: {{ .Values.color }}}
{{- if eq .Chart.Version "1.0.0" }}
        - {name: OLD, value: "1"}
{{- end }}
"""
HOOK = """\
apiVersion: batch/v1
kind: Job
metadata: {name: {{ .Release.Name }}-before, annotations: {helm.sh/hook: "pre-install,pre-upgrade"}}
spec:
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {hooks: {{ .Release.Namespace }}}
      containers: [{name: main, image: registry.example.org/hook}]
"""
LATER = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-later}
"""


def chart(version: str) -> bytes:
    more = {"1.0.0": {}, "2.0.0": {"b": LATER}, "3.0.0": {"hook": HOOK}}
    return versioned("tiny", version, TEMPLATE, VALUES, **more[version])


class World:
    """One cluster row, one namespace of its own, one helm."""

    def __init__(self, plane: Plane, namespace: str, cluster: Cluster, admin: Admin) -> None:
        self.plane, self.namespace, self.cluster, self.admin = plane, namespace, cluster, admin

    def prepare(self, version: str = "1.0.0", **values: Any) -> Prepared:
        made = work.prepare(self.cluster, WantedComponent("tiny", version, values=values))
        return Prepared.from_json(made.to_json())

    def carry_out(self, prepared: Prepared, direction: str = "forward", seconds: float = 60, **how: Any) -> list[str]:
        lines: list[str] = []
        limits = {"deadline": time.monotonic() + seconds, "stop": lambda: False, "tell": lines.append} | how
        work.carry_out(self.cluster, prepared, direction=direction, **limits)
        return lines

    def until_ready(self, prepared: Prepared, direction: str = "forward") -> None:
        until = time.monotonic() + 60
        while not (look := work.check_readiness(self.cluster, prepared, direction=direction)).is_ready:
            assert time.monotonic() < until, look
            time.sleep(0.2)

    def history(self) -> releases.ReleaseHistory:
        with registry.api_server(self.cluster) as server:
            return releases.history(server, self.namespace, "tiny")

    def statuses(self) -> list[str]:
        return [revision.status for revision in self.history().revisions]

    def data(self, name: str = "tiny-settings") -> dict[str, str] | None:
        config_map = self.admin.find("configmaps", name, self.namespace)
        return None if config_map is None else config_map.get("data") or {}

    def left_pending(self, prepared: Prepared) -> None:
        """Leave a release as a helm does that was killed at the worst moment."""
        with registry.api_server(self.cluster) as server:
            last = releases.history(server, self.namespace, "tiny").last
            assert last
            payload = releases._opened(last.raw)
            payload["info"]["status"] = "pending-upgrade"
            name = f"sh.helm.release.v1.tiny.v{last.number}"
            self.plane.kubectl("label", "secret", name, "-n", self.namespace, "status=pending-upgrade", "--overwrite")
            data = f'{{"data":{{"release":"{releases._packed(payload)}"}}}}'
            self.plane.kubectl("patch", "secret", name, "-n", self.namespace, "--type=merge", "-p", data)

    def until_killed(self, prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
        """helm begins, and is killed: its hook waits for a node that is not there."""
        with monkeypatch.context() as patch:
            patch.setattr("components.helm.process.GRACE_SECONDS", 0)  # killed, not asked
            patch.setattr("components.helm.process.signal.SIGTERM", 0)
            with pytest.raises(Stopped):
                self.carry_out(prepared, stop=lambda: bool(self.history().last) and self.history().last.is_pending)


@pytest.fixture
def world(
    helm: str,
    plane: Plane,
    cluster_admin: Admin,
    a_node: Callable[..., dict[str, Any]],
    settings: Any,
    tmp_path: Path,
) -> Iterator[World]:
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    namespace = f"tiny-{helm}-{time.monotonic_ns() % 10**8}"
    more = "presets: {big: {title: Bigger, why: For tests, values: {color: huge}, sources: [S]}}"
    workload, versions = "DaemonSet/{release}-agent", ("3.0.0", "2.0.0", "1.0.0")
    (tmp_path / "tiny.yaml").write_text(entry("tiny", *versions, workload=workload, namespace=namespace, more=more))
    for version in ("1.0.0", "2.0.0", "3.0.0"):
        archives.store(chart(version), origin="uploaded", by="admin")
    cluster = reached_with(ClusterFactory(), plane.admin)
    for _ in range(2):
        a_node(labels={"pool": namespace})
    with catalog.extended(tmp_path):
        yield World(plane, namespace, cluster, cluster_admin)
    # helm's records first: they are looked for in the whole cluster, and a namespace takes its time to go.
    plane.kubectl("delete", "secret", "-l", "owner=helm", "-n", namespace, "--ignore-not-found")
    plane.kubectl("delete", "namespace", namespace, "--wait=false", "--ignore-not-found")


def by_hand(world: World, color: str, given: str = "", verb: str = "upgrade") -> None:
    """Install or change a release as an operator with helm and cluster-admin does."""
    path = Path(world.plane.folder, f"{world.namespace}.tgz")
    path.write_bytes(chart("1.0.0"))
    values = [f"--set=color={color}", *([f"--set=given={given}"] if given else [])]
    command = [client.program().program, verb, "tiny", str(path), f"--namespace={world.namespace}", *values]
    done = subprocess.run(
        [*command, f"--kubeconfig={world.plane.kubeconfig}"],
        capture_output=True,
        text=True,
        check=False,
        env={"HOME": str(world.plane.folder)},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
