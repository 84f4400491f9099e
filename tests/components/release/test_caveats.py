"""Caveats and presets of single versions: a plan has those of its own step, and no preset that its version has not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.catalog import catalog
from components.charts import archives
from components.charts.profile_findings import component_findings
from components.plans.prepared import Prepared
from components.release import work
from profiles.content.cluster import WantedComponent
from profiles.content.content import Content
from tests.components.packing import entry, versioned
from tests.components.release.test_work import World
from tests.simfleet.site import Site

pytestmark = pytest.mark.django_db
MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: caveats}\ndata: {version: {{ .Chart.Version }}}\n"
PRESETS = """
presets:
  fast: {title: Fast, why: For tests, values: {fast: true}, versions: ">=2", sources: [S]}
"""
ALWAYS = (
    "  upgrade: [{text: None that is known, sources: [S]}]\n  removal: [{text: None that is known, sources: [S]}]\n"
)
HAZARDS = """\
  upgrade:
    - {text: Each upgrade restarts it., sources: [S]}
    - {text: Version 2 renames its values., from: "<2", to: ">=2", sources: [S]}
    - {text: The operator of 3.0 forgets a node., to: ">=3.0 <3.1", sources: [S]}
  removal:
    - {text: Its kinds go with it., sources: [S]}
    - {text: Up to 1.5 a hook leaves its webhook., of: "<=1.5", sources: [S]}
  running:
    - {text: It holds a core., sources: [S]}
    - {text: Version 2 reads every Secret., of: ">=2 <3", sources: [S]}
"""


@pytest.fixture
def world(tmp_path: Path, settings: Any):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    folder = tmp_path / "catalog"
    folder.mkdir()
    for version in ("1.0.0", "1.9.0", "2.0.0", "3.0.1"):
        archives.store(versioned("caveats", version, MAP, "fast: false\n"), origin="uploaded")
    text = entry("caveats", "3.0.1", "2.0.0", "1.9.0", "1.0.0", workload="Deployment/caveats", more=PRESETS)
    assert ALWAYS in text
    (folder / "caveats.yaml").write_text(text.replace(ALWAYS, HAZARDS))
    site = Site(tmp_path)
    with catalog.extended(folder):
        yield World(site)
    site.close()


def prepared(world: World, **wanted: Any) -> Prepared:
    made = work.prepare(world.cluster, WantedComponent("caveats", **wanted))
    return Prepared.from_json(made.to_json())


def test_a_plan_warns_of_its_own_step_and_of_no_other(world):
    first = prepared(world, version="1.0.0")
    assert first.caveats == ("It holds a core.",)
    world.carry_out(first)

    assert prepared(world, version="1.9.0").caveats == ("Each upgrade restarts it.",)
    assert prepared(world, version="2.0.0").caveats == ("Each upgrade restarts it.", "Version 2 renames its values.")
    assert prepared(world, version="3.0.1").caveats == (
        "Each upgrade restarts it.",
        "Version 2 renames its values.",
        "The operator of 3.0 forgets a node.",
    )
    assert prepared(world, is_gone=True).caveats == ("Its kinds go with it.", "Up to 1.5 a hook leaves its webhook.")


def test_what_stays_as_it_is_is_warned_of_nothing(world):
    first = prepared(world, version="2.0.0")
    assert first.caveats == ("It holds a core.", "Version 2 reads every Secret.")
    world.carry_out(first)

    again = prepared(world, version="2.0.0")

    assert (again.action, again.caveats) == ("none", ())


def test_a_plan_made_before_caveats_were_kept_has_its_digest(world):
    made = prepared(world, version="1.0.0")
    raw = made.to_json()
    assert raw.pop("caveats")

    assert Prepared.from_json(raw).to_json() == raw


def test_a_preset_of_another_version_blocks_the_plan_and_the_profile(world):
    old = WantedComponent("caveats", version="1.9.0", presets=("fast",))
    new = WantedComponent("caveats", version="2.0.0", presets=("fast",))

    [note] = [note for note in work.prepare(world.cluster, old).notes if note.code == "preset-version"]
    assert note.severity == "block"
    assert "the preset fast works with" in note.title
    assert "2 or newer, not with 1.9.0" in note.title
    [finding] = [each for each in component_findings(Content(components=(old,))) if each.code == "preset-version"]
    assert (finding.path, finding.severity) == ("components.caveats.presets", "block")
    assert [note.code for note in work.prepare(world.cluster, new).notes if note.severity == "block"] == []
    assert [each for each in component_findings(Content(components=(new,))) if each.code == "preset-version"] == []


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('from: "<2"', 'from: "2.x"', "hazards.upgrade[1].from: '2.x' is not a range of versions"),
        ('of: "<=1.5"', "of: up to 1.5", "hazards.removal[1].of: 'up to 1.5' is not a range of versions"),
        ('of: "<=1.5"', 'from: "<=1.5"', "from"),
        ('versions: ">=2"', 'versions: "2"', "presets.fast.versions: '2' is not a range of versions"),
    ],
)
def test_a_range_that_is_none_is_refused_by_its_place(tmp_path, old, new, line):
    text = entry("caveats", "1.0.0", workload="Deployment/caveats", more=PRESETS).replace(ALWAYS, HAZARDS)
    assert old in text
    (tmp_path / "caveats.yaml").write_text(text.replace(old, new))

    with pytest.raises(catalog.BadCatalog) as caught, catalog.extended(tmp_path):
        pass

    assert line in str(caught.value)
