"""Bodies that REST accepts: each name once, and only names that it knows."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rest_framework import serializers

from common.bodies import Body, Instant
from common.clock import now
from jobs.models import Freeze
from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import World
from tests.platform.rest.schema import schema

ROOT = Path(__file__).resolve().parents[3]
ROOMS = (
    "accounts",
    "audit",
    "clusters",
    "common",
    "compliance",
    "components",
    "config",
    "gpus",
    "jobs",
    "notices",
    "profiles",
)


def judged_by() -> Iterator[tuple[str, Any]]:
    """Each serializer that product code gives a request's data to, and where; and each that is named as one."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            text = path.read_text()
            if "migrations" in path.parts or "erializer" not in text:
                continue
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and any(word.arg == "data" for word in node.keywords):
                    serializer = _named(ast.unparse(node.func), module)
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", serializer
            for name, member in vars(module).items():
                if (
                    isinstance(member, type)
                    and name.endswith(("In", "Change"))
                    and member.__module__ == module.__name__
                ):
                    yield f"{path.relative_to(ROOT)}:{name}", member


def _named(dotted: str, module: Any) -> Any:
    target = module
    for name in dotted.split("."):
        target = getattr(target, name, None)
    return target


def test_every_body_is_judged_by_a_serializer_that_refuses_what_it_does_not_know():
    serious = {
        place: serializer for place, serializer in judged_by()
        if isinstance(serializer, type) and issubclass(serializer, serializers.BaseSerializer)
    }  # fmt: skip
    assert len(serious) > 30
    assert [place for place, serializer in serious.items() if not issubclass(serializer, Body)] == []


def without_body() -> Iterator[tuple[str, str]]:
    for path, methods in schema()["paths"].items():
        for method, operation in methods.items():
            if method in ("post", "put", "patch", "delete") and "requestBody" not in operation:
                yield method, path


@pytest.mark.django_db
@pytest.mark.parametrize(("method", "path"), list(without_body()))
def test_what_takes_no_field_refuses_each(method: str, path: str):
    """A client believes an ignored `reason` of a pause, or an ignored `until` of a lift."""
    client = TokenClient(UserFactory(roles=["viewer"]), ["read", "plan", "apply", "approve", "admin"])
    there = re.sub(r"{[^}]+}", "00000000-0000-0000-0000-000000000001", path)
    answer = getattr(client, method)(there, {"reason": "x"}, content_type="application/json")
    if answer.status_code == 404:  # its id is a number
        there = re.sub(r"{[^}]+}", "1", path)
        answer = getattr(client, method)(there, {"reason": "x"}, content_type="application/json")
    assert (answer.status_code, [error["field"] for error in answer.json()["errors"]]) == (422, ["reason"]), path


@pytest.mark.django_db
@pytest.mark.parametrize("form", ["%Y-%m-%dT00:00:00", "%Y-%m-%d"])
def test_a_moment_without_its_offset_is_refused(world: World, form: str):
    """Read as UTC, a freeze to midnight in Tokyo ended nine hours late, and one in San Francisco eight hours early."""
    client = TokenClient(world.operator)
    day = now() + timedelta(days=30)
    body = {"cluster": str(world.cluster.pk), "reason": "the end of the quarter"}
    answer = client.post("/api/v1/freezes", {**body, "until": day.strftime(form)})
    assert (answer.status_code, [error["field"] for error in answer.json()["errors"]]) == (422, ["until"])
    assert "offset" in answer.json()["errors"][0]["message"]
    assert not Freeze.objects.exists()
    answer = client.post("/api/v1/freezes", {**body, "until": day.strftime("%Y-%m-%dT00:00:00+09:00")})
    assert answer.json()["until"] == (day - timedelta(days=1)).strftime("%Y-%m-%dT15:00:00Z")


def test_every_moment_that_is_taken_asks_for_its_offset():
    taken = [
        (place, name) for place, serializer in judged_by()
        if isinstance(serializer, type) and issubclass(serializer, Body)
        for name, field in serializer().fields.items()
        if isinstance(field, serializers.DateTimeField) and not field.read_only and not isinstance(field, Instant)
    ]  # fmt: skip
    assert taken == []


@pytest.mark.django_db
def test_a_misspelled_field_makes_no_endless_freeze(world: World):
    operator = TokenClient(world.operator)
    sent = {"cluster": str(world.cluster.pk), "reason": "x", "starts_at": "2030-01-01T00:00:00Z"}
    answer = operator.post("/api/v1/freezes", sent, content_type="application/json")
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["starts_at"]
    assert not Freeze.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ('{"email": "a@example.com", "email": "b@example.com"}', 422, "email"),
        ('{"email": "a@example.com", "roles": {"x": 1, "x": 2}}', 422, "x"),
        ('{"email": NaN}', 400, None),
        ('{"email": "a@example.com"', 400, None),
        ('{"\\ud800": 1, "\\ud800": 2}', 422, None),
    ],
)
def test_a_name_given_twice_is_refused_rather_than_guessed_at(body: str, status: int, field: str | None):
    admin = TokenClient(UserFactory(roles=["admin"]))
    answer = admin.generic("POST", "/api/v1/users", body, content_type="application/json")
    assert answer.status_code == status, answer.content
    assert field is None or field in [error["field"] for error in answer.json()["errors"]]


@pytest.mark.django_db
def test_a_large_body_with_doubled_names_costs_no_square_of_its_size():
    admin = TokenClient(UserFactory(roles=["admin"]))
    pairs = ", ".join(f'"k{number % 20000}": 1' for number in range(40000))
    answer = admin.generic("POST", "/api/v1/users", f"{{{pairs}}}", content_type="application/json")
    assert answer.status_code == 422
    assert len(answer.content) < 10_000


@pytest.mark.django_db
@pytest.mark.parametrize("lookup", ["name__regex", "name_", "cluster__name", "email__startswith"])
def test_a_lookup_that_a_list_does_not_offer_is_refused(lookup: str):
    viewer = TokenClient(UserFactory(roles=["admin"]))
    for address in ("nodes", "clusters", "users", "plans", "audit"):
        answer = viewer.get(f"/api/v1/{address}", {lookup: "."})
        assert answer.status_code in (400, 422), (address, lookup)
        assert lookup in json.dumps(answer.json()["errors"])
