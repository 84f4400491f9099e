"""Pages about plans, approvals, rollouts and freezes: content, escaping, and cost."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters.models import Cluster, Node
from jobs.approvals import reviews
from jobs.engine import sweeping
from jobs.forecast.strategy import parse
from jobs.models import Plan, Rollout, Step, StepEvent
from jobs.planning import planner
from jobs.rollouts import freezes, rollout_actions
from profiles.models import Profile
from tests.factories import UserFactory
from tests.jobs.conftest import World, person
from tests.jobs.pages import browser, page, text_of
from tests.jobs.rows import more_nodes, more_plans, steps_like

HOSTILE = "<script>alert(1)</script>\"'&{{ 7*7 }}"


# ── they render ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_empty_installation_says_what_to_do_first(db):
    admin = person("admin")
    assert "Connect your first cluster" in page(admin, "/")
    assert "No plan yet" in page(admin, "/plans/")
    assert "No rollout yet" in page(admin, "/rollouts/")
    assert "Nothing waits for you" in page(admin, "/approvals/")
    assert "No active freeze" in page(admin, "/freezes/")


def test_every_page_tells_its_story_to_every_role(world):
    rollout = world.run(world.started())
    reviews.request(world.plan(world.revision({"vm.swappiness": "11"})), by=world.operator, message="Faster")
    freezes.freeze(cluster=world.cluster, reason="Black Friday", by=world.operator)
    step = rollout.steps.get(node_name="n1")
    pages = {
        "/": ["Fleet", "atlas", "R-1", "Black Friday"],
        "/plans/": ["P-1", "P-2", "atlas / train", "operator@example.com", "Started"],
        "/plans/P-1/": ["vm.swappiness", "60", "10", "× 3 nodes", "Batches", "approver@example.com", "Open R-1"],
        "/plans/P-2/": [
            "Needs review",
            "11",
            "Faster",
            "0 of 1",
            "Your review",
            "operator@example.com requested review",
        ],
        "/plans/new/": ["New plan", "A plan writes nothing"],
        "/approvals/": ["To review", "My requests"],
        "/rollouts/": ["R-1", "Succeeded", "gpu r1"],
        "/rollouts/R-1/": ["Succeeded", "3 of 3", "Batch 1", "Revert all", "Started P-1 of gpu r1."],
        "/rollouts/R-1/live/": ["3 of 3", "More actions"],
        f"/rollouts/R-1/steps/{step.pk}/": ["n1", "vm.swappiness", "Log", "Apply"],
        "/freezes/": ["Black Friday", "atlas"],
    }
    for role in ("viewer", "operator", "approver", "admin"):
        reader = person(f"reading-{role}", role=role)
        for path, sentences in pages.items():
            text = text_of(page(reader, path))
            assert [words for words in sentences if words not in text] == [], (role, path)
        assert ("P-2" in text_of(page(reader, "/approvals/"))) is (role == "approver")


def test_a_plan_with_everything_in_it_is_told_whole(make_world):
    world = make_world(nodes=4, environment="production")
    Node.objects.filter(name="n4").update(is_ready=False)
    revision = world.revision(
        {"cmdline.iommu": "pt", "vm.swappiness": ">= 100", "fs.nr_open": "5"},
        labels={"a.io/b": "c"}, taints=[("gpu", "yes", "NoExecute")],
    )  # fmt: skip

    text = text_of(page(world.operator, f"/plans/P-{world.plan(revision, delete_unmanaged_pods=True).number}/"))

    for words in ["Reboots 3 of 4 production nodes", "gpu:NoExecute", "a.io/b", "fs.nr_open does not exist",
                  "not Ready", "2 approvers must agree", "canary", "GPU time lost"]:  # fmt: skip
        assert words in text, words


@pytest.mark.parametrize("status", Plan.Status.values)
def test_a_plan_renders_in_every_state(world, status):
    plan = world.plan()
    Plan.objects.filter(pk=plan.pk).update(status=status)
    for who in (world.operator, world.approver, world.admin):
        assert Plan.Status(status).label in text_of(page(who, "/plans/P-1/"))


@pytest.mark.parametrize(
    ("status", "steps"),
    [(status, "verifying") for status in Rollout.Status.values] + [("running", steps) for steps in Step.Status.values],
)
def test_a_rollout_renders_in_every_state_of_it_and_of_its_steps(world, status, steps):
    rollout = world.started()
    Rollout.objects.filter(pk=rollout.pk).update(status=status)
    steps_like(rollout, steps, per_batch=2)
    is_live = status in Rollout.LIVE
    for path in ("/rollouts/R-1/", "/rollouts/R-1/live/"):
        html = page(world.operator, path)
        assert ("hx-trigger" in html[html.index('id="rollout"') :]) is is_live, "a final one asks for nothing any more"
    page(world.operator, f"/rollouts/R-1/steps/{rollout.steps.first().pk}/")


def test_the_live_part_is_the_page_without_its_frame(world):
    world.started()
    whole, part = page(world.operator, "/rollouts/R-1/"), page(world.operator, "/rollouts/R-1/live/")
    assert "<html" in whole
    assert "<html" not in part
    assert part.strip().startswith('<div id="rollout"')
    assert 'hx-get="/rollouts/R-1/live/"' in part


# ── escaping ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_name_and_no_comment_becomes_markup(world):
    Node.objects.filter(name="n1").update(name=HOSTILE, gpu_product=HOSTILE)
    Profile.objects.update(name=HOSTILE)
    plan = planner.make(
        pool=world.pool,
        revision=world.revision(labels={"x": HOSTILE}),
        strategy=parse({}),
        by=world.operator,
        message=HOSTILE,
    )
    reviews.request(plan, by=world.operator, message=HOSTILE)
    reviews.approve(plan, by=world.approver, digest=plan.digest, comment=HOSTILE)
    freezes.freeze(cluster=world.cluster, reason=HOSTILE, by=world.operator)
    rollout = rollout_actions.start(Plan.objects.get(), by=world.operator)
    Step.objects.update(status="held", error=HOSTILE, waiting_for=HOSTILE)
    Rollout.objects.update(waiting_for=HOSTILE)
    StepEvent.objects.create(rollout=rollout, step=rollout.steps.first(), text=HOSTILE, level="bad")
    StepEvent.objects.create(rollout=rollout, text=HOSTILE)
    Cluster.objects.update(reach_reason=HOSTILE)
    paths = ["/", "/plans/", "/plans/P-1/", "/approvals/", "/rollouts/", "/rollouts/R-1/", "/freezes/", "/plans/new/"]
    paths += [f"/rollouts/R-1/steps/{s.pk}/" for s in rollout.steps.all()] + [
        f"/plans/?cluster={HOSTILE}&status={HOSTILE}"
    ]
    for path in paths:
        answer = browser(world.operator).get(path)
        assert answer.status_code == 200
        html = answer.content.decode()
        assert "<script>alert" not in html, path
        assert "49" not in re.findall(r"alert\(1\).{0,40}", html), path
    assert "&lt;script&gt;" in page(world.operator, "/rollouts/R-1/")


BUDGETS = {
    "/": 15,
    "/plans/": 12,
    "/plans/P-1/": 18,  # the last one: pools of teams in its cluster, for its owners
    "/plans/new/": 12,
    "/approvals/": 14,
    "/rollouts/": 12,
    "/rollouts/R-1/": 17,
    "/rollouts/R-1/live/": 15,
    "/freezes/": 12,
}


# ── cost ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def cost(client: Client, path: str) -> int:
    client.get(path)
    with CaptureQueriesContext(connection) as seen:
        assert client.get(path).status_code == 200
    return len(seen)


def test_a_page_costs_the_same_queries_at_3_nodes_and_at_300(make_world):
    world = make_world(nodes=3)
    judge = browser(UserFactory(roles=["approver"]))
    operator = browser(world.operator)

    def costs() -> dict[str, int]:
        return {path: cost(judge if path in ("/", "/approvals/") else operator, path) for path in BUDGETS}

    rollout = world.started(world.plan(canary=0, batch="1"))
    Rollout.objects.update(status="running")
    steps_like(rollout, "failed", per_batch=1)
    more_plans(world, 1, status="review")
    more_plans(world, 1, status="started", with_rollouts="stopped")
    few = costs()

    more_nodes(world, 297)
    _all_nodes_into(world, rollout)
    more_plans(world, 60, status="review")
    more_plans(world, 60, status="started", with_rollouts="stopped")
    many = costs()

    assert rollout.steps.count() == 300
    assert many == few
    assert {path: (count, BUDGETS[path]) for path, count in few.items() if count > BUDGETS[path]} == {}


def _all_nodes_into(world: World, rollout: Rollout) -> None:
    """A step for every node, each failed, each in a batch of its own: the worst there is to show."""
    first = rollout.steps.select_related("plan_node").order_by("pk")[0]
    there = set(rollout.steps.values_list("node_id", flat=True))
    new = Node.objects.exclude(pk__in=there)
    plan_nodes = [
        type(first.plan_node)(plan=rollout.plan, node=n, uid=n.uid, name=n.name, change_set=first.plan_node.change_set,
                              worst_class="live", batch=i, position=i)
        for i, n in enumerate(new, 4)
    ]  # fmt: skip
    type(first.plan_node).objects.bulk_create(plan_nodes)
    Step.objects.bulk_create(
        Step(rollout=rollout, plan_node=p, node_id=p.node_id, node_uid=p.uid, node_name=p.name, batch=p.batch,
             position=p.position, worst_class="live", status="failed", is_live=False, error="x")
        for p in plan_nodes
    )  # fmt: skip


def test_a_large_rollout_shows_its_worst_batches_and_counts_the_rest(make_world):
    world = make_world(nodes=3)
    rollout = world.started(world.plan(canary=0, batch="1"))
    steps_like(rollout, "failed", per_batch=1)
    more_nodes(world, 297)
    _all_nodes_into(world, rollout)
    steps_like(rollout, "failed", per_batch=150)

    answer = browser(world.operator).get("/rollouts/R-1/")

    batches = answer.context["batches"]
    assert [b["nodes"] for b in batches] == [150, 150]
    assert [len(b["steps"]) + b["hidden"] for b in batches] == [150, 150]
    assert all(len(b["steps"]) <= 60 for b in batches)
    assert len(answer.content) < 400_000


def test_a_live_rollout_says_that_the_broker_is_away(world, settings):
    settings.EMBEDDED = False
    world.started(world.plan())
    client = browser(world.operator)
    marked = b'data-note="broker-away"'
    assert marked not in client.get("/rollouts/R-1/").content
    sweeping.claim("celery", "worker-1")
    assert marked in client.get("/rollouts/R-1/").content
    assert marked in client.get("/rollouts/R-1/live/").content
    settings.SETPOINT_HAS_BROKER = False
    assert marked not in client.get("/rollouts/R-1/").content, "it is slow by choice"
    settings.SETPOINT_HAS_BROKER = True
    Rollout.objects.update(status="succeeded")
    assert marked not in client.get("/rollouts/R-1/").content
