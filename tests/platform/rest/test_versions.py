"""Versions in If-Match: actions honor it where it is sent, so that a verb applies to what was read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from clusters.connection import registry
from tests.factories import TokenClient
from tests.jobs.conftest import World


@pytest.fixture
def world(db: None, clock: Any) -> Iterator[World]:
    made = World(clock, nodes=1)
    yield made
    registry.uninstall(made.cluster.pk)


def test_an_action_on_a_plan_that_moved_on_is_refused_and_nothing_happens(world: World) -> None:
    api, plan = TokenClient(world.operator), world.plan()
    address = f"/api/v1/plans/{plan.pk}"
    read = api.get(address)["ETag"]
    assert api.post(f"{address}/actions/request", {}, headers={"If-Match": read}).status_code == 202

    late = api.post(f"{address}/actions/withdraw", {}, headers={"If-Match": read})

    assert (late.status_code, late.json()["code"]) == (412, "stale")
    plan.refresh_from_db()
    assert plan.status == "review"


def test_an_action_without_if_match_is_for_the_plan_as_it_is(world: World) -> None:
    api, plan = TokenClient(world.operator), world.plan()

    assert api.post(f"/api/v1/plans/{plan.pk}/actions/request", {}).status_code == 202


@pytest.mark.parametrize("tag", ['W/"1"', "1", '"x"', '""', "\xff"])
def test_a_weak_or_malformed_tag_never_matches(world: World, tag: str) -> None:
    api, plan = TokenClient(world.operator), world.plan()

    answer = api.post(f"/api/v1/plans/{plan.pk}/actions/request", {}, headers={"If-Match": tag})

    assert answer.status_code == 412
