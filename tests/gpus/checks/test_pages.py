"""Pages and REST of checks, and a node's place among its peers."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from audit.models import Record
from common.clock import now
from gpus.models import CheckImage, CheckRun, CheckSchedule
from gpus.services.checks import comparison, reports, schedules, starting
from gpus.services.checks.catalog import CHECKS, BadCatalog, read
from jobs.models import Freeze
from tests.clusters.factories import ClusterFactory
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db
FIO = CHECKS["fio-scratch"]
HIGHER, LOWER = FIO.measures[0], FIO.measures[2]


def ended(world, name, *, value, check="fio-scratch", ago=1, outcome="passed", **fields):
    node = world.node(name)
    at = now() - timedelta(hours=ago)
    measures = {"read_bandwidth": value}
    given = {"cluster": world.cluster, "node": node, "check_name": check, "image": "r/x:1", "gpus": 8, "at_once": 1,
             "status": "ended", "outcome": outcome, "measures": measures, "created_at": at, "ended_at": at}  # fmt: skip
    return CheckRun.objects.create(**given | {"model": node.gpu_product} | fields)


@pytest.mark.parametrize("measure", [HIGHER, LOWER])
def test_a_node_that_is_far_worse_is_flagged_and_none_that_differs_by_chance(measure):
    for seed in range(200):
        rng = random.Random(seed)
        others = [100 + rng.gauss(0, 3) for _ in range(20)]
        good = comparison.place(measure, 100 + rng.uniform(-3, 3), others)
        bad = comparison.place(measure, 70 if measure.is_higher_better else 130, others)
        other_side = comparison.place(measure, 130 if measure.is_higher_better else 70, others)
        assert (good.is_far_below, bad.is_far_below, other_side.is_far_below) == (False, True, False)


def test_some_bad_peers_hide_no_bad_node():
    others = [100.0] * 12 + [50.0] * 5
    assert comparison.place(HIGHER, 50.0, others).is_far_below
    assert not comparison.place(HIGHER, 99.0, others).is_far_below


def test_few_peers_compare_nothing():
    assert comparison.place(HIGHER, 1.0, [100.0] * 4) is None


def test_peers_are_other_nodes_with_the_same_gpus_and_their_newest_values(make_world):
    world = make_world(nodes=9)
    world.tick(1)
    for number in range(2, 9):
        ended(world, f"n{number}", value=2.0 + number / 100)
        ended(world, f"n{number}", value=0.1, ago=48)
    ended(world, "n9", value=0.1, model="other GPUs")
    ended(world, "n9", value=0.1, outcome="unknown")
    ended(world, "n9", value=0.1, ago=24 * 61)
    ended(world, "n1", value=2.0, ago=48)
    ended(world, "n1", value=1.0)
    (line,) = reports.of_node(world.operator, world.node("n1"))
    (figure,) = line.lines
    assert (figure.value, figure.trend) == (1.0, (2.0, 1.0))
    assert (figure.place.peers, figure.place.usual, figure.place.worse_than) == (7, 2.05, 7)
    assert line.far_below == [figure]


def test_the_page_of_a_node_shows_its_checks(make_world, client):
    world = make_world(nodes=1)
    world.tick(1)
    ended(world, "n1", value=2.0)
    ended(
        world, "n1", value=0, check="dcgm-medium", outcome="failed", measures={}, notes=["memory on GPU 7: <b>DBE</b>"]
    )
    client.force_login(world.operator)
    text = client.get(f"/nodes/{world.node('n1').pk}/").content.decode()
    assert "fio on the node" in text
    assert "memory on GPU 7: &lt;b&gt;DBE&lt;/b&gt;" in text


def test_the_page_starts_stops_and_says_what_is_wrong(checking, client):
    world = checking.world
    client.force_login(world.operator)
    given = {"check": "dcgm-medium", "cluster": "atlas", "nodes": "n1\nn2", "at_once": "1"}
    wrong = client.post("/gpus/checks/", {**given, "nodes": "n1 n77"})
    assert (wrong.status_code, b"The cluster has no node n77." in wrong.content) == (422, True)
    assert client.post("/gpus/checks/", given).status_code == 302
    assert CheckRun.objects.live().count() == 2
    run = CheckRun.objects.live().first()
    assert client.post(f"/gpus/checks/runs/{run.pk}/stop/").status_code == 302
    page = client.get("/gpus/checks/?check=dcgm-medium")
    assert page.content.count(b"Waiting") >= 2
    recorded = Record.objects.filter(action__startswith="check.").values_list("action", flat=True)
    assert sorted(recorded) == ["check.image", "check.start", "check.stop"]


def test_an_image_that_is_refused_stays_in_its_field_with_the_reason_beside_it(checking, client):
    client.force_login(UserFactory(roles=["admin"]))
    before = dict(CheckImage.objects.values_list("check_name", "image"))
    answer = client.post("/gpus/checks/fio-scratch/image/", {"image": "no host <b>"})
    page = answer.content.decode()
    assert answer.status_code == 422
    assert 'value="no host &lt;b&gt;"' in page
    assert page.count('aria-describedby="w-fio-scratch"') == page.count('id="w-fio-scratch"') == 1
    assert dict(CheckImage.objects.values_list("check_name", "image")) == before


def test_rest_starts_lists_and_stops(checking):
    world = checking.world
    api = TokenClient(world.operator, ["read", "apply"])
    body = {"check_name": "dcgm-medium", "cluster": str(world.cluster.pk), "nodes": ["n1"]}
    made = api.post("/api/v1/gpus/check-runs", body)
    assert (made.status_code, made.json()["results"][0]["status"]) == (201, "waiting")
    again = api.post("/api/v1/gpus/check-runs", body)
    assert again.status_code == 409
    checking.ended(CheckRun.objects.get())
    row = api.get("/api/v1/gpus/check-runs").json()["results"][0]
    assert (row["outcome"], row["node_name"], row["program_version"]) == ("passed", "n1", "4.2.3")
    assert api.post(f"/api/v1/gpus/check-runs/{row['id']}/actions/stop").status_code == 409
    images = {line["name"]: line["image"] for line in api.get("/api/v1/gpus/checks").json()}
    assert images["dcgm-medium"] == "registry.example/site/dcgm:4.2.3"
    assert images["fio-scratch"] == ""


def test_only_an_administrator_names_an_image(checking):
    operator = TokenClient(checking.world.operator, ["admin"])
    admin = TokenClient(checking.world.admin, ["admin"])
    path, body = "/api/v1/gpus/checks/fio-scratch/image", {"image": "registry.example/fio@sha256:" + "a" * 64}
    assert operator.put(path, body).status_code == 403
    assert admin.put(path, body).json()["image"] == body["image"]
    assert starting.find("fio-scratch") is FIO


# ── Schedules ─────────────────────────────────────────────────────────────────────────────────────────────────────────
SCHEDULE = {"check_name": "dcgm-medium", "cluster": "atlas", "every_days": "7", "at_once": "2"}


def scheduled(world, **fields):
    given = {"every_days": 7, "at_once": 1, "by": world.operator} | fields
    return schedules.add("dcgm-medium", world.cluster, **given)


def test_the_page_adds_changes_and_deletes_a_schedule(checking, client):
    client.force_login(checking.world.operator)
    wrong = client.post("/gpus/checks/schedules/", SCHEDULE | {"every_days": "91"})
    assert (wrong.status_code, b'id="schedule_every_days-error"' in wrong.content) == (422, True)
    assert client.post("/gpus/checks/schedules/", SCHEDULE).status_code == 302
    again = client.post("/gpus/checks/schedules/", SCHEDULE)
    assert (again.status_code, b'id="schedule_check_name-error"' in again.content) == (422, True)
    row = CheckSchedule.objects.get()
    path = f"/gpus/checks/schedules/{row.pk}/"
    assert b'value="7"' in client.get(path).content
    change = {"every_days": "14", "at_once": "1"}
    assert client.post(path, change | {"version": "1"}).status_code == 302
    stale = client.post(path, {"every_days": "30", "at_once": "1", "version": "1"})
    assert (stale.status_code, b'name="version" value="2"' in stale.content) == (412, True)
    assert client.post(f"{path}remove/", {"version": "1"}).status_code == 412
    assert CheckSchedule.objects.get().every_days == 14
    assert client.post(f"{path}remove/", {"version": "2"}).status_code == 302
    assert not CheckSchedule.objects.exists()


def test_the_page_shows_how_many_nodes_were_checked_and_why_nothing_is_queued(checking, client):
    world = checking.world
    scheduled(world)
    for name in ("n1", "n2"):
        ended(world, name, value=0, check="dcgm-medium", measures={})
    client.force_login(world.operator)
    text = " ".join(client.get("/gpus/checks/").content.decode().split())
    assert "2 of 3 nodes" in text
    assert "1 node is due" in text
    Freeze.objects.create(cluster=world.cluster, reason="end of the <year>")
    assert "end of the &lt;year&gt;" in client.get("/gpus/checks/").content.decode()
    Freeze.objects.all().delete()
    ended(world, "n3", value=0, check="dcgm-medium", measures={}, ago=24)
    assert "The next node is due <time" in " ".join(client.get("/gpus/checks/").content.decode().split())


def test_a_viewer_sees_schedules_and_no_form(checking, client):
    row = scheduled(checking.world)
    client.force_login(UserFactory(roles=["viewer"]))
    page = client.get("/gpus/checks/").content.decode()
    assert "0 of 3 nodes" in page
    assert "/gpus/checks/schedules/" not in page
    assert client.get(f"/gpus/checks/schedules/{row.pk}/").status_code == 403
    assert client.post(f"/gpus/checks/schedules/{row.pk}/remove/", {"version": "1"}).status_code == 403
    client.force_login(UserFactory(roles=["operator@env:production"]))
    assert "0 of 3 nodes" not in client.get("/gpus/checks/").content.decode()
    assert client.get(f"/gpus/checks/schedules/{row.pk}/").status_code == 404


def test_an_operator_of_another_cluster_may_not_choose_this_one(checking, client):
    client.force_login(UserFactory(roles=["viewer", "operator@env:production"]))
    assert client.post("/gpus/checks/schedules/", SCHEDULE).status_code == 422
    assert not CheckSchedule.objects.exists()


def test_rest_adds_changes_and_deletes_a_schedule(checking):
    world = checking.world
    api, path = TokenClient(world.operator, ["read", "apply"]), "/api/v1/gpus/check-schedules"
    body = {"check_name": "dcgm-medium", "cluster": str(world.cluster.pk), "every_days": 7}
    made = api.post(path, body)
    assert (made.status_code, made["ETag"], made.json()["at_once"], made.json()["nodes"]) == (201, '"1"', 1, 3)
    address = f"{path}/{made.json()['id']}"
    assert api.get(path + "?check=dcgm-medium&cluster=atlas").json()["results"] == [made.json()]
    assert api.get(path + "?check=fio-scratch").json()["results"] == []
    assert api.get(address + "?fields=nodes").json() == {"nodes": 3}
    wrong = api.post(path, body | {"check_name": "nothing", "every_days": 9})
    assert (wrong.status_code, [e["field"] for e in wrong.json()["errors"]]) == (422, ["check_name"])
    for field in ({"every_days": 0}, {"at_once": 51}, {"every_day": 1}, {"cluster": str(world.cluster.pk)}):
        refused = api.patch(address, field, headers={"If-Match": '"1"'})
        assert (refused.status_code, [e["field"] for e in refused.json()["errors"]]) == (422, list(field))
    assert api.patch(address, {"every_days": 9}).status_code == 428
    assert api.patch(address, {"every_days": 9}, headers={"If-Match": '"7"'}).status_code == 412
    assert api.patch(address, {"every_days": 9}, headers={"If-Match": '"1"'}).json()["version"] == 2
    assert api.patch(address, {}, headers={"If-Match": '"2"'}).json()["version"] == 2
    assert api.delete(address, headers={"If-Match": '"1"'}).status_code == 412
    assert api.delete(address, headers={"If-Match": '"2"'}).status_code == 204
    assert api.get(address).status_code == 404


def test_as_many_queries_for_the_page_with_many_schedules(checking, client, django_assert_max_num_queries):
    world = checking.world
    client.force_login(world.operator)
    scheduled(world)
    with CaptureQueriesContext(connection) as few:
        client.get("/gpus/checks/")
    for _ in range(60):
        schedules.add("dcgm-medium", ClusterFactory(), every_days=3, at_once=1, by=world.operator)
    with django_assert_max_num_queries(len(few)):
        page = client.get("/gpus/checks/").content.decode()
    assert "50 of 61 schedules" in page


@pytest.mark.parametrize(
    "change",
    [
        {"command": "fio --x"}, {"command": []}, {"command": ["a {gpus} b"]}, {"minutes": 0}, {"minutes": 10_000},
        {"minutes": True}, {"parser": "shell"}, {"vendors": "nvidia"}, {"vendors": ["intel"]}, {"sources": ["ftp://x"]},
        {"image": "x"}, {"scratch": "8T"}, {"measures": {"a": {"title": "A", "unit": "s", "better": "maybe"}}},
        {"vendors": [], "command": ["{gpus}"]}, {"command": ["x", "{program}"]}, {"program": "network"},
        {"command": ["{program}"], "program": "../catalog"}, {"command": ["{targets}"]},
    ],
)  # fmt: skip
def test_the_catalog_is_judged(change):
    good = {"title": "T", "about": "A.", "needs": "x", "command": ["x"], "minutes": 5, "vendors": ["nvidia"],
            "parser": "fio", "sources": ["https://example.com"]}  # fmt: skip
    assert read({"a": good})
    with pytest.raises(BadCatalog):
        read({"a": good | change})
