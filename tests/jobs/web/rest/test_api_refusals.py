"""Refusals over REST: wrong fields, wrong states and rubbish are named, and never a fault."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusters.models import Cluster, Pool
from jobs.models import Freeze, Plan, Rollout
from jobs.rollouts import freezes, possible_actions
from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import World
from tests.jobs.rest import API, act, api, fields_of, plan_at, problem

RUBBISH: list[Any] = [
    None, True, 0, -1, 1.5, 10**30, "", "x", "x" * 5000, "\u0000", "\ud800", "💥", [], [1], {}, {"a": {}}, [[]],
]  # fmt: skip


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
