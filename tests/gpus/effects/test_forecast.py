"""Forecast of a plan's study from stored history, on its page and over REST."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from bench import power as simulation
from bench.power import Design, SimulatedFleet
from common.clock import now
from gpus.effects import planned, reports
from gpus.effects.planned import HOUR, NODES, PLACEBOS, ROWS
from gpus.metrics.buckets import Bucket, Device
from gpus.metrics.samples import Metric
from gpus.models import GpuPacked
from gpus.storage import codec, sharding
from jobs.models import Plan, PlanNode, Rollout, Step
from tests.factories import TokenClient, UserFactory
from tests.gpus.studying import Worked

pytestmark = pytest.mark.django_db
DESIGN = Design(16, 6)


class Planned:
    """A plan over the nodes of a simulated fleet, and their hours up to now, as they are stored."""

    def __init__(self, *, holder: str = "", hours: int | None = None, of: int = 1, **strategy: Any) -> None:
        self.fleet = SimulatedFleet(1, DESIGN, 0.25)
        self.scenario = Worked(DESIGN.nodes, ago=timedelta(days=30), **strategy)
        Rollout.objects.all().delete()
        self.plan = Plan.objects.get()
        Plan.objects.update(status="draft", summary={"nodes": DESIGN.nodes, "gpus": 2 * DESIGN.nodes, "seconds": 60})
        self.plan.refresh_from_db()
        PlanNode.objects.update(gpus=DESIGN.gpus)
        if strategy.get("order") == "measured":
            names = [f"n{node:03}" for node in self.fleet.control]
            PlanNode.objects.filter(name__in=names).update(is_control=True)
        stored = DESIGN.apart * PLACEBOS + DESIGN.hours  # up to where the simulated rollout begins
        end = now().replace(minute=0, second=0, microsecond=0)
        first = 0 if hours is None else stored - hours
        for hour in range(first, stored):
            start = end - (stored - hour) * HOUR
            by_group: dict[int, list[tuple[Device, Bucket]]] = {}
            for device, bucket in self._hour(hour, start, holder):
                by_group.setdefault(sharding.number(device.node_name, of), []).append((device, bucket))
            GpuPacked.objects.bulk_create(
                GpuPacked(
                    cluster=self.scenario.cluster, seconds=3600, start=start, of=of, shard=shard, data=codec.pack(rows)
                )
                for shard, rows in by_group.items()
            )

    def _hour(self, hour: int, start: datetime, holder: str) -> Iterable[tuple[Device, Bucket]]:
        for node, rows in enumerate(self.fleet.series):
            for index, row in enumerate(rows):
                name = f"n{node:03}"
                held = 0.0 if holder == "nobody" else 1.0
                bucket = Bucket(start, 1.0, held, {Metric.TENSOR: row[hour]}, holder or f"team/job-of-{name}")
                yield Device(f"GPU-{name}-{index}", "", name, "NVIDIA H100 80GB HBM3"), bucket

    def page(self) -> str:
        client = Client()
        client.force_login(UserFactory(is_superuser=True))
        answer = client.get(f"/gpus/plans/P-{self.plan.number}/forecast/live/")
        assert answer.status_code == 200
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))

    def rest(self) -> Mapping[str, Any]:
        answer = TokenClient(UserFactory(is_superuser=True)).get(f"/api/v1/gpus/plans/{self.plan.pk}/forecast")
        assert answer.status_code == 200
        body: Mapping[str, Any] = answer.json()
        return body


def signed(ratio: float) -> str:
    return f"{100 * ratio:+.1f} %".replace("-", "−")


@pytest.mark.parametrize("of", [1, 4])
def test_a_measured_plan_shows_what_it_will_detect_by_its_fleets_history(clock, of, django_assert_max_num_queries):
    """The same as computed from the truth itself, which was never stored; in REST and on the page."""
    made = Planned(order="measured", seed=7, of=of)
    with django_assert_max_num_queries(6 + PLACEBOS):
        planned.of_plan(made.plan)
    body, text = made.rest(), made.page()
    (tensor,) = body["measures"]
    expected = simulation.forecast(made.fleet, has_past=True)
    assert (body["nodes"], body["control_nodes"], body["placebos"], body["hours"]) == (10, 6, PLACEBOS, 6)
    assert tensor["is_primary"]
    assert (tensor["clusters"], tensor["control_clusters"]) == (10, 6)
    assert tensor["detectable_rise"] == pytest.approx(expected.rise, rel=1e-3)
    assert tensor["detectable_fall"] == pytest.approx(expected.fall, rel=1e-3)
    assert f"+{100 * tensor['detectable_rise']:.1f} % or −{-100 * tensor['detectable_fall']:.1f} %" in text
    assert f"{signed(tensor['usual_low'])} to {signed(tensor['usual_high'])}" in text


def test_a_plan_without_a_control_shows_what_changes_anyway_and_detects_nothing(clock):
    made = Planned()
    body, text = made.rest(), made.page()
    (tensor,) = body["measures"]
    assert (body["design"], tensor["detectable_rise"]) == ("before and after", None)
    assert tensor["usual_low"] < tensor["usual_high"]
    assert "gives no verdict" in text
    assert signed(tensor["usual_high"]) in text
    assert "Detectable effect" in text
    assert "4 of 5" not in text


@pytest.mark.parametrize(
    ("given_history", "why"),
    [
        ({"hours": 0}, "No history"),
        ({"hours": 29}, "29 h are stored; a comparison of the same hours of an earlier day needs 30 h"),
        ({"hours": 31, "holder": "nobody"}, "none of these GPUs was held"),
    ],
)
def test_without_history_the_plan_says_so_and_why(clock, given_history, why):
    made = Planned(order="measured", seed=7, **given_history)
    assert why in made.page()
    body = made.rest()
    assert why in body["why"]
    assert body["measures"] == []


def test_history_that_ended_days_ago_forecasts_nothing(clock):
    made = Planned(hours=31)
    assert made.rest()["measures"]
    clock.forward(26 * 3600)
    assert made.rest()["why"].startswith("No current history: the newest stored hour")


def test_a_plan_of_nodes_without_gpus_says_so(clock):
    made = Planned(hours=0)
    PlanNode.objects.update(gpus=0)
    assert "None of these nodes has GPUs" in made.rest()["why"]


def test_one_job_on_all_nodes_leaves_nothing_to_detect(clock):
    made = Planned(order="measured", seed=7, holder="team/pretrain")
    assert made.rest()["measures"][0]["why"].startswith("1 node or job is")
    assert "No effect will be detectable: 1 node or job is" in made.page()


def test_a_single_day_of_history_is_enough_to_detect_and_too_little_for_a_range(clock):
    (tensor,) = Planned(order="measured", seed=7, hours=30).rest()["measures"]
    assert tensor["detectable_rise"] > 0
    assert tensor["usual_high"] is None


def test_days_without_readings_are_not_counted_as_days_without_a_change(clock):
    """An outage of the telemetry: two of six days are gone, in the middle and at the end."""
    made = Planned(order="measured", seed=7)
    whole = made.rest()
    end = now().replace(minute=0, second=0, microsecond=0)
    for days in (1, 3):
        gone = end - timedelta(days=days)
        GpuPacked.objects.filter(start__gte=gone - timedelta(hours=6), start__lt=gone + timedelta(hours=7)).delete()
    body = made.rest()
    assert (whole["placebos"], body["placebos"]) == (6, 4)
    assert body["until"] < whole["until"]
    assert body["measures"][0]["detectable_rise"] > 0


def test_nodes_that_a_rollout_changed_meanwhile_are_no_placebo(clock):
    made = Planned(order="measured", seed=7, hours=30)
    before = made.rest()["measures"][0]["level"]
    Plan.objects.update(number=2)  # the next one is counted by rollouts
    other = made.scenario.another(ago=timedelta(hours=24), nodes=8)
    assert Step.objects.filter(rollout=other, has_applied=True).count() == 8
    assert made.rest()["measures"][0]["level"] != before


def test_a_plans_page_asks_for_it_later_and_a_closed_plan_does_not(make_world):
    world = make_world(nodes=3)
    plan = world.plan(world.revision({"vm.swappiness": "30"}))
    client = Client()
    client.force_login(world.admin)
    later = f"/gpus/plans/{plan}/forecast/live/"
    page = f"/plans/{plan}/"
    assert later in client.get(page).content.decode()
    Plan.objects.update(summary=plan.summary | {"gpus": 0})
    assert later not in client.get(page).content.decode()
    Plan.objects.update(summary=plan.summary)
    Plan.objects.update(status="withdrawn")
    assert later not in client.get(page).content.decode()


@given(st.integers(1, 6000), st.sampled_from([1, 16, 256]), st.integers(1, 24), st.integers(0, 24))
def test_what_is_read_is_bounded_for_any_fleet(count, of, hours, gap):
    nodes = [planned._PlannedNode(n, f"node-{n}", False, "") for n in range(count)]
    spans = planned._spans(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC), hours, gap)
    sample, kept = planned._sample(nodes, spans, of, 2 * hours + gap)
    groups = {sharding.number(node.name, of) for node in sample}
    assert 1 <= len(sample) <= NODES
    assert 1 <= len(kept) <= PLACEBOS
    assert len(groups) * (2 * hours + gap) * len(kept) <= ROWS
    assert all(a.before.start >= b.after.end for a, b in pairwise(kept))
    assert {(a.after.start - b.after.start) % timedelta(days=1) for a, b in pairwise(kept)} <= {timedelta()}


def held(node: str, job: str, level: float, *, before: str = "") -> dict[Device, Mapping[str, Any]]:
    """A device as `_compared` has it."""
    row = {"job": job, "job_before": before or job, "figures": {"tensor": [0.5, level]}, "node": node}
    return {Device(f"GPU-{node}", "", node, "NVIDIA H100 80GB HBM3"): row}


@pytest.mark.parametrize(
    ("hours_ago", "kept"),
    [(12, [2, 2]), (40, [1, 1]), (60, [2, 1]), (72, [2, 2])],
    ids=["after the placebo", "after the day before", "after the day before that", "before all"],
)
def test_the_past_of_a_placebo_is_of_days_since_the_node_was_changed(hours_ago, kept):
    end = datetime(2026, 3, 1, tzinfo=UTC)
    spans = planned._spans(datetime(2026, 2, 20, tzinfo=UTC), end, 6, 1)[:3]
    by_placebo = [held("changed", "team/a", 0.4) | held("calm", "team/b", 0.4) for _ in spans]
    older = planned._older(spans, by_placebo, 0, {"changed": [end - hours_ago * HOUR]})
    assert [len(rows) for rows in older] == kept
    assert all("calm" in {device.node_name for device in rows} for rows in older)
    assert all(len(rows) == 2 for rows in planned._older(spans, by_placebo, 1, {"changed": [end - 12 * HOUR]}))


def test_the_past_of_a_placebo_is_of_the_job_of_its_first_window():
    """Days with another job do not count, nor with one that is not known."""
    strata = {"a": "", "b": "", "c": ""}
    rows = held("a", "team/new", 0.4, before="team/old") | held("b", "team/b", 0.4) | held("c", "", 0.4)
    older = [
        held("a", "team/new", 9.0) | held("b", "team/b", 0.2) | held("c", "", 9.0),
        held("a", "team/old", 0.3) | held("b", "team/other", 9.0),
        held("a", "team/old", 0.5) | held("b", "team/b", 0.6),
    ]
    pairs = planned._pairs(rows, older, strata)["tensor"]
    assert [pair.past for pair in pairs] == [pytest.approx(0.4), pytest.approx(0.4), None]


@pytest.mark.parametrize(
    ("rise", "fall", "text"),
    [
        ("+9.2 %", "−8.4 %", "+9.2 % or −8.4 %"),
        ("+0.2 %", "−0.2 %", "±0.2 %"),
        ("0.0 %", "0.0 %", "under 0.1 %"),
        ("0 MHz", "0 MHz", "under 1 MHz"),
        ("+0.1 %", "0.0 %", "+0.1 % or 0.0 %"),
        ("", "", ""),
    ],
)
def test_what_rounds_to_zero_is_called_no_effect_of_zero(rise: str, fall: str, text: str) -> None:
    assert reports._either(rise, fall) == text
