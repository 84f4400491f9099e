"""The cluster part of a revision, in memory: equality, digest, differences and JSON."""

from __future__ import annotations

import json

import pytest

from profiles.content.content import (
    BadContent,
    Content,
    Mark,
    WantedComponent,
    WantedObject,
    WantedSetting,
    WantedTaint,
    build,
    diff,
    digest,
)

CILIUM = WantedComponent(
    "cilium", "1.20.0", ("native-routing",), {"ipam": {"mode": "kubernetes"}, "MTU": 9000}, "base r1", "why not"
)
QUEUE = WantedObject("scheduling.volcano.sh/v1beta1", "Queue", "gpu", "", {"spec": {"weight": 4}}, "base r1")
QUOTA = WantedObject(
    "v1", "ResourceQuota", "gpu", "team-a", {"spec": {"hard": {"requests.nvidia.com/gpu": "8"}}}, "base r1"
)


def content(components=(), policies=()) -> Content:
    return build(settings=[], labels=[], annotations=[], taints=[], components=components, policies=policies)


def test_digests_from_before_there_were_components_stay_what_they_were():
    """Recorded with the code of then: approved plans and assignments name them."""
    nodes_only = build(
        settings=[
            WantedSetting("vm.swappiness", "=", "10", "live", "a r1"),
            WantedSetting("vm.max_map_count", ">=", "262144", "live", "a r1", "because"),
        ],
        labels=[Mark("a", "b", "a r1")],
        annotations=[Mark("n", "é\n", "a r1")],
        taints=[WantedTaint("t", "v", "NoSchedule", "a r1")],
    )

    assert digest(nodes_only) == "sha256:08916cec77a1923964fa40e52f356776e3b6fe6742dcddd740b8d57603edc87a"
    assert digest(Content()) == "sha256:29ae0963ace6f78c67617551fe73d0abaf43ee5ec7b2b8fb27898830431d6c47"


def test_a_revision_stored_before_there_were_components_is_read():
    stored = {key: value for key, value in Content().to_json().items() if key not in ("components", "policies")}

    assert Content.from_json(stored) == Content()


@pytest.mark.parametrize(
    "other",
    [
        WantedComponent("cilium", "1.20.1", CILIUM.presets, CILIUM.values),
        WantedComponent("cilium", "", CILIUM.presets, CILIUM.values),
        WantedComponent("cilium2", "1.20.0", CILIUM.presets, CILIUM.values),
        WantedComponent("cilium", "1.20.0", (), CILIUM.values),
        WantedComponent("cilium", "1.20.0", ("native-routing", "x"), CILIUM.values),
        WantedComponent("cilium", "1.20.0", CILIUM.presets, {"ipam": {"mode": "kubernetes"}, "MTU": 9000.5}),
        WantedComponent("cilium", "1.20.0", CILIUM.presets, {"ipam": {"mode": "kubernetes"}, "MTU": "9000"}),
    ],
)
def test_everything_a_component_says_is_meant(other):
    assert digest(content([CILIUM])) != digest(content([other]))
    assert diff(content([CILIUM]), content([other]))


@pytest.mark.parametrize(
    "other",
    [
        WantedObject("v1", "Queue", "gpu", "", QUEUE.body),
        WantedObject(QUEUE.api_version, "Queue", "gpu2", "", QUEUE.body),
        WantedObject(QUEUE.api_version, "Queue", "gpu", "ns", QUEUE.body),
        WantedObject(QUEUE.api_version, "Queue", "gpu", "", {"spec": {"weight": 5}}),
        WantedObject(QUEUE.api_version, "Queue", "gpu", "", {"spec": {"weight": True}}),
        WantedObject(QUEUE.api_version, "Queue", "gpu", "", {}),
    ],
)
def test_everything_a_policy_object_says_is_meant(other):
    assert digest(content(policies=[QUEUE])) != digest(content(policies=[other]))
    assert diff(content(policies=[QUEUE]), content(policies=[other]))


def test_where_it_comes_from_and_why_is_not_meant():
    other = WantedComponent("cilium", "1.20.0", CILIUM.presets, dict(reversed([*CILIUM.values.items()])), "b r2", "so")
    moved = WantedObject(QUEUE.api_version, "Queue", "gpu", "", QUEUE.body, "b r2")

    assert digest(content([CILIUM], [QUEUE])) == digest(content([other], [moved]))
    assert not diff(content([CILIUM], [QUEUE]), content([other], [moved]))
    assert (other, moved) != (CILIUM, QUEUE), "but these two are told apart"


def test_values_are_equal_when_their_json_is():
    def wanted(value: object) -> WantedComponent:
        return WantedComponent("a", values={"x": value})

    assert wanted({"b": 1, "a": 2}) == wanted({"a": 2, "b": 1})
    assert hash(wanted({"b": 1, "a": 2})) == hash(wanted({"a": 2, "b": 1}))
    assert len({wanted(1), wanted(True), wanted(1.5), wanted("1"), wanted(None)}) == 5
    assert wanted([1, 2]) != wanted([2, 1])


def test_parts_are_sorted_and_survive_their_own_json():
    made = content([WantedComponent("volcano"), CILIUM], [QUOTA, QUEUE])

    assert [c.name for c in made.components] == ["cilium", "volcano"]
    assert [o.title for o in made.policies] == ["Queue/gpu", "ResourceQuota/team-a/gpu"]
    assert Content.from_json(json.loads(json.dumps(made.to_json()))) == made
    assert made.has_cluster_part
    assert not made.is_empty
    assert not made.has_node_part


@pytest.mark.parametrize(
    "damaged",
    [
        {"components": [{}]},
        {"components": ["cilium"]},
        {"components": [{"name": "a", "values": 3}]},
        {"policies": [{"kind": "Queue"}]},
        {"policies": 3},
    ],
)
def test_damaged_content_is_named(damaged):
    with pytest.raises(BadContent):
        Content.from_json(damaged)


def test_a_difference_names_each_value():
    before = content([CILIUM, WantedComponent("volcano")], [QUEUE])
    changed = WantedComponent(
        "cilium", "", (), {"ipam": {"mode": "cluster-pool"}, "MTU": 9000, "nodeSelector": {"kubernetes.io/os": "linux"}}
    )
    after = content([changed], [WantedObject(QUEUE.api_version, "Queue", "gpu", "", {"spec": {"weight": 5}}), QUOTA])

    assert [(d.part, d.key, d.before, d.after) for d in diff(before, after)] == [
        ("components", "cilium", "1.20.0", "newest tested version"),
        ("components", "cilium.presets", "native-routing", None),
        ("components", "cilium.values.ipam.mode", '"kubernetes"', '"cluster-pool"'),
        ("components", 'cilium.values.nodeSelector["kubernetes.io/os"]', None, '"linux"'),
        ("components", "volcano", "newest tested version", None),
        ("policies", "Queue/gpu spec.weight", "4", "5"),
        ("policies", "ResourceQuota/team-a/gpu", None, "v1"),
        ("policies", 'ResourceQuota/team-a/gpu spec.hard["requests.nvidia.com/gpu"]', None, '"8"'),
    ]


def test_a_manifest_is_the_object_as_kubernetes_takes_it():
    labeled = WantedObject("v1", "Namespace", "a", "", {"metadata": {"labels": {"x": "y"}}})

    assert QUOTA.manifest == {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpu", "namespace": "team-a"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "8"}},
    }
    assert labeled.manifest["metadata"] == {"name": "a", "labels": {"x": "y"}}
