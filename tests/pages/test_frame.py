"""The frame around every page: the same few queries at any size, true counts, a 404 that gives nothing away."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from config.context import count
from jobs.approvals import reviews
from jobs.rollouts import rollout_actions
from tests.factories import UserFactory
from tests.jobs.conftest import World

PAGES = ["/", "/plans/", "/approvals/", "/rollouts/", "/clusters/", "/nodes/", "/profiles/", "/audit/", "/account/"]


@pytest.fixture
def world(db: None, clock: Any) -> Any:
    from clusters.connection import registry

    made = World(clock, nodes=3)
    yield made
    registry.uninstall(made.cluster.pk)


def page(user: Any, path: str) -> Any:
    client = Client()
    client.force_login(user)
    return client.get(path)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_costs_as_many_queries_for_many_nodes_as_for_few(world: World, path: str) -> None:
    def queries() -> int:
        client = Client()
        client.force_login(world.admin)
        with CaptureQueriesContext(
            connection,
        ) as seen:
            assert client.get(path).status_code == 200
        return len(seen)

    few = queries()
    for number in range(10, 40):
        world.sim.add_node(f"n{number}", gpus=8, labels={"pool": "train"})
    world.observe()

    assert queries() <= few
    assert few <= 15


def test_the_count_beside_approvals_is_of_what_this_very_person_may_decide(world: World) -> None:
    plan = world.plan()
    reviews.request(plan, by=world.operator)

    assert count(world.approver).approvals == 1
    assert count(world.operator).approvals == 0
    assert count(UserFactory(roles=["approver@env:production"])).approvals == 0

    reviews.approve(plan, by=world.approver, digest=plan.digest)
    assert count(world.approver).approvals == 0


def test_the_badge_of_every_page_counts_what_waits_for_this_very_person_until_it_is_done(world: World) -> None:
    plan = world.plan()
    reviews.request(plan, by=world.operator)

    def badge(user: Any, path: str = "/audit/") -> str:
        """Return the side bar's badge, after checking that the phone's menu button says the same."""
        html = page(user, path).content.decode()
        shown = re.search(r'sp-count hot">(\d+)<span class="visually-hidden"> waiting for you', html)
        assert (f"Open menu, {shown[1]} waiting for you" if shown else 'aria-label="Open menu"') in html
        return shown[1] if shown else ""

    assert (badge(world.approver), badge(world.operator)) == ("1", "")
    reviews.request_changes(plan, by=world.approver, digest=plan.digest, comment="Smaller batches.")
    assert (badge(world.approver), badge(world.operator)) == ("", "1")
    assert 'href="/approvals/?view=mine"' in page(world.operator, "/audit/").content.decode(), "straight to it"
    plan.refresh_from_db()
    reviews.request(plan, by=world.operator, message="They are as small as can be.")
    assert (badge(world.approver), badge(world.operator)) == ("1", "")
    plan.refresh_from_db()
    reviews.approve(plan, by=world.approver, digest=plan.digest)
    assert (badge(world.approver), badge(world.operator)) == ("", "1"), "it can be started"
    plan.refresh_from_db()
    rollout_actions.start(plan, by=world.operator)
    assert (badge(world.approver), badge(world.operator)) == ("", "")


def test_a_cluster_out_of_ones_scope_looks_like_nothing_at_all(world: World) -> None:
    stranger = UserFactory(roles=["viewer@env:production"])

    hidden = page(stranger, f"/clusters/{world.cluster.pk}/")
    absent = page(stranger, "/clusters/00000000-0000-4000-8000-000000000000/")

    assert (hidden.status_code, absent.status_code) == (404, 404)
    assert "Page not found" in hidden.content.decode()
    assert world.cluster.name not in hidden.content.decode()


@pytest.mark.django_db
def test_a_refusal_before_anybody_is_known_shows_a_page_without_the_frame() -> None:
    answer = Client().get("/plans/?q=%00")

    assert answer.status_code == 400
    assert 'id="nav"' not in answer.content.decode()
    assert "NUL" in answer.content.decode()


@pytest.mark.django_db
def test_somebody_without_a_role_is_told_so() -> None:
    led = page(UserFactory(), "/")

    assert (led.status_code, led.headers["Location"]) == (302, "/account/")
    shown = page(UserFactory(), "/account/").content.decode()
    assert "No role yet" in shown
    assert "Connect your first cluster" not in shown


@pytest.mark.django_db
def test_the_strict_policy_is_on_every_page() -> None:
    policy = page(UserFactory(roles=["viewer"]), "/")["Content-Security-Policy"]

    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
