"""A chart by the site's own entry, through helm into the simulated fleet: what was approved is what is carried out."""

from __future__ import annotations

import pytest

from components.catalog import catalog, site_entries
from components.charts import archives
from components.helm.client import HelmRefused
from components.models import SiteEntry
from tests.components.catalog.test_site_entries import text
from tests.components.packing import versioned
from tests.components.release.test_work import World, world
from tests.factories import UserFactory

__all__ = ["world"]
pytestmark = [pytest.mark.django_db, pytest.mark.one_database]  # helm and an API server
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: tool, labels: {tier: "{{ .Values.tier }}"}}
spec:
  selector: {matchLabels: {app: tool}}
  template:
    metadata: {labels: {app: tool}}
    spec: {containers: [{name: main, image: "registry.example/tool:1"}]}
"""


@pytest.fixture
def author(db):
    archives.store(versioned("tool", "1.0.0", DEPLOYMENT, "tier: a\n"), origin="uploaded")
    return UserFactory(roles=["admin"])


def test_an_untested_entry_is_of_the_strictest_class_also_where_only_a_label_changes(world: World, author):
    row = site_entries.create(text(), by=author)
    first = world.prepare("tool", "1.0.0")
    assert first.blast
    assert (first.blast.worst, first.entry, first.is_untested) == ("reboot", row.sha256, True)
    assert "untested-entry" in {note.code for note in first.notes}
    world.carry_out(first)
    world.until_ready(first)
    label = world.prepare("tool", "1.0.0", tier="b")
    assert label.action == "upgrade"
    assert label.blast
    assert label.blast.worst == "reboot"

    site_entries.classify(row, by=UserFactory(roles=["admin"]), version=1)
    label = world.prepare("tool", "1.0.0", tier="b")
    assert label.blast
    assert (label.blast.worst, label.is_untested) == ("live", False)
    assert "untested-entry" not in {note.code for note in label.notes}


def test_nothing_is_carried_out_or_called_ready_by_an_entry_that_was_not_approved(world: World, author):
    row = site_entries.create(text(), by=author)
    prepared = world.prepare("tool", "1.0.0")
    site_entries.update(row, text().replace("baseline", "privileged"), by=author, version=1)
    with pytest.raises(HelmRefused, match="entry of tool was changed since the plan was made"):
        world.carry_out(prepared)
    assert world.site.helm("list", "--all-namespaces", "--short") == ""

    prepared = world.prepare("tool", "1.0.0")
    world.carry_out(prepared)
    site_entries.update(row, text(), by=author, version=2)
    assert "was changed since the plan was made" in world.look(prepared).failed


def test_a_release_is_taken_back_though_its_entry_is_gone(world: World, author):
    site_entries.create(text(), by=author)
    prepared = world.prepare("tool", "1.0.0")
    world.carry_out(prepared)
    SiteEntry.objects.all().delete()  # past the refusal
    assert "tool" not in catalog.current().components
    with pytest.raises(HelmRefused, match="is gone"):
        world.carry_out(prepared)
    world.carry_out(prepared, "revert")
    world.until_ready(prepared, "revert")
    assert world.site.helm("list", "--all-namespaces", "--short") == ""
