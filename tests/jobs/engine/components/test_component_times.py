"""Time limits of components, and their times in a plan's forecast."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from common.clock import now
from common.errors import Invalid
from jobs.forecast import estimates, schedule, window_fit
from jobs.forecast.strategy import Strategy, parse
from jobs.models import PlanComponent, Rollout, Step
from jobs.reports.rollout_page import time_left
from jobs.rollouts import eta
from tests.jobs.engine.components.test_laws_of_operators import driver
from tests.jobs.engine.test_windows import window
from tests.jobs.releases import Releases, wanted

GUESS = estimates.PART_SECONDS[PlanComponent.Kind.RELEASE]


@pytest.fixture
def releases(monkeypatch: Any) -> Releases:
    return Releases(requires={"kueue": ("cert-manager",)}).install(monkeypatch)


def test_the_longest_way_through_the_graph_is_what_it_takes():
    before = {"b": ["a"], "c": ["b", "elsewhere"], "d": []}
    assert schedule.longest_path_seconds(before, {"a": 10, "b": 20, "c": 30, "d": 45}) == 60
    assert schedule.longest_path_seconds(before, {"b": 20, "c": 30, "d": 45}) == 50
    assert schedule.longest_path_seconds({}, {}) == 0
    assert schedule.longest_path_seconds({"a": ["b"], "b": ["a"]}, {"a": 1, "b": 1}) == 2, "a circle ends"


def test_a_plan_s_time_has_its_components_in_it_and_says_what_is_a_guess(world, releases):
    made = world.plan(world.revision({}, components=wanted("kueue", "cert-manager", "volcano")))
    assert made.summary["seconds"] == 2 * GUESS, "cert-manager and then kueue; volcano beside them"
    assert made.summary["parts"]["basis"] == (
        "3 min assumed each for cert-manager, kueue, volcano, which no rollout has installed yet"
    )


def test_nodes_that_an_operator_takes_in_turn_are_part_of_what_the_time_rests_on(world, releases):
    releases.blasts["kueue"] = driver("n1", "n2", "n3")
    made = world.plan(world.revision({}, components=wanted("kueue")))
    assert made.summary["parts"]["seconds"] == {"kueue": GUESS + 3 * 300}
    assert made.summary["parts"]["basis"] == (
        "3 min assumed for kueue, which no rollout has installed yet, and 15 min for the nodes of kueue, in turn"
    )


def test_what_a_component_took_last_is_believed(world, releases):
    world.run(world.started(world.plan(world.revision({}, components=wanted("cert-manager", "kueue")))))
    Step.objects.filter(component="kueue").update(stages={"queued": 900, "applying": 30, "verifying": 40.5})
    made = world.plan(world.revision({}, components=wanted("cert-manager", kueue="2.0.0")))
    assert made.summary["parts"]["seconds"] == {"kueue": 70.5}
    assert made.summary["parts"]["basis"] == "components as they last took"


def test_a_running_rollout_reckons_with_the_components_that_are_left(world, releases):
    rollout = world.started(world.plan(world.revision({}, components=wanted("kueue", "cert-manager"))))
    strategy = Strategy.from_json(rollout.plan.strategy)
    Rollout.objects.update(status="running")
    rollout.refresh_from_db()
    first = eta.remaining_time(rollout, strategy, {})
    assert first.seconds == 2 * GUESS
    assert (
        "2 components left (3 min assumed each for cert-manager, kueue, which no rollout has installed yet)."
        in first.why
    )
    Step.objects.filter(component="cert-manager").update(status="succeeded")
    assert eta.remaining_time(rollout, strategy, {}).seconds == GUESS


@pytest.mark.parametrize("kind", Step.Kind.values)
def test_a_step_has_a_time_where_the_plan_is_older_than_times_of_components(kind):
    of_policies = kind == Step.Kind.POLICIES
    known = estimates.PART_SECONDS[PlanComponent.Kind.POLICIES if of_policies else PlanComponent.Kind.RELEASE]
    assert window_fit.part_seconds({}, "kueue", kind) == known
    assert window_fit.part_needed({"parts": {}}, "kueue", kind) == known * estimates.MARGIN


def test_windows_take_a_plan_that_is_older_than_times_of_components(world, releases):
    rollout = world.started(world.plan(world.revision({}, components=wanted("kueue"))))
    rollout.plan.summary.pop("parts")
    rollout.plan.save(update_fields=["summary"])
    window(world, timedelta(hours=1), 120)
    left = time_left(Rollout.objects.get(pk=rollout.pk))
    assert left
    assert left.ends
    assert left.ends >= now() + timedelta(minutes=59)


@pytest.mark.parametrize(("seconds", "gives_up_after"), [(0, 1800), (120, 120)])
def test_the_strategy_says_how_long_a_component_may_take_to_get_ready(world, releases, seconds, gives_up_after):
    releases.not_ready["volcano"] = "Deployment volcano-scheduler: 0 of 1 pods are ready."
    made = world.plan(world.revision({}, components=wanted("volcano")), component_deadline_seconds=seconds)
    rollout = world.run(world.started(made), seconds=gives_up_after + 120, step=10)
    step = rollout.steps.get(component="volcano")
    assert step.status == "failed"
    assert gives_up_after <= step.stages["verifying"] < gives_up_after + 60


def test_helm_is_given_the_shorter_of_both_limits(world, releases, settings):
    given: list[float] = []

    def note(stop: Any) -> None:
        step = Step.objects.filter(component="volcano").order_by("rollout__number").last()
        given.append((step.deadline_at - step.granted_at).total_seconds())

    releases.during["volcano"] = note
    for version, seconds in (("1.0.0", 60), ("2.0.0", 7200)):
        made = world.plan(world.revision({}, components=wanted(volcano=version)), component_deadline_seconds=seconds)
        world.run(world.started(made))
    assert given == [60, settings.SETPOINT_HELM_SECONDS]


@pytest.mark.parametrize("wrong", [-1, 86_401, "soon", None, True])
def test_a_limit_out_of_bounds_is_refused_by_name(wrong):
    with pytest.raises(Invalid) as refused:
        parse({"component_deadline_seconds": wrong})
    assert set(refused.value.fields) == {"strategy.component_deadline_seconds"}
