"""Laws of a rollout's remaining time: what is left is done in the open times of its calendar, and only there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import F

from common.clock import now
from jobs.calendars.targets import active_freezes
from jobs.models import CalendarRule, Rollout, Step
from jobs.reports.rollout_page import rollout_page, time_left
from jobs.rollouts import freezes
from jobs.rollouts.eta import RemainingTime
from tests.jobs.engine.test_windows import window
from tests.jobs.pages import browser, text_of
from tests.jobs.rows import more_nodes

NODES, EACH = 18, 1200
"""Six hours, one node after the other."""
NIGHT = timedelta(hours=2)


@pytest.fixture
def rollout(world) -> Rollout:
    more_nodes(world, NODES - 3)
    plan = world.plan(canary=1, batch="1")
    each = dict.fromkeys({str(row.worst_class) for row in plan.nodes.all()}, EACH)
    plan.summary["estimate"] = {"seconds": each, "needed": each, "spread": {}, "basis": "as told by the test"}
    for batch in plan.summary["batches"]:
        batch["seconds"] = EACH * batch["nodes"]
    plan.save(update_fields=["summary"])
    return world.started(plan)


def left_of(rollout: Rollout) -> RemainingTime:
    left = time_left(rollout)
    assert left
    return left


def nightly(world, after: timedelta = timedelta(hours=1), minutes: int = 120, **fields) -> datetime:
    """Return when the first one opens."""
    window(world, after, minutes, rule="FREQ=DAILY", **fields)
    return (now() + after).replace(second=0, microsecond=0)


def done(steps: list[Step], seconds: float = EACH) -> None:
    Step.objects.filter(pk__in=[step.pk for step in steps]).update(status="succeeded", stages={"applying": seconds})


def test_six_hours_in_nightly_windows_of_two_end_on_the_third_night(world, rollout) -> None:
    assert left_of(rollout).seconds == NODES * EACH
    assert left_of(rollout).ends == now() + timedelta(hours=6)
    opens = nightly(world)
    left = left_of(rollout)
    assert left.ends == opens + timedelta(days=2) + NIGHT
    assert left.seconds == (left.ends - now()).total_seconds()
    assert "over 3 open times of the calendar" in left.why


def test_page_and_rest_say_the_same(world, rollout) -> None:
    nightly(world)
    left = rollout_page(rollout, world.operator)["pace"]
    client = browser(world.operator)
    answer = client.get(f"/api/v1/rollouts/{rollout.pk}").json()["remaining"]
    assert answer["seconds"] == left.seconds
    assert datetime.fromisoformat(answer["ends"]) == left.ends
    assert answer["why"] == left.why
    assert left.why in text_of(client.get(f"/rollouts/R-{rollout.number}/").content.decode())
    Rollout.objects.update(status="succeeded")
    assert client.get(f"/api/v1/rollouts/{rollout.pk}").json()["remaining"] is None


def test_a_freeze_of_the_calendar_takes_its_nights(world, rollout) -> None:
    opens = nightly(world)
    window(world, timedelta(hours=24), 300, kind="freeze")
    assert left_of(rollout).ends == opens + timedelta(days=3) + NIGHT


def test_a_freeze_that_is_set_by_hand_ends_first(world, rollout) -> None:
    opens = nightly(world)
    freezes.freeze(
        by=world.operator, cluster=world.cluster, reason="Quarter end.", until=opens + timedelta(days=1, minutes=-1)
    )
    assert left_of(rollout).ends == opens + timedelta(days=3) + NIGHT
    CalendarRule.objects.all().delete()
    assert left_of(rollout).ends == opens + timedelta(days=1, hours=6, minutes=-1)


@pytest.mark.parametrize("is_last_first", [True, False])
@pytest.mark.parametrize("has_end", [True, False])
def test_of_several_freezes_the_one_that_ends_last_counts(world, rollout, is_last_first, has_end) -> None:
    last = now() + timedelta(days=2) if has_end else None
    ends = [last, now() + timedelta(hours=1)]
    for until in ends if is_last_first else reversed(ends):
        freezes.freeze(by=world.operator, cluster=world.cluster, reason="Quarter end.", until=until)
    assert left_of(rollout).ends == (last + timedelta(hours=6) if last else None)
    assert active_freezes([world.cluster])[world.cluster.pk].until == last


def test_a_soak_passes_during_a_freeze(world, rollout) -> None:
    opens = nightly(world)
    freezes.freeze(by=world.operator, cluster=world.cluster, reason="Quarter end.", until=opens + timedelta(days=1))
    first, *_ = rollout.steps.of_nodes().order_by("position")
    rollout.plan.strategy["soak_seconds"] = 3600
    rollout.plan.save(update_fields=["strategy"])
    done([first])
    before = left_of(rollout).ends
    Step.objects.filter(pk=first.pk).update(status="soaking", entered_at=now())
    assert left_of(rollout).ends == before


@pytest.mark.parametrize("has_windows", [True, False])
def test_under_a_freeze_without_an_end_no_number_is_made_up(world, rollout, has_windows) -> None:
    if has_windows:
        nightly(world)
    freezes.freeze(by=world.operator, cluster=world.cluster, reason="Until the audit is over.", until=None)
    left = left_of(rollout)
    assert (left.seconds, left.ends) == (None, None)
    assert "freeze" in left.why


def test_what_never_fits_or_never_ends_says_so(world, rollout) -> None:
    rule = window(world, timedelta(hours=1), 19, rule="FREQ=DAILY")
    left = left_of(rollout)
    assert (left.seconds, left.ends) == (None, None)
    assert "long enough" in left.why
    CalendarRule.objects.filter(pk=rule.pk).update(minutes=120, rule="FREQ=DAILY;COUNT=2")
    left = left_of(rollout)
    assert (left.seconds, left.ends) == (None, None)
    assert "400 days" in left.why


def test_its_own_nodes_correct_it(world, rollout) -> None:
    steps = list(rollout.steps.order_by("batch"))
    done(steps[:3], EACH * 2)
    opens = nightly(world)
    # The other 15 are believed to take 40 min each: three a night.
    assert left_of(rollout).ends == opens + timedelta(days=4) + NIGHT


def test_a_node_at_work_is_finished_outside_of_windows(world, rollout) -> None:
    opens = nightly(world)
    steps = list(rollout.steps.order_by("batch"))
    Step.objects.filter(pk=steps[0].pk).update(
        status="applying", entered_at=now() - timedelta(minutes=5), stages={"admitted": 60}
    )
    Rollout.objects.update(status="running")
    rollout.refresh_from_db()
    # 17 of 18 are left for the windows: the last one ends 20 min before the third closes.
    assert left_of(rollout).ends == opens + timedelta(days=2) + NIGHT - timedelta(seconds=EACH)

    Step.objects.filter(pk__in=[step.pk for step in steps[1:]]).update(status="succeeded")
    alone = left_of(rollout)
    assert alone.ends
    assert alone.ends < opens, "nothing is left to start"


def test_in_a_batch_those_under_way_come_before_those_that_wait(world, rollout) -> None:
    opened = nightly(world, after=timedelta(minutes=-5), minutes=30)
    waits, at_work, *others = rollout.steps.order_by("batch", "position")
    Step.objects.filter(pk__in=[step.pk for step in others]).update(status="succeeded")
    Step.objects.filter(pk__in=[waits.pk, at_work.pk]).update(batch=at_work.batch, worst_class="reboot")
    Step.objects.filter(pk=at_work.pk).update(status="applying", entered_at=now())
    rollout.plan.summary["estimate"]["seconds"] = {"reboot": EACH}
    rollout.plan.summary["estimate"]["needed"] = {"reboot": EACH}
    rollout.plan.summary["budget"] = 1
    rollout.plan.save(update_fields=["summary"])
    Rollout.objects.update(status="running")
    left = left_of(Rollout.objects.get(pk=rollout.pk))
    # The one at work keeps the only slot for 20 min; the 5 min after that are too few for the other.
    assert left.ends == opened + timedelta(days=1, seconds=EACH)


def test_where_a_person_must_act_windows_change_nothing(world, rollout) -> None:
    nightly(world)
    for status in ("paused", "stopped", "reverting"):
        Rollout.objects.update(status=status, version=F("version") + 1)
        rollout.refresh_from_db()
        assert (left_of(rollout).seconds, left_of(rollout).ends) == (None, None)


def test_nights_around_a_change_of_clocks(world, rollout) -> None:
    """Clocks in Berlin go ahead in the night to 28 March 2027: 22:00 there is 21:00 UTC before, and 20:00 UTC after."""
    world.clock.at = datetime(2027, 3, 27, 12, tzinfo=UTC)
    rule = window(world, timedelta(), 120, rule="FREQ=DAILY")
    CalendarRule.objects.filter(pk=rule.pk).update(starts="2027-03-27T22:00", zone="Europe/Berlin")
    left = left_of(rollout)
    assert left.ends == datetime(2027, 3, 29, 22, tzinfo=UTC)
    assert "Tue 30 Mar 00:00 Europe/Berlin" in left.why
