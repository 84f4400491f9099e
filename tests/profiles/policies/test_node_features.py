"""Rules that label nodes obey what labels of nodes do; and HyperNodes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.profiles.policies.wishes import accepted, refused, warnings_of, wish

MATCH = [{"feature": "pci.device", "matchExpressions": {"vendor": {"op": "In", "value": ["15b3"]}}}]


def rule(**fields: Any) -> dict[str, Any]:
    rules = [{"name": "nic", "matchFeatures": MATCH, **fields}]
    return wish("NodeFeatureRule", "nfd.k8s-sigs.io/v1alpha1", spec={"rules": rules})


def hyper(*members: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return wish("HyperNode", "topology.volcano.sh/v1alpha1", spec={"tier": 1, "members": list(members), **spec})


@pytest.mark.parametrize(
    "good",
    [
        rule(
            labels={"nic": "true", "feature.node.kubernetes.io/rdma": "true", "example.org/model": "@pci.device.model"}
        ),
        rule(taints=[{"key": "feature.node.kubernetes.io/special", "value": "true", "effect": "NoSchedule"}]),
        rule(extendedResources={"example.org/dongle": "1"}),
        hyper({"type": "Node", "selector": {"exactMatch": {"name": "n1"}}}),
        hyper({"type": "Node", "selector": {"regexMatch": {"pattern": "^rack1-.*"}}}),
        hyper({"type": "Node", "selector": {"labelMatch": {"matchLabels": {"example.org/rack": "1"}}}}),
    ],
)
def test_rules_and_places_are_accepted(good):
    assert accepted(good).policies


@pytest.mark.parametrize(
    ("wanted", "where", "words"),
    [
        (rule(labels={"nvidia.com/mig.config": "all-disabled"}), "labels.nvidia.com/mig.config", "acts upon it"),
        (rule(labels={"setpoint.dev/x": "a"}), "labels.setpoint.dev/x", "Setpoint's own"),
        (rule(labels={"node-role.kubernetes.io/control-plane": ""}), "labels.node-role.kubernetes.io/control-plane",
         "reserved"),
        (rule(labels={"nvidia.com/gpu.count": "8"}), "labels.nvidia.com/gpu.count", "GPU Operator"),
        (rule(annotations={"setpoint.dev/cordoned-by": "x"}), "annotations.setpoint.dev/cordoned-by", "Setpoint's own"),
        (rule(labelsTemplate="{{ . }}"), "labelsTemplate", "name each"),
        (rule(taints=[{"key": "feature.node.kubernetes.io/a", "effect": "NoExecute"}]), "taints[0]", "evicts"),
        (rule(taints=[{"key": "setpoint.dev/untuned", "effect": "NoSchedule"}]), "taints[0]", "Setpoint's own"),
        (rule(taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]), "taints[0]", "reserved"),
        (rule(extendedResources={"nvidia.com/gpu": "8"}), "extendedResources.nvidia.com/gpu", "device plugin"),
        (rule(extendedResources={"rdma/hca": "8"}), "extendedResources.rdma/hca", "device plugin"),
        (rule(matchAll=[]), "matchAll", "not known here"),
    ],
)  # fmt: skip
def test_a_rule_is_no_way_around_what_labels_of_nodes_obey(wanted, where, words):
    assert words in refused(wanted)[f"spec.rules[0].{where}"]


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        (hyper(), "spec.members"),
        (hyper({"type": "Rack", "selector": {"exactMatch": {"name": "a"}}}), "spec.members[0].type"),
        (hyper({"type": "Node", "selector": {}}), "spec.members[0].selector"),
        (hyper({"type": "Node", "selector": {"exactMatch": {}, "regexMatch": {}}}), "spec.members[0].selector"),
        (hyper({"type": "Node", "selector": {"exactMatch": {}}}), "spec.members[0].selector.exactMatch.name"),
        (hyper({"type": "HyperNode", "selector": {"labelMatch": {"matchLabels": {"a": "b"}}}}),
         "spec.members[0].selector.labelMatch"),
        (hyper({"type": "Node", "selector": {"exactMatch": {"name": "a"}}}, tier=None), "spec.tier"),
        (hyper({"type": "Node", "selector": {"exactMatch": {"name": "a"}}}, rack=1), "spec.rack"),
    ],
)  # fmt: skip
def test_a_place_that_volcano_would_refuse_is_refused(wanted, where):
    assert where in refused(wanted)


def test_a_place_within_another_names_it():
    above = hyper({"type": "HyperNode", "selector": {"exactMatch": {"name": "leaf"}}}, tier=2)
    assert "HyperNode leaf is not in this profile" in warnings_of(above)["not-here"]
