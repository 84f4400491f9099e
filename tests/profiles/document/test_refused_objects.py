"""Components and policy objects that are refused, with path, line and reason."""

from __future__ import annotations

import pytest

from tests.profiles.document.judging import (
    KUEUE,
    VOLCANO,
    cluster_queue,
    flat,
    group,
    manifest,
    problems,
    queue,
)

REFUSED = {
    "a list": ("components:\n  - cilium\n", "components", 1, "mapping from names"),
    "a bad name": ("components:\n  Cilium_1: {}\n", "components.Cilium_1", 2, "lower-case"),
    "a long name": (f"components:\n  {'a' * 54}: {{}}\n", f"components.{'a' * 54}", 2, "53"),
    "a version alone": ("components:\n  cilium: 1.20.0\n", "components.cilium", 2, "must be a mapping"),
    "a number as version": ("components:\n  cilium:\n    version: 1.20\n", "components.cilium.version", 3, "quotes"),
    "a range": ("components:\n  cilium: {version: ^1.20}\n", "components.cilium.version", 2, "no range"),
    "an unknown field": ("components:\n  cilium: {chart: x}\n", "components.cilium.chart", 2, "version, presets"),
    "presets as text": ("components:\n  cilium: {presets: a}\n", "components.cilium.presets", 2, "list of names"),
    "a preset twice": ("components:\n  cilium: {presets: [a, a]}\n", "components.cilium.presets[1]", 2, "twice"),
    "a bad preset": ("components:\n  cilium: {presets: [../a]}\n", "components.cilium.presets[0]", 2, "preset's name"),
    "values as text": ("components:\n  cilium: {values: 'a: b'}\n", "components.cilium.values", 2, "mapping"),
    "values as a list": ("components:\n  cilium: {values: [a]}\n", "components.cilium.values", 2, "mapping"),
    "an infinite number": ("components:\n  a:\n    values:\n      x: 1e999\n", "components.a.values.x", 4, "too large"),
    "a long number": (f"components:\n  a:\n    values:\n      x: {2**53}\n", "components.a.values.x", 4, "too large"),
    "NUL": ('components:\n  a: {values: {x: "\\0"}}\n', "components.a.values.x", 2, "U+0000"),
    "half a pair": ('components:\n  a: {values: {x: "\\ud800"}}\n', "", 2, "invalid Unicode"),
    "NUL in a key": ('components:\n  a: {values: {"\\0": x}}\n', "components.a.values.\\x00", 2, "U+0000"),
    "too deep values": (
        "components:\n  a:\n    values:\n      x: " + "[" * 16 + "]" * 16 + "\n",
        "components.a.values.x" + "[0]" * 15,
        4,
        "deeper than 16",
    ),
    "long values": (f"components:\n  a: {{values: {{x: {'y' * 70_000}}}}}\n", "components.a.values", 2, "65,536"),
    "a reason as list": ("components:\n  a: {why: [x]}\n", "components.a.why", 2, "text"),
    "too many components": (
        "components:\n" + "".join(f"  c{n}: {{}}\n" for n in range(33)),
        "components",
        1,
        "at most 32",
    ),
    "policies as mapping": ("policies:\n  a: b\n", "policies", 1, "list of Kubernetes objects"),
    "a word": ("policies:\n  - queue\n", "policies[0]", 2, "Kubernetes object"),
    "too many objects": ("policies: [" + "a, " * 201 + "]\n", "policies", 1, "at most 200"),
    "no kind": ("policies:\n  - {apiVersion: v1}\n", "policies[0].kind", 2, "without kind"),
    "no metadata": ("policies:\n  - {apiVersion: v1, kind: Namespace}\n", "policies[0].metadata", 2, "with name"),
    "a secret": (manifest("Secret", "v1"), "policies[0].kind", 1, "cannot be wanted here"),
    "a role": (manifest("ClusterRole", "rbac.authorization.k8s.io/v1"), "policies[0].kind", 1, "there are Namespace"),
    "another version": (manifest("Queue", "scheduling.volcano.sh/v1"), "policies[0].apiVersion", 1, VOLCANO),
    "a bad name of an object": (manifest("Queue", VOLCANO, "A_b"), "policies[0].metadata.name", 1, "DNS name"),
    "a namespace with a dot": (manifest("Namespace", "v1", "a.b"), "policies[0].metadata.name", 1, "63 lower-case"),
    "a namespace too many": (
        manifest("PriorityClass", "scheduling.k8s.io/v1", namespace="x", value=1),
        "policies[0].metadata.namespace",
        1,
        "whole cluster",
    ),
    "a namespace too few": (
        manifest("ResourceQuota", "v1", spec={"hard": {"pods": 1}}),
        "policies[0].metadata",
        1,
        "needs a namespace",
    ),
    "a bad namespace": (
        manifest("ResourceQuota", "v1", namespace="A", spec={"hard": {"pods": 1}}),
        "policies[0].metadata.namespace",
        1,
        "lower-case",
    ),
    "Kubernetes' namespace": (manifest("Namespace", "v1", "kube-system"), "policies[0].metadata.name", 1, "belongs to"),
    "a status": (manifest("Namespace", "v1", status={}), "policies[0].status", 1, "written by the cluster"),
    "a spec of a namespace": (manifest("Namespace", "v1", spec={}), "policies[0].spec", 1, "nothing but metadata"),
    "the same twice": (
        ("policies:\n  - {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n"
        "  - {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n"),
        "policies[1]",
        3,
        "given twice",
    ),
    "an owner": (
        "policies: [{apiVersion: v1, kind: Namespace, metadata: {name: a, ownerReferences: []}}]",
        "policies[0].metadata.ownerReferences",
        1,
        "cannot be wanted",
    ),
    "a uid": (
        "policies: [{apiVersion: v1, kind: Namespace, metadata: {name: a, uid: x}}]",
        "policies[0].metadata.uid",
        1,
        "written by the cluster",
    ),
    "a bad label": (
        "policies: [{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {x: 1}}}]",
        "policies[0].metadata.labels.x",
        1,
        "quotes",
    ),
    "a label of Setpoint's": (
        "policies: [{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {setpoint.dev/policy: x}}}]",
        "policies[0].metadata.labels.setpoint.dev/policy",
        1,
        "Setpoint's own",
    ),
    "no such security level": (
        ("policies: [{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: "
        "{pod-security.kubernetes.io/enforce: open}}}]"),
        "policies[0].metadata.labels.pod-security.kubernetes.io/enforce",
        1,
        "privileged, baseline, restricted",
    ),
    "an exploding anchor": ("components:\n  a: &a {}\n  b: *a\n", "", 2, "anchors"),
    "no YAML": ("components:\n  a: {values: {x: [}\n", "", 2, "bracket"),
    "an abyss": ("components: " + "[" * 40 + "]" * 40, "", 1, "deeper than 24"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "path", "line", "words"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_with_path_line_and_reason(text, path, line, words):
    notes = problems(text)

    there = [note for note in notes if (note.path, note.line) == (path, line)] or notes
    assert any(words in note.message for note in there), notes
    assert (there[0].path, there[0].line) == (path, line)


QUOTA = {
    "a bare GPU": ({"nvidia.com/gpu": 8}, "write requests.nvidia.com/gpu"),
    "a limit of GPUs": ({"limits.nvidia.com/gpu": 8}, "write requests.nvidia.com/gpu"),
    "half a GPU": ({"requests.nvidia.com/gpu": "500m"}, "whole number"),
    "half a pod": ({"pods": 1.5}, "whole number"),
    "a negative": ({"pods": -1}, "negative"),
    "a boolean": ({"pods": True}, "amount"),
    "a decimal word": ({"requests.memory": "64GB"}, "not an amount"),
    "more than there is": ({"requests.memory": "9E9"}, ""),
    "beyond counting": ({"requests.memory": "10Ei"}, "more than Kubernetes can count"),
    "an unknown resource": ({"gpus": 8}, "not a resource that a quota counts"),
    "nothing": ({}, "at least one entry"),
}


@pytest.mark.parametrize(("hard", "words"), QUOTA.values(), ids=QUOTA)
def test_quotas_are_judged_resource_by_resource(hard, words):
    text = manifest("ResourceQuota", "v1", namespace="t", spec={"hard": hard})

    if not words:
        assert flat(text).policies
    else:
        assert words in problems(text)[0].message


@pytest.mark.parametrize(
    "resource",
    [
        "requests.nvidia.com/gpu", "requests.nvidia.com/mig-1g.10gb", "requests.rdma/hca_shared_devices_a",
        "requests.cpu", "limits.memory", "pods", "count/jobs.batch", "requests.hugepages-2Mi", "hugepages-1Gi",
        "gold.storageclass.storage.k8s.io/requests.storage", "gpu.example.com.deviceclass.resource.k8s.io/devices",
    ],
)  # fmt: skip
def test_a_quota_counts(resource):
    assert flat(manifest("ResourceQuota", "v1", namespace="t", spec={"hard": {resource: 4}})).policies


FIELDS = {
    "weight 0": (queue(weight=0), "spec.weight", "1 to 65535"),
    "weight as text": (queue(weight="4"), "spec.weight", "whole number"),
    "a field that Volcano lacks": (queue(wieght=4), "spec.wieght", "not known here"),
    "deserved above capability": (
        queue(deserved={"nvidia.com/gpu": 9}, capability={"nvidia.com/gpu": 8}),
        "spec.deserved.nvidia.com/gpu",
        "above spec.capability, which is 8",
    ),
    "guarantee above deserved": (
        queue(guarantee={"resource": {"cpu": "2"}}, deserved={"cpu": "1500m"}),
        "spec.guarantee.resource.cpu",
        "above spec.deserved",
    ),
    "guarantee without resource": (queue(guarantee={"cpu": 2}), "spec.guarantee.cpu", "there are resource"),
    "half a GPU of a queue": (queue(capability={"nvidia.com/gpu": 0.5}), "spec.capability.nvidia.com/gpu", "whole"),
    "its own parent": (queue(parent="a"), "spec.parent", "own parent"),
    "a strategy": (queue(dequeueStrategy="lifo"), "spec.dequeueStrategy", "fifo, traverse"),
    "priority above 1e9": (
        manifest("PriorityClass", "scheduling.k8s.io/v1", value=1_000_000_001),
        "value",
        "reserved",
    ),
    "priority below": (manifest("PriorityClass", "scheduling.k8s.io/v1", value=-(2**31) - 1), "value", "must be -2147"),
    "no priority": (manifest("PriorityClass", "scheduling.k8s.io/v1"), "value", "whole number"),
    "a system priority": (
        manifest("PriorityClass", "scheduling.k8s.io/v1", "system-mine", value=1),
        "metadata.name",
        "belong to Kubernetes",
    ),
    "a preemption policy": (
        manifest("PriorityClass", "scheduling.k8s.io/v1", value=1, preemptionPolicy="Maybe"),
        "preemptionPolicy",
        "PreemptLowerPriority, Never",
    ),
    "a spec of a priority": (
        manifest("PriorityClass", "scheduling.k8s.io/v1", value=1, spec={}),
        "spec",
        "not a field of PriorityClass",
    ),
    "no handler": (manifest("RuntimeClass", "node.k8s.io/v1"), "handler", "containerd"),
    "default above max": (
        manifest("LimitRange", "v1", namespace="t", spec={"limits": [
            {"type": "Container", "default": {"cpu": 4}, "max": {"cpu": "2"}}
        ]}),
        "spec.limits[0].default.cpu",
        "above max, which is 2",
    ),
    "a type of limits": (
        manifest("LimitRange", "v1", namespace="t", spec={"limits": [{"max": {"cpu": "2"}}]}),
        "spec.limits[0].type",
        "Container, Pod",
    ),
    "no levels": (manifest("Topology", KUEUE, spec={"levels": []}), "spec.levels", "at least one"),
    "hostname first": (
        manifest("Topology", KUEUE, spec={"levels": [
            {"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "example.com/rack"}
        ]}),
        "spec.levels[0].nodeLabel",
        "put it last",
    ),
    "a topology of no nodes": (
        manifest("ResourceFlavor", KUEUE, spec={"topologyName": "t"}), "spec.topologyName", "nodeLabels"
    ),
    "the old name": (cluster_queue(cohort="x"), "spec.cohort", "is called cohortName"),
    "borrowing from nobody": (
        cluster_queue(resourceGroups=group(nominalQuota=8, borrowingLimit=2)),
        "spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit",
        "needs a cohort",
    ),
    "lending more than there is": (
        cluster_queue(cohortName="c", resourceGroups=group(nominalQuota=8, lendingLimit=9)),
        "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit",
        "above nominalQuota, which is 8",
    ),
    "no quota": (
        cluster_queue(resourceGroups=group()), "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota", "amount"
    ),
    "another order": (
        cluster_queue(resourceGroups=[{"coveredResources": ["cpu"], "flavors": [
            {"name": "a", "resources": [{"name": "memory", "nominalQuota": 1}]}
        ]}]),
        "spec.resourceGroups[0].flavors[0].resources",
        "coveredResources",
    ),
    "no queue": (manifest("LocalQueue", KUEUE, namespace="t", spec={"x": 1}), "spec.clusterQueue", "ClusterQueue"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "path", "words"), FIELDS.values(), ids=FIELDS)
def test_fields_that_matter_are_judged(text, path, words):
    messages = {note.path: note.message for note in problems(text)}

    assert words in messages[f"policies[0].{path}"], messages
