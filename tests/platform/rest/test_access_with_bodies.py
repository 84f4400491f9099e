"""The table of access once more, with bodies that pass validation: a refusal comes before the body is judged, and what
is permitted was possible."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from django.db import transaction

from clusters.connection import registry
from clusters.models import Cluster, Node
from jobs import tasks
from jobs.models import Plan
from simfleet import SimCluster, SimFleet
from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import World
from tests.platform.rest.doors import WHO, Doors
from tests.platform.rest.writes import ALL, OTHER, ROLES, URL, Sent


@pytest.fixture
def doors(world: World, monkeypatch: pytest.MonkeyPatch) -> Doors:
    monkeypatch.setattr(tasks, "wake", lambda pk: None)
    return Doors(world)


def version_of(doors: Doors, route: str) -> dict[str, str]:
    """Return If-Match with the current version, as an administrator's program would read it first."""
    status, content = doors.answer("admin", "GET", route)
    version = json.loads(content).get("version") if status == 200 else None
    return {} if version is None else {"If-Match": f'"{version}"'}


@pytest.fixture
def here(doors: Doors, world: World) -> Iterator[World]:
    """Installation with API servers that answer, one of them the cluster's own, and a cordon that it does not know."""
    Node.objects.filter(name="n1").update(is_cordoned=True, cordoned_by=f"setpoint/{uuid4()}")
    with registry.override(URL, SimFleet(world.sim)), registry.override(OTHER, SimFleet(SimCluster(seed=2))):
        yield world


def test_every_write_that_takes_a_body_has_a_valid_one_here() -> None:
    """Operations are listed from the API's own description: a new one without a line fails."""
    paths = yaml.safe_load((Path(__file__).parents[3] / "docs/openapi.yaml").read_text(encoding="utf-8"))["paths"]
    taking = {
        (method.upper(), re.sub(r"{[^}]*}", "{}", path).lstrip("/"))
        for path, methods in paths.items()
        for method, operation in methods.items()
        if "requestBody" in operation
    }
    assert len(taking) > 40, "or this reads something else"
    assert {(write.method, re.sub(r"<[^>]*>", "{}", write.route)) for write in ALL} == taking


def is_right(sent: Sent, who: str, status: int, content: str) -> bool:
    if who in sent.may or (who == "outside" and sent.elsewhere):
        return status == 409 and json.loads(content)["code"] == sent.now if sent.now else 200 <= status < 300
    if who == "outside":
        # What a body names and its sender cannot see is a field that names nothing; or it is of no cluster.
        return status in (403, 404, 422)
    return status == (401 if who == "anonymous" else 403)


def test_a_valid_body_is_taken_from_who_may_and_refused_to_everybody_else_before_it_is_judged(
    doors: Doors, here: World
) -> None:
    Cluster.objects.filter(pk=here.cluster.pk).update(name="kept-from-you")
    wrong = {}
    for sent in ALL:
        for who in WHO:
            with transaction.atomic():
                body = sent.body(here, doors)
                of = sent.version or (sent.route if sent.method != "POST" else "")
                headers = version_of(doors, of) if of else {}
                status, content = doors.answer(who, sent.method, sent.route, body, headers)
                transaction.set_rollback(True)
            if not is_right(sent, who, status, content) or (who == "outside" and "kept-from-you" in content):
                wrong[f"{sent} by {who}"] = f"{status} {content[:200]}"
    assert wrong == {}, "\n".join(f"{what}: {answer}" for what, answer in wrong.items())


def test_what_an_outsiders_body_names_is_as_if_it_were_not_there(doors: Doors, world: World) -> None:
    """Word for word: the answer about a cluster that one cannot see is that about one that does not exist."""
    for sent in (
        write for write in ALL if write.method == "POST" and not write.elsewhere and write.may == ("operator",)
    ):
        body = sent.body(world, doors)
        hidden = {name: value for name, value in body.items() if name in ("cluster", "pool")}
        if not hidden:
            continue
        absent = body | {name: 999_999 if isinstance(value, int) else str(uuid4()) for name, value in hidden.items()}
        answers = [json.loads(doors.answer("outside", sent.method, sent.route, each)[1]) for each in (body, absent)]
        hers, nothings = ((answer["status"], answer["errors"]) for answer in answers)
        assert hers == nothings, str(sent)


def test_from_a_plan_to_a_pause_each_call_is_only_its_roles(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of calls, each on what the one before made: at each link every account but one kind is refused."""
    monkeypatch.setattr(tasks, "wake", lambda pk: None)
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
