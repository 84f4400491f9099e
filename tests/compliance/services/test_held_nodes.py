"""New nodes hold pods off until they are compliant, or until their pool's time is up."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from audit.models import Record
from clusters.fleet import FleetUnavailable, Taint
from clusters.models import Cluster, Node, NodeTuning, Pool
from clusters.services import pools
from common.clock import now
from common.errors import Invalid
from compliance import tasks
from compliance.models import HeldNode, SettingState
from compliance.services import held_nodes
from contract.names import UNTUNED_TAINT
from jobs.models import Freeze
from simfleet.apiserver.callers import person
from tests.factories import TokenClient
from tests.jobs.pages import browser

HELD = Taint(UNTUNED_TAINT, "", "NoSchedule")
OTHER = Taint("nvidia.com/gpu", "present", "NoSchedule")


@pytest.fixture
def held(make_world):
    """A pool of two nodes that holds new ones for 30 minutes; n2 registered with the taint, and with one of its own."""
    world = make_world(nodes=2)
    Pool.objects.update(hold_minutes=30)
    world.fleet.taint("n2", world.node("n2").uid, add=[HELD, OTHER], remove=())
    world.look()
    return world


def taints(world, name="n2"):
    """Return what the API server has, not what Setpoint's rows say."""
    return {taint["key"] for taint in world.sim.node(name)["spec"].get("taints") or ()}


def look(world, minutes=0.0):
    world.tick(minutes * 60)
    released = held_nodes.release()
    world.look()
    return released


def test_a_node_is_held_until_the_kernel_answers_with_every_value(held):
    rollout = held.started(canary=1, batch="1")
    while rollout.status not in ("succeeded", "failed"):
        is_done = SettingState.objects.filter(node__name="n2", state="compliant").exists()
        assert look(held) == 0 or is_done
        held.slice(rollout)
        held.tick(2)
        rollout.refresh_from_db()
    assert rollout.status == "succeeded"

    look(held)

    assert taints(held) == {OTHER.key}
    assert held.value("n2") == "10"
    assert not look(held), "there is nothing left to do"
    assert not HeldNode.objects.exists()
    record = Record.objects.get(action="node.release")
    assert (record.target_name, record.message) == ("n2", "It is compliant.")


def test_after_a_restore_no_node_is_released_until_an_administrator_confirms(held):
    freeze = Freeze.objects.create(reason=f"{Freeze.RESTORED} of yesterday")
    for minutes in (0, 40):
        held.tick(minutes * 60)
        tasks.release_held()
    assert taints(held) == {UNTUNED_TAINT, OTHER.key}
    Freeze.objects.filter(pk=freeze.pk).update(lifted_at=now())
    for minutes in (0, 40):
        held.tick(minutes * 60)
        tasks.release_held()
    assert taints(held) == {OTHER.key}


def test_a_node_that_is_not_compliant_is_released_when_the_time_of_its_pool_is_up(held):
    assert not look(held)
    assert not look(held, minutes=29)
    assert taints(held) == {UNTUNED_TAINT, OTHER.key}

    assert look(held, minutes=2) == 1

    assert taints(held) == {OTHER.key}
    assert "held for 30 minutes" in Record.objects.get(action="node.release").message


def test_a_value_that_drifted_is_not_compliant(held):
    held.run(held.started())
    held.sim.drift("n2", "vm.swappiness", "60")
    held.tick(6)
    assert not look(held)
    assert UNTUNED_TAINT in taints(held)


def test_a_silent_agent_proves_nothing(held):
    held.run(held.started())
    NodeTuning.objects.filter(node__name="n2").update(silent_since=held.clock())
    assert not held_nodes.release()
    assert UNTUNED_TAINT in taints(held)


@pytest.mark.parametrize("change", ["no limit", "not selected", "another key", "another effect"])
def test_what_no_pool_decides_over_is_left_alone(held, change):
    if change == "no limit":
        Pool.objects.update(hold_minutes=None)
    elif change == "not selected":
        Pool.objects.update(selector={"matchLabels": {"pool": "other"}})
    else:
        alike = Taint(f"{UNTUNED_TAINT}-2", "", "NoSchedule") if change == "another key" else HELD
        effect = "NoExecute" if change == "another effect" else "NoSchedule"
        held.fleet.taint("n2", held.node("n2").uid, add=[Taint(alike.key, "", effect)], remove=[HELD])
        held.look()
    before = taints(held)
    assert not look(held, minutes=60)
    assert not look(held, minutes=60)
    assert taints(held) == before


def test_of_several_pools_the_longest_time_counts(held):
    Pool.objects.create(cluster=held.cluster, name="b", selector={"matchLabels": {"pool": "train"}}, hold_minutes=90)
    look(held)
    assert not look(held, minutes=60)
    assert look(held, minutes=31) == 1


def test_while_the_cluster_cannot_be_reached_nothing_is_decided_and_the_time_goes_on(held):
    look(held)
    held.tick(40 * 60)
    Cluster.objects.update(reach=Cluster.Reach.UNREACHABLE)
    assert not held_nodes.release()
    assert not Record.objects.filter(action="node.release").exists()
    held.look()
    assert look(held) == 1


def test_a_write_that_fails_is_tried_again_with_one_record(held, monkeypatch):
    look(held)
    held.tick(31 * 60)

    def refuse(*_, **__):
        raise FleetUnavailable("the API server is away")

    with monkeypatch.context() as broken:
        broken.setattr(held.fleet, "taint", refuse)
        assert not held_nodes.release()
        assert not held_nodes.release()
    assert look(held) == 1
    assert taints(held) == {OTHER.key}
    assert Record.objects.filter(action="node.release").count() == 1


def test_a_node_that_was_replaced_under_its_name_is_another_one_and_keeps_no_other_back(held):
    held.sim.add_node("n3", labels={"pool": "train"}, taints=[{"key": UNTUNED_TAINT, "effect": "NoSchedule"}])
    held.observe()
    look(held)
    held.tick(31 * 60)
    Node.objects.filter(name="n2").update(uid="of-before")
    assert held_nodes.release() == 1
    assert UNTUNED_TAINT in taints(held)
    assert UNTUNED_TAINT not in taints(held, "n3")


def test_a_look_at_nodes_that_wait_writes_nothing(held):
    look(held)
    with CaptureQueriesContext(connection) as queries:
        assert not held_nodes.release()
    assert [query["sql"] for query in queries if not query["sql"].startswith("SELECT")] == []


# ── while Setpoint is away ────────────────────────────────────────────────────────────────────────────────────────────
def limit(world, name="n2"):
    """Return the value of the taint in the API server, None without it."""
    have = world.sim.node(name)["spec"].get("taints") or ()
    return next((taint.get("value", "") for taint in have if taint["key"] == UNTUNED_TAINT), None)


def test_the_taint_says_how_long_the_pool_holds_so_that_the_agent_knows(held):
    look(held)
    assert limit(held) == "30m"
    assert OTHER.key in taints(held)
    Pool.objects.update(hold_minutes=45)
    look(held)
    assert limit(held) == "45m"


def test_a_limit_of_the_kubelet_stays_where_no_pool_decides(held):
    mine = Taint(UNTUNED_TAINT, "15m", "NoSchedule")
    held.fleet.taint("n2", held.node("n2").uid, add=[mine], remove=[HELD])
    Pool.objects.update(hold_minutes=None)
    held.look()
    look(held)
    assert limit(held) == "15m"


def test_a_limit_does_not_bring_back_a_hold_that_ended_meanwhile(held):
    """The row still has the taint: the watch is behind."""
    held.fleet.taint("n2", held.node("n2").uid, add=(), remove=[HELD])
    assert any(taint["key"] == UNTUNED_TAINT for taint in held.node("n2").taints)
    held_nodes.release()
    assert limit(held) is None


@pytest.mark.parametrize(("minutes", "when"), [(40, "after"), (5, "before")])
def test_a_hold_that_another_ended_is_recorded(held, minutes, when):
    """The agent may have seen the taint before Setpoint did: its time is up earlier."""
    look(held)
    held.tick(minutes * 60)
    held.fleet.taint("n2", held.node("n2").uid, add=(), remove=[HELD])
    held.look()
    held_nodes.release()
    held_nodes.release()
    record = Record.objects.get(action="node.release")
    assert record.target_name == "n2"
    assert f"{when} the time of its pool was up" in record.message
    assert "its agent or a person" in record.message


def test_a_node_that_is_gone_was_released_by_nobody(held):
    look(held)
    held.sim.api.delete(person("alice"), "nodes", "n2")
    held.look()
    held_nodes.release()
    assert not HeldNode.objects.exists()
    assert not Record.objects.filter(action="node.release").exists()


@pytest.mark.parametrize("is_applied", [True, False])
def test_the_page_says_what_ends_the_hold_while_setpoint_is_away(held, is_applied):
    look(held)
    Cluster.objects.update(equipment={"hold_policy": is_applied})
    page = browser(held.operator).get(f"/nodes/{held.node('n2').pk}/").content.decode()
    assert f'data-away="{"agent" if is_applied else "stays"}"' in page


@pytest.mark.parametrize("minutes", [0, -1, 1441, True, "30", 1.5])
def test_a_time_that_cannot_be_is_refused_by_name(held, minutes):
    with pytest.raises(Invalid) as refused:
        pools.update_pool(Pool.objects.get(), by=held.operator, hold_minutes=minutes)
    assert "hold_minutes" in refused.value.fields


def test_the_pages_say_until_when_and_who_decides(held):
    look(held)
    client, node = browser(held.operator), held.node("n2")
    held_page = client.get(f"/nodes/{node.pk}/").content.decode()
    assert 'data-hold="30"' in held_page
    assert "cannot become compliant" in held_page, "nothing is assigned to its pool"
    held.run(held.started())
    assert "cannot become compliant" not in client.get(f"/nodes/{node.pk}/").content.decode()
    assert "data-hold" not in client.get(f"/nodes/{held.node('n1').pk}/").content.decode()
    pool = Pool.objects.get()
    assert "registerWithTaints" in client.get(f"/pools/{pool.pk}/").content.decode()

    saved = client.post(
        f"/pools/{pool.pk}/",
        {"name": pool.name, "selector": "pool=train", "hold_minutes": "", "version": pool.version, "intent": "save"},
    )

    assert saved.status_code == 302
    assert Pool.objects.get().hold_minutes is None
    held_nodes.release()
    assert 'data-hold=""' in client.get(f"/nodes/{node.pk}/").content.decode()
    assert "registerWithTaints" not in client.get(f"/pools/{pool.pk}/").content.decode()


def test_rest_sets_and_shows_it(held):
    api, pool = TokenClient(held.operator), Pool.objects.get()
    assert api.get(f"/api/v1/pools/{pool.pk}").json()["hold_minutes"] == 30

    def change(minutes):
        return api.patch(f"/api/v1/pools/{pool.pk}", {"hold_minutes": minutes}, headers={"If-Match": "*"})

    changed, refused, cleared = change(45), change(0), change(None)
    assert (changed.status_code, changed.json()["hold_minutes"]) == (200, 45)
    assert (refused.status_code, [error["field"] for error in refused.json()["errors"]]) == (422, ["hold_minutes"])
    assert (cleared.status_code, cleared.json()["hold_minutes"]) == (200, None)


def test_no_second_pool_of_an_operator_holds_the_nodes_of_a_teams_pool(held):
    pools.create_pool(held.cluster, by=held.operator, name="around", selector="pool=train", hold_minutes=600)
    look(held)
    assert HeldNode.objects.get().minutes == 600, "no team owns either: the longest time"
    Pool.objects.filter(pk=held.pool.pk).update(owner_team=7)
    look(held)
    assert HeldNode.objects.get().minutes == 30
    Pool.objects.filter(pk=held.pool.pk).update(hold_minutes=None)
    look(held)
    assert not HeldNode.objects.exists(), "the team holds none"
