"""The whole way over REST, from a plan to its revert; lists, versions and repeats."""

from __future__ import annotations

from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.models import Node
from jobs.models import Plan, Rollout, Step
from tests.jobs.rest import API, act, api, fields_of, plan_at, problem
from tests.jobs.rows import more_nodes, more_plans

# ── the whole way ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_whole_way_from_plan_to_revert(world, asleep):
    operator, approver = api(world.operator), api(world.approver)

    made = plan_at(operator, world, message="Less swapping", strategy={"canary": 1, "batch": "2"})
    assert made.status_code == 201, made.content
    where, plan = made["Location"], made.json()
    assert (plan["status"], plan["name"], plan["worst_class"]) == ("draft", "P-1", "live")
    assert [b["nodes"] for b in plan["summary"]["batches"]] == [1, 2]
    [change] = plan["differences"][0]["changes"]
    assert (change["key"], change["before"], change["after"], change["nodes"]) == ("vm.swappiness", "60", "10", 3)
    assert len(operator.get(f"{where}/nodes").json()["results"]) == 3

    response = act(operator, where, "request", comment="Please")
    assert (response.status_code, response.json()["status"]) == (202, "review")
    approved = act(approver, where, "approve", digest=plan["digest"], comment="Fine")
    assert (approved.status_code, approved.json()["status"]) == (202, "approved"), approved.content
    assert approved.json()["approval"]["approved_by"] == [world.approver.email]
    started = act(operator, where, "start")
    assert started.status_code == 202, started.content
    rollout = started["Location"]
    assert asleep == [Rollout.objects.get().pk]

    world.run(Rollout.objects.get())
    done = operator.get(rollout).json()
    assert (done["status"], done["steps"]) == ("succeeded", {"succeeded": 3})
    assert {world.value(n) for n in ("n1", "n2", "n3")} == {"10"}
    assert {s["status"] for s in operator.get(f"{rollout}/steps").json()["results"]} == {"succeeded"}
    events = operator.get(f"{rollout}/events?start=").json()["results"]
    assert any("Started P-1" in e["text"] for e in events)

    reverted = act(operator, rollout, "revert")
    assert (reverted.status_code, reverted.json()["status"]) == (202, "reverting"), reverted.content
    world.run(Rollout.objects.get())
    assert operator.get(rollout).json()["status"] == "reverted"
    assert {world.value(n) for n in ("n1", "n2", "n3")} == {"60"}
    assert operator.get(where).json()["rollout"] == done["id"]


# ── lists ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_plans_are_filtered_ordered_and_paged(world):
    more_plans(world, 4, status="review")
    client = api(world.operator)

    def numbers(query: str) -> list[int]:
        answer = client.get(f"{API}/plans?{query}")
        assert answer.status_code == 200, answer.content
        return [row["number"] for row in answer.json()["results"]]

    assert numbers("status=draft") == [1]
    assert len(numbers("status=draft&status=review")) == 5
    assert numbers(f"cluster={uuid4()}") == []
    assert len(numbers(f"cluster={world.cluster.pk}&pool={world.pool.pk}")) == 5
    assert numbers("ordering=number&limit=2") == sorted(numbers(""))[:2]
    page = client.get(f"{API}/plans?limit=2").json()
    assert page["count"] == 5
    assert len(client.get(page["next"]).json()["results"]) == 2
    assert set(client.get(f"{API}/plans?fields=number,status").json()["results"][0]) == {"number", "status"}


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("plans?status=nope", "status"),
        ("plans?since=x", "since"),
        ("plans?since=0001-01-01", "since"),
        ("plans?start=x&ordering=number", "start"),
        ("plans?pool=x", "pool"),
        ("plans?pool=1e400", "pool"),
        ("plans?color=red", "color"),
        ("plans?ordering=digest", "ordering"),
        ("plans?limit=0", "limit"),
        ("plans?fields=secret", "fields"),
        ("plans?start=x", "start"),
        ("rollouts?live=maybe", "live"),
        ("rollouts?status=nope", "status"),
        ("rollouts/{rollout}/steps?batch=x", "batch"),
        ("rollouts/{rollout}/steps?status=nope", "status"),
        ("rollouts/{rollout}/events?start=x", "start"),
        ("freezes?start=x", "start"),
    ],
)
def test_a_filter_that_cannot_be_is_refused_by_name(world, path, field):
    path = path.format(rollout=world.started().pk)
    assert field in fields_of(api(world.operator).get(f"{API}/{path}"), 400)


def test_rollouts_and_steps_are_filtered(world):
    rollout = world.started(canary=1, batch="2")
    client = api(world.operator)
    assert client.get(f"{API}/rollouts?live=true").json()["count"] == 1
    assert client.get(f"{API}/rollouts?live=false").json()["count"] == 0
    assert client.get(f"{API}/rollouts?status=queued&status=paused").json()["count"] == 1
    steps = f"{API}/rollouts/{rollout.pk}/steps"
    assert client.get(f"{steps}?batch=2").json()["count"] == 2
    assert client.get(f"{steps}?status=held").json()["count"] == 0
    assert [s["node_name"] for s in client.get(f"{steps}?ordering=-node_name").json()["results"]] == ["n3", "n2", "n1"]


@pytest.mark.parametrize("path", ["plans", "rollouts", "plans/{plan}", "plans/{plan}/nodes", "rollouts/{rollout}"])
def test_an_answer_costs_the_same_queries_however_much_there_is(make_world, path):
    counts = []
    world = make_world(nodes=3)
    for more in (0, 40):
        more_nodes(world, more)
        Step.objects.update(is_live=False)
        rollout = world.started(world.plan(world.revision({"vm.swappiness": str(11 + more)})))
        more_plans(world, more, status="review")
        more_plans(world, more, status="started", with_rollouts="running")
        client = api(world.operator)
        where = f"{API}/{path.format(plan=rollout.plan_id, rollout=rollout.pk)}"
        client.get(where)
        with CaptureQueriesContext(connection) as seen:
            assert client.get(where).status_code == 200
        counts.append(len(seen))
    assert counts[1] <= counts[0] <= 20


# ── versions and repeats ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_etag_of_a_plan_changes_with_it(world):
    client = api(world.operator)
    made = plan_at(client, world)
    first = client.get(made["Location"])["ETag"]
    assert made["ETag"] == first == '"1"'
    act(client, made["Location"], "request")
    assert client.get(made["Location"])["ETag"] == '"2"'
    rollout = world.started(world.plan(world.revision({"vm.swappiness": "12"})))
    assert client.get(f"{API}/rollouts/{rollout.pk}")["ETag"] == f'"{rollout.version}"'


def test_a_plan_posted_twice_with_one_key_is_made_once(world):
    client, revision = api(world.operator), world.revision().digest
    headers = {"HTTP_IDEMPOTENCY_KEY": "k1"}
    body = {"pool": world.pool.pk, "revision": revision}

    first, again = (client.post(f"{API}/plans", body, **headers) for _ in range(2))

    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"]
    assert (again["Location"], again["ETag"]) == (first["Location"], first["ETag"])
    assert Plan.objects.count() == 1
    problem(client.post(f"{API}/plans", body | {"message": "other"}, **headers), 422)


def test_a_refused_plan_frees_its_key(world):
    client, headers = api(world.operator), {"HTTP_IDEMPOTENCY_KEY": "k1"}
    body = {"pool": world.pool.pk, "revision": world.revision().digest}
    Node.objects.update(gone_at=world.clock())
    problem(client.post(f"{API}/plans", body, **headers), 422)
    Node.objects.update(gone_at=None)
    assert client.post(f"{API}/plans", body, **headers).status_code == 201
