"""The overview: three axes that are never merged, and what needs attention, by what a person may see."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.inventory import daily_counts
from clusters.models import Cluster, ClusterDay
from jobs.approvals import reviews
from jobs.reports import overview
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory
from tests.jobs.conftest import World


def whats(user: Any) -> list[str]:
    return [matter.what for matter in overview.overview(user)["matters"]]


def test_a_drifted_node_is_named_with_its_value_and_leads_to_its_page(world: World) -> None:
    world.run(world.started())
    world.sim.drift("n2", "vm.swappiness", "60")
    world.tick(120)

    (matter,) = overview.overview(world.operator)["matters"]

    assert matter.what == "n2 drifted"
    assert "vm.swappiness is 60, approved value: 10." in matter.why
    assert matter.url == f"/nodes/{world.node('n2').pk}/"


def test_a_cluster_without_a_pool_needs_one_from_who_may_make_it(world: World) -> None:
    bare = ClusterFactory(name="bare")

    (matter,) = [m for m in overview.overview(world.operator)["matters"] if "no pool" in m.what]

    assert (matter.what, matter.url) == ("bare has no pool yet", f"/clusters/{bare.pk}/pools/new/")
    assert "bare has no pool yet" not in whats(UserFactory(roles=["viewer"]))


def test_a_verdict_waits_only_for_who_may_give_it(world: World) -> None:
    plan = reviews.request(world.plan(), by=world.operator)

    assert f"{plan} waits for your approval" in whats(world.approver)
    assert whats(world.operator) == []
    assert whats(UserFactory(roles=["approver@env:production"])) == []


def test_a_silent_cluster_is_unreachable_in_health_and_unknown_in_compliance_and_says_so_once(world: World) -> None:
    world.run(world.started())
    Cluster.objects.update(reach="unreachable", reach_reason="no route to host")

    seen = overview.overview(world.operator)

    assert seen["totals"]["health"] == {"unreachable": 3}
    assert seen["totals"]["compliance"] == {"unknown": 3}
    assert whats(world.operator) == ["atlas cannot be reached"]


def test_the_trend_is_drawn_from_one_row_a_day_and_has_gaps_where_nobody_counted(world: World, clock: Any) -> None:
    world.run(world.started())
    world.look()
    daily_counts.count_all()
    daily_counts.count_all()  # twice does no harm
    clock.forward(days=2)
    world.tick(120)  # agents renew their Leases; silent ones would count as unknown
    daily_counts.count_all()

    seen = daily_counts.trend([world.cluster.pk], "compliance", "compliant")

    assert ClusterDay.objects.count() == 2
    assert seen.counts[-3:] == (3, None, 3)
    assert seen.is_drawn


def test_nodes_without_a_target_do_not_flatten_the_trend(world: World) -> None:
    """Five thousand of them beside forty: the scale is that of the forty."""
    counts = {"compliance": {"compliant": 38, "drifted": 2, "unassigned": 4960}}
    ClusterDay.objects.create(
        cluster=world.cluster, day=daily_counts.now().date(), nodes=5000, counts=counts, counted_at=daily_counts.now()
    )

    seen = daily_counts.trend([world.cluster.pk], "compliance", "compliant")

    assert (seen.counts[-1], seen.totals[-1]) == (38, 40)


@pytest.mark.parametrize("axis", ["health", "compliance"])
def test_the_counts_of_an_axis_always_sum_to_the_nodes(world: World, axis: str) -> None:
    world.run(world.started())
    world.sim.drift("n1", "vm.swappiness", "60")
    world.sim.nodes.set_ready("n2", is_ready=False)
    world.tick(120)

    (row,) = overview.overview(world.operator)["rows"]

    assert sum(getattr(row, axis).values()) == row.nodes == 3
