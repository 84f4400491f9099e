"""Cost and weight of pages at 5,000 nodes: a fixed number of queries, and no line for each of thousands."""

from __future__ import annotations

import json
import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.models import Node, NodeTuning
from jobs import tasks
from jobs.forecast import slots
from jobs.forecast.strategy import Strategy
from jobs.models import Plan, Rollout, Slot, Step
from jobs.reports import plan_changes
from jobs.rollouts import eta
from tests.jobs.pages import browser, text_of
from tests.jobs.rows import more_nodes

MANY = 5000
HEAVIEST = 300_000


@pytest.fixture(autouse=True)
def asleep(monkeypatch):
    monkeypatch.setattr(tasks, "wake", lambda pk: None)


@pytest.fixture
def large(world):
    """5,000 nodes that start from 5,000 different values, one node a batch: the worst there is to show."""
    for number, tuning in enumerate(NodeTuning.objects.order_by("pk")):
        tuning.observed = tuning.observed | {"vm.swappiness": str(number + 11)}
        tuning.save(update_fields=["observed"])
    more_nodes(world, MANY - 3, answer=lambda number: {"vm.swappiness": str(number + 14)})
    return world


def look(user, path):
    client = browser(user)
    client.get(path)
    with CaptureQueriesContext(connection) as seen:
        answer = client.get(path)
    assert answer.status_code == 200
    assert len(answer.content) < HEAVIEST, (path, len(answer.content))
    return answer, len(seen)


@pytest.mark.one_database  # how many queries a page makes is Django's and ours; smaller plans ask them on both
def test_a_plan_of_5000_nodes_with_5000_values_and_batches_is_one_light_page(large):
    plan = large.plan(large.revision({"vm.swappiness": "10", "vm.max_map_count": "65530"}), canary=1, batch="1")
    assert plan.summary["nodes"] == MANY

    answer, queries = look(large.operator, f"/plans/P-{plan.number}/")
    assert queries <= 16
    changes = [c for g in answer.context["groups"] for c in g["changes"] if c["key"] == "vm.swappiness"]
    assert len(changes) == plan_changes.NAMED_VALUES
    assert sum(c["nodes"] for c in changes) == MANY, "folded, and none is lost"
    lines = answer.context["batches"]
    assert len(lines) == 5
    assert sum(line["nodes"] for line in lines) == MANY

    for query in ("view=node", "view=node&page=77", "view=node&q=m49", "view=node&key=vm.swappiness", "show=all"):
        _, queries = look(large.operator, f"/plans/P-{plan.number}/?{query}")
        assert queries <= 19, query


@pytest.mark.one_database
def test_a_rollout_of_5000_batches_is_a_few_lines_and_counts_every_node(large):
    plan = large.plan(canary=1, batch="1")
    rollout = large.started(plan)
    Rollout.objects.update(status="running")
    ended = {"status": "succeeded", "is_live": False, "stages": {"applying": 4.0, "verifying": 2.0}}
    Step.objects.filter(batch__lte=3000).update(**ended)
    Step.objects.filter(batch=3001).update(status="failed", is_live=False, error="The kernel answers 60.")
    Step.objects.filter(batch__in=(3002, 3003)).update(status="applying")

    answer, queries = look(large.operator, f"/rollouts/R-{rollout.number}/live/")
    assert queries <= 15
    lines = answer.context["batches"]
    assert [(b["number"], b["to"]) for b in lines] == [
        (1, 1), (2, 3000), (3001, 3001), (3002, 3002), (3003, 3003), (3004, 5000),
    ]  # fmt: skip
    assert sum(b["nodes"] for b in lines) == MANY
    text = text_of(answer.content.decode())
    assert "Batches 2 to 3,000" in text
    assert text.index("The kernel answers 60.") < text.index("Nodes by batch"), "the failing node comes first"
    left = answer.context["pace"]
    planned = sum(b["seconds"] for b in plan.summary["batches"][3001:])
    assert left.seconds == planned * 3, "each node took 6 s instead of 2"
    assert "3.0 ×" in left.why


@pytest.mark.parametrize(
    ("status", "steps", "why"),
    [
        ("paused", "queued", "Waiting for an operator"),
        ("stopped", "failed", "Waiting for an operator"),
        ("reverting", "queued", "revert or an abort"),
        ("running", "held", "waits for an operator"),
    ],
)
def test_where_nobody_can_say_how_long_no_number_is_made_up(world, status, steps, why):
    rollout = world.started()
    Rollout.objects.update(status=status)
    rollout.refresh_from_db()
    remaining = eta.remaining_time(rollout, Strategy(), {steps: 3})
    assert remaining.seconds is None
    assert why in remaining.why


def test_a_soaking_node_counts_down(world):
    rollout = world.started(soak_seconds=300)
    Rollout.objects.update(status="running")
    Step.objects.filter(node_name="n1").update(
        status="soaking", entered_at=world.clock(), waiting_for="Soaking n1, 300 s left."
    )
    path = f"/rollouts/R-{rollout.number}/live/"
    for passed, countdown in ((0, "300 s left"), (120, "180 s left"), (200, "Soaked")):
        world.clock.forward(passed)
        assert countdown in text_of(browser(world.operator).get(path).content.decode())


def test_before_any_node_is_done_the_plan_is_all_there_is_to_go_by(world):
    rollout = world.started(soak_seconds=60, batch="1")
    remaining = eta.remaining_time(rollout, Strategy.from_json(rollout.plan.strategy), {"queued": 3})
    assert remaining.seconds == rollout.plan.summary["seconds"]
    assert "As planned" in remaining.why


def test_what_no_node_needs_is_behind_the_toggle(world):
    number = world.plan(world.revision({"vm.swappiness": "10", "vm.dirty_ratio": "20"})).number
    observed = world.node("n1").tuning.observed["vm.dirty_ratio"]
    assert observed == "20", "or this tries nothing"
    answer = browser(world.operator).get(f"/plans/P-{number}/")
    assert "vm.dirty_ratio" not in text_of(answer.content.decode())
    text = text_of(browser(world.operator).get(f"/plans/P-{number}/?show=all").content.decode())
    assert "Already compliant" in text
    assert "vm.dirty_ratio" in text


@pytest.mark.parametrize(
    "query",
    [
        "view=node&page=x",
        "view=nope",
        "show=%00",
        "view=node&q=%00",
        "view=node&key=" + "k" * 5000,
        "view=node&page=-1",
    ],
)
def test_a_plan_takes_any_address(world, query):
    number = world.plan().number
    status = browser(world.operator).get(f"/plans/P-{number}/?{query}").status_code
    assert status == (400 if "%00" in query else 200)


def test_planning_again_begins_with_what_was_typed_before(world):
    plan = world.plan(batch="2", max_failures=3)
    html = browser(world.operator).get(f"/plans/new/?again={plan.number}").content.decode()
    assert re.search(r'name="max_failures" value="3"', html)
    assert re.search(r'name="batch" value="2"', html)
    for wrong in ("999999", "x", "²", "9" * 40, ""):
        assert browser(world.operator).get(f"/plans/new/?again={wrong}").status_code == 200


def test_a_blocked_plan_says_first_what_to_do(world):
    world.sim.add_pod("lonely", node="n1")
    world.tick(1)
    number = world.plan(world.revision({"cmdline.iommu": "pt"})).number
    text = text_of(browser(world.operator).get(f"/plans/P-{number}/").content.decode())
    assert text.index("blocked and cannot be approved") < text.index("Nodes that change")
    assert "Set delete_unmanaged_pods" in text


def test_few_values_are_not_folded(world):
    """REST has them all: the page alone folds."""
    plan = world.plan(world.revision({"vm.swappiness": "10"}))
    groups = plan_changes.grouped_changes(plan)
    assert json.dumps(plan_changes.folded_groups(groups)) == json.dumps(groups), "few values are not folded"


def test_the_page_counts_who_is_out_of_service_as_the_ledger_does(make_world):
    """Law 1 is kept by `ledger.places`; the page asks the same in one query."""
    world = make_world(nodes=6)
    rollout = world.started()
    nodes = {node.name: node for node in Node.objects.all()}
    Node.objects.filter(name="n1").update(is_ready=False)
    Node.objects.filter(name__in=["n2", "n3"]).update(is_cordoned=True)
    rollout.plan.nodes.filter(name="n2").update(is_unavailable=True)
    for name in ("n3", "n4", "n5"):
        step = rollout.steps.get(node_name=name)
        Slot.objects.create(cluster=world.cluster, node=nodes[name], step=step)
    Node.objects.filter(name="n5").update(gone_at=world.clock())

    Rollout.objects.filter(pk=rollout.pk).update(status="running")
    Plan.objects.filter(pk=rollout.plan_id).update(worst_class="reboot")
    counted = slots.out_of_service(world.cluster)
    assert counted.slots == {nodes[name].pk for name in ("n3", "n4")}
    assert (counted.since, counted.before) == ({nodes["n1"].pk}, {nodes["n2"].pk}), "or this tries too little"
    shown = browser(world.operator).get(f"/rollouts/R-{rollout.number}/").context["out"]
    assert shown.counts() == {
        "total": 4,
        "by_setpoint": 2,
        "allowed": 1,
        "before": 1,
        "by_others": 1,
        "reserved": 0,
        "gpus": 32,
    }
