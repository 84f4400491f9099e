"""Digest of a plan: everything that is approved is part of it."""

from __future__ import annotations

import pytest

from clusters.models import Pool
from jobs.forecast.strategy import parse
from jobs.models import ChangeSet, Plan
from jobs.planning import digests, planner


def test_the_same_input_is_the_same_digest(world):
    revision = world.revision()
    assert world.plan(revision).digest == world.plan(revision).digest


def _another_uid(plan: Plan) -> None:
    plan.nodes.filter(name="n1").update(uid="another")


def _another_change(plan: Plan) -> None:
    other = ChangeSet.objects.create(pk="f" * 64, content={"items": [], "unsupported": []}, worst_class="live")
    plan.nodes.filter(name="n1").update(change_set=other)


def _a_node_less(plan: Plan) -> None:
    plan.nodes.filter(name="n3").delete()


def _another_canary(plan: Plan) -> None:
    plan.nodes.filter(name="n1").update(batch=2)
    plan.nodes.filter(name="n2").update(batch=1)


def _left_out_after_all(plan: Plan) -> None:
    plan.nodes.filter(name="n1").update(left_out="because")


def _no_longer_listed_as_out(plan: Plan) -> None:
    plan.nodes.filter(name="n1").update(is_unavailable=True)


def _a_higher_budget(plan: Plan) -> None:
    Plan.objects.filter(pk=plan.pk).update(summary=plan.summary | {"budget": 3})


def _another_strategy(plan: Plan) -> None:
    Plan.objects.filter(pk=plan.pk).update(strategy=plan.strategy | {"max_failures": 1})


def _another_consent(plan: Plan) -> None:
    Plan.objects.filter(pk=plan.pk).update(strategy=plan.strategy | {"delete_empty_dir_data": True})


def _another_selector(plan: Plan) -> None:
    Plan.objects.filter(pk=plan.pk).update(selector={"matchLabels": {"pool": "all"}})


def _a_milder_class(plan: Plan) -> None:
    plan.nodes.filter(name="n1").update(worst_class="reboot")


@pytest.mark.parametrize(
    "tamper",
    [
        _another_uid, _another_change, _a_node_less, _another_canary, _left_out_after_all, _no_longer_listed_as_out,
        _a_higher_budget, _another_strategy, _another_consent, _another_selector, _a_milder_class,
    ],
)  # fmt: skip
def test_whatever_an_approver_relies_on_changes_the_digest(world, tamper):
    plan = world.plan()
    tamper(plan)
    assert digests.plan_digest(Plan.objects.get(pk=plan.pk)) != plan.digest


def test_what_later_batches_hold_is_a_forecast_and_not_approved(make_world):
    world = make_world(nodes=5)
    plan = world.plan(canary=1, batch="1", order="name")
    assert list(plan.nodes.order_by("batch").values_list("batch", flat=True)) == [1, 2, 3, 4, 5]

    plan.nodes.filter(name="n3").update(batch=5)
    plan.nodes.filter(name="n5").update(batch=3)

    assert digests.plan_digest(Plan.objects.get(pk=plan.pk)) == plan.digest


def test_another_revision_pool_or_cluster_is_another_digest(world):
    first = world.plan()
    other = Pool.objects.create(cluster=world.cluster, name="again", selector=world.pool.selector)
    digests = {
        first.digest,
        world.plan(world.revision({"vm.swappiness": "11"})).digest,
        planner.make(pool=other, revision=first.revision, strategy=parse({}), by=world.operator).digest,
    }
    assert len(digests) == 3
