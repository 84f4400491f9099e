"""Forecast of a plan over its windows: page and REST say the same, and the engine does it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from common.clock import now
from jobs.calendars import targets
from jobs.models import CalendarRule, Plan, Step
from jobs.reports.rollout_page import time_left
from jobs.reports.window_forecasts import WindowForecast, window_forecast
from jobs.rollouts import freezes
from tests.jobs.engine.test_windows import REBOOT, window
from tests.jobs.pages import browser, text_of
from tests.jobs.rows import more_nodes

MANY = 41


def forecast_of(plan: Plan) -> WindowForecast:
    calendar = targets.entries_of(plan.cluster, plan.pool_id)
    return window_forecast(plan, calendar, targets.active_freeze(plan.cluster, plan.pool_id, calendar))


def test_page_and_rest_show_the_same_windows_nodes_and_end(world):
    more_nodes(world, MANY - 3)
    world.cluster.budget = 4
    world.cluster.save(update_fields=["budget"])
    plan = world.plan(world.revision(REBOOT), canary=1, batch="100%")
    client = browser(world.operator)
    assert "What fits" not in text_of(client.get(f"/plans/P-{plan.number}/").content.decode())
    assert client.get(f"/api/v1/plans/{plan.pk}/windows").json()["is_bound"] is False

    window(world, timedelta(hours=3), 125, rule="FREQ=DAILY")
    answer = client.get(f"/api/v1/plans/{plan.pk}/windows").json()
    text = text_of(client.get(f"/plans/P-{plan.number}/").content.decode())
    # A reboot is assumed to take 15 min, and 18:45 must be left: 7 rounds of 4 nodes start after the canary.
    assert [use["nodes"] for use in answer["windows"]] == [1 + 7 * 4, 12]
    assert [use["done"] for use in answer["windows"]] == [29, 41]
    assert "guess" in answer["basis"]
    assert answer["basis"] in text
    assert answer["sentence"] in text
    assert "29 nodes will" in answer["sentence"]
    assert answer["ends"] > answer["windows"][-1]["opens"]


@pytest.mark.parametrize("status", ["withdrawn", "started"])
def test_a_plan_that_is_not_open_has_no_forecast(world, status):
    plan = world.plan()
    window(world, timedelta(), 60)
    Plan.objects.filter(pk=plan.pk).update(status=status)
    plan.refresh_from_db()
    assert forecast_of(plan).ends is None


def test_windows_that_are_too_short_are_named(world):
    plan = world.plan(world.revision(REBOOT))
    window(world, timedelta(), 16, rule="FREQ=DAILY")
    forecast = forecast_of(plan)
    assert (forecast.ends, forecast.uses) == (None, [])
    assert "18 min" in forecast.sentence


def test_a_freeze_set_by_hand_ends_first(world):
    plan = world.plan()
    window(world, timedelta(minutes=-5), 600)
    until = now() + timedelta(hours=2)
    freezes.freeze(by=world.operator, cluster=world.cluster, reason="Quarter end.", until=until)
    forecast = forecast_of(plan)
    assert forecast.begins == until
    assert forecast.ends
    assert forecast.ends > until


@pytest.mark.parametrize(
    ("settings", "strategy"),
    [(None, {"canary": 1, "batch": "1", "soak_seconds": 600}), (REBOOT, {"canary": 0, "batch": "3"})],
)
def test_the_engine_ends_when_the_forecast_says(world, settings, strategy):
    """Nightly windows of half an hour; the forecast is given what the steps of the simulated fleet really take."""
    measuring = world.started(world.plan(world.revision(settings), canary=0, batch="3"))
    world.run(measuring, seconds=7200, step=30)
    took = {
        step.worst_class: sum(step.stages.values()) - step.stages.get("queued", 0) for step in measuring.steps.all()
    }
    other = {"cmdline.iommu": "off"} if settings else {"vm.swappiness": "3"}
    plan = world.plan(world.revision(other), **strategy)
    plan.summary["estimate"] = {"seconds": took, "needed": took, "spread": {}, "basis": ""}
    plan.save(update_fields=["summary"])
    minutes = int(max(took.values()) / 60 * 1.5) + 12
    CalendarRule.objects.all().delete()
    window(world, timedelta(hours=1), minutes, rule="FREQ=DAILY")
    rollout = world.started(plan)
    expected = forecast_of_started(plan)
    left = time_left(rollout)
    assert left
    assert left.ends == expected.ends, "before anything is done, the rollout says what its plan said"
    begins = now()
    run_over_nights(world, rollout)

    assert rollout.status == "succeeded", rollout.waiting_for
    last = max(Step.objects.filter(rollout=rollout).values_list("entered_at", flat=True))
    assert expected.ends
    assert abs((last - expected.ends).total_seconds()) <= 0.15 * (last - begins).total_seconds()


def run_over_nights(world, rollout) -> None:
    """Time passes in seconds while the window is open or a node is at work, and else up to the next opening."""
    for _ in range(3000):
        world.slice(rollout)
        if not rollout.is_live:
            return
        opening = targets.opening_of(world.cluster, world.pool.pk)
        is_busy = opening.is_open or rollout.steps.filter(status__in=Step.ACTIVE).exists()
        world.tick(30 if is_busy else (opening.upcoming.start - now()).total_seconds())


def forecast_of_started(plan: Plan) -> WindowForecast:
    plan.status = Plan.Status.APPROVED
    return forecast_of(plan)
