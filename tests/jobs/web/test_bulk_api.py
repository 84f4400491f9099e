"""All nodes of a filter over REST, by a query or a saved filter, held to the number and digest that were seen."""

from __future__ import annotations

import pytest

from clusters import tasks
from compliance.models import Assignment
from jobs.models import Plan
from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import World

SELECTION = "/api/v1/nodes/selection"


@pytest.fixture
def target(world: World) -> Assignment:
    return Assignment.objects.create(pool=world.pool, revision=world.revision())


def test_a_selection_is_looked_at_then_planned_for_with_its_number_and_digest(world: World, target: Assignment) -> None:
    api = TokenClient(world.operator)
    seen = api.get(f"{SELECTION}?query=labels%3Dpool%253Dtrain").json()
    assert seen["count"] == target.pool.cluster.nodes.filter(labels__pool="train").count() > 0
    assert seen["targets"][0]["chosen"] == seen["count"]
    assert seen["why_not"] == {"plan": "", "refresh": ""}

    made = api.post(f"{SELECTION}/actions/plan", {k: seen[k] for k in ("query", "count", "digest")})

    assert made.status_code == 201
    assert [plan["pool"] for plan in made.json()["plans"]] == [target.pool.pk]
    assert Plan.objects.get().status == Plan.Status.DRAFT


def test_a_saved_filter_chooses_too_but_not_one_that_somebody_keeps_to_themselves(
    world: World, target: Assignment
) -> None:
    api, other = TokenClient(world.operator), TokenClient(UserFactory(roles=["operator"]))
    kept = api.post("/api/v1/saved-filters", {"page": "nodes", "name": "mine", "query": "q=n1"}).json()
    seen = api.get(f"{SELECTION}?filter={kept['id']}").json()
    assert (seen["query"], seen["names"]) == ("q=n1", ["n1"])
    confirmed = {"filter": kept["id"], "count": seen["count"], "digest": seen["digest"]}
    assert other.get(f"{SELECTION}?filter={kept['id']}").status_code == 422
    assert other.post(f"{SELECTION}/actions/plan", confirmed).status_code == 422
    assert api.post(f"{SELECTION}/actions/plan", confirmed).status_code == 201


@pytest.mark.parametrize("wrong", [{"count": 2}, {"digest": "0" * 64}])
def test_another_number_or_other_nodes_than_were_seen_are_a_409_and_nothing_is_done(
    world: World, target: Assignment, wrong: dict[str, object]
) -> None:
    api = TokenClient(world.operator)
    seen = api.get(f"{SELECTION}?query=q%3Dn1").json()
    confirmed = {k: seen[k] for k in ("query", "count", "digest")} | wrong
    answer = api.post(f"{SELECTION}/actions/plan", confirmed)
    assert (answer.status_code, answer.json()["code"]) == (409, "changed-meanwhile")
    assert not Plan.objects.exists()


def test_refreshing_queues_each_cluster_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[str] = []
    monkeypatch.setattr(tasks.refresh, "delay", queued.append)
    api = TokenClient(world.operator)
    seen = api.get(f"{SELECTION}?query=q%3Dn").json()
    answer = api.post(f"{SELECTION}/actions/refresh", {k: seen[k] for k in ("query", "count", "digest")})
    assert (answer.status_code, queued) == (202, [str(world.cluster.pk)])


@pytest.mark.parametrize("query", ["", "?query=%3D%3D", "?query=q%3Dn1&filter=1", "?query=nonsense%3D1", "?filter=x"])
def test_what_is_no_filter_is_refused_with_its_field(world: World, query: str) -> None:
    assert TokenClient(world.operator).get(f"{SELECTION}{query}").status_code == 422


def test_a_viewer_is_told_why_not_and_a_read_token_may_not_plan(world: World, target: Assignment) -> None:
    viewer = TokenClient(UserFactory(roles=["viewer"]))
    seen = viewer.get(f"{SELECTION}?query=q%3Dn1").json()
    assert "needs the role operator" in seen["why_not"]["plan"]
    confirmed = {k: seen[k] for k in ("query", "count", "digest")}
    assert viewer.post(f"{SELECTION}/actions/plan", confirmed).status_code == 403
    assert TokenClient(world.operator, ["read"]).post(f"{SELECTION}/actions/plan", confirmed).status_code == 403


def test_saved_filters_are_listed_replaced_shared_and_dropped_over_rest(world: World) -> None:
    api, other, admin = (TokenClient(user) for user in (world.operator, UserFactory(roles=["viewer"]), world.admin))
    wish = {"page": "nodes", "name": "mine", "query": "q=n1&page=3"}
    first = api.post("/api/v1/saved-filters", wish)
    assert first.status_code == 201
    row = first.json()
    assert (row["query"], row["href"]) == ("q=n1", "/nodes/?q=n1")
    assert other.get("/api/v1/saved-filters").json()["count"] == 0
    again = api.post("/api/v1/saved-filters", wish | {"query": "q=n2", "is_shared": True}).json()
    assert again["id"] == row["id"]
    assert [
        saved_filter["query"] for saved_filter in other.get("/api/v1/saved-filters?page=nodes").json()["results"]
    ] == ["q=n2"]
    assert other.delete(f"/api/v1/saved-filters/{row['id']}").status_code == 403
    assert api.post("/api/v1/saved-filters", wish | {"query": "("}).status_code == 422
    assert admin.delete(f"/api/v1/saved-filters/{row['id']}").status_code == 204
    assert api.get(f"/api/v1/saved-filters/{row['id']}").status_code == 404
