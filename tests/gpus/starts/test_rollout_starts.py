"""Load times before and after a rollout: whole loads only, by image, on changed nodes and on others."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client

from clusters.models import PodStart
from gpus.reports.starts import rollouts
from jobs.models import Rollout, Step
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory
from tests.gpus.starts.recorded import start
from tests.gpus.studying import Worked

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def worked(clock):
    made = Worked(6, ago=8 * HOUR)
    made.rollout.refresh_from_db()
    return made


def loads(made, node, *, before, after, count=5, **more):
    for number in range(count):
        began, ended = made.rollout.started_at, made.rollout.finished_at
        start(made.cluster, began - number * HOUR, load=before, node=node, **more)
        start(made.cluster, ended + timedelta(seconds=after) + number * HOUR, load=after, node=node, **more)


def test_medians_are_by_image_on_changed_and_on_other_nodes(worked):
    loads(worked, "n001", before=600, after=60)
    loads(worked, "elsewhere", before=610, after=590)
    loads(worked, "n002", before=90, after=95, image="other:1")
    report = rollouts.of(worked.rollout)
    first, second = report.lines
    assert (first.image, second.image) == ("other:1", "vllm:1")
    assert (second.changed.median_before, second.changed.median_after) == (600, 60)
    assert (second.other.median_before, second.other.median_after) == (610, 590)
    assert (first.changed.before, first.changed.after, first.other.is_known) == (5, 5, False)
    assert second.changed.words == "10 min 0 s → 1 min 0 s"
    assert report.began - report.since == report.until - report.ended


def test_fewer_than_five_on_either_side_are_no_line(worked):
    loads(worked, "n001", before=600, after=60, count=4)
    start(worked.cluster, worked.rollout.started_at - HOUR, load=600, node="n001")
    assert rollouts.of(worked.rollout).lines == []


def test_loads_during_the_rollout_and_of_other_clusters_and_without_a_probe_count_nowhere(worked):
    loads(worked, "n001", before=600, after=60)
    cluster, ended = worked.cluster, worked.rollout.finished_at
    start(cluster, ended + timedelta(seconds=30), load=300, node="n001")  # began while its node was changed
    start(cluster, ended + HOUR, node="n001", has_probe=False)
    start(ClusterFactory(), ended + HOUR, node="n001", load=9)
    (line,) = rollouts.of(worked.rollout).lines
    assert (line.changed.before, line.changed.after) == (5, 5)


def test_a_load_that_began_or_ended_outside_the_compared_times_counts_on_neither_side(worked, monkeypatch):
    """A long load that still runs has no row yet: of both sides the same lengths can be known, or all look shorter."""
    monkeypatch.setattr(rollouts, "LONGEST", HOUR)
    began, ended = worked.rollout.started_at, rollouts.of(worked.rollout).ended
    for at, until in ((began - HOUR, began), (ended, ended + HOUR)):
        for load in (60, 600, 1200, 1800, 3600):
            start(worked.cluster, at + timedelta(seconds=load), load=load, node="n001")
        start(worked.cluster, at + timedelta(minutes=30), load=1801, node="n001")
        start(worked.cluster, until + timedelta(seconds=1), load=600, node="n001")
    (line,) = rollouts.of(worked.rollout).lines
    assert (line.changed.before, line.changed.after) == (5, 5)
    assert line.changed.median_before == line.changed.median_after == 1200


def test_a_control_that_was_never_changed_is_one_of_the_others(worked):
    loads(worked, "n001", before=600, after=60)
    loads(worked, "n002", before=600, after=590)
    Step.objects.filter(node_name="n002").update(status="skipped", has_applied=False)
    (line,) = rollouts.of(worked.rollout).lines
    assert (line.changed.median_after, line.other.median_after) == (60, 590)


def test_nodes_that_were_put_back_are_neither_changed_nor_others(worked):
    loads(worked, "n001", before=600, after=60)
    Step.objects.filter(rollout=worked.rollout, node_name="n001").update(status="reverted", direction="revert")
    loads(worked, "n002", before=500, after=50)
    (line,) = rollouts.of(worked.rollout).lines
    assert (line.changed.median_before, line.other.before) == (500, 0)


def test_a_rollout_that_runs_or_changed_nothing_has_nothing_to_compare(worked):
    loads(worked, "n001", before=600, after=60)
    Rollout.objects.update(status="running", finished_at=None)
    worked.rollout.refresh_from_db()
    assert rollouts.of(worked.rollout) is None
    Rollout.objects.update(status="failed")
    Step.objects.update(status="failed")
    worked.rollout.refresh_from_db()
    assert rollouts.of(worked.rollout) is None


def test_the_report_is_bounded(worked, monkeypatch, django_assert_max_num_queries):
    loads(worked, "n001", before=600, after=60, count=7)
    monkeypatch.setattr(rollouts, "MOST_STARTS", 6)
    with django_assert_max_num_queries(5):
        report = rollouts.of(worked.rollout)
    assert (report.is_cut, report.lines[0].changed.before) == (True, 6)
    assert PodStart.objects.count() == 14


def test_the_page_asks_for_it_later_and_people_see_only_their_clusters(worked):
    loads(worked, "n001", before=600, after=60, image="<b>x</b>:1")
    worked.study()
    path = f"/gpus/rollouts/R-{worked.rollout.number}/starts/live/"
    client, stranger = Client(), Client()
    client.force_login(UserFactory(is_superuser=True))
    stranger.force_login(UserFactory(roles=["viewer@env:nowhere"]))
    assert path in client.get(f"/rollouts/R-{worked.rollout.number}/").content.decode()
    text = client.get(path).content.decode()
    assert "10 min 0 s → 1 min 0 s" in text
    assert "a comparison, no verdict" in text
    assert "<b>x" not in text
    assert (stranger.get(path).status_code, Client().get(path).status_code) == (404, 302)
