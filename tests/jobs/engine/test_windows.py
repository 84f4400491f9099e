"""Law 15 of the engine: no step starts outside an open window of its target, nor one that would not end inside it."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from common.clock import now
from common.errors import Invalid
from jobs.calendars.rule_text import LOCAL_TIME
from jobs.calendars.targets import FREEZE_IS_ACTIVE, entries_of
from jobs.engine import reconcile
from jobs.models import CalendarRule, Step
from jobs.rollouts import freezes, rollout_actions

REBOOT = {"cmdline.iommu": "pt"}


def window(world, after: timedelta, minutes: int, *, kind: str = "window", rule: str = "", **target) -> CalendarRule:
    """A rule in UTC that first starts `after` from now, whole minutes."""
    start = (now() + after).astimezone(UTC)
    return CalendarRule.objects.create(
        name=f"{kind} {CalendarRule.objects.count()}", kind=kind, starts=f"{start:{LOCAL_TIME}}", zone="UTC",
        minutes=minutes, rule=rule, **target,
    )  # fmt: skip


def first_writes(world, since: int = 0) -> list[datetime]:
    """Return when Setpoint first cordoned each node, or first wrote its settings where it takes none out."""
    first: dict[str, datetime] = {}
    for entry in list(world.sim.audit)[since:]:
        spec = (entry.request or {}).get("spec") or {}
        cordons = entry.resource == "nodes" and spec.get("unschedulable")
        writes = entry.resource == "nodetunings" and spec.get("settings")
        if entry.verb != "get" and (cordons or writes):
            first.setdefault(entry.name, entry.time)
    return list(first.values())


def is_inside(world, at: datetime) -> bool:
    """Judge by the rules' own rows: each repeats daily from its start on, or occurs once."""
    inside = False
    rows = list(CalendarRule.objects.of_target(world.cluster, world.pool.pk))
    for row in rows:
        start = datetime.fromisoformat(row.starts).replace(tzinfo=UTC)
        passed = (at - start) % timedelta(days=1) if row.rule else at - start
        if at >= start and timedelta(0) <= passed < timedelta(minutes=row.minutes):
            if row.kind == "freeze":
                return False
            inside = True
    return inside or not any(row.kind == "window" for row in rows)


def test_nothing_starts_before_the_window_opens_and_it_continues_by_itself(world):
    window(world, timedelta(hours=2), 60)
    rollout = world.started(world.plan(canary=0, batch="3"))
    since = len(list(world.sim.audit))
    world.run(rollout, seconds=7000, step=60)

    assert first_writes(world, since) == []
    assert rollout.status == "queued"
    assert "window 0" in rollout.waiting_for
    assert "UTC" in rollout.waiting_for

    world.run(rollout, seconds=600, step=5)
    assert rollout.status == "succeeded"
    assert all(is_inside(world, at) for at in first_writes(world, since))


def test_a_window_that_closes_stops_starts_and_lets_what_was_disturbed_finish(world):
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0, batch="3"))
    world.until(rollout, "restarting")
    rule = window(world, timedelta(hours=2), 600)
    world.run(rollout, seconds=3600, step=20)

    assert list(rollout.steps.order_by("position").values_list("status", flat=True)) == [
        "succeeded",
        "queued",
        "queued",
    ]
    assert rollout.status == "running"
    assert rule.name in rollout.waiting_for
    world.run(rollout, seconds=9000, step=60)
    assert rollout.status == "succeeded"


def test_a_node_that_was_taken_out_and_not_yet_disturbed_is_given_back_as_the_window_closes(world):
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0, batch="3"))
    reconcile.advance(rollout.pk)
    assert rollout.steps.filter(status="admitted").count() == 1
    window(world, timedelta(days=1), 600)
    since = len(list(world.sim.audit))
    for _ in range(10):
        world.slice(rollout)
        world.tick(5)

    assert first_writes(world, since) == []
    assert not world.node("n1").is_cordoned
    assert set(rollout.steps.values_list("status", flat=True)) == {"queued"}
    assert not Step.objects.filter(slot__isnull=False).exists()


def test_a_step_that_would_not_end_inside_the_window_does_not_start(world):
    window(world, timedelta(minutes=-20), 35)  # 15 minutes are left; a reboot takes 15, and the margin
    nightly = window(world, timedelta(hours=2), 120)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0, batch="3"))
    since = len(list(world.sim.audit))
    world.run(rollout, seconds=3600, step=20)

    assert first_writes(world, since) == []
    assert rollout.steps.filter(status="queued").count() == 3
    assert nightly.name in rollout.waiting_for
    CalendarRule.objects.filter(pk=nightly.pk).update(minutes=16)
    world.run(rollout, seconds=7200, step=60)
    assert first_writes(world, since) == []  # the next window is too short as well


def test_a_step_that_no_window_is_long_enough_for_says_so(world):
    window(world, timedelta(minutes=-1), 16, rule="FREQ=DAILY")
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0, batch="3"))
    world.run(rollout, seconds=60, step=5)

    assert rollout.status == "running"
    assert "long enough" in rollout.waiting_for


def test_a_revert_and_the_reaction_to_failure_pass_a_closed_window(world):
    rollout = world.started(world.plan(canary=1, batch="1", soak_seconds=60))
    world.until(rollout, "succeeded")
    before = world.value("n1")
    window(world, timedelta(days=1), 60)
    rollout_actions.pause(rollout, by=world.operator)
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, seconds=600, step=5)

    assert rollout.status == "reverted"
    assert world.value("n1") != before


def test_a_revert_during_a_freeze_of_the_calendar_needs_a_reason_and_then_passes(world):
    rollout = world.started(world.plan(canary=1, batch="1", soak_seconds=60))
    world.until(rollout, "succeeded")
    freeze = window(world, timedelta(), 24 * 60, kind="freeze")
    world.run(rollout, seconds=120, step=5)
    assert freeze.name in rollout.waiting_for
    rollout_actions.pause(rollout, by=world.operator)
    with pytest.raises(Invalid) as refusal:
        rollout_actions.revert(rollout, by=world.operator)
    assert set(refusal.value.fields) == {"reason"}
    rollout_actions.revert(rollout, by=world.operator, reason="It breaks jobs.")
    world.run(rollout, seconds=600, step=5)
    assert rollout.status == "reverted"


def test_a_retry_of_a_node_that_was_left_half_done_does_not_wait_for_a_window(world):
    plan = world.plan(world.revision(REBOOT), canary=0, batch="3", reboot_deadline_seconds=60)
    rollout = world.started(plan)
    world.until(rollout, "failed", seconds=3000)
    window(world, timedelta(days=1), 60)
    step = rollout.steps.get(status="failed")
    assert step.is_disrupted
    rollout_actions.retry_failed(rollout, step=step, by=world.operator)
    world.run(rollout, seconds=3000, step=20)  # its reboot still ends first
    step.refresh_from_db()
    assert step.status != "queued", (rollout.status, rollout.waiting_for, step.waiting_for)
    assert rollout.steps.filter(status="queued").count() == 2  # those that were not touched wait


@pytest.mark.parametrize(
    ("target", "waits"),
    [
        ({}, True),
        ({"environment": "staging"}, True),
        ({"environment": "production"}, False),
        ({"cluster": "own"}, True),
        ({"pool": "own"}, True),
        ({"ended_at": "now"}, False),
    ],
)
def test_only_rules_of_the_target_that_have_not_ended_count(world, target, waits):
    rows = {"cluster": world.cluster, "pool": world.pool, "ended_at": now()}
    window(world, timedelta(hours=2), 60, **{k: rows.get(k, v) for k, v in target.items()})
    assert bool(entries_of(world.cluster, world.pool.pk)) is waits
    rollout = world.started(world.plan(canary=0, batch="3"))
    world.slice(rollout)
    assert (rollout.status == "queued") is waits


@pytest.mark.parametrize("seed", range(5))
def test_a_rollout_over_windows_never_starts_a_step_outside(world, seed):
    """Windows and freezes drawn by chance, each from 30 minutes ago to 3 hours from now, and of 10 to 90 minutes."""
    draw = random.Random(seed)
    for kind in ("window", draw.choice(["window", "freeze"])):
        window(world, timedelta(minutes=draw.randint(-30, 180)), draw.randint(20, 90), kind=kind, rule="FREQ=DAILY")
    is_disruptive = draw.random() < 0.6
    rollout = world.started(world.plan(world.revision(REBOOT if is_disruptive else None), canary=0, batch="2"))
    since = len(list(world.sim.audit))
    world.run(rollout, seconds=86_400 + 4 * 3600, step=60)

    starts = first_writes(world, since)
    assert all(is_inside(world, at) for at in starts)
    assert starts or rollout.steps.filter(status="queued").count() == 3
    assert rollout.status == "succeeded" or "long enough" in rollout.waiting_for, rollout.waiting_for


def test_the_reason_of_a_freeze_of_the_calendar_is_that_of_the_engine(world):
    window(world, timedelta(minutes=-5), 60, kind="freeze", environment="staging")
    rollout = world.started(world.plan())
    world.slice(rollout)
    assert rollout.status == "queued"
    assert rollout.waiting_for.startswith(FREEZE_IS_ACTIVE)


def test_of_several_freezes_the_one_that_ends_last_is_the_reason(world):
    for reason, hours in (("Tonight.", 1), ("Quarter end.", 30), ("This morning.", 2)):
        until = now() + timedelta(hours=hours)
        freezes.freeze(by=world.operator, cluster=world.cluster, reason=reason, until=until)
    rollout = world.started(world.plan())
    world.slice(rollout)
    assert rollout.waiting_for == f"{FREEZE_IS_ACTIVE} Quarter end."


def test_what_the_slowest_in_twenty_take_must_be_left_not_the_median(world):
    plan = world.plan(canary=0, batch="3")
    plan.summary["estimate"] = {"seconds": {"live": 4.0}, "needed": {"live": 900.0}, "spread": {}, "basis": ""}
    plan.save(update_fields=["summary"])
    rule = window(world, timedelta(minutes=-50), 60)  # 10 minutes are left
    rollout = world.started(plan)
    since = len(list(world.sim.audit))
    world.run(rollout, seconds=60, step=5)

    assert first_writes(world, since) == []
    assert "15 min needed" in rollout.waiting_for
    CalendarRule.objects.filter(pk=rule.pk).update(minutes=600)
    world.run(rollout, seconds=600, step=5)
    assert rollout.status == "succeeded"


def test_what_waits_names_the_next_window_that_is_long_enough(world):
    window(world, timedelta(minutes=-20), 35)
    window(world, timedelta(hours=1), 16)
    long = window(world, timedelta(hours=3), 120)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=0, batch="3"))
    world.run(rollout, seconds=30, step=5)
    assert long.name in rollout.waiting_for
    assert "18 min needed" in rollout.waiting_for


@pytest.mark.parametrize("jump", [timedelta(minutes=40), timedelta(minutes=-40)])
def test_a_clock_that_jumps_starts_nothing_outside_a_window(world, jump):
    """Forwards over the end of the window, or backwards before its beginning, between two slices."""
    window(world, timedelta(minutes=-30), 60)
    rollout = world.started(world.plan(canary=0, batch="1", soak_seconds=60))
    world.until(rollout, "succeeded")
    world.clock.forward(jump.total_seconds())
    since = len(list(world.sim.audit))
    for _ in range(20):
        world.slice(rollout)
        world.tick(5)

    assert first_writes(world, since) == []
    assert rollout.status == "running"
    assert "Waits for" in rollout.waiting_for


@pytest.mark.parametrize("verb", ["abort", "revert"])
def test_an_operator_is_never_held_by_a_window_that_has_no_room(world, verb):
    """One node was changed; the others wait, because too little is left."""
    rollout = world.started(world.plan(canary=1, batch="1", soak_seconds=60))
    world.until(rollout, "succeeded")
    changed = world.value("n1")
    window(world, timedelta(minutes=-59), 60)
    world.run(rollout, seconds=90, step=5)
    assert rollout.steps.filter(status="queued").count() == 2
    rollout_actions.pause(rollout, by=world.operator)
    assert rollout.status == "paused"
    if verb == "abort":
        rollout_actions.abort(rollout, by=world.operator)
    else:
        rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, seconds=600, step=5)
    assert not rollout.is_live
    assert (world.value("n1") == changed) is (verb == "abort")
    assert not Step.objects.filter(slot__isnull=False).exists()
