"""Sort orders of lists: on a phone, which shows no column headers, they are above the list."""

from __future__ import annotations

import re
from typing import Any

import pytest

from clusters.connection import registry
from tests.jobs.conftest import World
from tests.pages.test_frame import page

LISTS = [
    "/plans/", "/rollouts/", "/rollouts/R-1/nodes/", "/approvals/?view=mine", "/clusters/", "/nodes/", "/audit/",
]  # fmt: skip


@pytest.fixture
def world(db: None, clock: Any) -> Any:
    made = World(clock, nodes=2)
    made.started()
    yield made
    registry.uninstall(made.cluster.pk)


def sorter(html: str) -> str:
    return re.search(r'<form class="sorter".*?</form>', html, re.DOTALL)[0]


@pytest.mark.parametrize("path", LISTS)
def test_a_phone_offers_the_orders_of_the_heads_and_says_which_one_holds(world: World, path: str) -> None:
    html = page(world.operator, path).content.decode()
    heads = re.findall(r'id="sort-(\w+)" data-back>([^<]+)', html)
    options = re.findall(r'<option value="-?(\w+)"( selected)?>([^<]+)</option>', sorter(html))

    assert len(heads) > 2
    assert [(name, label) for name, _, label in options if label != "The usual order"] == heads
    assert [selected for _, selected, _ in options].count(" selected") == 1


@pytest.mark.parametrize("path", LISTS)
def test_each_of_them_is_an_order_of_the_list(world: World, path: str) -> None:
    html = page(world.operator, path).content.decode()
    for value in re.findall(r'<option value="(-?\w+)"', sorter(html)):
        answer = page(world.operator, f"{path}{'&' if '?' in path else '?'}ordering={value}")
        assert answer.context["listing"].order.text == value


def test_it_keeps_the_filter_and_begins_at_the_first_page(world: World) -> None:
    html = page(world.operator, "/plans/?status=started&q=&after=x&ordering=-nodes").content.decode()
    assert re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', sorter(html)) == [("status", "started")]
    assert 'href="/plans/?status=started&amp;q=&amp;ordering=nodes"' in sorter(html), "turned round"


def test_a_list_that_cannot_be_sorted_offers_nothing(world: World) -> None:
    few = page(world.operator, f"/clusters/{world.cluster.pk}/nodes/live/").content.decode()
    assert "n1" in few
    assert "sorter" not in few
