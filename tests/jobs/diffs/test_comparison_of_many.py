"""Nodes that are compared together: each has the difference that it has alone."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jobs.diffs.node_diff import NodeComparison, ObservedNode, Target, compare_node

KEYS = ("vm.swappiness", "vm.dirty_ratio", "module.ib_umad")
VALUES = st.sampled_from(["10", "60", "loaded"])
MARKS = st.dictionaries(st.sampled_from(["a", "b", "nvidia.com/mig.config"]), st.sampled_from(["", "x", "y"]))
EFFECTS = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])
TARGETS = st.builds(
    Target,
    settings=st.lists(
        st.tuples(st.sampled_from(KEYS), st.sampled_from(["=", ">=", "<="]), VALUES, st.just("live")),
        unique_by=lambda setting: setting[0],
    ).map(tuple),
    labels=MARKS,
    annotations=MARKS,
    taints=st.lists(
        st.tuples(st.sampled_from("kl"), st.sampled_from(["", "v"]), EFFECTS), max_size=2, unique_by=lambda t: t[::2]
    ).map(tuple),
)
TAINTS = st.fixed_dictionaries({"key": st.sampled_from("kl"), "effect": EFFECTS}, optional={"value": st.just("v")})
TOLERATING = st.lists(st.just({"key": "k", "operator": "Exists"}), max_size=1)
NODES = st.builds(
    ObservedNode,
    observed=st.dictionaries(st.sampled_from(KEYS), VALUES),
    labels=MARKS,
    annotations=MARKS,
    taints=st.lists(TAINTS, max_size=2),
    originals=st.dictionaries(st.sampled_from(KEYS), st.none() | VALUES, max_size=2),
    before=TARGETS,
    pods=st.none() | st.lists(TOLERATING, max_size=2),
)


def written(difference: Any) -> Any:
    return difference.changes.to_json(), difference.higher, difference.lacking


@given(TARGETS, st.lists(NODES, min_size=2, max_size=8))
def test_each_node_has_the_difference_that_it_has_alone(target, nodes):
    comparison = NodeComparison(target)
    together = [written(comparison.of(node)) for node in nodes]
    assert together == [written(compare_node(target, node)) for node in nodes]
    assert [written(comparison.of(node)) for node in nodes] == together


def test_nodes_with_the_same_values_share_one_difference_whatever_else_they_have():
    target = Target(settings=(("vm.swappiness", "=", "10", "live"),), labels={"a": "x"})
    first, second = (
        ObservedNode(
            observed={"vm.swappiness": "60", "vm.dirty_ratio": name}, labels={"host": name}, annotations={}, taints=[]
        )
        for name in ("n1", "n2")
    )
    comparison = NodeComparison(target)
    assert comparison.of(first) is comparison.of(second)
