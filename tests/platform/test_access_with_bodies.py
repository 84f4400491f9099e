"""The table of access once more, with bodies that pass validation: a refusal comes before the body is judged, and what
is permitted was possible."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from clusters.models import Cluster
from common.clock import now
from jobs import wake
from jobs.models import Plan
from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import World
from tests.platform.test_access import WHO, Doors

ROLES = WHO[1:5]
SOURCE = "settings:\n  vm.swappiness: 10\n"


@dataclass(frozen=True)
class Sent:
    method: str
    route: str
    body: Callable[[World, Doors], dict[str, Any]]
    may: tuple[str, ...]
    """Of the four roles."""
    elsewhere: bool = field(default=False, kw_only=True)
    """Whether it belongs to no cluster, so that a role anywhere is enough."""

    def __str__(self) -> str:
        return f"{self.method} {self.route.removeprefix('api/v1/')}"


def _always(**fields: Any) -> Callable[[World, Doors], dict[str, Any]]:
    return lambda world, doors: fields


def _binding(world: World, doors: Doors) -> dict[str, Any]:
    return {"user": doors.people["viewer"].email, "role": "viewer", "scope": f"cluster:{world.cluster.pk}"}


def _plan(world: World, doors: Doors) -> dict[str, Any]:
    return {"pool": world.pool.pk, "revision": Plan.objects.get(status="review").revision_id}


def _here(**fields: Any) -> Callable[[World, Doors], dict[str, Any]]:
    return lambda world, doors: {"cluster": str(world.cluster.pk), **fields}


def _silence(world: World, doors: Doors) -> dict[str, Any]:
    return {"until": (now() + timedelta(hours=2)).isoformat(), "note": "known"}


A_CLUSTER = "api/v1/clusters/<uuid:cluster_pk>"
SELECTOR = {"matchLabels": {"pool": "others"}}
SECRET = "a secret of sixteen"
HOOK = {"name": "new", "kind": "webhook", "url": "https://127.0.0.1/hook", "secret": SECRET, "what": ["alerts"]}
ALL = [
    Sent("POST", "api/v1/users", _always(email="new@example.com"), ("admin",)),
    Sent("POST", "api/v1/role-bindings", _binding, ("admin",)),
    Sent("POST", "api/v1/saved-filters", _always(page="nodes", name="y", query="q=x"), ROLES, elsewhere=True),
    Sent("POST", f"{A_CLUSTER}/pools", _always(name="others", selector=SELECTOR), ("operator",)),
    Sent("POST", "api/v1/clusters/<uuid:pk>/pools/preview", _always(selector=SELECTOR), ROLES),
    Sent("PATCH", "api/v1/clusters/<uuid:pk>", _always(budget=2), ("admin",)),
    Sent("PATCH", "api/v1/pools/<int:pk>", _always(name="renamed"), ("operator",)),
    Sent("POST", "api/v1/profiles", _always(name="mine", source=SOURCE), ("operator",), elsewhere=True),
    Sent("PATCH", "api/v1/profiles/<slug:name>", _always(source=SOURCE), ("operator",), elsewhere=True),
    Sent("POST", "api/v1/plans", _plan, ("operator",)),
    Sent("POST", "api/v1/freezes", _here(reason="night"), ("operator",)),
    Sent("POST", "api/v1/approval-rules", _here(name="more", approvers=3), ("admin",)),
    Sent("PATCH", "api/v1/approval-rules/<int:pk>", _always(approvers=3), ("admin",)),
    Sent("POST", "api/v1/alerts/<uuid:pk>/actions/silence", _silence, ("operator",)),
    Sent("PATCH", "api/v1/alert-rules/<slug:name>", _always(is_enabled=False), ("admin",)),
    Sent("PATCH", f"{A_CLUSTER}/alert-rules/<slug:name>", _always(is_enabled=False), ("admin",)),
    Sent("POST", "api/v1/notice-channels", _always(**HOOK), ("admin",)),
    Sent("PATCH", "api/v1/notice-channels/<uuid:pk>", _always(name="renamed", secret=SECRET), ("admin",)),
    Sent("PUT", f"{A_CLUSTER}/component-values/<slug:name>", _always(values={"a": 1}), ("operator",)),
]


@pytest.fixture
def doors(world: World, monkeypatch: pytest.MonkeyPatch) -> Doors:
    monkeypatch.setattr(wake, "wake", lambda pk: None)
    return Doors(world)


def version_of(doors: Doors, route: str) -> dict[str, str]:
    """If-Match of what is there, as an administrator's program would read it first."""
    status, content = doors.answer("admin", "GET", route)
    found = json.loads(content).get("version") if status == 200 else None
    return {} if found is None else {"If-Match": f'"{found}"'}


def test_a_valid_body_is_taken_from_who_may_and_refused_to_everybody_else_before_it_is_judged(
    doors: Doors, world: World
) -> None:
    Cluster.objects.filter(pk=world.cluster.pk).update(name="kept-from-you")
    wrong = {}
    for sent in ALL:
        body, headers = sent.body(world, doors), {} if sent.method == "POST" else version_of(doors, sent.route)
        for who in WHO:
            status, content = doors.answer(who, sent.method, sent.route, body, headers)
            if who in sent.may or (who == "outside" and sent.elsewhere):
                is_right = status in (200, 201, 202, 204)
            elif who == "outside":
                # What a body names and its sender cannot see is a field that names nothing.
                is_right = status in (403, 404, 422) and "kept-from-you" not in content
            else:
                is_right = status == (401 if who == "anonymous" else 403)
            if not is_right:
                wrong[str(sent), who] = (status, content[-300:])
    assert wrong == {}


def test_what_an_outsiders_body_names_is_as_if_it_were_not_there(doors: Doors, world: World) -> None:
    """Word for word: the answer about a cluster that one cannot see is that about one that does not exist."""
    for sent in (one for one in ALL if one.method == "POST" and not one.elsewhere):
        body = sent.body(world, doors)
        hidden = {name: value for name, value in body.items() if name in ("cluster", "pool")}
        if not hidden or sent.may != ("operator",):
            continue
        absent = body | {name: 999_999 if isinstance(value, int) else str(uuid4()) for name, value in hidden.items()}
        told = [json.loads(doors.answer("outside", sent.method, sent.route, each)[1]) for each in (body, absent)]
        hers, nothings = ((one["status"], one["errors"]) for one in told)
        assert hers == nothings, str(sent)


def test_from_a_plan_to_a_pause_each_call_is_only_its_roles(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of calls, each on what the one before made: at each link everybody but one kind of person is refused."""
    monkeypatch.setattr(wake, "wake", lambda pk: None)
    revision = world.revision({"vm.swappiness": "31"})
    people = {role: UserFactory(roles=[role]) for role in ROLES}
    people["outside"] = UserFactory(roles=[f"{role}@env:production" for role in ROLES])
    doors = {name: TokenClient(person) for name, person in people.items()}

    def link(path: str, by: str, **body: Any) -> Any:
        for name, door in doors.items():
            if name != by:
                got = door.post(f"/api/v1/{path}", body, content_type="application/json")
                assert got.status_code in ((404, 422) if name == "outside" else (403,)), (path, name, got.content)
        answer = doors[by].post(f"/api/v1/{path}", body, content_type="application/json")
        assert answer.status_code in (200, 201, 202), (path, by, answer.content)
        return answer.json()

    plan = link("plans", "operator", pool=world.pool.pk, revision=str(revision.pk))
    link(f"plans/{plan['id']}/actions/request", "operator", comment="Please.")
    read = doors["approver"].get(f"/api/v1/plans/{plan['id']}").json()
    link(f"plans/{plan['id']}/actions/approve", "approver", digest=read["digest"], comment="Read.")
    link(f"plans/{plan['id']}/actions/start", "operator")
    rollout = Plan.objects.get(pk=plan["id"]).rollout
    link(f"rollouts/{rollout.pk}/actions/pause", "operator")
    rollout.refresh_from_db()
    assert rollout.status == "paused"
