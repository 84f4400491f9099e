"""Charts that bring definitions in crds/, through helm v3 and v4 on the real control plane.

Our own chart has what real ones have: files that begin with `---`, objects of its own kinds, a template that asks
whether its kind is served, and one that looks something up. Where the real archives are at hand, they are planned too.
"""

from __future__ import annotations

import json
import os
import threading
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
from components.helm import client, releases, rendering
from components.models import ClusterValues
from components.plans.prepared import Prepared
from components.release import work
from profiles.content.cluster import WantedComponent
from tests.clusters.factories import ClusterFactory, reached_with
from tests.components import records
from tests.components.packing import entry, packed
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.client import eventually
from tests.full.test_components import helm4

pytestmark = pytest.mark.django_db

_NO_FINALIZERS = '[{"op":"remove","path":"/metadata/finalizers"}]'
ARCHIVES = Path(__file__).resolve().parents[3] / "shared" / "data" / "charts" / "archives"
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

    def forget(self, definitions: list[str]) -> None:
        for name in definitions:
            self.plane.kubectl("delete", "crd", name, "--ignore-not-found", "--wait=true")

    def definition(self, kind: str) -> Any:
        """What of it a writer would change: its own part, and the count of its changes."""
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


@pytest.fixture(params=["v3", "v4"])
def world(
    request: pytest.FixtureRequest,
    plane: Plane,
    cluster_admin: Admin,
    a_node: Callable[..., dict[str, Any]],
    settings: Any,
    tmp_path: Path,
) -> Iterator[World]:
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    if request.param == "v4":
        if not os.access(helm4(), os.X_OK):
            pytest.skip("helm v4 is not built: run `make controlplane`")
        settings.SETPOINT_HELM = helm4()
    name = f"kinds-{request.param}-{time.monotonic_ns() % 10**8}"
    workload = "DaemonSet/{release}-agent"
    (tmp_path / f"{name}.yaml").write_text(entry(name, "2.0.0", "1.1.0", "1.0.0", workload=workload, namespace=name))
    made = World(plane, cluster_admin, reached_with(ClusterFactory(), plane.admin), name)
    with catalog.extended(tmp_path):
        assert client.program().is_v4 == (request.param == "v4")
        yield made
    plane.kubectl("delete", "secret", "-l", f"owner=helm,name={name}", "-n", name, "--ignore-not-found")
    plane.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")
    made.forget([f"{plural}.{made.group}" for plural in ("widgets", "gadgets")])


def test_a_chart_with_objects_of_its_own_kinds_is_planned_installed_removed_and_planned_again(world: World) -> None:
    both = world.crd("Widget") + world.crd("Gadget")
    world.chart("1.0.0", crds={"all": both})

    first = world.prepare("1.0.0")

    assert blocks(first) == []
    assert {(one.kind, one.name.partition(".")[0]) for one in first.objects if one.change != "same"} == {
        ("Namespace", world.name),
        ("CustomResourceDefinition", "widgets"),
        ("CustomResourceDefinition", "gadgets"),
        ("ConfigMap", f"{world.name}-settings"),
        ("Widget", world.name),
    }
    served = next(one.diff for one in first.objects if one.kind == "ConfigMap")
    assert "served: 'true'" in served, "helm creates crds/ before it renders, so an install finds its own kinds served"
    assert "revert-leaves" in codes(first)
    assert "revert-destroys" not in codes(first)

    world.carry_out(first)
    assert world.status(first) == "deployed"
    told = world.admin.get("configmaps", f"{world.name}-settings", world.name)["data"]
    assert told == {"served": "true"}, "what is installed is what the plan showed"
    assert world.prepare("1.0.0").action == "none"

    world.carry_out(first, "revert")
    assert world.serves("Widget"), "definitions of crds/ stay"
    again = world.prepare("1.0.0")
    assert blocks(again) == []
    assert again.action == "install"
    world.carry_out(again)
    assert world.status(again) == "deployed"


def test_an_upgrade_creates_the_definitions_that_the_plan_lists_and_leaves_those_that_are_there(world: World) -> None:
    world.chart("1.0.0", crds={"widget": world.crd("Widget")})
    world.carry_out(world.prepare("1.0.0"))
    before = world.definition("Widget")
    wider = world.crd("Widget", "size: {type: integer}, color: {type: string}")
    more = f"apiVersion: {world.group}/v1\nkind: Gadget\nmetadata: {{name: one}}\n"
    crds = {"widget": wider, "gadget": world.crd("Gadget")}
    world.chart("2.0.0", crds=crds, more={"templates/gadget.yaml": more})

    upgrade = world.prepare("2.0.0")

    assert blocks(upgrade) == []
    assert {"crd-stale", "crds-created"} <= codes(upgrade)
    made = [(one.change, one.name) for one in upgrade.objects if one.kind == "CustomResourceDefinition"]
    assert made == [("created", f"gadgets.{world.group}")]
    world.carry_out(upgrade)
    assert world.status(upgrade) == "deployed"
    assert world.definition("Widget") == before
    assert world.prepare("2.0.0").action == "none"

    world.carry_out(upgrade, "revert")
    assert world.serves("Gadget"), "definitions of crds/ stay"
    removal = world.prepare("", is_gone=True)
    [stays] = [note.detail for note in removal.notes if note.code == "crds-stay"]
    assert stays.count("(1)") == 1, "of the Widget, which goes"
    assert all(f"{plural}.{world.group}" in stays for plural in ("widgets", "gadgets"))
    world.carry_out(removal)
    assert world.serves("Widget")
    assert world.definition("Widget") == before


def test_an_older_definition_of_somebody_else_is_left_as_it_is(world: World) -> None:
    world.plane.kubectl("apply", "-f", "-", text=world.crd("Widget", "size: {type: integer, minimum: 1}"))
    eventually(lambda: world.serves("Widget"), lambda: "the kind is not served")
    before = world.definition("Widget")
    world.chart("1.0.0", crds={"widget": world.crd("Widget"), "gadget": world.crd("Gadget")})

    prepared = world.prepare("1.0.0")

    assert blocks(prepared) == []
    assert "crd-stale" in codes(prepared)
    made = [one.name for one in prepared.objects if one.kind == "CustomResourceDefinition"]
    assert made == [f"gadgets.{world.group}"]
    world.carry_out(prepared)
    assert world.status(prepared) == "deployed"
    assert world.definition("Widget") == before
    world.carry_out(prepared, "revert")
    assert world.definition("Widget") == before
    assert world.serves("Gadget")


def test_an_older_definition_of_a_former_release_is_left_as_it_is(world: World) -> None:
    world.chart("1.0.0", crds={"widget": world.crd("Widget")})
    world.carry_out(world.prepare("1.0.0"))
    world.carry_out(world.prepare("", is_gone=True))
    before = world.definition("Widget")
    wider = world.crd("Widget", "size: {type: integer}, color: {type: string}")
    world.chart("2.0.0", crds={"widget": wider})

    again = world.prepare("2.0.0")

    assert blocks(again) == []
    assert "crd-stale" in codes(again)
    world.carry_out(again)
    assert world.status(again) == "deployed"
    assert world.definition("Widget") == before


def test_objects_of_a_version_that_an_older_definition_does_not_serve_are_refused_beforehand(world: World) -> None:
    world.plane.kubectl("apply", "-f", "-", text=world.crd("Widget").replace("name: v1\n", "name: v1beta1\n"))
    eventually(
        lambda: f"{world.group}/v1beta1" in world.api_versions(),
        lambda: "the kind is not served",
    )
    world.chart("1.0.0", crds={"widget": world.crd("Widget")})

    assert any("Widget" in text and "does not serve" in text for text in blocks(world.prepare("1.0.0")))


def test_a_definition_that_is_gone_since_the_plan_is_not_created_unseen(world: World) -> None:
    world.chart("1.0.0", crds={"widget": world.crd("Widget"), "gadget": world.crd("Gadget")})
    world.plane.kubectl("apply", "-f", "-", text=world.crd("Gadget"))
    eventually(lambda: world.serves("Gadget"), lambda: "the kind is not served")
    prepared = world.prepare("1.0.0")
    world.forget([f"gadgets.{world.group}"])
    eventually(lambda: not world.serves("Gadget"), lambda: "the kind is still served")

    with pytest.raises(client.HelmRefused, match="plan again"):
        world.carry_out(prepared)


def test_a_chart_that_looks_things_up_is_planned_and_says_where_it_could_not_ask(world: World) -> None:
    world.chart("1.0.0", crds={"widget": world.crd("Widget")}, more={"templates/found.yaml": LOOKUP})
    world.plane.kubectl("create", "namespace", world.name)
    world.plane.kubectl("create", "configmap", "asked-for", "-n", world.name)

    def said() -> tuple[set[str], str]:
        prepared = world.prepare("1.0.0")
        assert blocks(prepared) == []
        return codes(prepared), next(one.diff for one in prepared.objects if one.name == f"{world.name}-found")

    found, diff = said()
    if client.program().is_v4:
        assert "not-looked-up" in found
    else:
        assert "not-looked-up" not in found
        assert "there: 'true'" in diff
    world.plane.kubectl("apply", "-f", "-", text=world.crd("Widget"))
    eventually(lambda: world.serves("Widget"), lambda: "the kind is not served")
    found, diff = said()
    assert "not-looked-up" not in found
    assert "there: 'true'" in diff


def test_an_install_ended_at_any_moment_is_completed_by_the_next_try(world: World) -> None:
    """Fifteen times, from before helm has begun to when it is about done; also of definitions, which come first."""
    world.chart("1.0.0", crds={"widget": world.crd("Widget"), "gadget": world.crd("Gadget")})
    prepared = world.prepare("1.0.0")
    ended = 0
    for number in range(15):
        at = time.monotonic() + 0.1 * number
        try:
            work.carry_out(
                world.cluster,
                prepared,
                direction="forward",
                deadline=time.monotonic() + 120,
                stop=lambda at=at: time.monotonic() > at,
                tell=lambda line: None,
            )
        except (client.Stopped, client.ReleaseBusy):  # busy: what the killed helm wrote last arrived after the look
            ended += 1
            continue
        work.carry_out(
            world.cluster,
            prepared,
            direction="revert",
            deadline=time.monotonic() + 120,
            stop=lambda: False,
            tell=lambda line: None,
        )
        assert world.status(prepared) == ""
    assert ended
    world.carry_out(prepared)
    assert world.status(prepared) == "deployed"
    assert world.prepare("1.0.0").action == "none"


# ── Definitions among the templates, which helm deletes ───────────────────────────────────────────────────────────────
def with_templates(world: World) -> None:
    """1.0.0 brings a definition, 1.1.0 an object of its kind with it, 2.0.0 neither of them."""
    kind = {"templates/kind.yaml": world.crd("Widget")}
    settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-settings}\n"
    world.chart("1.0.0", crds={}, more=kind | {"templates/a.yaml": settings})
    world.chart("1.1.0", crds={}, more=kind)
    world.chart("2.0.0", crds={}, more={"templates/a.yaml": settings})
    for version in ("1.0.0", "1.1.0"):
        world.carry_out(world.prepare(version))
        eventually(lambda: world.serves("Widget"), lambda: "the kind is not served")


def half_removed(world: World, prepared: Prepared) -> None:
    """As a killed helm leaves it: its record says so, and the definition is gone, with the objects of its kind."""
    with registry.api_server(world.cluster) as server:
        records.leave(server, prepared.namespace, prepared.release, "uninstalling")
    world.forget([f"widgets.{world.group}"])
    eventually(lambda: not world.serves("Widget"), lambda: "the kind is still served")


def is_there(world: World) -> bool:
    found = ("get", f"widgets.{world.group}", world.name, "-n", world.name, "--ignore-not-found", "-o", "name")
    return world.serves("Widget") and bool(world.plane.kubectl(*found))


def test_a_removal_that_ended_after_its_definitions_were_gone_is_finished(world: World) -> None:
    with_templates(world)
    prepared = world.prepare("", is_gone=True)
    half_removed(world, prepared)

    world.carry_out(prepared)

    assert world.status(prepared) == "uninstalled"
    eventually(lambda: not world.serves("Widget"), lambda: "the kind is still served")
    world.carry_out(prepared, "revert")
    assert world.status(prepared) == "deployed"
    assert is_there(world)


def test_a_removal_that_ended_so_is_put_back(world: World) -> None:
    with_templates(world)
    prepared = world.prepare("", is_gone=True)
    half_removed(world, prepared)

    world.carry_out(prepared, "revert")

    assert world.status(prepared) == "deployed"
    assert is_there(world)
    assert world.prepare("1.1.0").action == "none"


def test_a_removal_is_put_back_while_its_definition_is_still_going(world: World) -> None:
    """Objects with finalizers hold it: one that goes is waited for, and then made once more."""
    with_templates(world)
    prepared = world.prepare("", is_gone=True)
    held = (f"widgets.{world.group}", world.name, "-n", world.name, "--type=merge", "-p")
    world.plane.kubectl("patch", *held, '{"metadata":{"finalizers":["example.com/wait"]}}')
    world.carry_out(prepared)
    assert world.serves("Widget")

    freed = threading.Timer(3, world.plane.kubectl, ("patch", *held, '{"metadata":{"finalizers":null}}'))
    freed.start()
    world.carry_out(prepared, "revert")
    freed.join()

    assert world.status(prepared) == "deployed"
    assert is_there(world)


def test_an_upgrade_that_removes_a_definition_is_put_back_with_it(world: World) -> None:
    with_templates(world)
    upgrade = world.prepare("2.0.0")
    assert upgrade.destroys
    world.carry_out(upgrade)
    eventually(lambda: not world.serves("Widget"), lambda: "the kind is still served")

    world.carry_out(upgrade, "revert")

    assert world.status(upgrade) == "deployed"
    assert is_there(world)


# ── Real archives ─────────────────────────────────────────────────────────────────────────────────────────────────────
needs_charts = pytest.mark.skipif(not ARCHIVES.is_dir(), reason=f"needs charts: there are none in {ARCHIVES}")


def stored(world: World, name: str, version: str) -> list[str]:
    """The archive put in; names of the definitions in its crds/, with none of them in the cluster."""
    component = catalog.get(name)
    path = next(ARCHIVES.glob(f"{component.chart.chart}-*{version.removeprefix('v')}.tgz"))
    content = path.read_bytes()
    archives.store(content, origin="uploaded", by="admin")
    text = client.program().template(
        client.HelmJob("x", "x", deadline=time.monotonic() + 120), content, {}, kube_version="v1.35.0"
    )
    names = [str(raw["metadata"]["name"]) for raw, is_crd in rendering.split(text, content) if is_crd]
    world.forget(names)
    return names


@needs_charts
@pytest.mark.parametrize(
    ("name", "version"),
    [("gpu-operator", "v26.7.0"), ("node-feature-discovery", "0.19.0"), ("kube-prometheus-stack", "88.5.3")],
)
def test_a_real_chart_with_kinds_of_its_own_is_planned_for_a_cluster_without_them(
    world: World, name: str, version: str
) -> None:
    definitions = stored(world, name, version)

    prepared = world.prepare(version, name)

    assert definitions
    assert [text for text in blocks(prepared) if "Kubernetes" not in text] == []
    made = {one.name for one in prepared.objects if one.kind == "CustomResourceDefinition"}
    assert made == {*definitions}
    assert "revert-leaves" in codes(prepared)


def test_a_namespace_that_is_being_deleted_is_named_and_waited_for(world: World) -> None:
    world.chart("1.0.0", crds={"widget": world.crd("Widget")})
    world.plane.kubectl("create", "namespace", world.name)
    finalizers = '{"metadata":{"finalizers":["example.com/wait"]}}'
    world.plane.kubectl("create", "configmap", "held", "-n", world.name)
    world.plane.kubectl("patch", "configmap", "held", "-n", world.name, "--type=merge", "-p", finalizers)
    world.plane.kubectl("delete", "namespace", world.name, "--wait=false")
    with pytest.raises(client.HelmRefused, match="is being deleted"):
        world.prepare("1.0.0")
    world.plane.kubectl("patch", "configmap", "held", "-n", world.name, "--type=json", "-p", _NO_FINALIZERS)
    eventually(lambda: world.admin.find("namespaces", world.name) is None, lambda: "the namespace is still there")
    assert blocks(world.prepare("1.0.0")) == []


@needs_charts
def test_the_real_nfd_is_installed_removed_and_planned_again(world: World) -> None:
    definitions = stored(world, "node-feature-discovery", "0.19.0")
    place = catalog.get("node-feature-discovery").namespace
    eventually(lambda: world.admin.find("namespaces", place) is None, lambda: f"{place} is still there")
    first = world.prepare("0.19.0", "node-feature-discovery")
    try:
        world.carry_out(first)
        assert world.prepare("0.19.0", "node-feature-discovery").action == "none"
        world.carry_out(first, "revert")
        again = world.prepare("0.19.0", "node-feature-discovery")
        assert blocks(again) == []
        assert again.action == "install"
        world.carry_out(again)
        world.carry_out(again, "revert")
    finally:
        ClusterValues.objects.all().delete()
        world.plane.kubectl("delete", "secret", "-l", "owner=helm", "-n", first.namespace, "--ignore-not-found")
        world.plane.kubectl("delete", "namespace", first.namespace, "--wait=false", "--ignore-not-found")
        world.forget(definitions)
