"""Every bad request is answered by a problem document that names the field: never a 500, never a stack trace."""

from __future__ import annotations

import json

import pytest
from django.db import DataError, InterfaceError, OperationalError
from django.test import Client
from django.urls import path
from hypothesis import HealthCheck, given
from hypothesis import settings as tuned
from hypothesis import strategies as st
from rest_framework import serializers
from rest_framework.response import Response

from clusters.fleet import FleetRefused, FleetUnavailable
from common.api import ApiView, expected_version, with_etag
from common.errors import Invalid, LostRace, Missing, NotAllowed, Stale, WrongState
from config import urls as real
from config.errors import CONTENT_TYPE, _flat
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db

RAISED: dict[str, Exception] = {}


class Raising(ApiView):
    scope_for = {"GET": "read", "POST": "plan"}

    def get(self, request, name):
        raise RAISED[name]

    post = get


class Row:
    version = 3


class Versions(ApiView):
    scope_for = {"GET": "read", "PUT": "plan"}

    def get(self, request):
        return with_etag(Response({}), Row())

    def put(self, request):
        return Response({"version": expected_version(request, Row())})


def page(request, name):
    raise RAISED[name]


urlpatterns = [
    path("api/v1/raise/<name>", Raising.as_view()),
    path("api/v1/versions", Versions.as_view()),
    path("raise/<name>", page),
    *real.urlpatterns,
]
handler400, handler403, handler404, handler500 = real.handler400, real.handler403, real.handler404, real.handler500

KEYS = {"type", "title", "status", "detail", "instance", "request_id", "code", "errors"}


def problem(answer, status: int) -> dict:
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"] == CONTENT_TYPE
    document = answer.json()
    assert set(document) == KEYS
    assert document["status"] == status
    assert document["request_id"] == answer["X-Request-ID"]
    assert document["type"] == f"urn:setpoint:problem:{document['code']}"
    assert "Traceback" not in answer.content.decode()
    return document


@pytest.fixture
def client() -> TokenClient:
    return TokenClient(UserFactory(roles=["admin", "operator"]), raise_request_exception=False)


@pytest.mark.urls(__name__)
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Invalid("no", fields={"a.b": ["x", "y"]}), 422, "invalid"),
        (NotAllowed("no"), 403, "not-allowed"),
        (WrongState("no"), 409, "wrong-state"),
        (Stale("no"), 412, "stale"),
        (Missing("no"), 404, "missing"),
        (LostRace("rollout 7"), 409, "changed-meanwhile"),
        (FleetUnavailable("timeout"), 502, "cluster-unreachable"),
        (FleetRefused("forbidden"), 502, "cluster-refused"),
        (OperationalError("secret-host:5432 refused"), 503, "database-unavailable"),
        (InterfaceError("closed"), 503, "database-unavailable"),
        (DataError("value too long"), 422, "invalid"),
        (RuntimeError("secret inside"), 500, "fault"),
        (KeyError("secret"), 500, "fault"),
    ],
)
def test_each_error_has_its_status_in_the_api_and_on_pages(client, settings, error, status: int, code: str) -> None:
    settings.DEBUG_PROPAGATE_EXCEPTIONS = False
    RAISED["it"] = error
    document = problem(client.get("/api/v1/raise/it"), status)
    assert document["code"] == code
    assert "secret" not in json.dumps(document)
    answer = Client(raise_request_exception=False).get("/raise/it")
    assert answer.status_code == status
    assert "secret" not in answer.content.decode()
    assert answer["X-Request-ID"] in answer.content.decode()


@pytest.mark.urls(__name__)
def test_fields_become_errors_one_by_one(client) -> None:
    RAISED["it"] = Invalid("no", fields={"settings[3].value": ["too big", "odd"], "name": ["missing"]})
    document = problem(client.post("/api/v1/raise/it"), 422)
    assert document["errors"] == [
        {"field": "settings[3].value", "message": "too big"},
        {"field": "settings[3].value", "message": "odd"},
        {"field": "name", "message": "missing"},
    ]


def test_nested_serializer_errors_become_paths() -> None:
    class Inner(serializers.Serializer):
        value = serializers.IntegerField()

    class Outer(serializers.Serializer):
        items = Inner(many=True)
        tags = serializers.ListField(child=serializers.CharField(max_length=2))
        inner = Inner()

    wanted = Outer(data={"items": [{"value": 1}, {"value": "x"}], "tags": ["ok", "long"], "inner": 5})
    assert not wanted.is_valid()
    assert {field for field, _ in _flat(wanted.errors)} == {"items[1].value", "tags[1]", "inner"}


NESTED = "[" * 100_000
RUBBISH = [
    (b"{", 400),
    (b"\xff\xfe", 400),
    (b"[1,2]", 422),
    (b'"text"', 422),
    (b"null", 422),
    (b"7", 422),
    (NESTED.encode(), 400),
    (b'{"email":' + b"[" * 80 + b"]" * 80 + b"}", 400),
    (b'{"email": "a\\u0000@example.com"}', 422),
    (b'{"email": "\\ud800@example.com"}', 422),
    (b'{"em\\u0000ail": "x"}', 422),
    (b'{"email": 99999999999999999999999999}', 422),
    (b'{"email": ' + b"9" * 5000 + b"}", 400),
    (b'{"email": 1e999}', 422),
    (b'{"email": NaN}', 400),
    (b'{"email": {"a": []}}', 422),
    (b'{"email": ["a@example.com"]}', 422),
    (b'{"email": true}', 422),
    (b"{}", 422),
    (b"", 422),
]


@pytest.mark.parametrize(("body", "status"), RUBBISH, ids=range(len(RUBBISH)))
def test_rubbish_bodies_are_refused(client, body: bytes, status: int) -> None:
    problem(client.generic("POST", "/api/v1/users", body, "application/json"), status)


@pytest.mark.parametrize(
    ("method", "url", "status"),
    [
        ("GET", "/api/v1/nothing", 404),
        ("GET", "/api/v2/users", 404),
        ("GET", "/api/v1/users/%00", 400),
        ("GET", "/api/v1/audit/not-a-uuid", 404),
        ("GET", "/api/v1/audit/00000000-0000-0000-0000-000000000000", 404),
        ("GET", "/api/v1/audit?cluster=not-a-uuid", 400),
        ("GET", "/api/v1/audit?cluster=%00", 400),
        ("GET", "/api/v1/audit?actor=%00", 400),
        ("GET", "/api/v1/audit?limit=0", 400),
        ("GET", "/api/v1/audit?limit=1001", 400),
        ("GET", "/api/v1/audit?limit=-1", 400),
        ("GET", "/api/v1/audit?limit=1e3", 400),
        ("GET", "/api/v1/audit?limit=" + "9" * 5000, 400),
        ("GET", "/api/v1/audit?limit=%D9%A3", 400),
        ("GET", "/api/v1/audit?offset=99999999999999999999", 400),
        ("GET", "/api/v1/audit?offset=5&start=", 400),
        ("GET", "/api/v1/audit?start=not-a-uuid", 400),
        ("GET", "/api/v1/users?start=abc", 400),
        ("GET", "/api/v1/audit?ordering=password", 400),
        ("GET", "/api/v1/audit?ordering=seq__gt", 400),
        ("GET", "/api/v1/audit?fields=nothing", 400),
        ("GET", "/api/v1/users?is_active=perhaps", 400),
        ("GET", "/api/v1/users?is_actve=true", 400),
        ("GET", "/api/v1/audit?acter=x", 400),
        ("PATCH", "/api/v1/users/99999999999999999999999", 404),
        ("PUT", "/api/v1/users", 405),
        ("DELETE", "/api/v1/audit", 405),
        ("POST", "/api/v1/me", 405),
    ],
)
def test_rubbish_addresses_are_refused(client, method: str, url: str, status: int) -> None:
    problem(client.generic(method, url, b"{}", "application/json"), status)


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "multipart/form-data; boundary=x", "x", ""])
def test_other_content_types_are_refused(client, kind: str) -> None:
    problem(client.generic("POST", "/api/v1/users", b"<x/>", kind), 415)


def test_a_body_above_a_mebibyte_is_refused_unread_also_on_pages(client) -> None:
    body = b'{"email": "' + b"x" * 1024 * 1024 + b'"}'
    document = problem(client.generic("POST", "/api/v1/users", body, "application/json"), 413)
    assert "1,048,576" in document["detail"]
    assert Client().post("/login/", {"email": "x" * 1024 * 1024}).status_code == 413


@pytest.mark.parametrize("value", ["abc", "-5"])
def test_an_odd_content_length_is_refused(client, value: str) -> None:
    answer = client.generic("POST", "/api/v1/users", b"{}", "application/json", CONTENT_LENGTH=value)
    problem(answer, 400)


def test_a_nul_in_a_form_is_refused_on_pages() -> None:
    assert Client().post("/login/", {"email": "a\x00@example.com", "password": "x"}).status_code == 400
    assert Client().get("/audit/?actor=%00").status_code == 400


def test_a_form_from_elsewhere_is_explained() -> None:
    answer = Client(enforce_csrf_checks=True).post("/login/", {"email": "a@example.com", "password": "x"})
    assert answer.status_code == 403
    assert b"Reload the page" in answer.content


def test_an_unknown_page_is_the_error_page() -> None:
    answer = Client().get("/nowhere/")
    assert answer.status_code == 404
    assert answer["Content-Type"].startswith("text/html")


def test_without_log_in_the_api_asks_for_a_token_and_pages_lead_to_the_form() -> None:
    answer = Client().get("/api/v1/users")
    assert problem(answer, 401)["code"] == "not-authenticated"
    assert answer["WWW-Authenticate"].startswith("Bearer")
    assert Client().get("/account/")["Location"] == "/login/?next=/account/"


@pytest.mark.urls(__name__)
@pytest.mark.parametrize(
    ("header", "status"),
    [(None, 428), ('"3"', 200), ('"2"', 412), ('W/"3"', 412), ("*", 200), ('"1", "3"', 200), ("3", 412), ('"', 412)],
)
def test_a_write_says_which_version_it_is_based_on(client, header: str | None, status: int) -> None:
    assert client.get("/api/v1/versions")["ETag"] == '"3"'
    answer = client.put("/api/v1/versions", headers={"If-Match": header} if header else {})
    assert answer.status_code == status
    if status == 428:
        assert '"3"' in problem(answer, 428)["detail"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@tuned(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("email", "password", "first_name", "is_service", "role", "scope", "user"), JSON)
    ),
    where=st.sampled_from(["/api/v1/users", "/api/v1/role-bindings", "/api/v1/tokens"]),
)
def test_no_json_at_all_makes_a_500(client, body, where: str) -> None:
    answer = client.generic("POST", where, json.dumps(body), "application/json")
    assert answer.status_code in (201, 400, 403, 404, 422), answer.content
