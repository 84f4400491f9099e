from __future__ import annotations

from datetime import timedelta

import pytest
from rest_framework.test import APIClient

from accounts.access import tokens
from accounts.models import RoleBinding, User
from clusters.connection import registry
from clusters.inventory import store
from clusters.models import Cluster, NodeTuning, Pool
from common import hooks
from common.clock import now
from contract.disks import Disk
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory, PoolFactory, raw_node, raw_pod, raw_status, raw_tuning

pytestmark = pytest.mark.django_db

URL = "https://atlas.example:6443"
SCOPES = {"viewer": ["read"], "operator": ["read", "plan", "apply"], "admin": ["read", "plan", "apply", "admin"]}


def client(role, scope="*"):
    user = User.objects.create_user(f"{role}-{User.objects.count()}@example.com")
    RoleBinding.objects.create(user=user, role=role, scope=scope)
    _, text = tokens.issue(user=user, by=user, name="t", scopes=SCOPES[role], days=1)
    answer = APIClient()
    answer.credentials(HTTP_AUTHORIZATION=f"Bearer {text}")
    return answer


@pytest.fixture
def sim():
    cluster = SimCluster(name="atlas")
    with registry.override(URL, SimFleet(cluster)):
        yield cluster


@pytest.fixture
def fleet():
    """A reachable cluster of three nodes, one of them not ready, one cordoned."""
    cluster = ClusterFactory(reach="reachable", observed_at=now(), environment="staging")
    raws = [
        raw_node("n0", gpus=8, labels={"pool": "train", "nvidia.com/gpu.product": "H100"}),
        raw_node("n1", gpus=8, labels={"pool": "train"}, ready=False),
        raw_node("n2", labels={"pool": "dev"}, unschedulable=True),
    ]
    store.observe_nodes(cluster, raws, complete=True)
    store.observe_tunings(cluster, [raw_tuning("n0", status=raw_status("n0"))], complete=True)
    store.observe_pods(cluster, [raw_pod("p1", node="n0", gpus=8)], complete=True)
    return cluster


def connect(by, **over):
    body = {"name": "atlas", "environment": "staging", "server": URL, "token": "s3cret"}
    return by.post("/api/v1/clusters", body | over, format="json")


# ── clusters ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_cluster_is_connected_and_its_credential_never_comes_back(sim):
    admin = client("admin")

    answer = connect(admin)

    assert answer.status_code == 201, answer.content
    assert answer["Location"] == f"/api/v1/clusters/{answer.json()['id']}"
    assert answer["ETag"] == '"1"'
    for seen in (answer, admin.get(answer["Location"]), admin.get("/api/v1/clusters")):
        assert b"s3cret" not in seen.content
        assert b'"credential":' not in seen.content
    assert answer.json()["actions"]["disconnect"] is True


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"server": "http://atlas.example:6443"}, "server"),
        ({"token": ""}, "token"),
        ({"token": "a b"}, "token"),
        ({"ca": "not a certificate"}, "ca"),
        ({"environment": "moon"}, "environment"),
        ({"budget": 0}, "budget"),
        ({"name": "Not A Name"}, "name"),
        ({"kubeconfig": "a: b"}, "kubeconfig"),
        ({"server": "", "token": ""}, "server"),
    ],
)
def test_bad_input_is_a_problem_that_names_the_field(sim, body, field):
    answer = connect(client("admin"), **body)

    assert answer.status_code == 422, answer.content
    assert answer["Content-Type"].startswith("application/problem+json")
    assert field in {error["field"] for error in answer.json()["errors"]}
    assert not Cluster.objects.exists()


def test_a_kubeconfig_that_would_run_a_program_names_the_line(sim):
    text = "apiVersion: v1\nkind: Config\nusers:\n- name: me\n  user:\n    exec: {command: sh}\n"

    answer = client("admin").post(
        "/api/v1/clusters", {"name": "a", "environment": "staging", "kubeconfig": text}, format="json"
    )

    assert answer.status_code == 422
    assert "line 6" in answer.json()["detail"]


def test_an_unreachable_server_is_a_refusal_with_its_reason(sim):
    sim.faults.outage = True

    answer = connect(client("admin"))

    assert answer.status_code == 422
    assert "does not answer" in answer.json()["detail"]


def test_a_credential_can_be_judged_without_storing_anything(sim):
    answer = client("admin").post("/api/v1/clusters/actions/test", {"server": URL, "token": "s3cret"}, format="json")

    assert answer.status_code == 200, answer.content
    verdict = answer.json()
    assert verdict["is_connectable"] is True
    assert {check["name"] for check in verdict["checks"]} >= {"Reachable", "Version", "Permissions"}
    assert all(permission["why"] for permission in verdict["permissions"])
    assert not Cluster.objects.exists()


def test_only_those_who_may_connect_make_this_server_call_a_url(sim):
    for role in ("viewer", "operator"):
        body = {"server": URL, "token": "x"}
        assert client(role).post("/api/v1/clusters/actions/test", body, format="json").status_code == 403
        assert connect(client(role)).status_code == 403


def test_the_stored_credential_is_judged_and_rotated(sim):
    admin = client("admin")
    where = connect(admin)["Location"]

    assert admin.post(f"{where}/actions/test").status_code == 200
    answer = admin.post(f"{where}/actions/rotate-credential", {"server": URL, "token": "fresh"}, format="json")

    assert answer.status_code == 202, answer.content
    assert registry.credentials(Cluster.objects.get()).token == "fresh"


def test_a_change_needs_the_version_it_is_based_on(fleet):
    admin = client("admin")
    where = f"/api/v1/clusters/{fleet.pk}"

    assert admin.patch(where, {"budget": 4}, format="json").status_code == 428
    answer = admin.patch(where, {"budget": 4}, format="json", headers={"If-Match": '"1"'})
    assert (answer.status_code, answer.json()["budget"], answer["ETag"]) == (200, 4, '"2"')
    assert admin.patch(where, {"budget": 5}, format="json", headers={"If-Match": '"1"'}).status_code == 412

    fleet.refresh_from_db()
    assert fleet.budget == 4


def test_a_cluster_is_disconnected_unless_something_stands_against_it(sim):
    admin = client("admin")
    where = connect(admin)["Location"]
    hooks.disconnect_blockers.subscribe(lambda _: ["R-1 is running"])
    assert admin.get(f"{where}/farewell").json()["blockers"] == ["R-1 is running"]
    assert admin.get(where).json()["actions"]["disconnect"] is False
    assert admin.post(f"{where}/actions/disconnect").status_code == 409
    hooks.disconnect_blockers._subscribers.clear()

    answer = admin.post(f"{where}/actions/disconnect")

    assert answer.status_code == 202
    assert answer.json()["stays"]
    assert admin.get(where).status_code == 404


def test_refresh_is_handed_to_a_worker(fleet, monkeypatch):
    refreshed = []
    monkeypatch.setattr("clusters.tasks.refresh.delay", refreshed.append)

    answer = client("operator").post(f"/api/v1/clusters/{fleet.pk}/actions/refresh")

    assert answer.status_code == 202
    assert refreshed == [str(fleet.pk)]
    assert client("viewer").post(f"/api/v1/clusters/{fleet.pk}/actions/refresh").status_code == 403


def test_one_sees_only_ones_own_clusters_nodes_and_pools(fleet):
    pool = PoolFactory(cluster=fleet)
    node = fleet.nodes.first()
    stranger = client("viewer", "env:production")
    for where in ("/clusters", "/nodes", "/pools"):
        assert stranger.get(f"/api/v1{where}").json()["count"] == 0
    for where in (f"/clusters/{fleet.pk}", f"/nodes/{node.pk}", f"/pools/{pool.pk}", f"/clusters/{fleet.pk}/pools"):
        assert stranger.get(f"/api/v1{where}").status_code == 404

    assert client("viewer", f"cluster:{fleet.pk}").get("/api/v1/nodes").json()["count"] == 3


def test_permissions_say_what_the_caller_may(fleet):
    def of(role):
        return client(role).get(f"/api/v1/clusters/{fleet.pk}").json()["permissions"]

    assert not any(of("viewer").values())
    assert {name for name, may in of("operator").items() if may} == {"test", "refresh", "create_pool"}
    assert {name for name, may in of("admin").items() if not may} == {"create_pool"}


def test_a_list_of_clusters_costs_a_fixed_number_of_queries(django_assert_max_num_queries):
    for _ in range(12):
        ClusterFactory()
    viewer = client("viewer")

    with django_assert_max_num_queries(8):
        assert len(viewer.get("/api/v1/clusters").json()["results"]) == 12


# ── pools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_pool_is_previewed_made_changed_and_deleted(fleet):
    operator = client("operator")
    pools = f"/api/v1/clusters/{fleet.pk}/pools"

    seen = operator.post(f"{pools}/preview", {"selector": "pool=train"}, format="json")
    assert (seen.status_code, seen.json()["count"], seen.json()["names"]) == (200, 2, ["n0", "n1"])
    made = operator.post(pools, {"name": "train", "selector": {"matchLabels": {"pool": "train"}}}, format="json")
    assert made.status_code == 201, made.content
    where = made["Location"]
    assert (made.json()["node_count"], made.json()["selector_text"]) == (2, "pool=train")
    changed = operator.patch(where, {"selector": "pool=dev"}, format="json", headers={"If-Match": made["ETag"]})
    assert (changed.status_code, changed.json()["node_count"]) == (200, 1)
    assert operator.get(pools).json()["count"] == 1
    assert operator.delete(where).status_code == 204

    assert not Pool.objects.exists()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "p", "selector": {}}, "selector"),
        ({"name": "p", "selector": ""}, "selector"),
        ({"name": "p", "selector": None}, "selector"),
        ({"name": "p", "selector": 7}, "selector"),
        ({"name": "p"}, "selector"),
        ({"name": "p", "selector": {"matchLabels": {"a": {"b": 1}}}}, "selector.matchLabels[a]"),
        ({"name": "P P", "selector": "a"}, "name"),
        ({"selector": "a"}, "name"),
    ],
)
def test_a_pool_that_cannot_be_is_refused_by_field(fleet, body, field):
    answer = client("operator").post(f"/api/v1/clusters/{fleet.pk}/pools", body, format="json")

    assert answer.status_code == 422, answer.content
    assert field in {error["field"] for error in answer.json()["errors"]}


def test_viewers_make_no_pools(fleet):
    body = {"name": "p", "selector": "a"}

    assert client("viewer").post(f"/api/v1/clusters/{fleet.pk}/pools", body, format="json").status_code == 403


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["n0", "n1", "n2"]),
        ("ready=true", ["n0", "n2"]),
        ("ready=false", ["n1"]),
        ("cordoned=true", ["n2"]),
        ("gpu_product=H100", ["n0"]),
        ("name=N1", ["n1"]),
        ("reach=reachable", ["n0", "n1", "n2"]),
        ("reach=unreachable", []),
        ("health=degraded", ["n1"]),
        ("health=healthy&cordoned=false", ["n0"]),
        ("health=unknown", []),
        ("pool=999999", []),
    ],
)
def test_nodes_are_filtered_in_the_database(fleet, query, names):
    answer = client("viewer").get(f"/api/v1/nodes?{query}&ordering=name")

    assert answer.status_code == 200, answer.content
    assert [node["name"] for node in answer.json()["results"]] == names


def test_nodes_of_a_pool(fleet):
    pool = PoolFactory(cluster=fleet)

    answer = client("viewer").get(f"/api/v1/nodes?pool={pool.pk}&ordering=name&fields=name,health")

    assert answer.json()["results"] == [{"name": "n0", "health": "healthy"}, {"name": "n1", "health": "degraded"}]


def test_pages_by_key_cover_everything_once(fleet):
    viewer, where, seen = client("viewer"), "/api/v1/nodes?limit=2&start=", []
    while where:
        answer = viewer.get(where).json()
        seen += [node["name"] for node in answer["results"]]
        where = answer["next"]

    assert sorted(seen) == ["n0", "n1", "n2"]


@pytest.mark.parametrize(
    "query", ["cluster=7", "pool=x", "pool=99999999999999999999", "ready=maybe", "health=fine", "start=x"]
)
def test_a_filter_that_makes_no_sense_is_refused_not_ignored(fleet, query):
    answer = client("viewer").get(f"/api/v1/nodes?{query}")

    assert answer.status_code in (400, 422) or answer.json()["results"] == [], answer.content


def test_a_node_shows_what_its_agent_answers_and_who_holds_its_gpus(fleet):
    node = fleet.nodes.get(name="n0")

    seen = client("viewer").get(f"/api/v1/nodes/{node.pk}").json()

    assert seen["tuning"]["observed"] == {"vm.swappiness": "60"}
    assert seen["gpu_pods"][0]["owner_name"] == "train"
    assert (seen["gpu_pods"][0]["memory_kills"], seen["gpu_pods"][0]["memory_killed_at"]) == (0, None)
    assert (seen["gpu_allocated"], seen["health"]) == (8, "healthy")


def test_a_node_without_an_agent_has_no_tuning(fleet):
    node = fleet.nodes.get(name="n1")

    seen = client("viewer").get(f"/api/v1/nodes/{node.pk}").json()
    assert (seen["tuning"], seen["disks"]) == (None, [])


def test_a_nodes_disks_are_listed_and_what_no_agent_writes_is_left_out(fleet):
    node = fleet.nodes.get(name="n0")
    disk = Disk("nvme1n1", "SN0002", "QEMU NVMe Ctrl", 1 << 30, False, 0, "has a signature: XFS")
    node.tuning.observed |= {"disk.nvme1n1": disk.to_text(), "disk.nvme0n1": "empty", "disk.sda": disk.to_text()}
    node.tuning.save(update_fields=["observed"])

    seen = client("viewer").get(f"/api/v1/nodes/{node.pk}").json()

    assert [(row["name"], row["serial"], row["is_empty"]) for row in seen["disks"]] == [("nvme1n1", "SN0002", False)]
    assert seen["disks"][0]["state"] == "has a signature: XFS"


@pytest.mark.parametrize(
    ("how", "health"),
    [({"reach": "unreachable"}, "unreachable"), ({"observed_at": now() - timedelta(minutes=10)}, "unknown")],
)
def test_nodes_of_a_cluster_that_is_not_heard_are_unreachable_or_unknown(fleet, how, health):
    Cluster.objects.filter(pk=fleet.pk).update(**how, reach_reason="timed out")
    viewer = client("viewer")

    seen = viewer.get("/api/v1/nodes").json()["results"]

    assert {node["health"] for node in seen} == {health}
    assert all(node["health_reason"] for node in seen)
    assert viewer.get(f"/api/v1/nodes?health={health}").json()["count"] == 3


def test_a_node_is_read_anew_on_request(sim):
    sim.add_node("n1")
    cluster = ClusterFactory(uid=sim.uid, server=URL)
    store.observe_nodes(cluster, SimFleet(sim).list("nodes").items, complete=True)
    node = cluster.nodes.get()
    sim.nodes.cordon("n1")
    operator = client("operator")

    assert operator.post(f"/api/v1/nodes/{node.pk}/actions/refresh").json()["is_cordoned"] is True
    sim.nodes.delete("n1")
    operator.post(f"/api/v1/nodes/{node.pk}/actions/refresh")
    node.refresh_from_db()
    assert node.gone_at is not None
    sim.faults.outage = True

    assert operator.post(f"/api/v1/nodes/{node.pk}/actions/refresh").status_code == 409
    assert client("viewer").post(f"/api/v1/nodes/{node.pk}/actions/refresh").status_code == 403


def test_a_page_of_nodes_costs_a_fixed_number_of_queries_and_no_long_answers(fleet, django_assert_max_num_queries):
    raws = [raw_node(f"m{number}") for number in range(60)]
    store.observe_nodes(fleet, raws, complete=False)
    store.observe_tunings(fleet, [raw_tuning(f"m{i}", status=raw_status(f"m{i}")) for i in range(60)], complete=False)
    assert NodeTuning.objects.count() == 61
    viewer = client("viewer")

    with django_assert_max_num_queries(8) as seen:
        assert len(viewer.get("/api/v1/nodes").json()["results"]) == 50

    assert not any('"clusters_nodetuning"."observed"' in query["sql"] for query in seen.captured_queries)


def test_without_a_token_nothing_is_told(fleet):
    for where in ("clusters", "nodes", "pools"):
        assert APIClient().get(f"/api/v1/{where}").status_code == 401
