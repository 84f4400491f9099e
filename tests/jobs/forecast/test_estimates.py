"""A plan's time rests on what such steps really took, and says on which."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters.models import Cluster
from jobs.diffs.changes import Disruption
from jobs.forecast import estimates
from jobs.forecast.schedule import SECONDS_EACH
from jobs.models import Rollout, Step
from tests.jobs.conftest import World
from tests.jobs.rows import more_nodes

LIVE, REBOOT = Disruption.LIVE, Disruption.REBOOT


def done(world: World, took: list[float], *, cluster: Cluster | None = None, worst: Disruption = LIVE) -> Rollout:
    """A rollout whose steps succeeded and were at work so many seconds; they waited and soaked besides."""
    more_nodes(world, max(0, len(took) - world.cluster.nodes.count()))
    revision = world.revision({"vm.swappiness": str(20 + Rollout.objects.count())})
    rollout = world.started(world.plan(revision, canary=0))
    steps = list(rollout.steps.all())
    for step, seconds in zip(steps, took, strict=False):
        stages = {"queued": 500, "applying": seconds / 2, "verifying": seconds / 2, "soaking": 900, "held": 70}
        Step.objects.filter(pk=step.pk).update(status="succeeded", worst_class=worst, stages=stages, is_live=False)
    Step.objects.filter(rollout=rollout, is_live=True).update(status="skipped", is_live=False)
    Rollout.objects.filter(pk=rollout.pk).update(
        status="succeeded", started_at=rollout.created_at, cluster=cluster or world.cluster
    )
    return rollout


def other_cluster() -> Cluster:
    return Cluster.objects.create(
        uid="u2", name="boreas", server="https://127.0.0.1:2", credential=b"-", credential_key="-"
    )


def test_without_steps_it_is_a_guess_and_says_so(world: World):
    known = estimates.estimate_durations(world.cluster.pk, {LIVE, REBOOT})
    assert (known.seconds, known.basis()) == (
        {c: SECONDS_EACH[c] for c in (LIVE, REBOOT)},
        "a guess: no such steps yet",
    )


def test_five_steps_on_this_cluster_are_its_median_without_waiting_and_soaking(world: World):
    done(world, [4, 6, 8, 10, 300])
    known = estimates.estimate_durations(world.cluster.pk, {LIVE})
    assert (known.seconds, known.basis()) == ({LIVE: 8}, "from 5 steps on this cluster")


def test_a_window_must_have_what_the_slowest_in_twenty_took(world: World):
    done(world, [4.0] * 37 + [900.0] * 3)
    known = estimates.estimate_durations(world.cluster.pk, {LIVE})
    assert (known.seconds[LIVE], known.needed[LIVE]) == (4, 900)
    assert known.spread[LIVE] == sorted(known.spread[LIVE])
    plan = world.plan(world.revision({"vm.swappiness": "71"}))
    assert estimates.planned_needed(plan.summary, "live") == 900
    assert estimates.planned_spread(plan.summary, "live") == tuple(known.spread[LIVE])


@pytest.mark.parametrize(("took", "needed"), [([4, 4, 4, 4, 4], 5), ([4, 4, 4, 4, 30], 30), ([4] * 30, 4)])
def test_of_few_steps_the_longest_counts_or_a_margin(took: list[float], needed: float):
    assert estimates.upper_of(took) == needed


def test_of_a_plan_older_than_quantiles_a_margin_counts():
    summary = {"estimate": {"seconds": {"live": 8.0}}}
    assert estimates.planned_needed(summary, "live") == 8 * estimates.MARGIN
    assert estimates.planned_spread(summary, "live") == (8.0,)


def test_four_steps_are_anecdotes(world: World):
    done(world, [4, 6, 8, 10])
    assert estimates.estimate_durations(world.cluster.pk, {LIVE}).guessed == (LIVE,)


def test_where_this_cluster_has_too_few_all_clusters_count(world: World):
    done(world, [30] * 5, cluster=other_cluster())
    known = estimates.estimate_durations(world.cluster.pk, {LIVE})
    assert (known.seconds, known.basis()) == ({LIVE: 30}, "from 5 steps on all clusters")


def test_a_class_that_was_never_done_is_named_as_a_guess(world: World):
    done(world, [4] * 6)
    known = estimates.estimate_durations(world.cluster.pk, {LIVE, REBOOT})
    assert known.seconds == {LIVE: 4, REBOOT: SECONDS_EACH[REBOOT]}
    assert known.basis() == "from 6 steps on this cluster, for reboot a guess"


def test_reverts_and_failures_say_nothing_about_time(world: World):
    rollout = done(world, [4] * 6)
    Step.objects.filter(rollout=rollout).update(direction="revert")
    assert estimates.estimate_durations(world.cluster.pk, {LIVE}).guessed == (LIVE,)


def test_the_plan_reckons_with_it_and_its_page_says_from_what(world: World, client: Client):
    first = world.plan()
    assert "a guess: no such steps yet" in first.summary["estimate"]["basis"]
    done(world, [600] * 6)
    plan = world.plan(world.revision({"vm.swappiness": "15"}), canary=0, batch="100%")
    assert plan.summary["seconds"] == 600
    client.force_login(world.operator)
    assert "from 6 steps on this cluster" in client.get(f"/plans/P-{plan.number}/").content.decode()


def test_the_time_left_compares_with_what_was_planned(world: World):
    done(world, [600] * 6)
    summary: dict[str, Any] = world.plan(world.revision({"vm.swappiness": "15"})).summary
    assert estimates.planned_seconds(summary, "live") == 600
    assert estimates.planned_seconds({}, "live") == SECONDS_EACH[LIVE], "plans older than estimates"


def test_its_cost_does_not_grow_with_the_steps(world: World):
    def queries() -> int:
        with CaptureQueriesContext(connection) as caught:
            estimates.estimate_durations(world.cluster.pk, {LIVE})
        return len(caught)

    done(world, [4] * 5)
    few = queries()
    done(world, [4] * 60)
    assert queries() == few <= 2
