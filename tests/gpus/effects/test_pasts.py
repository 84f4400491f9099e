"""Past of a study's nodes: the days and jobs that count, changes and drains that do not, and what becomes of it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from django.test import Client
from hypothesis import example, given
from hypothesis import strategies as st

from common.clock import now
from gpus.effects import arms, pasts
from gpus.effects.windows import DAY, Window
from gpus.metrics.buckets import Bucket, Device
from gpus.metrics.samples import Metric
from gpus.models import StudyNode
from gpus.storage import history
from jobs.models import PlanNode, Step
from tests.factories import TokenClient, UserFactory
from tests.gpus.studying import Worked

pytestmark = pytest.mark.django_db
AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Past:
    """Hours of every node as far back as is asked, at its own level and with what it will do anyway."""

    def __init__(self, scenario: Worked) -> None:
        self.scenario = scenario
        self.absent: set[str] = set()
        """Nodes without a stored hour: new ones."""
        self.drained: Callable[[str, datetime], bool] = lambda node, at: False
        self.holder: Callable[[str, datetime], str] = lambda node, at: f"team/train-{node}-0"
        self.level: Callable[[str, datetime, float], float] = lambda node, at, usual: usual

    def hours(
        self, cluster_id: UUID, start: datetime, end: datetime, *, nodes: Collection[str] | None = None
    ) -> dict[Device, list[Bucket]]:
        """Replacement for gpus.storage.history.hours."""
        out: dict[Device, list[Bucket]] = {}
        first = start.replace(minute=0, second=0, microsecond=0)
        first += HOUR if first < start else timedelta()
        for node in sorted(set(nodes or ()) - self.absent):
            rng = random.Random(node)
            usual = rng.uniform(0.3, 0.6) * (1 + rng.gauss(0, self.scenario.truth.noise))
            for index in range(self.scenario.truth.gpus):
                device = Device(f"GPU-{node}-{index}", "", node, "NVIDIA H100 80GB HBM3")
                at, buckets = first, []
                while at < end:
                    held = 0.0 if self.drained(node, at) else 1.0
                    means = {Metric.TENSOR: self.level(node, at, usual)}
                    buckets.append(Bucket(at, 1.0, held, means, self.holder(node, at)))
                    at += HOUR
                out[device] = buckets
        return out


@pytest.fixture
def measured(worked, monkeypatch):
    """A rollout with a control whose nodes go their own way, as they did at these hours of the days before."""

    def make(nodes: int = 40, control: int = 20, noise: float = 0.08, **kwargs: Any) -> tuple[Worked, Past]:
        scenario = worked(nodes, control=control, order="measured", seed=7, **kwargs)
        scenario.truth.noise, scenario.truth.effect = noise, 0.05
        past = Past(scenario)
        monkeypatch.setattr(history, "hours", past.hours)
        return scenario, past

    return make


def devices_of(scenario: Worked, node: str) -> list[Mapping[str, Any]]:
    devices: list[Mapping[str, Any]] = StudyNode.objects.get(study__rollout=scenario.rollout, node_name=node).devices
    return devices


@given(st.integers(0, 200_000), st.integers(3600, 86_400), st.integers(0, 300_000))
@example(35 * 60, 6 * 3600, 18 * 3600)
def test_the_days_are_at_the_hours_of_the_second_window_and_end_before_anything_was_changed(began, length, gap):
    start, long = AT + timedelta(seconds=began), timedelta(seconds=length)
    before = Window(start - long, start)
    after = Window(start + timedelta(seconds=gap), start + timedelta(seconds=gap) + long)
    days = pasts.days_of(before, after)
    assert len(days) == pasts.DAYS
    for day in days:
        assert day.end + pasts.HALF <= before.end
        assert (after.start - day.start) % DAY == timedelta()
        assert day.end - day.start == long
    assert days[0].end + DAY > before.end - pasts.HALF or days[0].end + DAY == after.end, "the newest that there are"


@given(st.integers(0, 24 * 12), st.integers(1, 24), st.integers(0, 72 * 12))
@example(7, 6, 18 * 12)
def test_hours_are_read_that_lie_half_in_the_window_and_end_before_anything_was_changed(began, length, gap):
    """Windows begin at any five minutes; of a stored hour nothing is known but its mean."""
    start, long = AT + timedelta(minutes=5 * began), timedelta(hours=length)
    after = start + timedelta(minutes=5 * gap)
    before, second = Window(start - long, start), Window(after, after + long)
    for day in pasts.days_of(before, second):
        with mock.patch.object(history, "hours") as hours:
            pasts._hours(mock.Mock(), day, set())
        _, first, end = hours.call_args.args
        near = [day.start.replace(minute=0) + number * HOUR for number in range(-2, length + 3)]
        read = [hour for hour in near if first <= hour < end]
        inside = {hour: min(hour + HOUR, day.end) - max(hour, day.start) for hour in near}
        assert all(inside[hour] >= HOUR / 2 for hour in read)
        assert {hour for hour in near if inside[hour] > HOUR / 2} <= set(read)
        assert max(read) + HOUR <= before.end


@pytest.mark.parametrize(("minutes", "days"), [(0, pasts.DAYS), (-1, pasts.DAYS - 1)])
def test_an_hour_that_begins_before_the_node_has_settled_does_not_count(measured, minutes, days):
    """The oldest day's first stored hour begins up to half an hour before the window does."""
    scenario, _ = measured(12, 6)
    study = scenario.study()
    rows = list(study.nodes.filter(is_context=False))
    start = min(row.began_at for row in rows).replace(minute=30, second=0, microsecond=0) - 2 * HOUR
    span = Window(start - HOUR * 6, start), Window(start + HOUR, start + HOUR * 7)
    oldest = pasts.days_of(*span)[-1].start - pasts.HALF
    other = scenario.another(ago=timedelta(days=8), nodes=1)
    settled = oldest - timedelta(minutes=study.settle_minutes)
    Step.objects.filter(rollout=other).update(entered_at=settled - timedelta(minutes=minutes))
    pasts.add(study, rows, {row.pk: span for row in rows})
    by_name = {row.node_name: row.devices[0]["past"]["days"] for row in rows}
    assert (by_name["n000"], by_name["n001"]) == (days, pasts.DAYS)


def test_a_study_is_adjusted_by_what_its_nodes_did_on_days_before(measured, clock):
    """The interval is narrower than without, holds the truth, and page and REST name both."""
    scenario, _ = measured()
    study, effect = scenario.study(), scenario.effects()["tensor"]
    assert (effect.past_clusters, effect.past_control_clusters) == (20, 20)
    assert effect.past_weight == pytest.approx(1, abs=0.2)
    assert effect.narrower > 0.4
    assert effect.ratio_low < 0.05 < effect.ratio_high
    assert abs(effect.ratio - 0.05) < abs(effect.unadjusted - 0.05)
    (row,) = devices_of(scenario, "n000")[:1]
    assert (row["job_before"], row["past"]["days"]) == ("team/train-n000", pasts.DAYS)
    client = Client()
    client.force_login(UserFactory(is_superuser=True))
    page = client.get(f"/rollouts/R-{scenario.rollout.number}/").content.decode()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    assert f"adjusted by the past, {100 * effect.narrower:.0f} % narrower" in text
    assert f"unadjusted {100 * effect.unadjusted:+.1f} %".replace("-", "−") in text
    assert "up to 7 earlier days" in text
    body = TokenClient(UserFactory(is_superuser=True)).get(f"/api/v1/gpus/effects/{study.pk}").json()
    shown = {row["measure"]: row["adjustment"] for row in body["effects"]}
    assert shown["tensor"] == {
        "weight": effect.past_weight, "narrower": effect.narrower, "unadjusted": effect.unadjusted, "clusters": 20,
        "control_clusters": 20,
    }  # fmt: skip
    assert shown["busy"] is None, "its past is not stored here"


def test_new_nodes_have_no_past_and_count_nevertheless(measured):
    scenario, past = measured()
    past.absent = {f"n{number:03}" for number in range(0, 40, 4)}
    scenario.study()
    effect = scenario.effects()["tensor"]
    assert (effect.devices, effect.control_devices) == (40, 40)
    assert effect.past_clusters + effect.past_control_clusters == 30
    assert devices_of(scenario, "n000")[0]["past"] == {"days": 0, "figures": {}}
    assert devices_of(scenario, "n001")[0]["past"]["days"] == pasts.DAYS


def test_without_any_history_the_study_is_as_it_was(measured):
    scenario, past = measured()
    past.absent = {f"n{number:03}" for number in range(40)}
    scenario.study()
    effect = scenario.effects()["tensor"]
    assert (effect.narrower, effect.past_weight, effect.past_clusters) == (None, None, 0)
    assert effect.ratio_low < effect.ratio < effect.ratio_high


def test_days_with_another_job_do_not_count(measured):
    scenario, past = measured(12, 6)
    since = now() - timedelta(days=3)
    past.holder = lambda node, at: "other/work-0" if node == "n003" and at < since else f"team/train-{node}-0"
    past.level = lambda node, at, usual: 9.0 if node == "n003" and at < since else usual
    scenario.study()
    (row, usual) = (devices_of(scenario, name)[0]["past"] for name in ("n003", "n004"))
    assert 0 < row["days"] < usual["days"]
    assert row["figures"]["tensor"] < 1


def test_days_and_windows_with_an_unknown_job_do_not_count():
    """Two unknown jobs are not the same one."""
    device = {"model": "NVIDIA H100 80GB HBM3", "figures": {"tensor": [0.5, 0.5]}}
    for holder, job in (("", ""), ("", "team/a"), ("team/a-0", ""), ("team/a-0", "team/a")):
        hours = [Bucket(AT + number * HOUR, 1.0, 1.0, {Metric.TENSOR: 0.4}, holder) for number in range(6)]
        levels = pasts.levels_of(hours, device | {"job_before": job})
        assert levels == ({"tensor": 0.4} if holder and job else {})


def test_days_before_another_rollout_changed_the_node_do_not_count(measured):
    """Settings of before that are other settings; without a day since then it has no past, but stays in its arm."""
    scenario, past = measured(12, 6)
    long_ago, lately = now() - timedelta(days=3), now() - timedelta(hours=14, minutes=30)
    scenario.another(ago=now() - long_ago, nodes=2)
    scenario.another(ago=now() - lately, nodes=1)
    changed = {"n000": lately, "n001": long_ago}
    past.level = lambda node, at, usual: 9.0 if node in changed and at < changed[node] - HOUR else usual
    scenario.study()
    none, some, usual = (devices_of(scenario, name)[0] for name in ("n000", "n001", "n002"))
    assert 0 < some["past"]["days"] <= 3 < usual["past"]["days"]
    assert some["past"]["figures"]["tensor"] < 1
    assert (none["left_out"], none["past"]) == ("", {"days": 0, "figures": {}})
    assert scenario.effects()["tensor"].devices == 12


def test_hours_of_a_drained_node_do_not_count(measured):
    """Empty, it did nothing: hours in which no pod held its GPUs are not in the mean, nor a day that has no other."""
    scenario, past = measured(12, 6)
    day = (now() - timedelta(days=2)).date()
    past.drained = lambda node, at: node == "n004" and (at.date() == day or at.hour % 2 == 0)
    past.level = lambda node, at, usual: 0.0 if past.drained(node, at) else usual
    scenario.study()
    row, usual = (devices_of(scenario, name)[0]["past"] for name in ("n004", "n005"))
    assert 0 < row["days"] < usual["days"]
    assert row["figures"]["tensor"] > 0.2


def test_studies_without_a_control_read_no_past(worked, monkeypatch):
    scenario = worked(12)
    monkeypatch.setattr(history, "hours", lambda *args, **kwargs: pytest.fail("was read"))
    scenario.study()
    assert scenario.effects()["tensor"].narrower is None


def test_the_past_takes_a_query_a_day(measured, monkeypatch):
    scenario, past = measured(12, 6)
    calls: list[tuple[datetime, datetime]] = []

    def hours(cluster_id: UUID, start: datetime, end: datetime, **kwargs: Any) -> dict[Device, list[Bucket]]:
        calls.append((start, end))
        return past.hours(cluster_id, start, end, **kwargs)

    monkeypatch.setattr(history, "hours", hours)
    scenario.study()
    assert len(calls) == pasts.DAYS
    assert all(end - start <= 6 * HOUR for start, end in calls)


# ── what the drain adds ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("worst", "drained"),
    [
        ("reboot", True),
        ("drain", True),
        ("gpu-pods", True),
        ("containerd-restart", True),
        ("kubelet-restart", False),
        ("live", False),
    ],
)
def test_a_change_that_drains_its_nodes_says_that_the_control_was_not(measured, worst, drained):
    scenario, _ = measured(12, 6)
    Step.objects.filter(rollout=scenario.rollout).update(worst_class=worst, has_applied=True)  # the control, too
    study = scenario.study()
    client = Client()
    client.force_login(UserFactory(is_superuser=True))
    page = re.sub(r"\s+", " ", client.get(f"/rollouts/R-{scenario.rollout.number}/").content.decode())
    body = TokenClient(UserFactory(is_superuser=True)).get(f"/api/v1/gpus/effects/{study.pk}").json()
    caution = "6 changed nodes were drained; the control was not"
    assert (caution in page) is drained
    assert body["caution"].startswith(caution) is drained
    assert bool(body["caution"]) is drained


def test_a_node_that_was_emptied_and_then_failed_was_drained_and_one_outside_the_plan_was_not(measured):
    """Its change was not applied; a row without a batch is of no arm."""
    scenario, _ = measured(12, 6)
    steps = Step.objects.filter(rollout=scenario.rollout)
    steps.update(worst_class="drain")
    emptied, draining, waiting, outside = steps.order_by("position")[:4]
    Step.objects.filter(pk=emptied.pk).update(
        status="failed", has_applied=False, stages={"queued": 9.0, "cordoning": 1.0, "draining": 600.0}
    )
    Step.objects.filter(pk=draining.pk).update(status="draining", has_applied=False, stages={"queued": 9.0})
    Step.objects.filter(pk=waiting.pk).update(status="failed", has_applied=False, stages={"queued": 9.0})
    PlanNode.objects.filter(pk=outside.plan_node_id).update(batch=0)
    assert arms.drained(scenario.rollout) == 4
