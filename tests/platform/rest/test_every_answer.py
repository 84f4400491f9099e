"""Schemathesis over the whole API with every role's token: no 500, and no answer that the schema does not declare.

Each operation gets requests that fit its schema and requests that do not, at addresses that exist and at others. What
a request does is rolled back.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import hypothesis
import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, transaction
from hypothesis import strategies as st
from schemathesis.checks import CHECKS
from schemathesis.core.failures import FailureGroup
from schemathesis.generation import GenerationMode

from clusters.net import egress
from jobs import tasks
from tests.jobs.conftest import World
from tests.platform.rest.doors import WHO, Doors, addresses, expected
from tests.platform.rest.schema import schema

HELD = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world(nodes=2)


@pytest.fixture
def doors(world: World, monkeypatch: pytest.MonkeyPatch) -> Doors:
    def nobody(*arguments: Any, **options: Any) -> Any:
        raise socket.gaierror("names are not looked up in tests")

    def refused(policy: egress.Policy, host: str, port: int, **options: Any) -> Any:
        policy.resolve(host, port)  # what is forbidden is still refused as such
        raise ConnectionRefusedError("nobody is called in tests")

    monkeypatch.setattr(tasks, "wake", lambda pk: None)
    monkeypatch.setattr(egress.Policy, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", nobody)  # generated API servers have generated names
    return Doors(world)


@pytest.fixture
def api(db: None) -> Iterator[Any]:
    loaded = schemathesis.openapi.from_dict(schema())
    loaded.app = get_wsgi_application()
    for signal in (request_started, request_finished):  # as Django's own test client does: the test's database stays
        signal.disconnect(close_old_connections)
    yield loaded
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


def places(doors: Doors) -> dict[str, str]:
    """The address of a real object by the shape of its path: `/api/v1/plans/{}`."""
    return {shape("/" + route): doors.address(route) for route, _ in addresses() if route.startswith("api/")}


def shape(path: str) -> str:
    return re.sub(r"<[^>]+>|\{[^}]+\}", "{}", path)


def real_parameters(path: str, there: dict[str, str]) -> dict[str, str]:
    """The path's parameters as an address that exists has them."""
    pairs = zip(path.split("/"), there[shape(path)].split("/"), strict=True)
    return {name[1:-1]: value for name, value in pairs if name.startswith("{")}


def tried(operation: Any, doors: Doors, there: dict[str, str], people: Sequence[str], count: int) -> str:
    """Return what is wrong with an operation's answers, empty if nothing is.

    All accounts send the same request: making one up takes as long as answering it.
    """
    real = real_parameters(operation.path, there)
    cases = [
        operation.as_strategy(mode, **options)
        for mode in GenerationMode
        for options in ([{"path_parameters": real}, {}] if real else [{}])
    ]
    checks = CHECKS.get_by_names(list(HELD))
    of_a_part = CHECKS.get_by_names([name for name in HELD if name != "response_schema_conformance"])
    sender = ""

    @hypothesis.settings(
        max_examples=count * len(cases),
        database=None,
        derandomize=True,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=st.one_of(cases))
    def holds(case: Any) -> None:
        nonlocal sender
        for sender in people:
            token = doors.tokens[sender]["HTTP_AUTHORIZATION"] if sender != "anonymous" else ""
            headers = {"Authorization": token} if token else {}
            with transaction.atomic():
                response = case.call(headers=headers)
                transaction.set_rollback(True)
            # With `fields`, an answer lacks what its schema requires, which OpenAPI has no words for.
            is_part = bool((case.query or {}).get("fields"))
            case.validate_response(response, checks=of_a_part if is_part else checks, headers=headers)

    try:
        holds()
    except FailureGroup as group:
        return "\n".join(f"as {sender}, {type(error).__name__}: {error}" for error in group.exceptions)[:1500]
    except Exception as error:  # its cause belongs beside the operation's name, with the others'
        return f"as {sender}, {type(error).__name__}: {error}"[:1500]
    return ""


def all_of(api: Any, doors: Doors, people: Sequence[str], count: int) -> dict[str, str]:
    operations = [result.ok() for result in api.get_all_operations()]
    assert len(operations) > 90
    there = places(doors)
    results = {operation.label: tried(operation, doors, there, people, count) for operation in operations}
    return {label: wrong for label, wrong in results.items() if wrong}


@pytest.mark.costly
def test_every_answer_is_declared(api: Any, doors: Doors) -> None:
    """Asked by accounts with every right; the full tier's own, below, sends more, and from all accounts."""
    assert all_of(api, doors, ["admin"], 1) == {}


@pytest.mark.full
@pytest.mark.long
def test_every_answer_is_declared_whatever_is_sent(api: Any, doors: Doors) -> None:
    assert all_of(api, doors, WHO, 4) == {}


def test_every_operation_has_a_summary_of_its_own_words_and_names_its_problems(api: Any) -> None:
    for operation in (result.ok() for result in api.get_all_operations()):
        raw = operation.definition.raw
        assert 6 <= len(raw["summary"]) <= 160, operation.label
        assert raw["summary"][0].isupper(), operation.label
        assert {"400", "401", "403", "422"} <= set(raw["responses"]), operation.label
        assert ("404" in raw["responses"]) == ("{" in operation.path), operation.label
        assert "default" not in raw["responses"], f"{operation.label}: any answer would be declared"


def test_the_schema_asks_for_if_match_exactly_where_a_write_without_it_is_refused(api: Any) -> None:
    """The table of access tells where: 428 is what an empty body gets, or 422 where the body is read first."""
    declared = set()
    for operation in (result.ok() for result in api.get_all_operations()):
        if "428" in operation.definition.raw["responses"]:
            assert "If-Match" in [parameter["name"] for parameter in operation.definition.raw["parameters"]]
            declared.add((operation.method.upper(), shape(operation.path)))
    refused = {(method, shape("/" + route)) for (method, route), statuses in expected().items() if 428 in statuses}
    assert refused <= declared
    assert declared - refused == {("PATCH", "/api/v1/profiles/{}")}
