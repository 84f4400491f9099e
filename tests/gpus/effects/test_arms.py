"""Arms of a study: failed and lost nodes stay in theirs, losses are tested, and the rest of the fleet is context."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.models import Node
from common.clock import now
from gpus.effects import arms, attrition, conclusions, estimation, reports, studies
from gpus.models import StudyNode
from jobs.models import Step
from tests.factories import UserFactory

# ── intention to treat ────────────────────────────────────────────────────────────────────────────────────────────────


def test_nodes_whose_change_failed_stay_in_their_arm(worked):
    scenario = worked(24, control=8, order="measured", seed=7)
    scenario.truth.effect = 0.08
    failed = sorted(scenario.truth.changed_at)[:4]
    Step.objects.filter(rollout=scenario.rollout, node_name__in=failed).update(status="failed", has_applied=False)
    study, tensor = scenario.study(), scenario.effects()["tensor"]
    assert (study.counts["nodes"], study.counts["control_nodes"]) == (16, 8)
    assert (tensor.clusters, tensor.devices) == (16, 32)
    assert study.counts["nodes_left_out"] == {}
    assert study.counts["attrition"]["treated"]["deviations"] == {"did not succeed": 4}
    assert study.counts["attrition"]["treated"]["lost"] == 0
    assert not study.counts["attrition"]["is_uneven"]
    assert StudyNode.objects.filter(is_treated=True).exclude(deviation="").count() == 4


def test_failures_of_slowing_nodes_make_no_rise_of_nothing(worked):
    """The change does nothing, and fails where a node slows down: without those nodes it would be called a rise."""
    scenario = worked(40, control=16, order="measured", seed=7)
    scenario.truth.noise = 0.1
    study = scenario.study()
    rows = list(study.nodes.all())
    growth = {}
    for row in rows:
        before, after = row.devices[0]["figures"]["tensor"]
        growth[row.node_name] = after / before
    names = set(sorted((row.node_name for row in rows if row.is_treated), key=growth.__getitem__)[:14])
    survivors = conclusions.pairs(row for row in rows if row.node_name not in names)[0]["tensor"]
    assert estimation.difference_in_differences(survivors).verdict == "rose"
    study.delete()
    Step.objects.filter(rollout=scenario.rollout, node_name__in=names).update(status="failed")
    scenario.study()
    assert scenario.effects()["tensor"].verdict == "inconclusive"


def test_lost_nodes_are_counted_by_arm_and_a_loss_that_no_chance_explains_is_shown(worked):
    scenario = worked(24, control=8, order="measured", seed=7)
    lost = sorted(scenario.truth.changed_at)[:9]
    scenario.truth.silent = set(lost)
    Node.objects.filter(name__in=lost[:3]).update(gone_at=now() - timedelta(hours=3))
    study = scenario.study()
    attrition = study.counts["attrition"]
    assert (attrition["treated"]["nodes"], attrition["treated"]["lost"]) == (16, 9)
    assert (attrition["control"]["nodes"], attrition["control"]["lost"]) == (8, 0)
    assert attrition["treated"]["why"] == {"no readings": 9}
    assert attrition["treated"]["deviations"] == {"no longer there": 3}
    assert attrition["p"] == pytest.approx(0.00952, abs=1e-4)  # C(15, 9) and its like ÷ C(24, 9), both tails
    assert attrition["is_uneven"]


def test_a_rollout_that_was_put_back_as_a_whole_has_no_effect(worked):
    scenario = worked(24, control=8, order="measured", seed=7)
    studies.adopt()
    arms.find_nodes(studies.find(scenario.rollout.pk))
    treated = Step.objects.filter(rollout=scenario.rollout, plan_node__is_control=False)
    treated.update(status="reverted", direction="revert")
    study = scenario.study()
    assert study.counts["nodes_left_out"] == {"put back": 16}
    assert {row.verdict for row in scenario.effects().values()} == {"no data"}


@given(st.integers(0, 12), st.integers(1, 12), st.integers(0, 12), st.integers(1, 12))
def test_fishers_test_is_that_of_every_way_to_draw(lost, nodes, other_lost, other_nodes):
    """The same by counting: of all ways to choose as many nodes, those that are as unlikely or more."""
    lost, other_lost = min(lost, nodes), min(other_lost, other_nodes)
    both = lost + other_lost
    ways = [math.comb(nodes, n) * math.comb(other_nodes, both - n) for n in range(max(0, both - other_nodes),
            min(both, nodes) + 1)]  # fmt: skip
    own = math.comb(nodes, lost) * math.comb(other_nodes, other_lost)
    expected = sum(way for way in ways if way <= own) / math.comb(nodes + other_nodes, both)
    assert attrition.fisher(lost, nodes, other_lost, other_nodes) == pytest.approx(expected, rel=1e-6)


# ── the rest of the fleet ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_rest_of_the_fleet_is_beside_an_ordinary_rollout_and_in_none_of_its_figures(worked):
    scenario = worked(30)
    alone = scenario.another(ago=timedelta(hours=7), nodes=10)
    scenario.rollout.delete()
    scenario.rollout = alone
    scenario.truth.changed_at = {f"n{i:03}": scenario.truth.changed_at[f"n{i:03}"] for i in range(10)}
    scenario.truth.effect, scenario.truth.others = 0.1, 0.3
    Node.objects.filter(name="n029").update(gpu_product="AMD-MI300X")
    study, tensor = scenario.study(), scenario.effects()["tensor"]
    assert (tensor.devices, tensor.clusters, study.counts["nodes"]) == (20, 10, 10)
    assert tensor.ratio == pytest.approx(1.1 * 1.3 - 1, abs=0.06)
    assert tensor.rest_change == pytest.approx(0.3, abs=0.06)
    assert (tensor.rest_devices, tensor.rest_clusters, study.counts["rest_nodes"]) == (38, 19, 19)
    assert study.counts["attrition"] is None
    shown = reports.of_rollout(UserFactory(is_superuser=True), scenario.rollout)
    (line,) = [line for line in shown["lines"] if line.measure.name == "tensor"]
    assert (line.rest, line.n_of_rest) == (f"+{tensor.rest_change * 100:.1f} %", "38 GPUs")


def test_a_node_of_the_rest_that_something_changed_is_no_context(worked):
    """The other rollout changed the six nodes that this one leaves alone, at the same time."""
    scenario = worked(12)
    Step.objects.filter(rollout=scenario.rollout, node_name__lt="n006").delete()
    scenario.rollout = scenario.another(ago=timedelta(hours=7), nodes=6)
    study, tensor = scenario.study(), scenario.effects()["tensor"]
    assert (tensor.clusters, study.counts["rest_nodes"]) == (6, 0)
    assert (tensor.rest_change, tensor.rest_devices) == (None, 0)
    assert StudyNode.objects.filter(is_context=True).exclude(left_out="").count() == 6


def test_the_rest_is_bounded_drawn_by_lot_and_has_the_windows_of_the_changed(worked, monkeypatch):
    monkeypatch.setattr(arms, "REST_NODES", 7)
    scenario = worked(30)
    alone = scenario.another(ago=timedelta(hours=7), nodes=5)
    scenario.rollout.delete()
    scenario.rollout = alone
    scenario.study()
    context = StudyNode.objects.filter(is_context=True)
    own = set(StudyNode.objects.filter(is_context=False).values_list("began_at", "ended_at"))
    assert context.count() == 7
    assert set(context.values_list("began_at", "ended_at")) == own
    assert not set(context.values_list("node_name", flat=True)) & {f"n{i:03}" for i in range(5)}
    assert set(context.values_list("node_name", flat=True)) != {f"n{i:03}" for i in range(5, 12)}, "not the first ones"
