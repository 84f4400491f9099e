"""A chart whose next version has its definitions no more: what that destroys, and what was consented to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusters.connection import registry
from clusters.fleet import FleetError
from clusters.kube.apiserver import Call
from components.catalog import catalog
from components.charts import archives
from components.helm import releases
from components.helm.errors import HelmRefused
from components.plans.prepared import Destroyed, Prepared
from components.release import work
from profiles.content.cluster import WantedComponent
from tests.components.packing import packed
from tests.components.release.test_work import World
from tests.simfleet.site import Site

pytestmark = pytest.mark.django_db
COMPONENT = """\
name: tiny
title: Tiny
summary: A kind, and a ConfigMap.
documentation: https://example.org/docs
chart: {kind: http, url: "https://charts.example.org", chart: tiny}
sources: {S: {text: "Its README", url: "https://example.org"}}
versions: [{version: 2.0.0}, {version: 1.0.0}]
namespace: tiny
pod_security: baseline
disruption: live
crds: {names: [things.example.org], stay: false}
presets:
  big: {title: Bigger, why: For tests, values: {color: huge}, sources: [S]}
readiness: [{crds: {names: [things.example.org]}}]
hazards:
  upgrade: [{text: None that is known, sources: [S]}]
  removal: [{text: None that is known, sources: [S]}]
"""
DEFINITION = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.org}
spec:
  group: example.org
  scope: Cluster
  names: {kind: Thing, listKind: ThingList, plural: things, singular: thing}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
"""
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tiny}\ndata: {version: {{ .Chart.Version }}}\n"


def chart(version: str, **more: str) -> bytes:
    files = {"Chart.yaml": f"apiVersion: v2\nname: tiny\nversion: {version}\n", "values.yaml": "color: green\n"}
    return packed({**files, "templates/map.yaml": MAP, **more})


@pytest.fixture
def world(tmp_path: Path, settings: Any):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    folder = tmp_path / "catalog"
    folder.mkdir()
    (folder / "tiny.yaml").write_text(COMPONENT)
    archives.store(chart("1.0.0", **{"templates/kind.yaml": DEFINITION}), origin="uploaded")
    archives.store(chart("2.0.0"), origin="uploaded")
    site = Site(tmp_path)
    with catalog.extended(folder):
        yield World(site)
    site.close()


def things(world: World, *made: str) -> set[str]:
    """Makes those, and tells which there are."""
    path = "/apis/example.org/v1/things"
    with registry.api_server(world.cluster) as server:
        for name in made:
            thing = {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": name}}
            server.ask(Call("create", "things", name), "POST", path, body=thing)
        return {one["metadata"]["name"] for one in server.ask(Call("list", "things"), "GET", path).object()["items"]}


def test_more_objects_than_were_consented_to_are_not_destroyed(world):
    first = world.prepare("tiny", "1.0.0")
    assert [note.code for note in first.notes if "revert" in note.code] == ["revert-destroys"]
    world.carry_out(first)
    world.until_ready(first)
    things(world, "one", "two")

    second = world.prepare("tiny", "2.0.0")
    assert second.destroys == (Destroyed("things.example.org", "Thing", 2),)
    assert not [note for note in second.notes if note.severity == "block"]
    things(world, "three")
    with pytest.raises(HelmRefused, match="of which the plan saw 2: now there are 3 of them; plan again"):
        world.carry_out(second)
    assert things(world) == {"one", "two", "three"}

    world.carry_out(world.prepare("tiny", "2.0.0"))
    with pytest.raises(FleetError):
        things(world)


THING = "apiVersion: example.org/v1\nkind: Thing\nmetadata: {name: own}\n"


def with_an_object_of_its_kind(world: World) -> Prepared:
    """The release with its kind and an object of it, both among the templates; its removal as a plan."""
    world.carry_out(world.prepare("tiny", "1.0.0"))
    archives.store(
        chart("1.5.0", **{"templates/kind.yaml": DEFINITION, "templates/thing.yaml": THING}), origin="uploaded"
    )
    world.carry_out(world.prepare("tiny", "1.5.0"))
    assert things(world) == {"own"}
    made = work.prepare(world.cluster, WantedComponent("tiny", is_gone=True))
    return Prepared.from_json(made.to_json())


def test_a_removal_that_was_ended_after_its_definitions_were_gone_is_finished(world, monkeypatch):
    """helm builds each object of its record before it deletes any, and cannot where a kind is not served."""
    removal = with_an_object_of_its_kind(world)
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.org"
    with registry.api_server(world.cluster) as server:
        last = releases.history(server, "tiny", "tiny").last
        monkeypatch.setattr(releases, "FAILED", "uninstalling")
        releases.mend(server, last, "helm was killed here")
        server.ask(Call("delete", "customresourcedefinitions", "things"), "DELETE", path)

    world.carry_out(removal)

    assert world.site.helm("list", "--all-namespaces", "--short") == ""
    with pytest.raises(FleetError):
        things(world)


def test_a_removed_release_is_put_back_with_its_definitions_and_objects(world):
    removal = with_an_object_of_its_kind(world)
    world.carry_out(removal)
    with pytest.raises(FleetError):
        things(world)

    told = world.carry_out(removal, "revert")

    assert "The definition things.example.org is made again, as helm recorded it." in told
    assert things(world) == {"own"}
    assert "tiny" in world.site.helm("list", "--all-namespaces", "--short")


def test_a_removal_names_every_definition_that_stays_also_those_that_the_catalog_does_not_know(world):
    others = (
        DEFINITION.replace("things", "others").replace("Thing", "Other").replace("singular: thing", "singular: other")
    )
    subs = others.replace("other", "sub").replace("Other", "Sub")
    files = {"crds/other.yaml": f"---\n{others}", "charts/sub/crds/sub.yaml": subs}
    files |= {"charts/sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 1.0.0\n"}
    archives.store(chart("1.5.0", **files), origin="uploaded")
    world.carry_out(world.prepare("tiny", "1.5.0"))

    made = work.prepare(world.cluster, WantedComponent("tiny", is_gone=True))

    (note,) = [note for note in made.notes if note.code == "crds-stay"]
    assert "others.example.org (0), subs.example.org (0)" in note.detail
