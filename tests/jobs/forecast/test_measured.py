"""The order `measured`: random and reproducible, and a control waits until the others were measured."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.models import Record
from common.clock import now
from common.errors import Invalid, WrongState
from gpus.effects import estimation
from jobs.diffs.changes import Disruption
from jobs.forecast import measured_findings, randomization, schedule
from jobs.forecast.schedule import Candidate
from jobs.forecast.strategy import Strategy, parse
from jobs.models import PlanNode, Rollout, Step
from jobs.planning import digests
from jobs.rollouts import possible_actions, rollout_actions

MEASURED = {"order": "measured", "canary": 1, "batch": "50%", "measure_hours": 2, "settle_minutes": 10}


def fleet(count: int, kinds: int = 1, masters: int = 0) -> list[Candidate]:
    return [
        Candidate(i, f"n{i:03}", Disruption.LIVE, i < masters, 8, (), kind=f"model-{i % kinds}") for i in range(count)
    ]


# ── the draw ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(
    st.integers(0, 60), st.integers(1, 3), st.integers(0, 2), st.integers(1, 2**31 - 1),
    st.sampled_from(["1", "25%", "100%"]),
)  # fmt: skip
def test_every_node_is_in_one_batch_and_each_kind_has_somebody_on_both_sides(count, kinds, masters, seed, control):
    nodes = fleet(count, kinds, masters)
    strategy = Strategy(order="measured", seed=seed, control=control)
    batches = schedule.arrange_batches(nodes, strategy)
    assert sorted(c.name for b in batches for c in b) == sorted(c.name for c in nodes)
    assert not any(c.is_control and c.is_control_plane for c in nodes)
    for kind in {c.kind for c in nodes}:
        alike = [c for c in nodes if c.kind == kind and not c.is_control_plane]
        held = sum(c.is_control for c in alike)
        assert held == strategy.control_size(len(alike))
        assert 0 < held < len(alike) or len(alike) < 2
    arms = [{c.is_control for c in batch} for batch in batches if not batch[0].is_control_plane]
    assert all(len(arm) == 1 for arm in arms)
    assert arms == sorted(arms, key=lambda arm: True in arm)  # the control comes last


def test_the_same_seed_draws_the_same_and_another_does_not():
    def draw(seed):
        return [[c.name for c in b] for b in schedule.arrange_batches(fleet(30), Strategy(order="measured", seed=seed))]

    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_each_node_is_held_back_as_often_as_any_other():
    counts = dict.fromkeys((c.name for c in fleet(12)), 0)
    for seed in range(1, 401):
        for name in randomization.control_group(fleet(12), Strategy(order="measured", seed=seed)):
            counts[name] += 1
    assert sum(counts.values()) == 400 * 3
    assert 60 < min(counts.values()) <= max(counts.values()) < 140


def test_other_orders_hold_nobody_back():
    assert not any(c.is_control for b in schedule.arrange_batches(fleet(9), Strategy()) for c in b)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("control", "0%"),
        ("control", True),
        ("measure_hours", 0),
        ("measure_hours", 25),
        ("settle_minutes", -1),
        ("seed", -1),
    ],
)
def test_what_it_cannot_be_is_refused_at_the_field(field, value):
    with pytest.raises(Invalid) as refusal:
        parse({"order": "measured", field: value})
    assert set(refusal.value.fields) == {f"strategy.{field}"}


def test_five_on_each_side_is_what_an_interval_takes():
    assert measured_findings.FEWEST_MEASURED == estimation.FEWEST_CLUSTERS


# ── the plan ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_shows_who_waits_and_how_long(make_world):
    world = make_world(nodes=8)
    plan = world.plan(**MEASURED)
    seed = plan.strategy["seed"]
    assert seed > 0
    held = set(plan.nodes.filter(is_control=True).values_list("name", flat=True))
    assert len(held) == plan.summary["control"] == 2
    assert plan.summary["seconds"] > 2 * 3600 + 600
    assert [b.get("is_control", False) for b in plan.summary["batches"]] == [False, False, False, True]
    assert all(b["is_frozen"] for b in plan.summary["batches"])
    by_code = {f["code"]: f for f in plan.findings}
    assert set(by_code["measured"]["nodes"]) == held
    assert str(seed) in by_code["measured"]["detail"]
    assert "held back" in by_code["measured-few"]["title"]


@pytest.mark.parametrize("worst", ["containerd-restart", "gpu-pods", "drain", "reboot"])
def test_a_plan_that_drains_says_that_the_control_is_not_drained(worst):
    """Live changes, and drained nodes of the control alone, need no word."""
    strategy = Strategy(order="measured", seed=7)
    live = fleet(20)
    control = randomization.control_group(live, strategy)
    drained = [dataclasses.replace(c, worst=Disruption(worst)) for c in live]
    only_control = [n if n.name in control else c for c, n in zip(live, drained, strict=True)]
    by_code = {f.code: f for f in measured_findings.measured_order_findings(drained, strategy)}
    assert by_code["measured-drains"].severity == "warn"
    assert set(by_code["measured-drains"].nodes) == {c.name for c in live} - control
    restarted = [dataclasses.replace(c, worst=Disruption.KUBELET_RESTART) for c in live]
    for calm in (live, only_control, restarted):
        codes = {f.code for f in measured_findings.measured_order_findings(calm, strategy)}
        assert "measured-drains" not in codes


def test_a_seed_that_was_given_is_told_and_one_that_was_drawn_is_not(make_world):
    world = make_world(nodes=8)
    assert "measured-seed" not in {f["code"] for f in world.plan(**MEASURED).findings}
    [finding] = [f for f in world.plan(**MEASURED, seed=7).findings if f["code"] == "measured-seed"]
    assert (finding["severity"], "The seed 7" in finding["title"]) == ("warn", True)
    assert "measured-seed" not in {f["code"] for f in world.plan(seed=7).findings}, "of no use in another order"


def test_one_that_takes_longer_than_readings_are_kept_is_told_so(make_world):
    world = make_world(nodes=8)
    assert "measured-too-long" not in {f["code"] for f in world.plan(**MEASURED).findings}
    slow = world.plan(**MEASURED, soak_seconds=24 * 3600)
    [finding] = [f for f in slow.findings if f["code"] == "measured-too-long"]
    assert (finding["severity"], "101 h" in finding["detail"], "3 days" in finding["detail"]) == ("warn", True, True)


def test_the_digest_covers_seed_and_control(make_world):
    world = make_world(nodes=4)
    plan = world.plan(**MEASURED)
    assert digests.plan_digest(plan) == plan.digest
    PlanNode.objects.filter(plan=plan, is_control=True).update(is_control=False)
    assert digests.plan_digest(plan) != plan.digest
    plan = world.plan(**MEASURED)
    plan.strategy["seed"] += 1
    assert digests.plan_digest(plan) != plan.digest


def test_an_ordinary_plan_that_is_given_a_control_is_not_what_was_approved(make_world):
    world = make_world(nodes=3)
    plan = world.approved(world.plan())
    PlanNode.objects.filter(plan=plan, name="n3").update(is_control=True)
    with pytest.raises(WrongState, match="not what was approved"):
        rollout_actions.start(plan, by=world.operator)


# ── the rollout ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def held(make_world):
    """A rollout of which all nodes but the control are done."""
    world = make_world(nodes=4)
    rollout = world.started(world.plan(**MEASURED))
    world.run(rollout, seconds=120)
    return world, rollout


def counts(rollout: Rollout) -> dict[tuple[bool, str], int]:
    out: dict[tuple[bool, str], int] = {}
    for key in rollout.steps.values_list("plan_node__is_control", "status"):
        out[key] = out.get(key, 0) + 1
    return out


def test_the_control_waits_until_the_others_were_measured(held):
    world, rollout = held
    assert counts(rollout) == {(False, "succeeded"): 3, (True, "queued"): 1}
    until = rollout.steps.filter(status="succeeded").latest("entered_at").entered_at + timedelta(hours=2, minutes=10)
    assert rollout.waiting_for.startswith("The control (1 node) is held back until ")
    assert f"{until:%H:%M:%S}" in rollout.waiting_for
    world.clock.forward((until - now()).total_seconds() - 60)
    world.look()
    world.slice(rollout)
    assert counts(rollout)[True, "queued"] == 1
    world.tick(90)
    world.run(rollout, seconds=60)
    assert (rollout.status, counts(rollout)) == ("succeeded", {(False, "succeeded"): 3, (True, "succeeded"): 1})


def test_a_person_has_it_go_on_and_is_recorded(held):
    world, rollout = held
    assert {a.verb: a.is_possible for a in possible_actions.all_actions(rollout)}["go-on"]
    rollout_actions.go_on(rollout, by=world.operator)
    world.run(rollout, seconds=60)
    assert rollout.status == "succeeded"
    record = Record.objects.get(action="rollout.go-on")
    assert "The control (1 node) is held back" in record.after["held_by"]
    assert rollout.events.filter(text__contains="despite").exists()


def test_it_keeps_to_pause_and_abort_while_it_waits(held):
    world, rollout = held
    rollout_actions.pause(rollout, by=world.operator)
    assert not {a.verb: a.is_possible for a in possible_actions.all_actions(rollout)}["go-on"]
    with pytest.raises(WrongState):
        rollout_actions.go_on(rollout, by=world.operator)
    rollout_actions.resume(rollout, by=world.operator)
    rollout_actions.abort(rollout, by=world.operator)
    world.run(rollout, seconds=60)
    assert (rollout.status, counts(rollout)) == ("cancelled", {(False, "succeeded"): 3, (True, "skipped"): 1})


def test_where_nobody_was_changed_nobody_waits(make_world):
    world = make_world(nodes=3)
    rollout = world.started(world.plan(**MEASURED))
    for step in rollout.steps.filter(plan_node__is_control=False):
        rollout_actions.skip(rollout, step, by=world.operator)
    world.run(rollout, seconds=60)
    assert counts(rollout) == {(False, "skipped"): 2, (True, "succeeded"): 1}


def test_its_order_is_as_drawn_however_busy_nodes_become(make_world):
    world = make_world(nodes=6)
    rollout = world.started(world.plan(**MEASURED | {"batch": "1", "seed": 2}))
    drawn = [name for name, _ in sorted(
        rollout.plan.nodes.filter(is_control=False).values_list("name", "position"), key=lambda pair: pair[1]
    )]  # fmt: skip
    assert drawn == sorted(drawn, key=lambda name: randomization.lot(rollout.plan.strategy["seed"], name))
    assert drawn[2:] != sorted(drawn[2:])
    world.run(rollout, seconds=120)
    done = Step.objects.filter(rollout=rollout, status="succeeded").order_by("entered_at", "position")
    assert list(done.values_list("node_name", flat=True)) == drawn
