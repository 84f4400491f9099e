"""Setpoint creates the definitions of a chart's `crds/` as the plan lists them, and never changes existing ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.connection import registry
from clusters.fleet import NotFound
from clusters.kube import discovery
from clusters.kube.apiserver import Call
from components.catalog import catalog
from components.charts import archives
from components.helm.client import HelmJob
from components.helm.errors import HelmRefused, HelmTimeout, Stopped
from components.models import Archive
from components.plans.prepared import Prepared
from components.release import brought, definitions, location, work
from components.release.conformance import conform
from profiles.content.cluster import WantedComponent
from tests.components.packing import packed
from tests.components.release.test_destroying import COMPONENT, DEFINITION, THING, chart
from tests.components.release.test_work import World
from tests.simfleet.site import Site

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]  # helm and an API server
ROOT = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OTHER = DEFINITION.replace("thing", "other").replace("Thing", "Other")
UNLISTED = COMPONENT.replace("crds: {names: [things.example.org], stay: false}", "crds: {names: []}")


@pytest.fixture
def world(tmp_path: Path, settings: Any):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    folder = tmp_path / "catalog"
    folder.mkdir()
    (folder / "tiny.yaml").write_text(UNLISTED)
    first = {"crds/things.yaml": DEFINITION, "templates/thing.yaml": THING}
    archives.store(chart("1.0.0", **first), origin="uploaded")
    archives.store(chart("2.0.0", **first, **{"crds/others.yaml": OTHER}), origin="uploaded")
    site = Site(tmp_path)
    with catalog.extended(folder):
        yield World(site)
    site.close()


def definition(world: World, name: str = "things") -> dict[str, Any] | None:
    name = f"{name}.example.org"
    with registry.api_server(world.cluster) as server:
        try:
            return server.get(Call("get", "customresourcedefinitions", name), f"{ROOT}/{name}")
        except NotFound:
            return None


def listed(prepared: Prepared) -> list[tuple[str, str]]:
    return [
        (difference.change, difference.name)
        for difference in prepared.objects
        if difference.kind == "CustomResourceDefinition"
    ]


def removal(world: World) -> Prepared:
    return work.prepare(world.cluster, WantedComponent("tiny", is_gone=True))


def test_an_install_creates_what_the_plan_lists(world):
    first = world.prepare("tiny", "1.0.0")
    assert listed(first) == [("created", "things.example.org")]

    lines = world.carry_out(first)

    assert "things.example.org of the chart's crds/ is created." in lines
    world.until_ready(first)
    assert "annotations" not in definition(world)["metadata"], "helm marks none of crds/"


def test_one_that_is_there_is_left_as_it_is_and_the_plan_lists_it_not(world):
    older = parsed(DEFINITION.replace("{type: object}", "{type: object, description: older}"))
    with registry.api_server(world.cluster) as server:
        server.ask(Call("create", "customresourcedefinitions"), "POST", ROOT, body=older)
    before = definition(world)["spec"]
    world.site.until(lambda: "status" in world.site.object("customresourcedefinitions", "things.example.org"))

    first = world.prepare("tiny", "1.0.0")
    assert listed(first) == []
    assert "crd-stale" in {note.code for note in first.notes}
    world.carry_out(first)

    assert definition(world)["spec"] == before


def test_an_upgrade_creates_what_the_plan_lists_and_a_revert_leaves_it(world):
    world.carry_out(world.prepare("tiny", "1.0.0"))
    upgrade = world.prepare("tiny", "2.0.0")
    assert listed(upgrade) == [("created", "others.example.org")]
    [note] = [note for note in upgrade.notes if note.code == "crds-created"]
    assert "others.example.org" in note.detail

    world.carry_out(upgrade)
    assert definition(world, "others")
    assert world.prepare("tiny", "2.0.0").action == "none"
    world.carry_out(upgrade, "revert")
    assert definition(world, "others")


def test_one_that_went_since_is_planned_again_and_then_put_back(world):
    world.carry_out(world.prepare("tiny", "1.0.0"))
    upgrade = world.prepare("tiny", "2.0.0")
    with registry.api_server(world.cluster) as server:
        name = "things.example.org"
        server.ask(Call("delete", "customresourcedefinitions", name), "DELETE", f"{ROOT}/{name}")

    with pytest.raises(HelmRefused, match=r"things\.example\.org.*plan again"):
        world.carry_out(upgrade)
    again = world.prepare("tiny", "1.0.0")
    assert listed(again) == [("created", "things.example.org")]
    world.carry_out(again)
    world.until_ready(again)


# ── What a removal leaves ─────────────────────────────────────────────────────────────────────────────────────────────
def staying(prepared: Prepared) -> str:
    return " ".join(note.detail for note in prepared.notes if note.code == "crds-stay")


def test_a_removal_names_what_stays_though_the_catalog_does_not_list_it(world):
    world.carry_out(world.prepare("tiny", "1.0.0"))
    world.carry_out(world.prepare("tiny", "2.0.0"))

    assert (
        staying(removal(world)) == "With the number of their objects: others.example.org (0), things.example.org (1)."
    )


def test_it_names_them_from_helms_record_where_the_archive_is_gone(world):
    world.carry_out(world.prepare("tiny", "2.0.0"))
    Archive.objects.all().delete()

    assert "others.example.org (0), things.example.org (1)" in staying(removal(world))


def test_it_names_those_of_a_subchart_that_is_switched_on_and_no_others(world):
    """helm's record has no files of subcharts: their definitions are read from the archive."""
    about = "apiVersion: v2\nname: tiny\nversion: 1.1.0\ndependencies:\n"
    about += "".join(
        f"- {{name: {subchart}, version: 1.0.0, condition: {subchart}.enabled}}\n" for subchart in ("used", "unused")
    )
    files = {"Chart.yaml": about, "values.yaml": "color: green\nused: {enabled: true}\nunused: {enabled: false}\n"}
    for subchart, text in (("used", DEFINITION), ("unused", OTHER)):
        files[f"charts/{subchart}/Chart.yaml"] = f"apiVersion: v2\nname: {subchart}\nversion: 1.0.0\n"
        files[f"charts/{subchart}/crds/a.yaml"] = text
    archives.store(packed(files), origin="uploaded")
    with registry.api_server(world.cluster) as server:
        server.ask(Call("create", "customresourcedefinitions"), "POST", ROOT, body=parsed(OTHER))
    world.site.until(lambda: "status" in world.site.object("customresourcedefinitions", "others.example.org"))
    world.carry_out(world.prepare("tiny", "1.1.0"))

    assert staying(removal(world)) == "With the number of their objects: things.example.org (0)."


def test_it_names_a_template_that_the_chart_keeps(world):
    kept = DEFINITION.replace("{name: things.example.org}", "{name: things.example.org, annotations: {KEEP: keep}}")
    kept = kept.replace("KEEP", "helm.sh/resource-policy")
    archives.store(chart("1.1.0", **{"templates/kind.yaml": kept}), origin="uploaded")
    world.carry_out(made := world.prepare("tiny", "1.1.0"))
    world.until_ready(made)

    assert staying(removal(world)) == "With the number of their objects: things.example.org (0)."


# ── Waiting ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_it_is_waited_for_no_longer_than_helm_would_have(world, monkeypatch):
    """One that the cluster never serves ends with the job, or when an operator stops it, and says what is missing."""
    never = parsed(DEFINITION.replace("things", "nevers").replace("Thing", "Never"))
    monkeypatch.setattr(definitions, "_is_served", lambda served, raw: False)
    with registry.api_server(world.cluster) as server:
        job = HelmJob("tiny", "tiny", deadline=time.monotonic() + 0.5)
        with pytest.raises(HelmTimeout, match="does not serve its kind yet"):
            definitions.make(server, job, [never])
        other = parsed(DEFINITION.replace("thing", "never2").replace("Thing", "Never2"))
        job = HelmJob("tiny", "tiny", deadline=time.monotonic() + 60, stop=lambda: True)
        with pytest.raises(Stopped):
            definitions.make(server, job, [other])


def parsed(text: str) -> dict[str, Any]:
    return yaml.safe_load(text)


def test_one_that_is_deleted_by_hand_is_drift_until_a_plan_makes_it_again(world):
    wanted = WantedComponent("tiny", "2.0.0")
    world.carry_out(work.prepare(world.cluster, wanted))
    assert conform(world.cluster, wanted).state != "drifted"

    with registry.api_server(world.cluster) as server:
        server.ask(Call("delete", "customresourcedefinitions"), "DELETE", f"{ROOT}/others.example.org")
    world.site.until(lambda: definition(world, "others") is None, locked=False)
    seen = conform(world.cluster, wanted)
    assert seen.state == "drifted"
    assert [(difference.kind, difference.name, difference.path) for difference in seen.differences] == [
        ("CustomResourceDefinition", "others.example.org", "")
    ]

    repair = work.prepare(world.cluster, wanted)
    assert listed(repair) == [("created", "others.example.org")], "a plan brings what is called drift"
    world.carry_out(repair)
    assert conform(world.cluster, wanted).state != "drifted"


def test_those_of_a_subchart_count_where_it_is_switched_on(world):
    subchart = {"Chart.yaml": "apiVersion: v2\nname: inner\nversion: 1.0.0\n", "crds/others.yaml": OTHER}
    for version, is_on in (("1.0.0", False), ("2.0.0", True)):
        about = f"apiVersion: v2\nname: tiny\nversion: {version}\ndependencies:\n- {{name: inner, version: 1.0.0, "
        about += "condition: inner.enabled}\n"
        files = {f"charts/inner/{name}": text for name, text in subchart.items()}
        values = f"inner: {{enabled: {str(is_on).lower()}}}\n"
        raw = packed({"Chart.yaml": about, "values.yaml": values, "crds/things.yaml": DEFINITION, **files})
        Archive.objects.filter(version=version).delete()
        archives.store(raw, origin="uploaded")
        world.carry_out(work.prepare(world.cluster, WantedComponent("tiny", version)))
        with registry.api_server(world.cluster) as server:
            place = location.find(server, catalog.get("tiny"), "tiny")
            served = discovery.read(server)
            names = brought.of_revision(served, place.history.deployed, place.current)
        assert names == {"things.example.org", *(["others.example.org"] if is_on else [])}
