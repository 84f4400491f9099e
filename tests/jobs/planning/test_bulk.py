"""All nodes of a filter at once: the number that a person confirmed is held to by the server, node by node."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from audit.models import Record
from clusters.models import Node
from common.errors import Invalid, NotAllowed
from compliance.models import Assignment
from jobs.models import Plan
from jobs.planning import bulk
from tests.factories import UserFactory
from tests.jobs.conftest import World


@pytest.fixture
def target(world: World) -> Assignment:
    return Assignment.objects.create(pool=world.pool, revision=world.revision())


def confirmed(selection: bulk.NodeSelection) -> dict[str, Any]:
    return {"count": selection.count, "digest": selection.digest}


def visit(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_a_draft_plan_to_its_own_target_is_made_for_each_pool_concerned(world: World, target: Assignment) -> None:
    selection = bulk.select_nodes({"q": "n1"}, world.operator)

    done = bulk.plan_selection(selection, **confirmed(selection), by=world.operator)

    assert [(plan.pool, plan.revision, plan.status) for plan in done.plans] == [
        (world.pool, target.revision, Plan.Status.DRAFT)
    ]
    assert Record.objects.get(action="nodes.plan").after["nodes"] == 1
    assert world.value("n1") == "60", "a plan writes nothing"


@pytest.mark.parametrize("change", ["joins", "replaced"])
def test_a_filter_with_other_nodes_than_were_confirmed_is_refused_and_nothing_is_done(
    world: World, target: Assignment, change: str
) -> None:
    seen = bulk.select_nodes({"labels": "pool=train"}, world.operator)
    if change == "joins":
        world.sim.add_node("n9", gpus=8, labels={"pool": "train"})
    else:
        world.sim.nodes.replace("n1")  # as many as before, but not the same
    world.tick(1)

    now = bulk.select_nodes({"labels": "pool=train"}, world.operator)
    with pytest.raises(bulk.SelectionChanged):
        bulk.plan_selection(now, **confirmed(seen), by=world.operator)

    assert not Plan.objects.exists()


def test_the_page_shows_the_new_number_after_a_mismatch(world: World, target: Assignment) -> None:
    form = {"verb": "plan", "count": "2", "digest": "0" * 64}

    answer = visit(world.operator).post("/nodes/all/?labels=pool%3Dtrain", form)

    assert answer.status_code == 409
    assert "the filter now has 3" in answer.content.decode()
    assert not Plan.objects.exists()


def test_whoever_may_not_in_one_of_the_clusters_does_none_of_it(world: World, target: Assignment) -> None:
    viewer = UserFactory(roles=["viewer"])
    selection = bulk.select_nodes({"q": "n"}, viewer)

    with pytest.raises(NotAllowed, match="operator"):
        bulk.plan_selection(selection, **confirmed(selection), by=viewer)
    with pytest.raises(NotAllowed, match="operator"):
        bulk.refresh_selection(selection, **confirmed(selection), by=viewer)

    assert not Plan.objects.exists()


@pytest.mark.parametrize(
    "params",
    [{}, {"healht": "degraded"}, {"health": "ill"}, {"compliance": "maybe"}, {"labels": "a=b=c"}, {"q": "nobody"}],
)
def test_a_filter_that_is_misspelled_or_empty_or_chooses_nothing_acts_on_nothing(
    world: World, params: dict[str, str]
) -> None:
    with pytest.raises(Invalid):
        bulk.select_nodes(params, world.operator)


def test_nodes_that_one_may_not_see_are_not_among_them(world: World) -> None:
    stranger = UserFactory(roles=["operator@env:production"])

    with pytest.raises(Invalid, match="No node"):
        bulk.select_nodes({"q": "n"}, stranger)


def test_a_verb_that_does_not_exist_is_refused(world: World) -> None:
    selection = bulk.select_nodes({"q": "n"}, world.operator)
    form = {"verb": "reboot", "count": selection.count, "digest": selection.digest}

    assert visit(world.operator).post("/nodes/all/?q=n", form).status_code == 422


def test_choosing_costs_as_many_queries_for_many_nodes_as_for_few(world: World, target: Assignment) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            bulk.select_nodes({"labels": "pool=train"}, world.operator)
        return len(seen)

    few = queries()
    for number in range(10, 40):
        world.sim.add_node(f"n{number}", gpus=8, labels={"pool": "train"})
    world.observe()

    assert Node.objects.count() == 33
    assert queries() <= few <= 8


def test_a_pool_made_of_a_filter_is_held_to_the_number_that_was_shown(world: World) -> None:
    form = {"name": "again", "selector": "pool=train", "intent": "save", "count": "2"}
    operator = visit(world.operator)
    where = f"/clusters/{world.cluster.pk}/pools/new/"

    refused, made = operator.post(where, form), operator.post(where, form | {"count": "3"})

    assert (refused.status_code, made.status_code) == (422, 302)
    assert "You previewed 2 nodes; the selector matches 3 now" in refused.content.decode()
