"""Every operation that promises Idempotency-Key keeps the promise: the schema says which they are, so a new one is
tried as soon as it is declared. Its body is the schema's own example; `REAL` names objects that exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.apps import apps
from django.db import transaction

from clusters.connection import registry
from clusters.models import Node
from common.api import ApiView
from config.openapi import examples
from contract.nodetuning import Spec
from gpus.models import CheckImage
from jobs import tasks
from profiles.models import Profile, Revision
from simfleet import SimCluster, SimFleet
from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import World
from tests.platform.rest.doors import ROLES, Doors, addresses
from tests.platform.rest.schema import schema
from tests.platform.rest.test_every_answer import places, shape

KEY = {"Idempotency-Key": "k-1", "If-Match": "*"}
SERVER = "https://new.example:6443"
KEPT = ("Location", "ETag")


class Room:
    """Client with every role in an installation where each example can be carried out."""

    def __init__(self, world: World) -> None:
        self.world, self.doors = world, Doors(world)
        self.api = TokenClient(UserFactory(roles=list(ROLES)))
        self.revision = Revision.objects.order_by("number")[0]
        Profile.objects.update(draft='settings:\n  vm.swappiness: "12"\n', draft_author=world.author)

    def selection(self) -> dict[str, Any]:
        seen = self.api.get("/api/v1/nodes/selection?query=q%3Dn1").json()
        return {name: seen[name] for name in ("query", "count", "digest")}

    def checked(self) -> dict[str, Any]:
        """A node with GPUs, and an image of the check."""
        node = self.world.node("n2")
        Node.objects.filter(pk=node.pk).update(allocatable={"nvidia.com/gpu": "8"}, gpu_count=8)
        CheckImage.objects.get_or_create(check_name="fio-scratch", defaults={"image": "r.example/fio:1"})
        return {"check_name": "fio-scratch", "cluster": self.world.cluster.pk, "nodes": [node.name]}

    def newer(self) -> dict[str, Any]:
        """An object that names a step which this database does not know."""
        uid = self.world.fleet.tuning("n1")["spec"]["nodeUID"]
        self.world.fleet.tune("n1", Spec(node_uid=uid, step="3f0c5b8e-0a55-4a0f-9f0e-6d2f1f6f0a11"))
        return {}


REAL: dict[str, Callable[[Room], dict[str, Any]]] = {
    "BindingInRequest": lambda room: {"user": room.world.author.email},
    "CalendarRuleInRequest": lambda room: {"cluster": room.world.cluster.pk},
    "CheckRunInRequest": Room.checked,
    "CheckScheduleInRequest": lambda room: {"cluster": room.world.cluster.pk, "check_name": "dcgm-long"},
    "ConfirmedInRequest": Room.selection,
    "ConnectInRequest": lambda room: {"server": SERVER, "ca": "", "token": "s3cret"},
    "FleetRunInRequest": lambda room: {"rings": [{"name": "a", "plans": [str(room.world.plan().pk)]}]},
    "RepositoryInRequest": lambda room: {"stands_for": ""},  # cilium's has a mirror already, among the doors
    "TakeoverInRequest": lambda room: room.newer(),
    "WorkloadRuleInRequest": lambda room: {"account": UserFactory(is_service=True).email},
    "PlanInRequest": lambda room: {"pool": room.world.pool.pk, "revision": room.revision.digest},
}
"""What an example cannot know, by the body's component."""


def operations() -> dict[str, dict[str, Any]]:
    """Everything that is posted, by its path."""
    return {path: methods["post"] for path, methods in schema()["paths"].items() if "post" in methods}


def promised() -> list[str]:
    names = {path: [p["name"] for p in operation.get("parameters", [])] for path, operation in operations().items()}
    return [path for path in names if "Idempotency-Key" in names[path]]


@pytest.fixture
def room(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    monkeypatch.setattr(tasks, "wake", lambda pk: None)
    with registry.override(SERVER, SimFleet(SimCluster(seed=2, name="new"))):
        yield Room(world)


def rows() -> dict[str, int]:
    """Count the rows of every table, the audit record included: a second execution leaves a trace here."""
    return {model._meta.label: model._default_manager.count() for model in apps.get_models() if model._meta.managed}


class Door:
    """One operation, and what to send there."""

    def __init__(self, path: str, room: Room) -> None:
        self.declared = operations()[path]
        self.address = places(room.doors)[shape(path)]
        self.api = room.api
        name = self.declared["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        self.body = dict(examples()[name]) | (REAL[name](room) if name in REAL else {})
        self.hidden = dict.fromkeys(views()[shape(path)].shown_once)
        """What only the first answer holds."""

    def post(self, body: Any, query: str = "") -> Any:
        return self.api.post(self.address + query, body, headers=KEY)


@contextmanager
def undone() -> Iterator[None]:
    """Undo everything that is done within the context."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def test_the_schema_promises_it_for_everything_that_creates() -> None:
    creating = {path for path, operation in operations().items() if "201" in operation["responses"]}
    creating.remove("/api/v1/chart-archives")  # kept by their bytes: sent twice, they are there once
    assert set(promised()) == creating
    assert len(creating) >= 12


def test_sent_again_it_is_answered_alike_and_done_once_and_for_something_else_refused(room: Room) -> None:
    for path in promised():
        with undone():
            door, before = Door(path, room), rows()

            first = door.post(door.body)
            done = rows()
            again = door.post(door.body)
            hidden = {name: None for name in door.hidden if name in first.json()}
            others = [door.post({}), door.post(door.body, "?color=red")]

            hint = f"{path}: give an example in the schema, or a body in REAL: {first.content.decode()}"
            assert first.status_code == 201, hint
            assert "Idempotency-Replayed" not in first, path
            assert sum(done.values()) > sum(before.values()), f"{path} did nothing, so a repetition cannot be told"
            assert (again.status_code, again.get("Idempotency-Replayed")) == (201, "true"), path
            assert [again.get(name) for name in KEPT] == [first.get(name) for name in KEPT], path
            assert again.json() == first.json() | hidden, path
            for other in others:
                assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused"), path
                assert str(other.status_code) in door.declared["responses"], path
            assert rows() == done, path


def test_what_is_refused_leaves_its_key_free(room: Room) -> None:
    """The same key can then be sent again with the missing field."""
    for path in promised():
        with undone():
            door = Door(path, room)

            wrong = door.post([door.body])

            assert wrong.status_code == 422, path
            assert wrong.json()["code"] != "idempotency-key-reused", path
            assert door.post(door.body).status_code == 201, path


def views() -> dict[str, Any]:
    return {
        shape("/" + route): callback.cls
        for route, callback in addresses()
        if route.startswith("api/") and hasattr(callback, "cls")
    }


def test_every_operation_that_posts_stands_on_the_view_that_keeps_the_keys() -> None:
    """The view keeps keys even for operations that do not promise it, because they create nothing."""
    there = views()
    assert [path for path in operations() if not issubclass(there[shape(path)], ApiView)] == []
