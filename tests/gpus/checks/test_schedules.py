"""Schedules of checks: how many runs they queue, what holds them back, and the permissions to change them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import IntegrityError

from audit.models import Record
from clusters.models import Cluster, Node
from common.clock import now
from common.errors import Invalid, NotAllowed, Stale
from gpus.models import CheckRun, CheckSchedule
from gpus.services.checks import coverage, pods, queueing, runs, schedules, starting
from gpus.services.checks.catalog import CHECKS
from jobs.models import CalendarRule, Freeze
from tests.clusters.factories import ClusterFactory
from tests.gpus.checks.conftest import IMAGE

pytestmark = pytest.mark.django_db
Status, Outcome = CheckRun.Status, CheckRun.Outcome
MEDIUM = CHECKS["dcgm-medium"]


# ── How many ──────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("at_once", "budget", "most"), [(2, 10, 2), (10, 3, 3), (1, 1, 1)])
def test_never_more_at_once_than_the_schedule_and_the_budget_allow(scheduling, at_once, budget, most):
    Cluster.objects.update(budget=budget)
    scheduling.add(at_once=at_once)
    seen = 0
    for _ in range(16):
        scheduling.minute()
        assert CheckRun.objects.live().count() <= most
        seen = max(seen, CheckRun.objects.live().count())
        scheduling.step(20)
    assert seen == most
    assert set(CheckRun.objects.filter(status="ended").values_list("outcome", flat=True)) == {"passed"}


def test_schedules_of_one_cluster_share_its_budget_and_take_turns(scheduling, clock):
    Cluster.objects.update(budget=1)
    starting.set_image("dcgm-quick", IMAGE, by=scheduling.world.admin)
    scheduling.add()
    scheduling.add(name="dcgm-quick")
    queued = []
    for _ in range(4):
        assert len(scheduling.minute()) == 1
        queued.append(CheckRun.objects.live().get().check_name)
        scheduling.end_all("passed")
        scheduling.pass_(clock, minutes=1)
    assert queued in (["dcgm-medium", "dcgm-quick"] * 2, ["dcgm-quick", "dcgm-medium"] * 2)


def test_checks_that_an_operator_starts_go_before_those_of_a_schedule(scheduling):
    Cluster.objects.update(budget=1)
    schedule = scheduling.add()
    scheduling.start("n5")
    assert scheduling.minute() == []
    assert "budget is 1" in scheduling.reason(schedule)


def test_a_schedule_that_allows_many_keeps_no_run_of_an_operator_from_starting(scheduling):
    scheduling.prints("", seconds=3000)
    scheduling.add(at_once=3)
    scheduling.minute()
    for _ in range(3):
        scheduling.step(5)
    free = Node.objects.exclude(check_runs__status__in=CheckRun.ON_NODE).first()
    (run,) = scheduling.start(free.name, at_once=1)
    scheduling.slice()
    run.refresh_from_db()
    assert run.status == Status.STARTING


def test_two_that_come_at_once_queue_nothing_twice(scheduling):
    schedule = scheduling.add(at_once=2)
    assert (queueing.queue(schedule.pk), queueing.queue(schedule.pk)) == (2, 0)
    CheckSchedule.objects.update(at_once=10)
    assert (queueing.queue(schedule.pk), queueing.queue(schedule.pk)) == (4, 0)
    assert CheckRun.objects.live().values("node").distinct().count() == CheckRun.objects.count() == 6


def test_a_check_that_an_operator_starts_between_the_look_and_the_insert_costs_a_minute(scheduling, monkeypatch):
    schedule, real = scheduling.add(), coverage.due

    def late(*args):
        nodes = real(*args)
        if not CheckRun.objects.exists():
            scheduling.start("n3")
        return nodes

    monkeypatch.setattr(coverage, "due", late)
    assert queueing.queue(schedule.pk) == 0
    assert not CheckRun.objects.filter(schedule=schedule).exists()
    assert not Record.objects.filter(actor="system", action="check.start").exists()
    monkeypatch.setattr(coverage, "due", real)
    assert queueing.queue(schedule.pk) == 6


def test_the_last_guard_is_the_database(scheduling):
    scheduling.add()
    scheduling.minute()
    run = CheckRun.objects.live().first()
    with pytest.raises(IntegrityError):
        scheduling.ran(run.node.name, "", ago=timedelta(0), status="waiting", ended_at=None)


# ── Runs that are not carried out ─────────────────────────────────────────────────────────────────────────────────────
def test_after_five_runs_without_a_result_one_node_is_tried_an_hour_until_one_gives_a_result(scheduling, clock):
    schedule = scheduling.add(at_once=5)
    assert len(scheduling.minute()) == 5
    scheduling.end_all("not-run", "Its image does not start.")
    assert scheduling.minute() == []
    assert "Its image does not start." in scheduling.reason(schedule)
    for _ in range(3):
        scheduling.pass_(clock, minutes=59)
        assert scheduling.minute() == []
        scheduling.pass_(clock, minutes=2)
        assert len(scheduling.minute()) == 1
        assert scheduling.minute() == []
        scheduling.end_all("not-run")
    scheduling.pass_(clock, hours=2)
    scheduling.minute()
    scheduling.end_all("passed")
    assert scheduling.reason(schedule) == ""
    assert len(scheduling.minute()) == 5


def test_a_result_among_the_last_runs_leaves_the_schedule_as_it_is(scheduling):
    schedule = scheduling.add(at_once=6)
    scheduling.ran("n1", "failed", ago=timedelta(minutes=5), schedule=schedule)
    for minute, node in enumerate(["n2", "n3", "n4", "n5"]):
        scheduling.ran(node, "not-run", ago=timedelta(minutes=minute), schedule=schedule)
    assert scheduling.minute() == ["n6"]


def test_a_cluster_without_the_rights_costs_one_run_an_hour_and_no_run_a_minute(scheduling, clock):
    scheduling.world.sim.api.forbidden.add(("create", "pods"))
    schedule = scheduling.add()
    reasons = set()
    for _ in range(12):
        scheduling.minute()
        for _ in range(2):
            scheduling.slice()
            scheduling.world.tick(1)
        reasons.add(scheduling.reason(schedule))
        scheduling.pass_(clock, minutes=30)
    assert set(CheckRun.objects.values_list("outcome", flat=True)) <= {Outcome.NOT_RUN, ""}
    assert 6 < CheckRun.objects.count() <= 6 + 6
    assert any("deploy/setpoint-checks.yaml" in reason for reason in reasons)


def test_a_node_that_gets_busy_after_it_was_queued_is_given_up_soon(scheduling, clock):
    scheduling.add(at_once=1)
    (name,) = scheduling.minute()
    scheduling.world.sim.pods.add("train", namespace="team", gpus=1, node=name)
    scheduling.world.tick(5)
    scheduling.slice()
    assert CheckRun.objects.get().status == Status.WAITING
    scheduling.pass_(clock, minutes=11)
    scheduling.slice()
    run = CheckRun.objects.get()
    assert (run.status, run.outcome, "holds GPUs" in run.reason) == (Status.ENDED, Outcome.NOT_RUN, True)


# ── What holds it back ────────────────────────────────────────────────────────────────────────────────────────────────
def without_image(scheduling):
    starting.set_image("dcgm-medium", "", by=scheduling.world.admin)


HOLDS = {
    "has no image": without_image,
    "end of the year": lambda s: Freeze.objects.create(cluster=s.world.cluster, reason="end of the year"),
    "of everything": lambda s: Freeze.objects.create(cluster=None, reason="of everything"),
    "of the calendar": lambda s: CalendarRule.objects.create(
        name="night", kind="freeze", starts=f"{now() - timedelta(hours=1):%Y-%m-%dT%H:%M}", zone="UTC", minutes=240
    ),
    "has not answered": lambda s: Cluster.objects.update(reach="unreachable"),
    "No updates": lambda s: Cluster.objects.update(observed_at=now() - timedelta(hours=1)),
    "another installation": lambda s: Cluster.objects.update(ownership=Cluster.Ownership.FOREIGN),
    "no such check": lambda s: CheckSchedule.objects.update(check_name="dropped"),
}


@pytest.mark.parametrize("words", HOLDS)
def test_nothing_is_queued_while_something_holds_it_back_and_the_reason_is_named(scheduling, words):
    schedule = scheduling.add()
    assert scheduling.reason(schedule) == ""
    HOLDS[words](scheduling)
    assert (scheduling.minute(), queueing.queue(schedule.pk)) == ([], 0)
    assert words in scheduling.reason(schedule)


def test_freezes_and_calendars_of_other_clusters_hold_nothing_back(scheduling):
    other = ClusterFactory(environment="production")
    Freeze.objects.create(cluster=other, reason="elsewhere")
    start = f"{now() - timedelta(hours=1):%Y-%m-%dT%H:%M}"
    about = {"kind": "freeze", "starts": start, "zone": "UTC", "minutes": 240}
    CalendarRule.objects.create(name="a", cluster=other, **about)
    CalendarRule.objects.create(name="b", environment="production", **about)
    CalendarRule.objects.create(name="c", pool=scheduling.world.pool, **about)
    scheduling.add()
    assert len(scheduling.minute()) == 6


def test_a_deleted_schedule_queues_nothing(scheduling):
    schedule = scheduling.add()
    schedules.remove(schedule, version=1, by=scheduling.world.operator)
    assert queueing.queue(schedule.pk or 1) == 0


# ── People ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_every_change_is_recorded_with_what_was_before(scheduling):
    world, row = scheduling.world, scheduling.add(every_days=7, at_once=2)
    schedules.change(row, every_days=14, at_once=1, version=1, by=world.operator)
    schedules.remove(row, version=2, by=world.operator)
    records = list(Record.objects.filter(action__startswith="check_schedule.").order_by("action"))
    was = {"cluster": "atlas", "check_name": "dcgm-medium", "every_days": 7, "at_once": 2}
    became = was | {"every_days": 14, "at_once": 1}
    assert [(r.action, r.before, r.after) for r in records] == [
        ("check_schedule.add", None, was), ("check_schedule.change", was, became),
        ("check_schedule.remove", became, None),
    ]  # fmt: skip
    assert {(r.actor, r.cluster_id) for r in records} == {(world.operator.email, world.cluster.pk)}


def test_what_a_schedule_queues_is_recorded_as_the_systems_work(scheduling):
    scheduling.add()
    scheduling.minute()
    record = Record.objects.get(action="check.start")
    assert (record.actor, len(record.after["nodes"])) == ("system", 6)
    assert scheduling.world.operator.email in record.message


def test_only_operators_of_the_cluster_change_schedules(scheduling):
    row = scheduling.add()
    for person in (scheduling.world.approver, scheduling.world.admin):
        with pytest.raises(NotAllowed):
            schedules.add("dcgm-long", scheduling.world.cluster, every_days=1, at_once=1, by=person)
        with pytest.raises(NotAllowed):
            schedules.change(row, every_days=1, at_once=1, version=1, by=person)
        with pytest.raises(NotAllowed):
            schedules.remove(row, version=1, by=person)
    assert CheckSchedule.objects.get().every_days == 7


def test_a_stale_version_changes_and_deletes_nothing(scheduling):
    operator, row = scheduling.world.operator, scheduling.add()
    schedules.change(row, every_days=9, at_once=1, version=1, by=operator)
    with pytest.raises(Stale):
        schedules.change(row, every_days=30, at_once=1, version=1, by=operator)
    with pytest.raises(Stale):
        schedules.remove(row, version=1, by=operator)
    kept = CheckSchedule.objects.get()
    assert (kept.every_days, kept.version) == (9, 2)
    assert Record.objects.filter(action__startswith="check_schedule.").count() == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("check_name", "rm-rf"), ("check_name", ""), ("every_days", 0), ("every_days", 91), ("every_days", -1),
        ("every_days", True), ("every_days", 1.5), ("at_once", 0), ("at_once", 51), ("at_once", None),
    ],
)  # fmt: skip
def test_what_is_out_of_range_is_refused_by_its_field(scheduling, field, value):
    given = {"check_name": "dcgm-medium", "every_days": 7, "at_once": 1} | {field: value}
    with pytest.raises(Invalid) as refused:
        schedules.add(given.pop("check_name"), scheduling.world.cluster, **given, by=scheduling.world.operator)
    assert list(refused.value.fields) == [field]
    assert not CheckSchedule.objects.exists()


def test_a_check_has_one_schedule_in_a_cluster(scheduling):
    scheduling.add()
    with pytest.raises(Invalid) as refused:
        scheduling.add(every_days=1)
    assert list(refused.value.fields) == ["check_name"]


def test_deleting_a_schedule_stops_what_waits_and_lets_end_what_runs(scheduling):
    row = scheduling.add(at_once=2)
    scheduling.minute()
    running = CheckRun.objects.order_by("node__name").first()
    CheckRun.objects.exclude(pk=running.pk).update(not_before=now() + timedelta(hours=1))
    scheduling.until(running, Status.RUNNING)
    schedules.remove(row, version=1, by=scheduling.world.operator)
    waiting = CheckRun.objects.exclude(pk=running.pk).get()
    assert waiting.schedule_id is None
    assert scheduling.ended(waiting).outcome == Outcome.NOT_RUN
    assert scheduling.ended(running).outcome == Outcome.PASSED
    assert runs.due() == []
    assert pods.resource_of(MEDIUM, running.node.allocatable)[1] == running.gpus
