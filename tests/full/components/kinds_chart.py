"""A cluster row with a helm of either version, and a chart whose crds/ have what real ones have.

Its files begin with `---`; it has objects of its own kinds, a template that asks whether its kind is served, and one
that looks something up.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clusters.connection import registry
from clusters.kube import discovery
from clusters.models import Cluster
from components.catalog import catalog
from components.charts import archives
from components.helm import releases
from components.plans.prepared import Prepared
from components.release import work
from profiles.content.cluster import WantedComponent
from tests.clusters.factories import ClusterFactory, reached_with
from tests.components.packing import entry, packed
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.harness import definitions

NO_FINALIZERS = '[{"op":"remove","path":"/metadata/finalizers"}]'
ARCHIVES = Path(__file__).resolve().parents[4] / "shared" / "data" / "charts" / "archives"
CRD = """\
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %(plural)s.%(group)s}
spec:
  group: %(group)s
  scope: Namespaced
  names: {kind: %(kind)s, plural: %(plural)s, singular: %(singular)s, listKind: %(kind)sList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {%(fields)s}}
"""
TEMPLATE = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-settings}
data:
  served: {{ .Capabilities.APIVersions.Has "%(group)s/v1/Widget" | quote }}
---
apiVersion: %(group)s/v1
kind: Widget
metadata: {name: {{ .Release.Name }}}
spec: {size: 3}
"""
LOOKUP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-found}
data:
  there: {{ (lookup "v1" "ConfigMap" .Release.Namespace "asked-for") | empty | not | quote }}
"""


class World:
    def __init__(self, plane: Plane, admin: Admin, cluster: Cluster, name: str) -> None:
        self.plane, self.admin, self.cluster, self.name = plane, admin, cluster, name
        self.group = f"{name}.example.com"

    def crd(self, kind: str, fields: str = "size: {type: integer}") -> str:
        return CRD % {
            "group": self.group,
            "kind": kind,
            "plural": f"{kind.lower()}s",
            "singular": kind.lower(),
            "fields": fields,
        }

    def chart(self, version: str, *, crds: dict[str, str], more: dict[str, str] | None = None) -> None:
        files = {
            "Chart.yaml": f"apiVersion: v2\nname: {self.name}\nversion: {version}\n",
            "templates/a.yaml": TEMPLATE % {"group": self.group},
        }
        files |= {f"crds/{name}.yaml": text for name, text in crds.items()}
        archives.store(packed(files | (more or {}), self.name), origin="uploaded", by="admin")

    def prepare(self, version: str, name: str = "", **wanted: Any) -> Prepared:
        made = work.prepare(self.cluster, WantedComponent(name or self.name, version, **wanted))
        return Prepared.from_json(made.to_json())

    def carry_out(self, prepared: Prepared, direction: str = "forward") -> None:
        work.carry_out(
            self.cluster,
            prepared,
            direction=direction,
            deadline=time.monotonic() + 120,
            stop=lambda: False,
            tell=lambda line: None,
        )

    def status(self, prepared: Prepared) -> str:
        with registry.api_server(self.cluster) as server:
            last = releases.history(server, prepared.namespace, prepared.release).last
        return last.status if last else ""

    def forget(self, names: list[str]) -> None:
        definitions.delete(self.plane, names)

    def definition(self, kind: str) -> Any:
        """Return the parts of a definition that a writer would change: its spec, and its generation."""
        raw = json.loads(self.plane.kubectl("get", "crd", f"{kind.lower()}s.{self.group}", "-o", "json"))
        return raw["spec"], raw["metadata"]["generation"], raw["metadata"]["uid"]

    def api_versions(self) -> list[str]:
        with registry.api_server(self.cluster) as server:
            return discovery.read(server).api_versions

    def serves(self, kind: str) -> bool:
        with registry.api_server(self.cluster) as server:
            return discovery.read(server).find(f"{self.group}/v1", kind) is not None


def blocks(prepared: Prepared) -> list[str]:
    return [f"{note.title} {note.detail}" for note in prepared.notes if note.severity == "block"]


def codes(prepared: Prepared) -> set[str]:
    return {note.code for note in prepared.notes}


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
    name = f"kinds-{helm}-{time.monotonic_ns() % 10**8}"
    workload = "DaemonSet/{release}-agent"
    (tmp_path / f"{name}.yaml").write_text(entry(name, "2.0.0", "1.1.0", "1.0.0", workload=workload, namespace=name))
    made = World(plane, cluster_admin, reached_with(ClusterFactory(), plane.admin), name)
    with catalog.extended(tmp_path):
        yield made
    plane.kubectl("delete", "secret", "-l", f"owner=helm,name={name}", "-n", name, "--ignore-not-found")
    plane.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")
    made.forget([f"{plural}.{made.group}" for plural in ("widgets", "gadgets")])
