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
from components.helm.errors import HelmRefused
from components.plans.prepared import Destroyed
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
  big: {title: Bigger, why: For tests, values: {colour: huge}, sources: [S]}
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
    files = {"Chart.yaml": f"apiVersion: v2\nname: tiny\nversion: {version}\n", "values.yaml": "colour: green\n"}
    return packed({**files, "templates/map.yaml": MAP, **more})


@pytest.fixture
def world(tmp_path: Path, settings: Any):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    folder = tmp_path / "catalogue"
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
