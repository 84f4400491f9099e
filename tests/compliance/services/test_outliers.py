"""Outliers: what nine of ten peers agree on and a few do not, among peers only, and kept as long as it is so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clusters.models import Cluster
from compliance.models import Outlier, OutlierNode
from compliance.services import outliers
from tests.jobs.conftest import World


def answers(values: list[str], *, group: outliers.PeerGroup = (None, "H100"), key: str = "vm.swappiness") -> list[Any]:
    return [(group, pk, f"n{pk:03}", {key: value}) for pk, value in enumerate(values, 1)]


def test_seven_differ_from_405_peers() -> None:
    (outlier,) = outliers.find(answers(["10"] * 405 + ["60"] * 5 + ["1"] * 2))
    assert (outlier.count, outlier.usual, outlier.usual_nodes) == (7, "10", 405)
    assert [(v["value"], v["count"]) for v in outlier.values()] == [("60", 5), ("1", 2)]
    assert outlier.values()[0]["names"] == ["n406", "n407", "n408", "n409", "n410"]


def test_a_value_that_simply_varies_has_no_outliers() -> None:
    assert outliers.find(answers(["10"] * 6 + ["60"] * 4)) == []
    assert outliers.find(answers([str(n) for n in range(50)])) == []


def test_disks_are_not_compared() -> None:
    assert outliers.find(answers(["state=empty; serial=A"] * 9 + ["state=empty; serial=B"], key="disk.nvme0n1")) == []


def test_among_few_nothing_is_usual_but_one_against_four_is() -> None:
    assert outliers.find(answers(["10", "10", "10", "60"])) == []
    assert outliers.find(answers(["10"] * 4 + ["60"]))[0].count == 1


def test_a_node_is_compared_with_its_peers_only() -> None:
    others = answers(["60"] * 9, group=(None, "A10"))
    assert outliers.find(answers(["10"] * 9) + [(g, pk + 100, n, v) for g, pk, n, v in others]) == []


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=60))
def test_an_outlier_s_nodes_and_its_peers_are_the_whole_group(values: list[str]) -> None:
    for outlier in outliers.find(answers(values)):
        assert outlier.count + outlier.usual_nodes == len(values)
        assert 0 < outlier.count < outlier.usual_nodes
        assert sum(v["count"] for v in outlier.values()) == outlier.count
        assert outlier.usual not in {v["value"] for v in outlier.values()}


def test_rows_follow_what_is_so_and_keep_since_when(make_world: Any) -> None:
    world: World = make_world(nodes=8)
    world.sim.drift("n3", "vm.swappiness", "77")
    world.tick(70)
    assert outliers.refresh(world.cluster)
    row = Outlier.objects.get(key="vm.swappiness")
    assert (row.count, row.usual, row.usual_nodes) == (1, "60", 7)
    assert OutlierNode.objects.get(outlier=row).value == "77"

    world.sim.drift("n4", "vm.max_map_count", "77777")
    world.tick(70)
    assert outliers.refresh(world.cluster)
    assert Outlier.objects.get(key="vm.swappiness").since == row.since
    assert Outlier.objects.count() == 2

    world.sim.drift("n3", "vm.swappiness", "60")
    world.tick(70)
    assert outliers.refresh(world.cluster)
    assert [o.key for o in Outlier.objects.all()] == ["vm.max_map_count"]


def test_an_older_kernel_is_an_outlier_too(make_world: Any) -> None:
    world: World = make_world(nodes=8)
    node = world.node("n5")
    node.kernel = "6.8.0-79"
    node.save(update_fields=["kernel"])
    outliers.refresh(world.cluster)
    row = Outlier.objects.get(key="node.kernel")
    assert row.values == [{"value": "6.8.0-79", "count": 1, "names": ["n5"]}]


def test_nodes_of_an_assigned_pool_are_compared_with_each_other(make_world: Any) -> None:
    world: World = make_world(nodes=7)
    for number in range(10, 30):
        world.sim.add_node(f"n{number}", gpus=8, labels={"pool": "other"})
    world.observe()
    world.run(world.started(), seconds=900)
    outliers.refresh(world.cluster)
    assert not Outlier.objects.filter(key="vm.swappiness").exists()  # 10 in the pool, 60 elsewhere: both usual there


def test_what_a_silent_cluster_said_last_is_not_compared(make_world: Any) -> None:
    world: World = make_world(nodes=8)
    Cluster.objects.update(observed_at=world.clock() - timedelta(minutes=10))
    world.cluster.refresh_from_db()
    assert outliers.refresh(world.cluster) is False
