from __future__ import annotations

import pytest

from components.helm.releases import Release
from components.models import ClusterValues
from components.plans import adopt
from components.plans.prepared import Prepared
from tests.clusters.factories import ClusterFactory
from tests.components.factories import ClusterValuesFactory


def release(**values) -> Release:
    return Release("one", "space", 3, "deployed", "tiny", "1.2.3", "7", values, "", "", "", False)


def test_what_no_layer_mentions_is_kept_and_named():
    given = release(a=1, b={"c": 2, "d": 3}, e={"f": 4}, g=5)
    adoption = adopt.adopted(given, {"a": 9, "b": {"c": 9}, "g": {"x": 1}})
    assert adoption.kept == {"b": {"d": 3}, "e": {"f": 4}}
    (note,) = adoption.notes
    assert "b.d, e.f" in note.detail


def test_a_password_in_plain_text_is_not_taken_over_and_blocks():
    adoption = adopt.adopted(release(grafana={"adminPassword": "hunter2", "x": 1}), {})
    assert adoption.kept == {"grafana": {"x": 1}}
    assert [note.code for note in adoption.notes if note.severity == "block"] == ["plain-secret"]
    assert "hunter2" not in str(adoption.notes)
    assert adopt.adopted(release(adminPassword="hunter2"), {"adminPassword": {"$secret": 1}}).notes[1:] == ()


@pytest.mark.django_db
def test_what_was_taken_over_stands_under_what_the_cluster_has_already():
    row = ClusterValuesFactory(component="tiny", values={"a": 1})
    prepared = Prepared("tiny", "one", "space", "1.2.3", from_revision=3, kept={"a": 9, "b": 2})
    adopt.keep(row.cluster, prepared)
    adopt.keep(row.cluster, prepared)
    row.refresh_from_db()
    assert (row.values, row.version, row.changed_by) == ({"a": 1, "b": 2}, 2, "adopted from revision 3")


@pytest.mark.django_db
def test_nothing_kept_leaves_no_row():
    adopt.keep(ClusterFactory(), Prepared("tiny", "one", "space", "1.2.3"))
    assert not ClusterValues.objects.exists()
