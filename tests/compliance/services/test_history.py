"""History: a row when something changed, none when nothing did; and the past is forgotten after a while."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext

from common import timeline as past
from common.clock import now
from compliance.hooks import timeline
from compliance.models import NodeStanding, SettingChange, SettingState
from compliance.services import expectations, history, outliers, standings
from tests.jobs.conftest import World


def history_of(world: World, node: str) -> list[tuple[str, str | None, str]]:
    rows = SettingChange.objects.filter(node=world.node(node), key="vm.swappiness").order_by("pk")
    return list(rows.values_list("state", "effective", "cause"))


def writes(queries: Any) -> list[str]:
    return [q["sql"] for q in queries if q["sql"].startswith(("INSERT", "UPDATE", "DELETE"))]


def test_every_change_of_a_setting_has_its_row(world: World) -> None:
    world.run(world.started())
    world.sim.drift("n1", "vm.swappiness", "60")
    world.tick(6)
    world.sim.drift("n1", "vm.swappiness", "61")
    world.tick(6)
    world.sim.drift("n1", "vm.swappiness", "10")
    world.tick(6)

    assert history_of(world, "n1") == [
        ("pending", "60", ""),
        ("compliant", "10", ""),
        ("drifted", "60", "hand"),
        ("drifted", "61", "hand"),
        ("compliant", "10", ""),
    ]
    assert history_of(world, "n2") == [("pending", "60", ""), ("compliant", "10", "")]


def test_a_revert_lets_the_key_go_and_history_says_so(world: World) -> None:
    from jobs.rollouts import rollout_actions

    rollout = world.run(world.started())
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)
    assert history_of(world, "n1")[-1][0] == "released"
    assert not SettingState.objects.exists()


def test_when_nothing_changes_nothing_is_written(world: World) -> None:
    world.run(world.started())
    nodes = [world.node(name).pk for name in ("n1", "n2", "n3")]
    before = SettingChange.objects.count(), list(NodeStanding.objects.values())
    with CaptureQueriesContext(connection) as seen:
        for _ in range(3):
            expectations.observe(world.cluster.pk, nodes)
            standings.renew_all(world.cluster.pk)
    assert writes(seen.captured_queries) == []
    assert (SettingChange.objects.count(), list(NodeStanding.objects.values())) == before


def test_a_quiet_cluster_is_not_compared_again(world: World) -> None:
    world.run(world.started())
    assert outliers.refresh(world.cluster) is True
    with CaptureQueriesContext(connection) as seen:
        assert outliers.refresh(world.cluster) is False
    assert writes(seen.captured_queries) == []
    assert len(seen) <= 5


def test_a_day_of_a_quiet_fleet_writes_no_history(world: World) -> None:
    world.run(world.started())
    before = SettingChange.objects.count()
    for _ in range(24):
        world.tick(3600)
    assert SettingChange.objects.count() == before


def test_another_wording_of_the_same_state_is_no_change(world: World) -> None:
    world.run(world.started())
    world.sim.drift("n1", "vm.swappiness", "60")
    world.tick(6)
    before = SettingChange.objects.count()
    row = world.state("n1")
    row.node.tuning.status["settings"][0]["reason"] = "the kernel says 60"
    row.node.tuning.save()
    expectations.observe(world.cluster.pk, [row.node_id])
    assert world.state("n1").reason == "the kernel says 60"
    assert SettingChange.objects.count() == before


def test_old_history_is_forgotten_and_what_is_so_now_stays(world: World, settings: Any) -> None:
    settings.SETPOINT_COMPLIANCE_HISTORY_DAYS = 30
    world.run(world.started())
    world.clock.forward(days=31)
    world.sim.drift("n1", "vm.swappiness", "60")
    world.tick(6)
    assert history.forget_old() == 6
    assert history_of(world, "n1") == [("drifted", "60", "hand")]
    assert SettingState.objects.count() == 3


def test_the_timeline_of_a_node_tells_all_and_of_a_cluster_what_drifted(world: World) -> None:
    world.run(world.started())
    world.sim.drop_file("n2", "/etc/sysctl.d/99-site.conf", "vm.swappiness = 60")
    world.sim.drift("n2", "vm.swappiness", "60")
    world.tick(6)

    def entries(kind: str, row: Any) -> list[past.Entry]:
        return list(timeline.entries(past.Subject(kind, row, world.admin, 10)))

    assert [e.text for e in entries("node", world.node("n2"))] == [
        "vm.swappiness drifted to 60",
        "vm.swappiness is 10, as desired",
        "vm.swappiness waits to become = 10",
    ]
    assert [(e.text, e.detail) for e in entries("cluster", world.cluster)] == [
        ("vm.swappiness drifted to 60 on n2", "/etc/sysctl.d/99-site.conf:1 won")
    ]
    assert len(entries("pool", world.pool)) == 1
    assert entries("profile", SimpleNamespace(pk=1)) == []


def test_since_is_of_the_state_and_not_of_the_last_look(world: World) -> None:
    world.run(world.started())
    since = world.state("n1").since
    world.tick(7200)
    world.run(world.started(world.plan(world.revision({"vm.swappiness": "10", "vm.max_map_count": "70000"}))))
    assert world.state("n1").since == since
    assert now() - since > timedelta(hours=2)
