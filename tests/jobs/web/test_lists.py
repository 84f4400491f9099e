"""Laws of every list: each row once on its pages, in any order and direction; the page and REST agree; no dead end."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import RoleBinding
from clusters.models import Cluster
from common import keyset
from common.clock import now
from jobs import tasks
from jobs.approvals import reviews
from jobs.models import Plan, Rollout, Step
from jobs.web import filters
from tests import marks
from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import World
from tests.jobs.pages import browser, page, text_of
from tests.jobs.rows import more_nodes, more_plans, steps_like

API = "/api/v1"


@pytest.fixture(autouse=True)
def asleep(monkeypatch):
    monkeypatch.setattr(tasks, "wake", lambda pk: None)


@pytest.fixture
def many(world: World) -> World:
    """130 plans and rollouts, with many equal values in every column."""
    like = world.plan()
    for status in ("review", "draft", "expired"):
        more_plans(world, 20, status=status, like=like)
    more_plans(world, 30, status="started", with_rollouts="stopped", like=like)
    more_plans(world, 40, status="started", with_rollouts="succeeded", like=like)
    plans = list(Plan.objects.order_by("number"))
    for place, plan in enumerate(plans):
        plan.summary["nodes"] = place % 3
        plan.worst_class = ("live", "reboot", "drain")[place % 3]
        plan.created_at = now() - timedelta(hours=place % 7)
        plan.expires_at = now() + timedelta(days=place % 5)
        is_asked = place % 2 or plan.status == "review"
        plan.requested_at = now() - timedelta(minutes=place % 4) if is_asked else None
    columns = ["summary", "worst_class", "created_at", "expires_at", "requested_at"]
    Plan.objects.bulk_create(plans, update_conflicts=True, unique_fields=["id"], update_fields=columns)
    # A role that is given after a plan was asked for does not count for it: these were given before all of them.
    marks.put(RoleBinding.objects.all(), created_at=now() - timedelta(days=30))
    Rollout.objects.filter(status="succeeded", number__gt=1080).update(finished_at=now())
    return world


def follow(client: Any, path: str, link: str) -> list[int]:
    """Numbers of the rows of every page, following the links that say `rel=next` (or prev)."""
    seen: list[int] = []
    for _ in range(20):
        answer = client.get(path)
        assert answer.status_code == 200
        seen += [row.number for row in answer.context["listing"].page.rows]
        match = re.search(rf'rel="{link}" href="([^"]+)"', answer.content.decode())
        if not match:
            return seen
        path = urlsplit(path).path + match[1].replace("&amp;", "&")
    raise AssertionError("the pages never end")


def last_page(client: Any, path: str) -> str:
    while match := re.search(r'rel="next" href="([^"]+)"', client.get(path).content.decode()):
        path = urlsplit(path).path + match[1].replace("&amp;", "&")
    return path


def over_rest(user: Any, path: str) -> list[int]:
    client, seen, url = TokenClient(user), [], f"{API}{path}"
    while url:
        answer = client.get(url)
        assert answer.status_code == 200, answer.json()
        seen += [row["number"] for row in answer.json()["results"]]
        url = answer.json()["next"]
    return seen


ORDERS = [("plans", name) for name in filters.PLAN_ORDERS.columns] + [
    ("rollouts", name) for name in filters.ROLLOUT_ORDERS.columns
]


@pytest.mark.parametrize("sign", ["", "-"])
def test_every_row_stands_on_exactly_one_page_in_any_order_on_the_page_and_over_rest(many, sign):
    client = browser(many.operator)
    for kind, name in ORDERS:
        model = {"plans": Plan, "rollouts": Rollout}[kind]
        path = f"/{kind}/?ordering={sign}{name}"
        forwards = follow(client, path, "next")
        assert sorted(forwards) == sorted(model.objects.values_list("number", flat=True)), path
        assert over_rest(many.operator, f"/{kind}?ordering={sign}{name}&limit=40&start=") == forwards, path
        assert over_rest(many.operator, f"/{kind}?ordering={sign}{name}&limit=90") == forwards, path


def test_the_way_back_shows_the_same_pages(many):
    client = browser(many.operator)
    for path in ("/plans/?ordering=-nodes", "/plans/?ordering=status", "/rollouts/?ordering=created_at"):
        forwards = follow(client, path, "next")
        backwards = follow(client, last_page(client, path), "prev")
        assert set(backwards) == set(forwards)
        assert len(backwards) - len(set(backwards)) < keyset.SIZE, "only the first page may repeat what stands there"


def test_what_comes_or_goes_between_two_pages_moves_no_row_to_another(many):
    client = browser(many.operator)
    first = client.get("/plans/").context["listing"].page
    more_plans(many, 10)
    Rollout.objects.filter(plan=first.rows[3]).delete()
    Plan.objects.filter(pk=first.rows[3].pk).delete()
    second = client.get(f"/plans/?after={first.next}").context["listing"].page
    expected = Plan.objects.filter(number__lt=first.rows[-1].number).order_by("-number")[: keyset.SIZE]
    assert [row.number for row in second.rows] == [row.number for row in expected]
    assert (second.first, second.count) == (51, Plan.objects.count())


@pytest.mark.parametrize(
    "word", ["x", "é", "e30", "W10", "WzAsMV0", "WzAsIlx1ZDgwMCIsIngiXQ", "A" * 5000, "WzAsMSwiXHUwMDAwIl0"]
)
@pytest.mark.parametrize("name", ["after", "before"])
def test_a_mark_that_cannot_be_read_is_the_first_page(many, name, word):
    rows = browser(many.operator).get("/plans/", {name: word}).context["listing"].page
    assert (rows.first, len(rows.rows)) == (1, keyset.SIZE)
    answer = TokenClient(many.operator).get(f"{API}/plans", {"ordering": "number", "start": word})
    assert answer.status_code == 400


def test_a_mark_of_another_order_is_no_mark_of_this_one(many):
    client = browser(many.operator)
    for ordering in ("cluster", "created_at", "nodes"):
        mark = client.get(f"/plans/?ordering={ordering}").context["listing"].page.next
        for other in ("number", "expires_at", "status", "-cluster"):
            assert client.get(f"/plans/?ordering={other}&after={mark}").status_code == 200


@pytest.mark.parametrize(
    "query",
    [
        "q=P-1010", "q=1010", "q=gpu", "q=nothing-like-it", "q=atlas", "status=review", "status=review&status=draft",
        "by=operator", "by=nobody", "since=2h", "since=2026-11-21", "until=2026-11-21T09:00:00Z", "cluster=atlas",
        "cluster=elsewhere", "q=train&status=draft&since=1d", "to_review=true",
    ],
)  # fmt: skip
def test_a_filter_leaves_the_same_on_the_page_and_over_rest(many, query):
    shown = follow(browser(many.approver), f"/plans/?{query}&ordering=number", "next")
    assert over_rest(many.approver, f"/plans?{query}&ordering=number") == shown
    assert len(shown) < Plan.objects.count() or query in (
        "q=gpu",
        "q=atlas",
        "cluster=atlas",
        "by=operator",
        "since=2026-11-21",
    )
    if "nothing" in query or "nobody" in query or "elsewhere" in query:
        assert shown == []


def test_by_me_is_whoever_asks(many):
    assert over_rest(many.operator, "/plans?by=me&ordering=number")
    assert over_rest(many.admin, "/plans?by=me&ordering=number") == []


def test_chips_count_what_the_other_filters_leave(many):
    listing = browser(many.operator).get("/plans/?status=review&since=30d").context["listing"]
    assert listing.page.count == 20
    assert sum(listing.counts.values()) == Plan.objects.count()
    assert listing.counts == {s: n for s in Plan.Status.values if (n := Plan.objects.filter(status=s).count())}


@pytest.mark.parametrize("path", ["/plans/", "/rollouts/", "/approvals/?view=mine"])
def test_no_match_says_so_and_leads_back_and_nothing_at_all_says_what_to_do(world, path):
    glue = "&" if "?" in path else "?"
    html = page(world.viewer if hasattr(world, "viewer") else world.operator, path)
    assert "Clear the filters" not in html
    assert re.search(r"class=\"empty-state\".*?<a class=\"btn btn-primary\" href=\"/plans/", html, re.DOTALL)
    world.started()
    html = page(world.operator, f"{path}{glue}q=nothing-like-it")
    link = re.search(r'class="empty-state".*?href="([^"]+)"[^>]*>Clear the filters', html, re.DOTALL)
    assert link
    assert link[1] == path
    assert world.operator.email in text_of(page(world.operator, link[1]))


def test_a_filter_that_cannot_be_read_is_said_and_not_applied(world):
    world.started()
    text = text_of(page(world.operator, "/plans/?status=nope&since=whenever"))
    assert "status:" in text
    assert "since:" in text
    assert "P-1" in text


def test_the_sorted_head_says_how_and_turns_round(world):
    world.plan()
    html = page(world.operator, "/plans/?status=draft&ordering=-nodes&page=3&after=x")
    head = r'<th scope="col" class="num" aria-sort="descending"><a href="/plans/\?status=draft&amp;ordering=nodes"'
    assert re.search(head, html)
    assert html.count("aria-sort") == 1
    assert 'href="/plans/?status=draft&amp;ordering=-created_at"' in html, "the newest first"


# ── the nodes of a rollout ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def large(world: World) -> Rollout:
    """5,000 nodes in 100 batches: some failed, some held, some under way."""
    more_nodes(world, 4997)
    rollout = world.started(world.plan(canary=0, batch="2%"))
    Step.objects.filter(batch__lte=40).update(status="succeeded", is_live=False)
    Step.objects.filter(batch=41).update(status="verifying")
    failed = list(Step.objects.filter(batch__in=(3, 41)).order_by("-position").values_list("pk", flat=True)[:7])
    Step.objects.filter(pk__in=failed).update(status="failed", is_live=False, error="The kernel answers 60.")
    Step.objects.filter(pk__in=Step.objects.filter(batch=42).values("pk")[:2]).update(status="held", error="Moved")
    return rollout


def test_a_rollouts_nodes_are_paged_the_failing_ones_first(large, world):
    client = browser(world.operator)
    path = f"/rollouts/R-{large.number}/nodes/"
    listing = client.get(path).context["listing"]
    assert listing.page.count == 5000
    assert [s.state for s in listing.page.rows[:10]] == ["failed"] * 7 + ["held"] * 2 + ["running"]
    assert sum(listing.counts.values()) == 5000
    assert (listing.counts["failed"], listing.counts["held"]) == (7, 2)

    steps = f"{API}/rollouts/{large.pk}/steps"
    rest = TokenClient(world.operator)
    for query in (
        "state=failed",
        "state=failed&state=held",
        "batch=42",
        "batch=42&state=held",
        "q=m49",
        "state=queued",
    ):
        shown = client.get(f"{path}?{query}").context["listing"].page
        body = rest.get(f"{steps}?{query}&ordering=worst&limit=50").json()
        assert body["count"] == shown.count > 0, query
        assert [row["id"] for row in body["results"]] == [str(row.pk) for row in shown.rows], query


def test_a_rollouts_nodes_cost_the_same_at_3_and_at_5000(world):
    rollout = world.started(world.plan(canary=0, batch="1"))

    def cost(number: int, query: str) -> int:
        client = browser(world.operator)
        client.get(f"/rollouts/R-{number}/nodes/")
        with CaptureQueriesContext(connection) as seen:
            assert client.get(f"/rollouts/R-{number}/nodes/?{query}").status_code == 200
        return len(seen)

    few = cost(rollout.number, "")
    steps_like(rollout, "succeeded", per_batch=1)
    more_nodes(world, 1000)
    plan = world.plan(world.revision({"vm.swappiness": "20"}), canary=0, batch="1")
    other = world.started(plan)
    for query in ("", "state=queued", "q=m0&ordering=-entered_at", "batch=700"):
        assert cost(other.number, query) == few <= 16, query


def test_nobody_sees_the_nodes_of_a_rollout_they_may_not_see(world):
    rollout = world.started()
    stranger = UserFactory(roles=["viewer@env:production"])
    page(stranger, f"/rollouts/R-{rollout.number}/nodes/", 404)


# ── approvals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_waits_for_a_verdict_is_sorted_filtered_paged_and_counted(many):
    client = browser(many.approver)
    context = client.get("/approvals/").context
    waiting = Plan.objects.waiting().count()
    assert context["counts"] == {"review": waiting, "mine": 0}
    request_times = [row.asked_at for row in context["to_review"]]
    assert request_times == sorted(request_times), "who has waited longest stands first"
    by_size = client.get("/approvals/?ordering=-nodes").context["to_review"]
    assert [p.node_count for p in by_size] == sorted((p.node_count for p in by_size), reverse=True)
    assert "Clear the filters" in page(many.approver, "/approvals/?q=nothing")


def test_my_requests_begin_with_what_must_be_answered(many):
    plan = reviews.request(many.plan(many.revision({"vm.swappiness": "3"})), by=many.operator)
    reviews.request_changes(plan, by=many.approver, digest=plan.digest, comment="Fewer at once.")
    more_plans(many, 1)
    rows = browser(many.operator).get("/approvals/?view=mine").context["listing"].page.rows
    assert rows[0].pk == plan.pk
    numbers = [row.number for row in rows[1:]]
    assert numbers == sorted(numbers, reverse=True)


def test_a_list_of_plans_reads_no_summary_of_thousands_of_batches(many):
    Plan.objects.update(summary={"nodes": 5000, "pool_nodes": 5000, "seconds": 60.5, "batches": ["x" * 90] * 5000})
    for path in ("/plans/", "/rollouts/", "/approvals/?view=mine"):
        client = browser(many.operator)
        with CaptureQueriesContext(connection) as seen:
            answer = client.get(path)
        assert "5,000" in answer.content.decode()
        assert len(answer.content) < 200_000
        assert len(seen) <= 16
        rows = answer.context["listing"].page.rows
        assert all("summary" in getattr(row, "plan", row).get_deferred_fields() for row in rows), path


def test_lists_stay_within_what_the_caller_may_see(many):
    other = Cluster.objects.create(
        uid="o", name="other", environment="production", credential=b"-", credential_key="-", server="x"
    )
    stranger = UserFactory(roles=[f"viewer@cluster:{other.pk}"])
    for path in ("/plans/", "/rollouts/", "/approvals/"):
        answer = browser(stranger).get(path)
        assert answer.context["listing"].page.count == 0
        assert "atlas" not in json.dumps(answer.context["clusters"])
