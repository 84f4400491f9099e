"""The HTTP door of a live cluster. tests/contract holds its answers to the real one's; here is how it behaves."""

from __future__ import annotations

import json
import ssl
import threading
import time
from http.client import HTTPSConnection

import pytest

from clusters.fleet import CredentialsRefused, FleetUnavailable, Taint, Throttled
from contract.nodetuning import Spec, Wanted
from simfleet import SimCluster, WallClock
from simfleet.live import Ticker
from tests.contract.door import Entrance


@pytest.fixture
def sim():
    return SimCluster(seed=1, clock=WallClock(), live=True)


@pytest.fixture
def entrance(sim):
    sim.add_node("n1", gpus=8)
    made = Entrance(sim)
    with Ticker([sim]):
        yield made
    made.close()


def test_a_watch_tells_what_happens_while_it_waits(sim, entrance):
    fleet = entrance.fleet()
    rv = fleet.list("nodes").resource_version
    seen = []

    def follow():
        for event in fleet.watch("nodes", rv, timeout=20):
            seen.append((event.type, event.object["metadata"].get("name"), time.monotonic()))
            if event.type == "DELETED":
                return

    thread = threading.Thread(target=follow)
    thread.start()
    time.sleep(0.3)
    changed_at = time.monotonic()
    sim.add_node("n2")
    sim.nodes.delete("n2")
    thread.join(timeout=10)
    assert [s[:2] for s in seen] == [("ADDED", "n2"), ("DELETED", "n2")]
    assert seen[0][2] - changed_at < 2


def test_an_agent_behind_the_door_answers_by_itself(sim, entrance):
    fleet = entrance.fleet()
    uid = fleet.node("n1")["metadata"]["uid"]
    rv = fleet.observe("n1", uid, Spec(uid))["metadata"]["resourceVersion"]
    fleet.tune("n1", Spec(uid, mode="apply", settings=(Wanted("vm.swappiness", "=", "10", "60"),)))
    for event in fleet.watch("nodetunings", rv, timeout=10):
        settings = event.object.get("status", {}).get("settings")
        if settings:
            break
    assert [(s["state"], s["effective"]) for s in settings] == [("Effective", "10")]


def test_an_outage_ends_watches_and_refuses_calls_until_it_is_over(sim, entrance):
    fleet = entrance.fleet(timeout=2)
    rv = fleet.list("nodes").resource_version
    errors = []

    def follow():
        try:
            list(fleet.watch("nodes", rv, timeout=30))
        except FleetUnavailable as error:
            errors.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    time.sleep(0.3)
    sim.faults.outage = True
    entrance.door.cut()
    thread.join(timeout=30)
    assert not thread.is_alive()
    with pytest.raises(FleetUnavailable):
        fleet.list("nodes")
    sim.faults.clear()
    assert len(fleet.list("nodes").items) == 1


def test_a_cut_connection_in_the_middle_of_a_watch_is_no_orderly_end(sim, entrance):
    fleet = entrance.fleet()
    rv = fleet.list("nodes").resource_version
    threading.Timer(0.3, entrance.door.cut).start()
    with pytest.raises(FleetUnavailable):
        list(fleet.watch("nodes", rv, timeout=20))


def test_throttling_carries_its_wait_and_a_wrong_token_is_refused(sim, entrance):
    sim.faults.add("throttle", verb="list", times=1, retry_after=9)
    with pytest.raises(Throttled) as throttled:
        entrance.fleet().list("nodes")
    assert throttled.value.retry_after == 9
    with pytest.raises(CredentialsRefused):
        entrance.fleet("somebody").list("nodes")


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (("GET", "/api/v1/nodes?limit=many", None, {}), 400),
        (("GET", "/api/v1/nodes?watch=1&resourceVersion=x", None, {}), 400),
        (("GET", "/api/v1/nothing", None, {}), 404),
        (("GET", "/apis/apps/v1/nodes", None, {}), 404),
        (("GET", "/api/v1/nodes/none", None, {}), 404),
        (("POST", "/api/v1/nodes", b"[1]", {}), 400),
        (("POST", "/api/v1/nodes", b"{", {}), 400),
        (("POST", "/api/v1/nodes", b"{}", {}), 422),
        (("PATCH", "/api/v1/nodes/n1", b"{}", {"Content-Type": "application/json-patch+json"}), 415),
        (("PATCH", "/api/v1/nodes/n1", b"{}", {"Content-Type": "application/apply-patch+yaml"}), 422),
        (("POST", "/api/v1/nodes/n1", b"{}", {}), 405),
        (("GET", "/api/v1/nodes", None, {"Authorization": "Basic x"}), 401),
    ],
)
def test_what_makes_no_sense_is_refused_and_the_connection_lives_on(sim, entrance, request_, code):
    method, path, body, headers = request_
    context = ssl.create_default_context(cadata=entrance.ca)
    connection = HTTPSConnection("127.0.0.1", int(entrance.door.url.rpartition(":")[2]), context=context, timeout=5)
    connection.request(method, path, body, {"Authorization": "Bearer setpoint"} | headers)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == code
    connection.request("GET", "/version", headers={"Authorization": "Bearer setpoint"})
    assert json.loads(connection.getresponse().read())["gitVersion"] == sim.version
    connection.close()


def test_a_slow_server_is_a_timeout(sim, entrance):
    sim.faults.latency = 1.5
    with pytest.raises(FleetUnavailable, match="within 1 s"):
        entrance.fleet(timeout=1).node("n1")


def test_a_long_list_comes_in_pages_of_one_moment(sim, entrance):
    for number in range(1200):
        sim.add_node(f"x{number:04d}")
    page = entrance.fleet().list("nodes")
    assert len({n["metadata"]["name"] for n in page.items}) == 1201
    assert sim.audit.calls["list", "nodes"] == 3
    sim.api.SNAPSHOTS = 0  # every continue token is forgotten at once
    with pytest.raises(FleetUnavailable):
        entrance.fleet().list("nodes")


def test_two_writers_at_once_lose_no_write(sim, entrance):
    fleet = entrance.fleet()
    uid = fleet.node("n1")["metadata"]["uid"]
    before = sim.store.rv
    errors = []

    def write(number):
        try:
            fleet.taint("n1", uid, add=[Taint(f"k{number}", "", "NoSchedule")], remove=[])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert errors == []
    assert {t["key"] for t in fleet.node("n1")["spec"]["taints"]} == {"k0", "k1", "k2"}
    assert len(list(sim.store.since("nodes", before))) == 3
