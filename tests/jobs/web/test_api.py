"""The whole way over REST, and what it answers to everything that is not the way."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.models import User
from clusters.models import Cluster, Node, Pool
from jobs import tasks
from jobs.approvals import reviews
from jobs.models import Freeze, Plan, Rollout, Step
from jobs.rollouts import freezes, possible_actions, rollout_actions
from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import World, person
from tests.jobs.rows import more_nodes, more_plans

API = "/api/v1"
RUBBISH: list[Any] = [
    None, True, 0, -1, 1.5, 10**30, "", "x", "x" * 5000, "\u0000", "\ud800", "💥", [], [1], {}, {"a": {}}, [[]],
]  # fmt: skip


@pytest.fixture(autouse=True)
def asleep(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The engine runs when the test says so; whom the API would have woken is kept."""
    woken: list[Any] = []
    monkeypatch.setattr(tasks, "wake", woken.append)
    return woken


def api(user: User, *scopes: str) -> TokenClient:
    return TokenClient(User.objects.get(pk=user.pk), list(scopes) or None)


def plan_at(client: TokenClient, world: World, **body: Any) -> Any:
    return client.post(f"{API}/plans", {"pool": world.pool.pk, "revision": world.revision().digest} | body)


def act(client: TokenClient, where: str, verb: str, **body: Any) -> Any:
    return client.post(f"{where}/actions/{verb}", body)


def problem(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == status
    assert document["detail"]
    return document


def fields_of(answer: Any, status: int = 422) -> set[str]:
    return {error["field"] for error in problem(answer, status)["errors"]}


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

    asked = act(operator, where, "request", comment="Please")
    assert (asked.status_code, asked.json()["status"]) == (202, "review")
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


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def everybody(world: World) -> User:
    """One person with every role and no part in the plans of others."""
    return UserFactory(roles=["operator", "approver", "admin"])


@pytest.mark.parametrize(
    ("verb", "body", "scope"),
    [
        ("request", {}, "plan"),
        ("withdraw", {}, "plan"),
        ("approve", {"digest": "x"}, "approve"),
        ("reject", {"digest": "x", "comment": "no"}, "approve"),
        ("retract", {}, "approve"),
        ("start", {}, "apply"),
    ],
)
def test_each_verb_of_a_plan_needs_its_token_scope(world, everybody, verb, body, scope):
    where = f"{API}/plans/{world.plan().pk}"
    others = [s for s in ("read", "plan", "apply", "approve", "admin") if s != scope]
    refused = act(api(everybody, *others), where, verb, **body)
    assert scope in problem(refused, 403)["detail"]
    assert act(api(everybody, scope), where, verb, **body).status_code in (202, 403, 409)
    assert f"no scope {scope}" not in act(api(everybody, scope), where, verb, **body).content.decode()


@pytest.mark.parametrize("verb", list(possible_actions.POSSIBLE))
def test_every_verb_of_a_rollout_needs_apply(world, everybody, verb):
    where = f"{API}/rollouts/{world.started().pk}"
    for scopes in (["read"], ["plan"], ["approve"], ["admin"]):
        assert "apply" in problem(act(api(everybody, *scopes), where, verb), 403)["detail"]


def test_a_token_without_approve_says_in_the_object_that_it_may_not(world, everybody):
    plan = reviews.request(world.plan(), by=world.operator)
    where = f"{API}/plans/{plan.pk}"
    seen = {
        scope: {verb for verb, may in api(everybody, scope).get(where).json()["permissions"].items() if may}
        for scope in ("read", "plan", "apply", "approve")
    }
    assert seen["read"] == set()
    assert seen["plan"] == {"request"}, "withdrawing another party's needs the scope admin as well"
    assert seen["apply"] == {"start"}
    assert seen["approve"] >= {"approve", "reject"}
    assert "start" not in seen["approve"]


def test_a_service_token_plans_and_starts_and_never_approves(world):
    machine = UserFactory(is_service=True, roles=["operator", "approver"])
    client = api(machine, "read", "plan", "apply")
    where = plan_at(client, world)["Location"]
    digest = client.get(where).json()["digest"]
    assert act(client, where, "request").status_code == 202
    problem(act(client, where, "approve", digest=digest), 403)
    assert act(api(world.approver), where, "approve", digest=digest).status_code == 202
    assert act(client, where, "start").status_code == 202


# ── what is offered is what works (law 10) ────────────────────────────────────────────────────────────────────────────


def _plan_in(world: World, status: str) -> Plan:
    plan = world.plan(world.revision({"vm.swappiness": "11"}))
    if status in ("review", "approved", "started"):
        reviews.request(plan, by=world.operator)
    if status in ("approved", "started"):
        plan = reviews.approve(plan, by=world.approver, digest=plan.digest)
    if status == "started":
        rollout_actions.start(plan, by=world.operator)
    if status in ("rejected", "withdrawn", "expired"):
        Plan.objects.filter(pk=plan.pk).update(status=status)
    if status == "late":
        world.clock.forward(hours=73)
        world.look()
    return plan


@pytest.mark.parametrize(
    "status", ["draft", "review", "approved", "started", "rejected", "withdrawn", "expired", "late"]
)
def test_a_verb_of_a_plan_works_exactly_when_it_is_offered_and_permitted(world, status):
    plan = _plan_in(world, status)
    said = {"digest": plan.digest, "comment": "no"}
    bodies = {"approve": {"digest": plan.digest}, "reject": said, "request-changes": said}
    for who in ("operator", "approver", "second", "admin", "author"):
        client, where = api(getattr(world, who)), f"{API}/plans/{plan.pk}"
        seen = client.get(where).json()
        for verb, is_offered in seen["actions"].items():
            answer = _try(client, where, verb, bodies.get(verb, {}))
            is_meant_to_work = is_offered and seen["permissions"][verb]
            assert (answer == 202) is is_meant_to_work, (who, verb, answer)
            if not is_meant_to_work:
                assert answer == (409 if seen["permissions"][verb] else 403), (who, verb)


def _try(client: TokenClient, where: str, verb: str, body: dict[str, Any]) -> int:
    """Return what the verb would answer; nothing stays of it."""
    from django.db import transaction

    with transaction.atomic():
        status = act(client, where, verb, **body).status_code
        transaction.set_rollback(True)
    return int(status)


@pytest.mark.parametrize("status", Rollout.Status.values)
def test_a_verb_of_a_rollout_works_exactly_when_it_is_offered(world, status):
    rollout = world.started()
    Rollout.objects.filter(pk=rollout.pk).update(
        status=status, started_at=None if status == "queued" else world.clock()
    )
    step = rollout.steps.first()
    where = f"{API}/rollouts/{rollout.pk}"
    operator, viewer = api(world.operator), api(person("viewer"))
    for steps in ("queued", "held", "failed", "succeeded", "verifying"):
        has_applied = steps in ("failed", "succeeded")
        Step.objects.update(status=steps, has_applied=has_applied, is_live=steps not in Step.RESTING)
        seen = operator.get(where).json()

        assert set(seen["actions"]) == set(seen["reasons"]) == set(possible_actions.POSSIBLE)
        assert not any(viewer.get(where).json()["permissions"].values())
        for verb, is_offered in seen["actions"].items():
            answer = _try(operator, where, verb, {"step": str(step.pk)} if verb == "skip" else {})
            assert answer == (202 if is_offered else 409), (steps, verb, answer, seen["reasons"][verb])
        assert _try(viewer, where, "pause", {}) == 403


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_verb_in_the_wrong_state_says_the_state(world):
    plan = world.plan()
    where = f"{API}/plans/{plan.pk}"
    assert "draft" in problem(act(api(world.operator), where, "start"), 409)["detail"]
    assert "draft" in problem(act(api(world.approver), where, "approve", digest=plan.digest), 409)["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"pool": 0}, "pool"),
        ({"pool": 10**30}, "pool"),
        ({"pool": "x"}, "pool"),
        ({"pool": None}, "pool"),
        ({"revision": "sha256:" + "0" * 64}, "revision"),
        ({"revision": "9" * 40}, "revision"),
        ({"revision": "-1"}, "revision"),
        ({"revision": {}}, "revision"),
        ({"message": "x" * 501}, "message"),
        ({"message": []}, "message"),
        ({"strategy": []}, "strategy"),
        ({"strategy": "fast"}, "strategy"),
        ({"strategy": {"canary": -1}}, "strategy.canary"),
        ({"strategy": {"order": []}}, "strategy.order"),
        ({"strategy": {"batch": {}}}, "strategy.batch"),
        ({"strategy": {"color": "red"}}, "strategy.color"),
    ],
)
def test_a_wrong_field_of_a_plan_is_named_and_nothing_is_stored(world, body, field):
    assert field in fields_of(plan_at(api(world.operator), world, **body))
    assert not Plan.objects.exists()


def test_an_unreachable_or_empty_pool_is_refused_with_its_reason(world):
    Pool.objects.update(selector={"matchLabels": {"pool": "none"}})
    assert fields_of(plan_at(api(world.operator), world)) == {"pool"}
    Cluster.objects.update(reach="unreachable", reach_reason="no route to host")
    assert "no route to host" in problem(plan_at(api(world.operator), world), 409)["detail"]


def test_what_is_outside_ones_scope_is_not_there(world):
    rollout = world.started()
    row = freezes.freeze(cluster=world.cluster, reason="x", by=world.operator)
    stranger = api(UserFactory(roles=["operator@env:production", "approver@env:production", "admin@env:production"]))
    for where in (f"plans/{rollout.plan_id}", f"rollouts/{rollout.pk}", f"freezes/{row.pk}"):
        problem(stranger.get(f"{API}/{where}"), 404)
    for where in (f"plans/{rollout.plan_id}/nodes", f"rollouts/{rollout.pk}/steps", f"rollouts/{rollout.pk}/events"):
        problem(stranger.get(f"{API}/{where}"), 404)
    for verb in ("request", "approve", "reject", "retract", "withdraw", "start"):
        body = {"digest": "x"} if verb in ("approve", "reject") else {}
        problem(act(stranger, f"{API}/plans/{rollout.plan_id}", verb, **body), 404)
    for verb in possible_actions.POSSIBLE:
        problem(act(stranger, f"{API}/rollouts/{rollout.pk}", verb), 404)
    problem(act(stranger, f"{API}/freezes/{row.pk}", "lift"), 404)
    assert fields_of(plan_at(stranger, world)) == {"pool"}
    assert fields_of(stranger.post(f"{API}/freezes", {"cluster": str(world.cluster.pk), "reason": "x"})) == {"cluster"}
    for kind in ("plans", "rollouts", "freezes"):
        assert stranger.get(f"{API}/{kind}").json()["count"] == 0


def test_a_step_of_another_rollout_is_not_one_of_this(world):
    rollout = world.run(world.started())
    where = f"{API}/rollouts/{rollout.pk}"
    assert fields_of(act(api(world.operator), where, "skip", step=str(uuid4()))) == {"step"}
    assert fields_of(act(api(world.operator), where, "skip")) == {"step"}


@pytest.mark.parametrize(
    "at", ["yesterday", "2020-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:00", 5, []]
)
def test_a_start_is_at_a_time_that_makes_sense(world, at):
    plan = world.approved()
    assert fields_of(act(api(world.operator), f"{API}/plans/{plan.pk}", "start", at=at)) == {"at"}
    assert Plan.objects.get().status == "approved"


def test_a_start_at_a_time_is_told_in_utc_and_waits(world):
    plan = world.approved()
    answer = act(api(world.operator), f"{API}/plans/{plan.pk}", "start", at="2026-11-21T23:00:00+05:00")
    assert answer.status_code == 202, answer.content
    assert "2026-11-21 18:00 UTC" in answer.json()["waiting_for"]
    assert answer.json()["start_at"] == "2026-11-21T18:00:00Z"
    assert not Rollout.objects.due().exists()


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": "  "}, {"reason": "x" * 501}, {"reason": []}])
def test_a_freeze_says_why(world, body):
    assert fields_of(api(world.admin).post(f"{API}/freezes", body)) == {"reason"}


@pytest.mark.parametrize("until", ["2020-01-01T00:00:00Z", "soon", "0001-01-01T00:00:00+23:00", {}])
def test_a_freeze_ends_at_a_time_to_come(world, until):
    assert fields_of(api(world.admin).post(f"{API}/freezes", {"reason": "x", "until": until})) == {"until"}


def test_a_freeze_is_set_told_and_lifted_once(world):
    operator, admin = api(world.operator), api(world.admin)
    problem(operator.post(f"{API}/freezes", {"reason": "everywhere"}), 403)
    assert admin.post(f"{API}/freezes", {"reason": "everywhere"}).status_code == 201
    made = operator.post(f"{API}/freezes", {"reason": "here", "cluster": str(world.cluster.pk)})
    assert made.status_code == 201, made.content
    assert act(operator, made["Location"], "lift").status_code == 202
    assert "already" in problem(act(operator, made["Location"], "lift"), 409)["detail"]
    assert Freeze.standing(world.cluster.pk).get().reason == "everywhere"


def test_a_revert_in_a_freeze_says_why(world):
    rollout = world.run(world.started())
    freezes.freeze(cluster=world.cluster, reason="Black Friday", by=world.operator)
    where = f"{API}/rollouts/{rollout.pk}"
    assert fields_of(act(api(world.operator), where, "revert")) == {"reason"}
    assert fields_of(act(api(world.operator), where, "revert", reason="x" * 501)) == {"reason"}
    assert act(api(world.operator), where, "revert", reason="It hurts").status_code == 202


# ── rubbish ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def doors(world: World) -> list[str]:
    rollout = world.started()
    plan = world.plan(world.revision({"vm.swappiness": "12"}))
    verbs = [f"plans/{plan.pk}/actions/{v}" for v in ("request", "approve", "reject", "retract", "withdraw", "start")]
    verbs += [f"rollouts/{rollout.pk}/actions/{v}" for v in possible_actions.POSSIBLE]
    return ["plans", "freezes", *verbs]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"null", b"[]", b"1", b'"x"', b"\xff\xfe",
        b'{"a":' * 500, b'{"a": NaN}', b'{"a": 1e999}',
        b'{"a":1,"a":2}', b'{"comment": "\\ud800"}',
        b'{"digest": "\\u0000", "comment": "\\u0000", "reason": "\\u0000"}',
    ],
)  # fmt: skip
def test_a_body_that_is_no_request_is_a_problem_and_never_a_fault(world, body):
    client = api(world.admin)
    for door in doors(world):
        answer = client.post(f"{API}/{door}", body, content_type="application/json")
        assert answer.status_code < 500, (door, answer.content)
        if answer.status_code >= 400:
            problem(answer, answer.status_code)


NAMES = [
    "pool",
    "revision",
    "strategy",
    "message",
    "digest",
    "comment",
    "at",
    "in_flight",
    "step",
    "reason",
    "cluster",
    "until",
]


def test_rubbish_in_every_field_of_every_door_is_refused_or_taken_and_never_a_fault(world):
    client = api(UserFactory(is_superuser=True))
    for door in doors(world):
        for value in RUBBISH:
            body = json.dumps(dict.fromkeys(NAMES, value))
            answer = client.post(f"{API}/{door}", body, content_type="application/json")
            assert answer.status_code < 500, (door, value, answer.content)


@pytest.fixture
def planner(world: World) -> tuple[TokenClient, World, str]:
    return api(world.operator), world, world.revision().digest


@given(
    st.dictionaries(
        st.sampled_from(["pool", "revision", "strategy", "message", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
            max_leaves=6,
        ),
    )
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_plan_that_can_be_written_in_json_is_a_fault(planner, body):
    client, world, digest = planner
    text = json.dumps({"pool": world.pool.pk, "revision": digest} | body)
    answer = client.post(f"{API}/plans", text, content_type="application/json")
    assert answer.status_code in (201, 400, 409, 422), answer.content


@pytest.mark.parametrize("number", ["0", "-1", "1.5", "9" * 40, "x", "%00", "R-1", str(UUID(int=7))])
def test_an_object_that_cannot_be_is_not_there(world, number):
    client = api(world.operator)
    for kind in ("plans", "rollouts", "freezes"):
        assert client.get(f"{API}/{kind}/{number}").status_code in (400, 404)


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
