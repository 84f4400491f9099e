"""Two autoscalers on one workload are told, whichever of them says what, and only where they contradict."""

from __future__ import annotations

import json
from typing import Any

import pytest

from profiles.document import schema

DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "serve"}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
INSIDE = {
    "type": "ContainerResource",
    "containerResource": {
        "name": "memory",
        "container": "a",
        "target": {"type": "Utilization", "averageUtilization": 80},
    },
}
QUEUE = {"type": "External", "external": {"metric": {"name": "cpu"}, "target": {"type": "Value", "value": "9"}}}
ALL_MEMORY = {"containerPolicies": [{"containerName": "*", "controlledResources": ["memory"]}]}


def horizontal(
    name: str = "by-load", *, metrics: Any = None, namespace: str = "team-a", **target: str
) -> dict[str, Any]:
    spec = {"scaleTargetRef": DEPLOYMENT | target, "minReplicas": 1, "maxReplicas": 5}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec | ({"metrics": metrics} if metrics else {}),
    }


def vertical(mode: str = "Initial", *, policy: Any = None, **target: str) -> dict[str, Any]:
    spec = {"targetRef": DEPLOYMENT | target, "updatePolicy": {"updateMode": mode}}
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "by-size", "namespace": "team-a"},
        "spec": spec | ({"resourcePolicy": policy} if policy else {}),
    }


def rivals(*policies: dict[str, Any]) -> list[tuple[str, str]]:
    """(path, message) of each warning that two autoscalers work against each other."""
    checked = schema.flatten(schema.parse(json.dumps({"policies": policies})), None, origin="mine")
    return [(note.path, note.message) for note in checked.warnings if note.code == "rivals"]


@pytest.mark.parametrize(
    ("first", "second", "resource"),
    [
        (horizontal(), vertical(), "cpu"),
        (vertical(), horizontal(metrics=[CPU]), "cpu"),
        (horizontal(metrics=[QUEUE, INSIDE]), vertical("Recreate"), "memory"),
        (horizontal(metrics=[INSIDE]), vertical(policy=ALL_MEMORY), "memory"),
        (
            horizontal(metrics=[CPU]),
            vertical(policy={"containerPolicies": [{"containerName": "a", "mode": "Off"}]}),
            "cpu",  # the other containers are resized all the same
        ),
        (horizontal(), vertical(apiVersion="apps/v1beta2"), "cpu"),
    ],
)
def test_both_by_one_resource_are_told_at_the_vertical_one(first, second, resource):
    ((path, message),) = rivals(first, second)

    assert path == "policies.VerticalPodAutoscaler/team-a/by-size.spec.targetRef"
    assert f"resizes the pods of Deployment team-a/serve by {resource}, by which HorizontalPodAutoscaler" in message


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (horizontal(), vertical("Off")),
        (horizontal(metrics=[QUEUE]), vertical()),
        (horizontal(metrics=[CPU]), vertical(policy=ALL_MEMORY)),
        (horizontal(), vertical(policy={"containerPolicies": [{"containerName": "*", "mode": "Off"}]})),
        (horizontal(), vertical(name="other")),
        (horizontal(), vertical(kind="StatefulSet")),
        (horizontal(namespace="team-b"), vertical()),
        (horizontal(), vertical(apiVersion="example.com/v1")),
    ],
)
def test_where_they_go_by_different_things_nothing_is_told(first, second):
    assert rivals(first, second) == []


def test_two_of_one_kind_on_one_workload_are_told():
    ((path, message),) = rivals(horizontal(), horizontal("by-queue", metrics=[QUEUE]))

    assert path == "policies.HorizontalPodAutoscaler/team-a/by-queue.spec.scaleTargetRef"
    assert "and so does HorizontalPodAutoscaler/team-a/by-load" in message


def test_what_is_inherited_counts():
    base = schema.flatten(schema.parse(json.dumps({"policies": [horizontal()]})), None, origin="base r1").content
    checked = schema.flatten(schema.parse(json.dumps({"policies": [vertical()]})), base, origin="mine")

    assert [note.code for note in checked.warnings if note.code == "rivals"] == ["rivals"]
