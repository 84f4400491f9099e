"""Figures of one job, recomputed from the readings themselves by other code."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, timedelta
from decimal import Decimal

import pytest

from clusters.models import GpuJob, Node
from gpus.metrics.samples import Holder
from gpus.models import GpuUse, JobUse
from gpus.peers.lives import reports
from gpus.showback import periods, statement, teams
from gpus.storage import retention
from tests.factories import UserFactory
from tests.gpus.peers.lives.watched import Watched, key_of

pytestmark = pytest.mark.django_db


def by_pod(recording):
    """Seconds held, busy seconds and joules by pod, straight from what was heard."""
    sums = defaultdict(lambda: [0.0, 0.0, 0.0, 0.0])
    for start, end, _node, _gpu, holder, busy, watts in recording.heard:
        seconds = (end - start).total_seconds()
        for place, amount in enumerate((seconds, seconds * busy, seconds * watts, seconds if busy >= 0.05 else 0.0)):
            sums[holder][place] += amount
    return sums


def report(world, uid="u-1"):
    return reports.of(world.person, GpuJob.objects.get(key=key_of(uid)))


def test_hours_utilization_and_cost_are_those_of_the_readings(world):
    sums = by_pod(world)
    mine = [sums[f"team/{name}"] for name in "abc"]
    seconds, busy, joules, active = (sum(column) for column in zip(*mine, strict=True))
    cost = 0.0
    for start, end, *_, holder, _busy, watts in world.heard:
        if holder in ("team/a", "team/b", "team/c"):
            of_hour = 3.125 if start.astimezone(UTC).date() >= world.at.date() else 2.5
            took = (end - start).total_seconds()
            cost += took / 3600 * of_hour + took * watts / 3.6e6 * 0.2 * 1.4

    shown = report(world)

    assert float(shown.line.gpu_hours) == pytest.approx(seconds / 3600, abs=1e-6)
    assert float(shown.line.active) == pytest.approx(active / 3600, abs=1e-6)
    assert float(shown.line.kwh) == pytest.approx(joules / 3.6e6, abs=1e-6)
    assert float(shown.line.cost) == pytest.approx(cost, abs=1e-6)
    assert shown.activity.busy.mean == pytest.approx(busy / seconds, abs=1e-4)
    assert {rank.pod.name: round(rank.busy, 4) for rank in shown.activity.ranks} == {"a": 0.9, "b": 0.02, "c": 0.8}
    assert (shown.activity.busy.least, shown.activity.busy.most) == pytest.approx((0.02, 0.9))
    assert shown.goodput.runtime.value == pytest.approx(active / seconds, abs=1e-6)
    assert shown.goodput.scheduling.value == pytest.approx(1.0, abs=1e-3)


def test_jobs_sum_to_the_line_of_the_cost_page(world):
    admin = UserFactory(roles=["admin"])
    teams.add(by=admin, name="Research")
    teams.save([{"by": "namespace", "pattern": "team", "team": "Research"}], by=admin, version=0)
    today = world.at.date()
    period = periods.parse("", str(today - timedelta(days=1)), str(today))
    line = next(line for line in statement.of(world.person, period).lines if line.name == "Research")
    shown = [report(world, uid) for uid in ("u-1", "u-2")]

    assert sum(part.line.gpu_hours for part in shown) == pytest.approx(line.gpu_hours)
    for name in ("gpu_cost", "idle_cost", "energy_cost", "cost", "kwh", "active", "held_idle"):
        assert sum(getattr(part.line, name) for part in shown) == pytest.approx(
            getattr(line, name), abs=Decimal("1e-6")
        )
    assert [part.team for part in shown] == ["Research", "Research"]
    assert JobUse.objects.count() == GpuUse.objects.count() == 3


def test_the_pod_that_came_elsewhere_is_a_restart_and_its_node_one_of_the_jobs(world):
    shown = report(world)
    assert (shown.replaced, shown.job.starts, shown.job.size, shown.job.gpus) == (1, 2, 2, 8)
    assert [place.name for place in shown.around.nodes] == ["n0", "n1", "n2"]
    assert [place.until is None for place in shown.around.nodes] == [True, False, True]
    assert (shown.around.gaps, shown.never_started) == ([], [])


def test_the_same_name_again_the_same_day_is_counted_apart(world):
    before = report(world, "u-2").line.gpu_hours
    world.hears("again", node="n1", job="serve", job_uid="u-3")
    world.held |= {("n1", index): ("team/again", 0.5) for index in range(4)}
    world.go_on(1200)
    assert report(world, "u-2").line.gpu_hours == before
    assert float(report(world, "u-3").line.gpu_hours) == pytest.approx(4 * 1200 / 3600)
    assert GpuUse.objects.filter(owner="Job/serve", day=world.at.date()).count() == 1


def test_a_job_without_telemetry_or_readings_has_no_figures_but_says_why(world, clock):
    world.hears("silent", node="n1", job="dark", job_uid="u-dark")
    world.hears("silent", node="n1", job="dark", job_uid="u-dark", ended=True)
    world.hears("waits", job="late", job_uid="u-late")
    clock.at += timedelta(hours=1)
    ended, waits = report(world, "u-dark"), report(world, "u-late")
    for shown in (ended, waits):
        assert (shown.line.gpu_hours, shown.line.cost, shown.activity.busy) == (0, None, None)
        assert shown.goodput.whole.value is None
        assert shown.goodput.whole.lack
        assert shown.activity.lack
    assert waits.queue_wait == timedelta(hours=1)
    assert waits.goodput.scheduling.value == 0
    assert [part.name for part in waits.never_started] == ["waits"]


def test_a_cluster_that_was_not_read_for_an_hour_leaves_a_gap_of_that_length(world, clock):
    world.at += timedelta(hours=1)
    world.last = None
    world.go_on(1200)
    clock.at = world.at
    shown = report(world)
    assert len(shown.around.gaps) == 1
    assert 3000 <= shown.around.gap_seconds <= 3600
    assert shown.goodput.runtime.value is not None
    world.at += timedelta(hours=9)
    clock.at = world.at
    assert (report(world).goodput.runtime.value, report(world).goodput.whole.value) == (None, None)
    seconds = sum(by_pod(world)[f"team/{name}"][0] for name in "abc")
    assert float(shown.line.gpu_hours) <= seconds / 3600 + 8 * 600 / 3600 + 1e-6


def test_time_whose_record_was_deleted_by_retention_is_no_gap(world, settings):
    before = report(world).around.gap_seconds
    GpuJob.objects.update(started_at=world.at - timedelta(days=90))
    settings.SETPOINT_GPU_BAND_DAYS = 60
    assert before < report(world).around.gap_seconds <= 60 * 86_400
    settings.SETPOINT_GPU_BAND_DAYS = 1
    assert report(world).around.gap_seconds <= 86_400


def test_a_shared_gpu_is_divided_and_a_rank_that_shares_has_no_activity_of_its_own(clock):
    part = Watched(clock.at - timedelta(minutes=30), nodes=1, gpus=1)
    part.hears("a", node="n0", gpus=1, job="x", job_uid="u-x")
    part.hears("b", node="n0", gpus=1, job="y", job_uid="u-y")
    Node.objects.filter(cluster=part.cluster).update(gpu_allocated=1, gpu_shares={"": [2, 1]})
    plain = part._sample

    def shared(name, index):
        holders = (Holder("team", "a"), Holder("team", "b"))
        return replace(plain(name, index), holders=holders)

    part._sample = shared
    part.held = {("n0", 0): ("team/a", 0.5)}
    part.store()
    part.go_on(1500)
    part.person = UserFactory(roles=["viewer"])
    for uid in ("u-x", "u-y"):
        shown = report(part, uid)
        assert float(shown.line.gpu_hours) == pytest.approx(1500 / 3600 / 2, rel=1e-6)
        assert shown.activity.busy is None
        assert "only holder" in shown.activity.lack


def test_a_forgotten_job_takes_its_use_along_and_one_that_lives_stays(world, settings):
    settings.SETPOINT_GPU_BAND_DAYS = 400
    old = world.at - timedelta(days=500)
    GpuJob.objects.filter(key=key_of("u-2")).update(ended_at=old)
    GpuJob.objects.filter(key=key_of("u-1")).update(queued_at=old)
    retention.forget_old()
    assert list(GpuJob.objects.values_list("key", flat=True)) == [key_of("u-1")]
    assert JobUse.objects.exists()
    assert not JobUse.objects.exclude(job__key=key_of("u-1")).exists()
