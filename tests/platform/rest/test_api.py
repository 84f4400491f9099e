"""Properties that every API view and every list has in common."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from rest_framework.views import APIView

from accounts.models import ApiToken, User
from common.scopes import needed_scope
from tests.factories import TokenClient, UserFactory

ROOT = Path(__file__).resolve().parents[3]
OPEN = {"SpectacularJSONAPIView"}
"""The schema is public: it says what anyone can read in the source."""
CHANGE_NOTHING = {"preview_pool", "check"}
"""Actions that are POST only because what they look at is too long for an address."""


def api_views() -> Iterator[tuple[str, Any]]:
    def walk(resolver: URLResolver, prefix: str) -> Iterator[tuple[str, Any]]:
        for entry in resolver.url_patterns:
            route = f"{prefix}{entry.pattern}"
            if isinstance(entry, URLResolver):
                yield from walk(entry, route)
            elif isinstance(entry, URLPattern) and issubclass(getattr(entry.callback, "cls", object), APIView):
                yield route, entry.callback

    yield from walk(get_resolver(), "")


@pytest.mark.parametrize(("route", "callback"), [pytest.param(*view, id=view[0]) for view in api_views()])
def test_every_view_declares_the_token_scope_of_each_of_its_methods(route: str, callback: Any) -> None:
    view = callback.cls
    if view.__name__ in OPEN:
        return
    actions = getattr(callback, "actions", None) or {
        name: None for name in view.http_method_names if name != "options" and hasattr(view, name)
    }
    assert actions
    for method, action in actions.items():
        view.action = action
        try:
            scope = needed_scope(view, method.upper())
        finally:
            del view.action
        assert scope in ApiToken.Scope.values
        if scope == "read":
            assert method in ("get", "head") or action in CHANGE_NOTHING, f"{method} {route} writes with the scope read"


@pytest.mark.parametrize(("route", "callback"), [pytest.param(*view, id=view[0]) for view in api_views()])
def test_no_view_swaps_the_common_base_for_one_of_its_own(route: str, callback: Any) -> None:
    if callback.cls.__name__ in OPEN:
        return
    from common.api import ApiView
    from common.scopes import HasScope

    assert issubclass(callback.cls, ApiView)
    assert HasScope in callback.cls.permission_classes


@pytest.mark.parametrize(("route", "callback"), [pytest.param(*view, id=view[0]) for view in api_views()])
def test_the_framework_does_not_answer_for_one_object_in_our_place(route: str, callback: Any) -> None:
    """A mixin before the common base hides its `retrieve`, and with it the ETag that a later If-Match needs."""
    from rest_framework.mixins import RetrieveModelMixin

    assert getattr(callback.cls, "retrieve", None) is not RetrieveModelMixin.retrieve


@pytest.mark.django_db
def test_a_list_is_paged_with_a_count_and_links() -> None:
    client = TokenClient(UserFactory(roles=["admin"]))
    UserFactory.create_batch(6)
    page = client.get("/api/v1/users?limit=3&ordering=email").json()
    assert (page["count"], len(page["results"]), page["previous"]) == (7, 3, None)
    seen = [row["email"] for row in page["results"]]
    while page["next"]:
        page = client.get(page["next"]).json()
        seen += [row["email"] for row in page["results"]]
    assert seen == sorted(User.objects.values_list("email", flat=True))
    assert client.get(page["previous"]).json()["results"]


@pytest.mark.django_db
def test_paging_by_key_meets_every_row_once_though_rows_come_and_go() -> None:
    client = TokenClient(UserFactory(roles=["admin"]))
    there = [user.pk for user in UserFactory.create_batch(6)]
    page = client.get("/api/v1/users?limit=3&start=").json()
    assert page["count"] is None
    User.objects.filter(pk=there[0]).delete()
    UserFactory()
    seen = [row["id"] for row in page["results"]]
    while page["next"]:
        page = client.get(page["next"]).json()
        seen += [row["id"] for row in page["results"]]
    assert len(seen) == len(set(seen))
    assert set(there) <= set(seen)


@pytest.mark.django_db
def test_a_page_costs_the_same_queries_however_many_rows(django_assert_num_queries) -> None:
    client = TokenClient(UserFactory(roles=["admin"]))
    client.get("/api/v1/users")
    for _ in range(2):
        with django_assert_num_queries(5):  # token with user, roles, count, rows, passkeys
            client.get("/api/v1/users")
        UserFactory.create_batch(30)


@pytest.mark.django_db
def test_fields_are_selected() -> None:
    client = TokenClient(UserFactory(roles=["admin"]))
    assert client.get("/api/v1/users?fields=id,email").json()["results"][0].keys() == {"id", "email"}


@pytest.mark.django_db
def test_the_schema_is_valid_and_the_committed_one_is_of_this_code(tmp_path: Path) -> None:
    made = tmp_path / "openapi.yaml"
    call_command("spectacular", file=str(made), validate=True, fail_on_warn=True)
    committed = ROOT / "docs" / "openapi.yaml"
    assert _without_bounds(made) == _without_bounds(committed), "run make openapi and look at what changed for clients"
    if connection.vendor == "sqlite":  # where `make openapi` writes it, to the letter
        assert made.read_text() == committed.read_text()


def _without_bounds(schema: Path) -> list[str]:
    """The largest integer of a column is the database's, and not part of what is promised."""
    return [line for line in schema.read_text().splitlines() if line.split(":")[0].strip() not in BOUNDS]


BOUNDS = ("maximum", "minimum", "format")


@pytest.mark.django_db
def test_the_schema_tells_of_problems_tokens_and_keys() -> None:
    reader = TokenClient(UserFactory(roles=["viewer"]))
    answer = reader.get("/api/v1/openapi.json")
    assert reader.get("/api/v1/openapi.json", headers={"If-None-Match": answer["ETag"]}).status_code == 304
    schema = answer.json()
    create = schema["paths"]["/api/v1/users"]["post"]
    for status in ("400", "401", "403", "409", "422"):
        name = create["responses"][status]["$ref"].rpartition("/")[2]
        assert schema["components"]["responses"][name]["content"].keys() == {"application/problem+json"}
    assert "Idempotency-Key" in [parameter["name"] for parameter in create["parameters"]]
    assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


@pytest.mark.django_db
def test_the_documentation_page_loads_nothing_from_elsewhere_and_no_inline_script() -> None:
    reader = Client()
    reader.force_login(UserFactory(roles=["viewer"]))
    answer = reader.get("/api/v1/docs")
    text = answer.content.decode()
    assert answer.status_code == 200
    links = re.findall(r'<(?:link|script)[^>]*(?:src|href)="([^"]+)"', text)
    assert len(links) >= 4
    assert all(link.startswith("/static/") for link in links)
    assert not re.search(r"<script(?![^>]*src=)", text)
    assert "script-src" not in answer["Content-Security-Policy"]
    assert answer["Content-Security-Policy"].startswith("default-src 'self'")
    for link in links:
        assert Client().get(link).status_code == 200, link
