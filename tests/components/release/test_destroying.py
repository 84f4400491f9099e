"""Definitions among a chart's templates: what goes with them, what was consented to, and how helm gets over one that
is gone already.
"""

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
from components.plans.prepared import Destroyed, Prepared
from components.release import work
from profiles.content.cluster import WantedComponent
from tests.components import records
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
versions: [{version: 2.0.0}, {version: 1.1.0}, {version: 1.0.0}]
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
THING = "apiVersion: example.org/v1\nkind: Thing\nmetadata: {name: own}\n"


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
    with_thing = {"templates/kind.yaml": DEFINITION, "templates/thing.yaml": THING}
    archives.store(chart("1.1.0", **with_thing), origin="uploaded")
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
            raw = {"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": name}}
            server.ask(Call("create", "things", name), "POST", path, body=raw)
        return {item["metadata"]["name"] for item in server.ask(Call("list", "things"), "GET", path).object()["items"]}


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


# ── What helm cannot build ────────────────────────────────────────────────────────────────────────────────────────────
def removal(world: World) -> Prepared:
    """Prepare the removal of a release whose second revision has an object of the kind that its first one brought."""
    for version in ("1.0.0", "1.1.0"):
        made = world.prepare("tiny", version)
        world.carry_out(made)
        world.until_ready(made)
    return Prepared.from_json(work.prepare(world.cluster, WantedComponent("tiny", is_gone=True)).to_json())


def half_removed(world: World) -> None:
    """Leave the release as a killed helm does.

    Its record says so, and the definition is gone, with the objects of its kind.
    """
    with registry.api_server(world.cluster) as server:
        records.leave(server, "tiny", "tiny", "uninstalling")
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.org"
        server.ask(Call("delete", "customresourcedefinitions", "things.example.org"), "DELETE", path)
    with pytest.raises(FleetError):
        things(world)


def test_a_removal_that_ended_after_its_definitions_were_gone_is_finished(world):
    prepared = removal(world)
    half_removed(world)

    lines = world.carry_out(prepared)

    assert "The definition things.example.org is made once more: helm's record has objects of its kind." in lines
    world.until_ready(prepared)
    with pytest.raises(FleetError):
        things(world)


def test_a_removal_that_ended_so_is_put_back(world):
    prepared = removal(world)
    half_removed(world)

    world.carry_out(prepared, "revert")

    world.until_ready(prepared, "revert")
    assert things(world) == {"own"}


def test_a_removed_release_comes_back_with_its_definitions_and_their_objects(world):
    prepared = removal(world)
    world.carry_out(prepared)
    world.until_ready(prepared)

    world.carry_out(prepared, "revert")

    world.until_ready(prepared, "revert")
    assert things(world) == {"own"}


def test_an_upgrade_that_removes_a_definition_is_put_back_with_it(world):
    removal(world)
    upgrade = world.prepare("tiny", "2.0.0")
    assert upgrade.destroys == (Destroyed("things.example.org", "Thing", 1),)
    world.carry_out(upgrade)

    world.carry_out(upgrade, "revert")

    world.until_ready(upgrade, "revert")
    assert things(world) == {"own"}
