"""Pages about plans, approvals, rollouts and freezes: content, permissions, and cost."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from clusters.models import Cluster, Node, Pool
from common.clock import now
from jobs import tasks
from jobs.approvals import reviews
from jobs.forecast.strategy import parse
from jobs.models import Freeze, Plan, Rollout, Step, StepEvent
from jobs.planning import planner
from jobs.rollouts import freezes, rollout_actions
from profiles.models import Profile
from tests.factories import UserFactory
from tests.jobs.conftest import World, person
from tests.jobs.rows import more_nodes, more_plans, steps_like

HOSTILE = "<script>alert(1)</script>\"'&{{ 7*7 }}"
FORM = {
    "canary": "1", "batch": "25%", "budget": "0", "max_in_flight": "300", "max_failures": "0", "soak_seconds": "0",
    "drain_timeout_seconds": "1800", "step_deadline_seconds": "900", "reboot_deadline_seconds": "2700",
    "order": "idle-first", "on_failure": "stop",
}  # fmt: skip


@pytest.fixture(autouse=True)
def asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "wake", lambda pk: None)


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def page(user: User, path: str, status: int = 200) -> str:
    answer = browser(user).get(path)
    assert answer.status_code == status, (path, answer.status_code)
    return answer.content.decode()


def text_of(html: str) -> str:
    main = html[html.index("<main") :] if "<main" in html else html
    return " ".join(re.sub(r"<[^>]*>", " ", main).split())


def button(html: str, label: str) -> str:
    """The whole tag of the button that says so."""
    found = re.findall(
        rf"<button[^>]*>(?:(?!</button>).)*{re.escape(label)}(?:(?!</button>).)*</button>", html, re.DOTALL
    )
    assert len(found) == 1, (label, found)
    return str(found[0])


def is_disabled(html: str, label: str) -> bool:
    return "aria-disabled" in button(html, label)


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
        for path, told in pages.items():
            said = text_of(page(reader, path))
            assert [words for words in told if words not in said] == [], (role, path)
        assert ("P-2" in text_of(page(reader, "/approvals/"))) is (role == "approver")


def test_a_plan_with_everything_in_it_is_told_whole(make_world):
    world = make_world(nodes=4, environment="production")
    Node.objects.filter(name="n4").update(is_ready=False)
    revision = world.revision(
        {"cmdline.iommu": "pt", "vm.swappiness": ">= 100", "fs.nr_open": "5"},
        labels={"a.io/b": "c"}, taints=[("gpu", "yes", "NoExecute")],
    )  # fmt: skip

    said = text_of(page(world.operator, f"/plans/P-{world.plan(revision, delete_unmanaged_pods=True).number}/"))

    for words in ["Reboots 3 of 4 production nodes", "gpu:NoExecute", "a.io/b", "fs.nr_open does not exist",
                  "not Ready", "2 approvers must agree", "canary", "GPU time lost"]:  # fmt: skip
        assert words in said, words


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


# ── who may do what ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_button_that_would_not_work_is_disabled_and_says_why(world):
    world.plan()
    viewer = person("viewer")
    html = page(viewer, "/plans/P-1/")
    assert is_disabled(html, "Request approval of P-1")
    assert "the role operator for atlas" in text_of(html)
    assert not is_disabled(page(world.operator, "/plans/P-1/"), "Request approval of P-1")


def test_a_blocked_plan_cannot_be_asked_for_and_says_so(world):
    world.sim.add_pod("lonely", node="n1")
    world.tick(1)
    world.plan(world.revision({"cmdline.iommu": "pt"}))
    html = page(world.operator, "/plans/P-1/")
    assert is_disabled(html, "Request approval of P-1")
    assert "Not possible" in text_of(html)


def test_only_who_may_judge_gets_the_verdict_form_and_others_learn_why_not(world):
    reviews.request(world.plan(), by=world.operator)
    assert "data-verdict" in page(world.approver, "/plans/P-1/")
    for who, why in (
        (world.operator, "Authors cannot approve their own plans"),
        (world.author, "you wrote gpu r1"),
        (world.admin, "role approver"),
    ):
        html = page(who, "/plans/P-1/")
        assert "data-verdict" not in html
        assert why in text_of(html)


def test_what_a_rollout_permits_is_a_button_and_the_rest_says_why_not(world):
    world.started()
    operators, viewers = page(world.operator, "/rollouts/R-1/"), page(person("viewer"), "/rollouts/R-1/")
    assert not is_disabled(operators, "Abort")
    assert is_disabled(operators, "Revert all")
    assert "Not possible: it is running: pause or abort it first." in text_of(operators)
    for label in ("Abort", "Revert all", "Pause"):
        assert is_disabled(viewers, label)
    assert "this needs the role operator for atlas" in text_of(viewers)


def test_a_rollout_that_ended_says_once_what_can_no_longer_be_done(world):
    rollout = world.started()
    Rollout.objects.filter(pk=rollout.pk).update(status="reverted", finished_at=now())
    html = page(world.operator, "/rollouts/R-1/")
    assert "Not possible" not in text_of(html)
    assert "ended, and it cannot be put back: it is already reverted. To change its nodes again" in text_of(html)
    Rollout.objects.filter(pk=rollout.pk).update(status="succeeded")
    Step.objects.filter(rollout=rollout).update(status="succeeded", has_applied=True, is_live=False)
    html = page(world.operator, "/rollouts/R-1/")
    assert not is_disabled(html, "Revert all")
    assert "Not possible" not in text_of(html)
    assert "no further actions" in text_of(html)


def test_a_viewer_is_told_before_filling_in_a_plan_or_a_freeze(world):
    freezes.freeze(cluster=world.cluster, reason="here", by=world.operator)
    viewer = person("viewer")
    assert is_disabled(page(viewer, "/plans/new/"), "Create plan")
    html = page(viewer, "/freezes/")
    assert is_disabled(html, "Stop new starts")
    assert is_disabled(html, "Lift")
    assert text_of(html).count("This needs the role operator") == 2
    for path, label in (("/plans/new/", "Create plan"), ("/freezes/", "Stop new starts"), ("/freezes/", "Lift")):
        assert not is_disabled(page(world.operator, path), label)


def test_a_freeze_of_all_is_the_admins_to_lift(world):
    freezes.freeze(cluster=None, reason="all", by=world.admin)
    assert is_disabled(page(world.operator, "/freezes/"), "Lift")
    assert not is_disabled(page(world.admin, "/freezes/"), "Lift")


# ── what is not one's own cluster's is not there ──────────────────────────────────────────────────────────────────────


def test_nothing_of_a_cluster_outside_ones_scope_is_shown_or_changed(world):
    rollout = world.started()
    reviews.request(world.plan(world.revision({"vm.swappiness": "12"})), by=world.operator)
    row = freezes.freeze(cluster=world.cluster, reason="Secret migration", by=world.operator)
    roles = [f"{role}@env:production" for role in ("viewer", "operator", "approver", "admin")]
    stranger = browser(UserFactory(roles=roles))
    for path in ("/", "/plans/", "/rollouts/", "/approvals/", "/freezes/", "/plans/new/"):
        html = stranger.get(path).content.decode()
        for word in ("atlas", "Secret migration", "P-1", "R-1"):
            assert word not in html, (path, word)
    step = rollout.steps.first()
    for path in ("/plans/P-1/", "/rollouts/R-1/", "/rollouts/R-1/live/", f"/rollouts/R-1/steps/{step.pk}/"):
        assert stranger.get(path).status_code == 404
    for path in ("/plans/P-2/withdraw/", "/rollouts/R-1/abort/", f"/freezes/{row.pk}/lift/"):
        answer = stranger.post(path)
        assert answer.status_code == 404
        assert b"atlas" not in answer.content
    assert not Freeze.objects.exclude(lifted_at=None).exists()


def test_a_freeze_of_all_clusters_is_everybodys_news(world):
    freezes.freeze(cluster=None, reason="Year end", by=world.admin)
    assert "Year end" in page(UserFactory(roles=["viewer@env:production"]), "/freezes/")


def test_a_plan_waits_for_those_alone_who_may_judge_it(world):
    reviews.request(world.plan(), by=world.operator)
    both = UserFactory(roles=["viewer", "approver@env:production"])
    own = UserFactory(roles=["viewer", "approver@env:staging"])
    assert "Review P-1" not in page(both, "/approvals/")
    assert "Review P-1" in page(own, "/approvals/")
    reviews.approve(Plan.objects.get(), by=own, digest=Plan.objects.get().digest)
    Plan.objects.update(status="review")
    assert "Review P-1" not in page(own, "/approvals/")
    reviews.retract(Plan.objects.get(), by=own)
    assert "Review P-1" in page(own, "/approvals/"), "taken back is not decided"


def test_the_count_in_the_frame_is_the_length_of_the_list(world):
    reviews.request(world.plan(), by=world.operator)
    reviews.request(world.plan(world.revision({"vm.swappiness": "12"})), by=world.operator)
    for who, count in ((world.approver, 2), (world.operator, 0), (world.author, 0), (world.admin, 0)):
        answer = browser(who).get("/approvals/")
        assert answer.context["frame"].approvals == len(answer.context["to_review"]) == count


# ── forms ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_is_made_from_the_form_and_says_where(world):
    answer = browser(world.operator).post(
        "/plans/new/",
        FORM
        | {"pool": world.pool.pk, "revision": world.revision().pk, "message": "Why", "reboot_deadline_seconds": "60"},
    )
    assert (answer.status_code, answer["Location"]) == (302, "/plans/P-1/")
    plan = Plan.objects.get()
    assert (plan.message, plan.strategy["reboot_deadline_seconds"]) == ("Why", 60)


def test_every_field_of_a_strategy_can_be_given_on_the_page(world):
    import dataclasses

    from jobs.forecast.strategy import Strategy
    from jobs.web.forms import PlanForm

    html = page(world.operator, "/plans/new/")
    for field in dataclasses.fields(Strategy):
        assert field.name in PlanForm(user=world.operator).fields
        assert f'name="{field.name}"' in html


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"canary": "-1"}, "canary"),
        ({"canary": "9" * 40}, "canary"),
        ({"batch": "101%"}, "batch"),
        ({"batch": ""}, "batch"),
        ({"order": "x"}, "order"),
        ({"reboot_deadline_seconds": "5"}, "reboot_deadline_seconds"),
        ({"pool": "0"}, "pool"),
        ({"pool": "9" * 40}, "pool"),
        ({"revision": "x"}, "revision"),
        ({"message": "x" * 501}, "message"),
    ],
)
def test_an_error_stands_beside_its_field_and_nothing_typed_is_lost(world, wrong, field):
    typed = {
        "pool": str(world.pool.pk),
        "revision": str(world.revision().pk),
        "message": "Because",
        "budget": "7",
        "batch": "3",
    }
    answer = browser(world.operator).post("/plans/new/", FORM | typed | {"delete_empty_dir_data": "on"} | wrong)
    html = answer.content.decode()
    assert answer.status_code == 422
    assert f'id="id_{field}-error"' in html
    assert 'value="7"' in html
    assert re.search(r'name="delete_empty_dir_data"[^>]*checked', html)
    if field != "message":
        assert 'value="Because"' in html
    assert not Plan.objects.exists()


def test_a_refusal_of_the_planner_is_on_the_form_too(world):
    typed = FORM | {"pool": str(world.pool.pk), "revision": str(world.revision().pk), "message": "Because"}
    Pool.objects.update(selector={"matchLabels": {"pool": "none"}})
    at_field = browser(world.operator).post("/plans/new/", typed)
    assert (at_field.status_code, at_field.context["form"].errors.keys()) == (422, {"pool"})
    Cluster.objects.update(reach="unreachable", reach_reason="no route to host")
    html = browser(world.operator).post("/plans/new/", typed).content.decode()
    assert "no route to host" in text_of(html)
    assert 'value="Because"' in html


def test_a_refused_verdict_stays_where_it_was_typed(world):
    plan = reviews.request(world.plan(), by=world.operator)
    approver = browser(world.approver)

    answer = approver.post("/plans/P-1/verdict/", {"verdict": "reject", "digest": plan.digest, "comment": " "})
    html = answer.content.decode()
    assert answer.status_code == 422
    assert "Give the reason" in html[html.index('id="verdict-comment"') :]
    assert re.search(r'value="reject"[^>]*checked', html)

    answer = approver.post("/plans/P-1/verdict/", {"verdict": "approve", "digest": "sha256:x", "comment": "I like it"})
    assert answer.status_code == 409
    assert "I like it</textarea>" in answer.content.decode()
    assert "not what you saw" in text_of(answer.content.decode())
    assert Plan.objects.get().status == "review"


def test_a_refused_start_or_request_keeps_what_was_typed(world):
    world.plan()
    answer = browser(world.operator).post("/plans/P-1/request/", {"comment": "y" * 501})
    html = answer.content.decode()
    assert answer.status_code == 422
    assert "y" * 501 + "</textarea>" in html
    assert "At most 500" in html

    world.approved(Plan.objects.get())
    for wrong in ("soon", "2020-01-01T00:00", "9999-12-31T23:59", "9999-12-31T23:59-12:00"):
        answer = browser(world.operator).post("/plans/P-1/start/", {"at": wrong})
        html = answer.content.decode()
        assert answer.status_code == 422, wrong
        assert f'value="{wrong}"' in html
        assert 'id="at-error"' in html
    assert not Rollout.objects.exists()


def test_the_verbs_of_a_plan_work_from_the_page(world):
    operator, approver = browser(world.operator), browser(world.approver)
    plan = world.plan()
    assert operator.post("/plans/P-1/request/", {"comment": "Please"})["Location"] == "/plans/P-1/"
    approve = {"verdict": "approve", "digest": plan.digest, "comment": "Fine"}
    assert approver.post("/plans/P-1/verdict/", approve)["Location"] == "/plans/P-1/"
    assert approver.post("/plans/P-1/retract/")["Location"] == "/plans/P-1/"
    assert Plan.objects.get().status == "review"
    approver.post("/plans/P-1/approve/", {"digest": plan.digest})
    started = operator.post("/plans/P-1/start/", {"at": "2026-11-22T08:00"})
    assert started["Location"] == "/rollouts/R-1/"
    assert Rollout.objects.get().start_at == datetime(2026, 11, 22, 8, tzinfo=UTC)


def test_the_verbs_of_a_rollout_work_from_the_page_and_refusals_are_told(world):
    rollout = world.run(world.started())
    operator = browser(world.operator)
    told = operator.post("/rollouts/R-1/pause/", follow=True)
    assert told.redirect_chain == [("/rollouts/R-1/", 302)]
    assert "Not possible: it is not running." in text_of(told.content.decode())
    told = operator.post("/rollouts/R-1/skip/", {"step": "x"}, follow=True)
    assert "Must be a step" in told.content.decode()
    operator.post("/rollouts/R-1/revert/", {"confirmed": "yes"})
    rollout.refresh_from_db()
    assert rollout.status == "reverting"


def test_a_verb_that_is_only_looked_at_leads_back_to_its_page(world):
    """The browser asks for the verb's own address after a log-in that interrupted it."""
    world.started()
    row = freezes.freeze(cluster=world.cluster, reason="x", by=world.operator)
    client = browser(world.operator)
    for path, back in (
        ("/plans/P-1/verdict/", "/plans/P-1/"),
        ("/rollouts/R-1/abort/", "/rollouts/R-1/"),
        (f"/freezes/{row.pk}/lift/", "/freezes/"),
    ):
        answer = client.get(path)
        assert (answer.status_code, answer["Location"]) == (302, back)
    assert Rollout.objects.get().status == "queued"
    assert Freeze.standing(world.cluster.pk).exists()


@pytest.mark.parametrize("until", ["soon", "2020-01-01T00:00", "9999-12-31T23:59-12:00"])
def test_a_freeze_that_cannot_be_is_refused_beside_its_field(world, until):
    answer = browser(world.operator).post(
        "/freezes/", {"cluster": str(world.cluster.pk), "reason": "Holiday", "until": until}
    )
    html = answer.content.decode()
    assert answer.status_code == 422
    assert 'id="id_until-error"' in html
    assert 'value="Holiday"' in html
    assert f'value="{until}"' in html
    assert not Freeze.objects.exists()


def test_a_freeze_is_set_and_lifted_from_the_page(world):
    client = browser(world.operator)
    assert client.post("/freezes/", {"cluster": str(world.cluster.pk), "reason": "Holiday"}).status_code == 302
    assert client.post(f"/freezes/{Freeze.objects.get().pk}/lift/").status_code == 302
    assert not Freeze.standing(world.cluster.pk).exists()
    refused = client.post("/freezes/", {"reason": "everywhere"})
    assert refused.status_code == 422
    assert "admin" in text_of(refused.content.decode())


@pytest.mark.parametrize(
    "query", ["status=review", "status=nope", "cluster=atlas", "cluster=nowhere", "page=2", "page=x", "page=-1"]
)
@pytest.mark.parametrize("path", ["/plans/", "/rollouts/"])
def test_a_list_takes_any_filter_and_never_fails(world, path, query):
    world.started()
    said = text_of(page(world.operator, f"{path}?{query}"))
    is_empty = query == "cluster=nowhere" or (query == "status=review" and path == "/plans/")
    assert ("matches" in said) is is_empty


@pytest.mark.parametrize("query", ["pool=²&revision=²", "pool=999999999999999999999999&revision=x"])
def test_a_new_plan_takes_any_start(world, query):
    page(world.operator, f"/plans/new/?{query}")


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


# ── cost ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

BUDGETS = {
    "/": 15,
    "/plans/": 12,
    "/plans/P-1/": 15,
    "/plans/new/": 12,
    "/approvals/": 14,
    "/rollouts/": 12,
    "/rollouts/R-1/": 17,
    "/rollouts/R-1/live/": 15,
    "/freezes/": 12,
}


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
