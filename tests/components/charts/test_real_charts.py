"""Every values key of every preset, against the values of the real charts.

No third party's chart is committed. Their values and schema are read from the archives in ../shared/data/charts beside
the checkout, or in the folder that SETPOINT_CHARTS names, else from the chart's own folder there. `manage.py
check_catalog` asks the real repositories.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.catalog import catalog, values_check
from components.catalog.entry import Component
from components.charts import archives

ROOT = Path(__file__).resolve().parents[3]
CHARTS = Path(os.environ.get("SETPOINT_CHARTS") or ROOT.parent / "shared" / "data" / "charts")
NAMES = [component.name for component in catalog.all()]

pytestmark = pytest.mark.skipif(not CHARTS.is_dir(), reason=f"needs charts: there are none in {CHARTS}")


def chart(component: Component) -> tuple[str, dict[str, Any], dict[str, Any] | None]:
    version = component.newest.removeprefix("v")
    for path in (CHARTS / "archives").glob(f"{component.chart.chart}-*{version}.tgz"):
        if path.stem not in (f"{component.chart.chart}-{version}", f"{component.chart.chart}-v{version}"):
            continue  # of a chart whose name begins alike
        archive = archives.judge(path.read_bytes())
        return archive.values_text, dict(archive.values), dict(archive.schema) if archive.schema is not None else None
    folder = CHARTS / component.chart.chart
    if not folder.is_dir():
        pytest.skip(f"needs charts: there is no {component.chart.chart} in {CHARTS}")
    text = (folder / "values.yaml").read_text(encoding="utf-8")
    schema = folder / "values.schema.json"
    return text, yaml.safe_load(text), json.loads(schema.read_text(encoding="utf-8")) if schema.exists() else None


@pytest.mark.parametrize("name", NAMES)
def test_every_key_of_every_preset_is_a_key_of_the_real_chart(name):
    component = catalog.get(name)
    text, defaults, schema = chart(component)

    for presets in ([], *([preset] for preset in component.presets)):
        layered = values_check.layered(component, presets=presets)
        notes = values_check.judge(layered, defaults, schema, text=text)
        assert [note for note in notes if note.code not in ("decision", "preset-needs")] == [], presets


@pytest.mark.parametrize("name", NAMES)
def test_every_other_path_that_the_catalog_names_exists_too(name):
    component = catalog.get(name)
    text, defaults, _ = chart(component)
    paths = [*component.usual, *(decision.path for decision in component.decisions)]
    paths += [clause.path for test in component.readiness for clause in test.unless]
    paths += [clause.path for conflict in component.conflicts for clause in conflict.unless]
    paths += [path for path in component.open_paths if path in defaults or "." in path]

    for path in paths:
        is_in_a_comment = any(f"{path}.".startswith(f"{known}.") for known in component.also_known)
        assert is_in_a_comment or knows(defaults, path.split(".")), path
    for path in component.also_known:
        assert f"{path.rpartition('.')[2]}:" in text or path.rpartition(".")[2] in text, path


def knows(defaults: Any, path: list[str]) -> bool:
    for step in path:
        if defaults in ({}, None):
            return True  # the chart allows any value here
        if step not in defaults:
            return False
        defaults = defaults[step]
    return True


@pytest.mark.parametrize("name", NAMES)
def test_a_key_that_no_chart_has_is_found_in_the_real_one(name):
    """The judge is not simply silent."""
    component = catalog.get(name)
    text, defaults, schema = chart(component)
    layered = values_check.layered(component, profile_values={"noSuchKeyAnywhere": {"a": 1}})

    codes = {note.path: note.code for note in values_check.judge(layered, defaults, schema, text=text)}

    assert codes["noSuchKeyAnywhere"] == "unknown-key"


def test_what_does_nothing_any_more_is_told_of_the_real_charts():
    component = catalog.get("network-operator")
    text, defaults, schema = chart(component)
    given = {"deployCR": True, "nvIpam": {"deploy": True}, "ofedDriver": {"deploy": True}}

    notes = values_check.judge(values_check.layered(component, profile_values=given), defaults, schema, text=text)

    assert {note.path: note.code for note in notes} == dict.fromkeys(given, "no-effect")


def test_a_wrong_type_is_refused_by_the_real_schema_of_cilium():
    component = catalog.get("cilium")
    text, defaults, schema = chart(component)
    layered = values_check.layered(component, profile_values={"MTU": "9000", "bandwidthManager": {"enabled": "yes"}})

    notes = values_check.judge(layered, defaults, schema, text=text)

    assert {(note.path, note.severity) for note in notes if note.code == "schema"} == {
        ("MTU", "block"),
        ("bandwidthManager.enabled", "block"),
    }
