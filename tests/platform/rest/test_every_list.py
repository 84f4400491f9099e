"""Laws of every list of the API, generated from the URL table: walked by key nothing is lost or repeated, and a word
that a list does not know is refused, naming it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import IntegrityError, models, transaction
from django.test import Client

from accounts.models import SavedFilter
from tests.factories import TokenClient, UserFactory
from tests.platform.rest.doors import ROLES, Doors, addresses
from tests.platform.rest.lasting import lasting

LISTS = sorted(
    route
    for route, callback in addresses()
    if route.startswith("api/") and "list" in (getattr(callback, "actions", None) or {}).values()
)
VIEWS = dict(addresses())
NO_KEYS = {"api/v1/settings", "api/v1/components"}
"""The catalogs: no rows of a table, and a fixed order."""
MOST_ROWS = 25
COPIES = 3


@pytest.fixture(scope="module")
def doors(django_db_setup: None, django_db_blocker: Any) -> Iterator[Doors]:
    with lasting(Doors, django_db_blocker, nodes=3) as made:
        yield made


@pytest.fixture
def api(doors: Doors, db: None) -> TokenClient:
    person = UserFactory(roles=list(ROLES))
    SavedFilter.objects.create(owner=person, page="nodes", name="x", query="q=x")
    browser = Client()
    browser.force_login(person)  # which the list of sessions then shows
    browser.get("/account/")
    return TokenClient(person)


def test_there_are_lists() -> None:
    assert len(LISTS) > 20


@pytest.mark.parametrize("wrong", ["nope=1", "ordering=nope", "fields=nope", "limit=0", "offset=-1", "limit=x"])
def test_what_a_list_does_not_know_is_refused_and_named(api: TokenClient, doors: Doors, wrong: str) -> None:
    for route in LISTS:
        answer = api.get(f"{doors.address(route)}?{wrong}")
        assert answer.status_code == 400, (route, wrong, answer.content[:300])
        assert [error["field"] for error in answer.json()["errors"]] == [wrong.partition("=")[0]], (route, wrong)


def test_fields_are_selected_in_every_list_and_of_every_object(api: TokenClient, doors: Doors) -> None:
    for route in LISTS:
        rows = api.get(doors.address(route)).json()["results"]
        assert rows, f"{route} is empty here, and nothing would be shown"
        name = next(iter(rows[0]))
        chosen = api.get(f"{doors.address(route)}?fields={name}").json()["results"]
        assert [set(row) for row in chosen] == [{name}] * len(rows), route


def test_the_number_of_rows_is_counted_and_pages_of_one_are_the_same_rows(api: TokenClient, doors: Doors) -> None:
    for route in LISTS:
        whole = api.get(f"{doors.address(route)}?limit=1000").json()
        assert whole["count"] == len(whole["results"]), route
        if 1 < whole["count"] <= MOST_ROWS:
            seen = [api.get(f"{doors.address(route)}?limit=1&offset={n}").json()["results"] for n in range(3)]
            assert [row for page in seen for row in page] == whole["results"][:3], route


@pytest.mark.every_case
@pytest.mark.parametrize("route", [route for route in LISTS if route not in NO_KEYS])
def test_walked_by_key_nothing_is_lost_or_repeated_though_rows_are_added(
    api: TokenClient, doors: Doors, route: str
) -> None:
    address = doors.address(route)
    view = VIEWS[route].cls
    model = view.serializer_class.Meta.model if view.queryset is None else view.queryset.model
    copied = copies(model, address, api)
    before = keys(api.get(f"{address}?limit=1000").json()["results"])
    assert len(before) >= (COPIES if copied else 1)

    seen: list[Any] = []
    page = {"next": f"{address}?start=&limit=2"}
    while page["next"]:
        page = api.get(page["next"]).json()
        seen += keys(page["results"])
        if copied and len(seen) == 2:
            copies(model, address, api, 1)
    assert len(seen) == len(set(seen)), "a row came twice"
    assert set(before) <= set(seen), "a row was left out"


@pytest.mark.every_case
@pytest.mark.parametrize("route", [route for route in LISTS if route not in NO_KEYS])
def test_each_order_shows_the_same_rows_and_backwards_is_the_reverse(
    api: TokenClient, doors: Doors, route: str
) -> None:
    address, view = doors.address(route), VIEWS[route].cls
    orders = getattr(view, "orders", None)
    words = list(orders.columns) if orders else list(view.ordering_fields)
    assert words, f"{route} cannot be ordered"
    there = sorted(map(str, keys(api.get(f"{address}?limit=1000").json()["results"])))
    for word in words:
        for sign in ("", "-"):
            rows = api.get(f"{address}?limit=1000&ordering={sign}{word}")
            assert rows.status_code == 200, (route, word, rows.content[:300])
            assert sorted(map(str, keys(rows.json()["results"]))) == there, (route, sign + word)


def keys(rows: list[dict[str, Any]]) -> list[Any]:
    return [row.get("id", row.get("node", row.get("name"))) for row in rows]


def copies(model: type[models.Model], address: str, api: TokenClient, count: int = COPIES) -> int:
    """Rows like the first one of a list, where its model's constraints allow that; how many were made."""
    rows = api.get(f"{address}?limit=1").json()["results"]
    row = model._default_manager.filter(pk=keys(rows)[0]).first() if rows and "id" in rows[0] else None
    made = 0
    for _ in range(count if row else 0):
        try:
            with transaction.atomic():
                _copied(row).save(force_insert=True)
            made += 1
        except IntegrityError:
            return made
    return made


def _copied(row: Any) -> Any:
    new = type(row)()
    mark = uuid.uuid4().hex[:8]
    for field in row._meta.concrete_fields:
        value = getattr(row, field.attname)
        if field.primary_key:
            value = field.get_default() if field.has_default() else (mark if isinstance(value, str) else None)
        elif isinstance(field, models.CharField | models.TextField) and field.name in ("name", "email", "username"):
            value = f"{value[:20]}-{mark}"
        elif isinstance(field, models.UUIDField) and field.unique:
            value = uuid.uuid4()
        elif isinstance(field, models.IntegerField) and field.name in ("number", "seq", "position"):
            value = uuid.uuid4().int % 1_000_000
        setattr(new, field.attname, value)
    return new
