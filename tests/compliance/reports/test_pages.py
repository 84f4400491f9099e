"""The pages: what they say, what they lead to, what they cost, and what they refuse."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.http import QueryDict
from django.test import Client
from django.test.utils import CaptureQueriesContext

from compliance.models import Assignment, ComplianceState, Outlier, SettingState
from compliance.reports import selectors, shares
from compliance.services import outliers, standings
from jobs.approvals import reviews
from tests.factories import UserFactory
from tests.jobs.conftest import World

PAGES = ["/compliance/", "/compliance/live/", "/compliance/nodes/", "/compliance/settings/", "/compliance/changes/"]


def browser(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


def text(user: Any, path: str) -> str:
    answer = browser(user).get(path)
    assert answer.status_code == 200, path
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


@pytest.fixture
def drifted(world: World) -> World:
    """Three compliant nodes, of which a file on n2 then won."""
    world.run(world.started())
    world.sim.drop_file("n2", "/etc/sysctl.d/99-site.conf", "vm.swappiness = 60")
    world.sim.drift("n2", "vm.swappiness", "60")
    world.tick(6)
    return world


def test_the_fleet_page_says_what_is_wrong_and_who_won(drifted: World) -> None:
    page = text(drifted.admin, "/compliance/")
    assert "2 of 3 nodes with a target are compliant" in page
    assert "1 by 99-site.conf" in page
    assert "1 drifted" in page


def test_two_clicks_lead_from_the_fleet_to_the_node_and_its_cause(drifted: World) -> None:
    client = browser(drifted.admin)
    tiles = re.findall(
        r'href="(/compliance/nodes/\?[^"]*state=drifted[^"]*)"', client.get("/compliance/").content.decode()
    )
    listed = client.get(tiles[0].replace("&amp;", "&")).content.decode()
    link = re.search(r'href="(/nodes/\d+/)" class="mono">n2<', listed)
    assert link
    assert ">n1<" not in listed
    shown = client.get(link[1]).content.decode()
    assert "/etc/sysctl.d/99-site.conf:1" in shown
    assert "R-1" in shown


def test_settings_come_worst_first_and_chips_count_what_other_filters_leave(drifted: World) -> None:
    client = browser(drifted.admin)
    page = client.get("/compliance/settings/").context["page"]
    shown = [row.shown for row in page]
    assert shown[0] == "drifted"
    assert shown == sorted(shown, key=lambda state: selectors.RANK[state])

    counts = client.get("/compliance/settings/?state=compliant").context["counts"]
    assert counts["drifted"] == shown.count("drifted")
    assert sum(counts.values()) == len(shown)
    assert [row.shown for row in client.get("/compliance/settings/?state=drifted").context["page"]] == ["drifted"]


def test_slices_of_the_worst_settings_are_slices_of_one_list(drifted: World) -> None:
    node = drifted.node("n3")
    SettingState.objects.filter(node=node).update(state=ComplianceState.PENDING)
    standings.renew([node.pk])
    rows = selectors.settings_of(drifted.admin)
    ordered = sorted(rows, key=lambda row: (selectors.RANK[row.shown], row.node.name, row.key))
    worst = shares.WorstSettings(rows, shares.by_node(drifted.admin, QueryDict()))
    assert len({row.shown for row in ordered}) == 3
    for begin in range(len(ordered) + 1):
        for end in range(begin, len(ordered) + 2):
            assert list(worst[begin:end]) == ordered[begin:end], (begin, end)


def test_every_page_stands_any_filter(drifted: World) -> None:
    queries = ("", "?cluster=atlas", "?cluster=nowhere", "?page=99", "?environment=x", "?pool=x&state=y")
    client = browser(drifted.admin)
    statuses = {path + query: client.get(path + query).status_code for path in PAGES for query in queries}
    assert {path: status for path, status in statuses.items() if status != 200} == {}


def test_before_anything_is_assigned_the_page_says_what_to_do(world: World) -> None:
    page = text(world.admin, "/compliance/")
    assert "No pool has a target yet" in page


def test_who_may_see_nothing_sees_nothing(drifted: World) -> None:
    stranger = UserFactory(email="stranger@example.com", roles=["viewer@env:production"])
    for path in PAGES:
        assert "n2" not in text(stranger, path)
    node = drifted.node("n2")
    assert browser(stranger).get(f"/compliance/nodes/{node.pk}/live/").status_code == 404
    assert browser(stranger).post(f"/compliance/pools/{drifted.pool.pk}/observe/").status_code == 404
    export = browser(stranger).get("/compliance/settings.csv")
    assert b"".join(export.streaming_content).count(b"\n") == 1


@pytest.mark.parametrize("path", PAGES)
def test_a_page_costs_as_many_queries_for_many_nodes_as_for_few(drifted: World, path: str) -> None:
    def queries() -> int:
        client = browser(drifted.admin)
        with CaptureQueriesContext(connection) as seen:
            assert client.get(path).status_code == 200
        return len(seen)

    few = queries()
    for number in range(10, 30):
        drifted.sim.add_node(f"n{number}", gpus=8, labels={"pool": "train"})
    drifted.observe()
    assert queries() <= few + 2  # joining nodes: which plan brings them, and which rollout works there
    assert few <= 20


def test_a_joining_node_leads_to_a_plan_or_to_making_one(world: World) -> None:
    rollout = world.run(world.started())
    world.sim.add_node("n9", gpus=8, labels={"pool": "train"})
    world.observe()
    revision = rollout.plan.revision
    wanted = f"/plans/new/?pool={world.pool.pk}&amp;revision={revision.pk}"
    node = f"/nodes/{world.node('n9').pk}/"
    assert wanted in browser(world.admin).get("/compliance/").content.decode()
    assert wanted in browser(world.admin).get(node).content.decode()

    assert "Setpoint drafts a plan" in text(world.admin, node)

    for number in range(3):  # a plan made for other nodes is none for this one
        world.sim.add_node(f"m{number}", gpus=8, labels={"pool": "train"})
    plan = world.plan(revision)
    world.observe()
    assert f"/plans/{plan}/" not in browser(world.admin).get(f"/nodes/{world.node('m1').pk}/").content.decode()
    shown = browser(world.admin).get(node).content.decode()
    assert wanted not in shown
    assert f"/plans/{plan}/" in shown
    assert f"{plan} is drafted for it" in text(world.admin, node)
    assert f"wait for {plan}" not in text(world.admin, "/compliance/"), "nobody asked for it so far"
    reviews.request(plan, by=world.operator)
    assert f"4 wait for {plan}" in text(world.admin, "/compliance/")
    assert f"{plan} needs review" in text(world.admin, node)


def test_drift_leads_to_a_plan_that_repairs_it(drifted: World) -> None:
    revision = Assignment.objects.get().revision
    repair = f"/plans/new/?pool={drifted.pool.pk}&amp;revision={revision.pk}"
    for path in ("/compliance/", f"/nodes/{drifted.node('n2').pk}/"):
        assert repair in browser(drifted.operator).get(path).content.decode()
    drifted.sim.drop_file("n2", "/etc/sysctl.d/99-site.conf", "")
    drifted.run(drifted.started(drifted.plan(revision)))
    assert drifted.state("n2").state == "compliant"
    assert "3 of 3 nodes with a target" in text(drifted.admin, "/compliance/")


def test_an_outlier_leads_to_its_nodes_with_what_they_answer(make_world: Any) -> None:
    world = make_world(nodes=8)
    world.sim.drift("n3", "vm.max_map_count", "77777")
    world.sim.tick(70)
    world.look()
    assert outliers.refresh(world.cluster)
    page = text(world.admin, "/compliance/")
    assert "1 node differs from its 7 peers in vm.max_map_count" in page
    row = Outlier.objects.get(key="vm.max_map_count")
    listed = browser(world.admin).get(f"/compliance/nodes/?outlier={row.pk}").content.decode()
    assert "77777" in listed
    assert ">n3<" in listed
    assert ">n4<" not in listed


def test_repair_can_be_stopped_by_an_operator_and_nobody_less(world: World) -> None:
    world.run(world.started(enforce=True))
    address = f"/compliance/pools/{world.pool.pk}/observe/"
    assert browser(UserFactory(roles=["viewer"])).post(address).status_code == 403
    assert Assignment.objects.get().mode == "enforce"
    assert browser(world.operator).get(address).status_code == 302
    assert Assignment.objects.get().mode == "enforce"
    assert browser(world.operator).post(address).status_code == 302
    assert Assignment.objects.get().mode == "apply"
    assert "Its agents only observe drift already" in text_after(world, address)


def text_after(world: World, address: str) -> str:
    return browser(world.operator).post(address, follow=True).content.decode()
