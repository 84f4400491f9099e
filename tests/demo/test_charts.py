"""The demo's charts fit the catalog: what it installs, sets and waits for is what they have."""

from __future__ import annotations

import pytest

from components.catalog import catalog, layering, values_check
from components.charts import archives
from components.charts.store import stored
from config.demo import by_hand, packing, stock

NAMES = sorted(folder.name for folder in packing.CHARTS.iterdir() if folder.is_dir())


def test_there_is_one_of_each_shape():
    assert NAMES == ["cilium", "gpu-operator", "volcano"]


@pytest.mark.parametrize("name", NAMES)
def test_the_archive_is_the_newest_tested_version(name):
    component = catalog.get(name)
    newest = component.versions[-1].version
    chart = archives.judge(packing.pack(packing.CHARTS / name), name=component.chart.chart, version=newest)
    assert (chart.name, chart.version) == (component.chart.chart, newest)


def test_the_earlier_gpu_operator_is_of_the_line_before_and_names_no_later_version():
    earlier = by_hand.earlier_gpu_operator()
    chart = archives.judge(earlier, name="gpu-operator", version="v26.3.3")
    operator = catalog.get("gpu-operator")

    assert not operator.upgrades.refuses(chart.version, operator.newest)
    text = "\n".join(content.decode() for content in archives.files(earlier).values())
    assert not [word for word in by_hand.EARLIER if word in text]
    now = "\n".join(c.decode() for c in packing.files(packing.CHARTS / "gpu-operator").values())
    assert not [word for word in by_hand.EARLIER if word not in now], "it would be the same as the newest there"


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_sets_keys_that_the_chart_knows(name):
    chart = archives.judge(packing.pack(packing.CHARTS / name))
    component = catalog.get(name)
    assert component.presets
    for preset in component.presets:
        layered = layering.layered(component, presets=[preset])
        notes = values_check.judge(layered, chart.values, chart.schema, text=chart.values_text)
        decided = {decision.path for decision in component.decisions}
        wrong = [note for note in notes if note.path not in decided and note.code != "preset-needs"]
        assert [f"{preset}: {note.path}: {note.message}" for note in wrong] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_question_is_about_a_key_that_the_chart_knows(name):
    chart = archives.judge(packing.pack(packing.CHARTS / name))
    for decision in catalog.get(name).decisions:
        values = chart.values
        for part in decision.path.split("."):
            assert part in values, decision.path
            values = values[part]


@pytest.mark.django_db
def test_they_are_found_where_uploaded_charts_are_and_not_fetched():
    first = stock.fill(by="admin@example.com")
    assert [archive.pk for archive in stock.fill(by="somebody-else@example.com")] == [archive.pk for archive in first]
    for name in NAMES:
        component = catalog.get(name)
        archive = stored(component.chart, component.newest)
        assert archive is not None
        assert (archive.name, archive.stored_by) == (name, "admin@example.com")
