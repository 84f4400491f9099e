"""manage.py check_catalog: the catalog against what the repositories really give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from components.catalog import catalog
from components.catalog.entry import ChartReference
from components.charts import archives
from components.charts import store as repositories
from tests.components.catalog.test_catalog import write
from tests.components.packing import packed

pytestmark = pytest.mark.django_db
CHART = "apiVersion: v2\nname: small\nversion: 1.2.3\n"


@pytest.fixture
def offered(monkeypatch, tmp_path):
    """Set the versions that the repository of `small` lists; the archive itself is stored, so nothing is fetched."""

    def offer(*versions: str) -> None:
        def answer(chart: ChartReference) -> Sequence[str]:
            assert chart.chart == "small"
            return versions

        monkeypatch.setattr(repositories, "versions", answer)

    write(tmp_path)
    with catalog.extended(tmp_path):
        offer("1.2.3")
        yield offer


def store(values_yaml: str) -> None:
    archives.store(packed({"Chart.yaml": CHART, "values.yaml": values_yaml}, "small"), origin="uploaded")


def checked() -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    try:
        call_command("check_catalog", "small", stdout=out, stderr=err)
    except CommandError as error:
        err.write(f"ended: {error}")
    return out.getvalue(), err.getvalue()


def test_a_preset_that_keeps_to_its_chart_is_told_so(offered: Callable[..., None]):
    store("replicas: 1\n")
    out, err = checked()
    assert "small 1.2.3: 1 preset keeps to the chart" in out
    assert err == ""


def test_a_key_that_the_chart_lost_is_named_with_its_preset(offered: Callable[..., None]):
    store("replicaCount: 1\n")
    out, err = checked()
    assert "small 1.2.3: preset big: replicas: the chart's values have no such key" in err
    assert "ended: 1 of the catalog's facts does not hold" in err
    assert out == ""


@pytest.mark.parametrize(
    ("versions", "newer"),
    [
        (("1.2.3",), ""),
        (("1.2.2", "1.3.0", "1.10.0", "2.0.0-rc.1"), "1.10.0"),
        (("1.2.3", "garbage", "9"), ""),
        ((), ""),
    ],
)
def test_newer_versions_are_told_and_pre_releases_are_not(offered, versions, newer):
    store("replicas: 1\n")
    offered(*versions)
    out, err = checked()
    assert err == ""
    assert ("the repository offers" in out) is bool(newer)
    assert newer in out


def test_a_repository_that_does_not_answer_is_a_finding(offered, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise repositories.Unfetchable("charts.example.org does not answer")

    monkeypatch.setattr(repositories, "fetch", refuse)
    monkeypatch.setattr(repositories, "versions", refuse)
    _, err = checked()
    assert err.count("charts.example.org does not answer") == 2
    assert "ended: 2 of the catalog's facts do not hold" in err


def test_an_unknown_component_is_refused():
    with pytest.raises(CommandError, match="did you mean cilium"):
        call_command("check_catalog", "cillium")
