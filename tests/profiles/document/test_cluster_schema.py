"""The parts `components` and `policies`: what is accepted, what it means over a parent, and what is refused where."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.content.content import Content, diff
from profiles.document import schema
from profiles.document.document import ProfileNote
from profiles.document.schema import InvalidProfile
from tests.profiles.strategies import whole_documents

VOLCANO = "scheduling.volcano.sh/v1beta1"
KUEUE = "kueue.x-k8s.io/v1beta2"


def flat(text: str, parent: Content | None = None, origin: str = "draft") -> Content:
    return schema.flatten(schema.parse(text), parent, origin=origin).content


def problems(text: str, parent: Content | None = None) -> list[ProfileNote]:
    with pytest.raises(InvalidProfile) as caught:
        schema.flatten(schema.parse(text), parent, origin="draft")
    return list(caught.value.problems)


def warnings(text: str, parent: Content | None = None) -> list[tuple[str, str, int]]:
    found = schema.flatten(schema.parse(text), parent, origin="draft").warnings
    return [(note.code, note.path, note.line) for note in found]


def manifest(kind: str, version: str, name: str = "a", namespace: str = "", **body: object) -> str:
    """A document that wants just this object."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return json.dumps({"policies": [{"apiVersion": version, "kind": kind, "metadata": metadata, **body}]})


# ── Text ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
@given(whole_documents())
def test_what_is_rendered_reads_back_the_same_and_renders_the_same(document):
    text = schema.render(document)

    assert schema.parse(text) == document
    assert schema.render(schema.parse(text)) == text


@given(whole_documents(st.none()))
def test_content_survives_its_own_json_and_differs_from_nothing_by_all_it_says(document):
    content = schema.flatten(document, None, origin="a r1").content

    assert Content.from_json(json.loads(json.dumps(content.to_json()))) == content
    facts = {d.key: d.after for d in diff(None, content) if d.part in ("components", "policies")}
    assert facts == {k: v for want in (*content.components, *content.policies) for k, v in want.facts.items()}
    assert not diff(content, content)


@given(whole_documents(st.none()), whole_documents(st.none()))
def test_a_difference_is_there_exactly_where_the_digests_differ(one, other):
    a, b = (schema.flatten(document, None, origin="x").content for document in (one, other))

    assert bool(diff(a, b)) == (schema.digest(a) != schema.digest(b))


@pytest.mark.parametrize("written", ["volcano: {}", "volcano:", "volcano: {values: {}}", "volcano: {presets: []}"])
def test_a_component_may_be_wanted_by_its_name_alone(written):
    found = flat(f"components:\n  {written}\n").components

    assert [(c.name, c.version, c.presets, dict(c.values)) for c in found] == [("volcano", "", (), {})]


def test_numbers_have_one_form_so_that_a_database_cannot_change_the_digest():
    one = flat("components: {a: {values: {x: 1.0, y: 1e3, z: 0.5, n: [2.0]}}}")
    other = flat("components: {a: {values: {x: 1, y: 1000, z: 0.50, n: [2]}}}")

    assert schema.digest(one) == schema.digest(other)
    assert json.dumps(one.components[0].values) == '{"x": 1, "y": 1000, "z": 0.5, "n": [2]}'


def test_words_of_yaml_1_1_stay_words_in_values_too():
    assert flat("components: {a: {values: {x: on, y: 12:30, z: no}}}").components[0].values == {
        "x": "on",
        "y": "12:30",
        "z": "no",
    }


# ── Layers ────────────────────────────────────────────────────────────────────────────────────────────────────────────
BASE = flat(
    """
components:
  cilium:
    version: 1.19.0
    presets: [a, b]
    values: {ipam: {mode: kubernetes, x: 1}, list: [1, 2], MTU: 9000}
    why: the network
  volcano: {}
policies:
  - {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: gpu}, spec: {weight: 4, priority: 1}}
  - {apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: t}, spec: {hard: {pods: 1}}}
""",
    origin="base r3",
)


def test_a_component_named_again_is_laid_over_its_parent():
    top = "components: {cilium: {version: 1.20.0, values: {ipam: {mode: cluster-pool}, list: [3], MTU: null}}}"
    cilium, volcano = flat(top, BASE, "top r1").components

    assert (cilium.version, cilium.presets, cilium.why, cilium.origin) == (
        "1.20.0",
        ("a", "b"),
        "the network",
        "top r1",
    )
    assert cilium.values == {"ipam": {"mode": "cluster-pool", "x": 1}, "list": [3], "MTU": None}
    assert volcano.origin == "base r3"
    assert BASE.components[0].values["MTU"] == 9000, "the parent is not touched"


def test_presets_are_replaced_when_given_even_by_none_at_all():
    assert flat("components: {cilium: {presets: [c]}}", BASE).components[0].presets == ("c",)
    assert flat("components: {cilium: {presets: []}}", BASE).components[0].presets == ()
    assert flat("components: {cilium: {}}", BASE).components[0].presets == ("a", "b")


def test_an_object_named_again_replaces_the_inherited_one():
    queue = f"{{apiVersion: {VOLCANO}, kind: Queue, metadata: {{name: gpu}}, spec: {{weight: 5}}}}"
    found = flat(f"policies: [{queue}]", BASE, "top r1").policies

    assert [(o.title, o.origin) for o in found] == [("Queue/gpu", "top r1"), ("ResourceQuota/t/q", "base r3")]
    assert found[0].body == {"spec": {"weight": 5}}


def test_what_is_inherited_can_be_given_up():
    content = flat("remove: [components.cilium, policies.Queue/gpu, policies.ResourceQuota/t/q]", BASE)

    assert [c.name for c in content.components] == ["volcano"]
    assert not content.policies


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("remove: [components.kueue]", "not-inherited"),
        ("remove: [policies.Queue/other]", "not-inherited"),
        ("components: {cilium: {}}\nremove: [components.cilium]", "contradiction"),
    ],
)
def test_only_what_is_inherited_can_be_given_up(text, code):
    assert [note.code for note in problems(text, BASE)] == [code]


# ── What is refused, and where ────────────────────────────────────────────────────────────────────────────────────────
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
    found = problems(text)

    there = [note for note in found if (note.path, note.line) == (path, line)] or found
    assert any(words in note.message for note in there), found
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


def queue(**spec: object) -> str:
    return manifest("Queue", VOLCANO, spec=spec)


def cluster_queue(**spec: object) -> str:
    return manifest("ClusterQueue", KUEUE, spec={"namespaceSelector": {}, **spec})


def group(**quota: object) -> list[dict[str, object]]:
    resources = [{"name": "nvidia.com/gpu", **quota}]
    return [{"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "h100", "resources": resources}]}]


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
    found = {note.path: note.message for note in problems(text)}

    assert words in found[f"policies[0].{path}"], found


# ── Together ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def objects(*manifests: str) -> str:
    return json.dumps({"policies": [json.loads(text)["policies"][0] for text in manifests]}, indent=1)


def test_there_is_one_default_priority():
    text = objects(
        manifest("PriorityClass", "scheduling.k8s.io/v1", "a", value=1, globalDefault=True),
        manifest("PriorityClass", "scheduling.k8s.io/v1", "b", value=2, globalDefault=True),
    )

    assert [(n.path, n.code) for n in problems(text)] == [("policies.PriorityClass/b.globalDefault", "given-twice")]
    assert text.split("\n")[problems(text)[0].line - 1].strip() == '"globalDefault": true'


def test_queues_that_are_each_others_parents_are_refused_even_across_layers():
    def under(name: str, parent: str) -> str:
        return manifest("Queue", VOLCANO, name, spec={"parent": parent})

    lower = flat(objects(under("a", "b"), under("b", "root")))
    [note] = problems(objects(under("b", "a")), lower)

    assert (note.code, note.path) == ("circle", "policies.Queue/a.spec.parent")
    assert "a under b under a" in note.message


def test_layers_add_up_to_a_bound():
    many = "components:\n" + "".join(f"  c{n}: {{}}\n" for n in range(20))
    more = "components:\n" + "".join(f"  d{n}: {{}}\n" for n in range(20))

    assert [note.message for note in problems(more, flat(many))] == [
        "40 with what is inherited; at most 32 are accepted"
    ]


def test_what_must_be_in_the_cluster_already_is_warned_of():
    local = manifest("LocalQueue", KUEUE, "team", "t", spec={"clusterQueue": "main"})

    assert warnings(local) == [
        ("needs-component", "policies.LocalQueue/t/team", 1),
        ("not-here", "policies.LocalQueue/t/team.spec.clusterQueue", 1),
    ]
    complete = json.loads(local) | {"components": {"kueue": {}}}
    complete["policies"] += json.loads(cluster_queue(resourceGroups=group(nominalQuota=8)))["policies"]
    complete["policies"][1]["metadata"]["name"] = "main"
    complete["policies"].append({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "h100"}})
    assert warnings(json.dumps(complete)) == []


def test_what_counts_only_under_a_condition_is_said():
    text = "components: {volcano: {}}\npolicies:\n  - apiVersion: scheduling.volcano.sh/v1beta1\n    kind: Queue\n"
    text += "    metadata: {name: a}\n    spec:\n      deserved: {nvidia.com/gpu: 4}\n"

    assert warnings(text) == [("needs-plugin", "policies[0].spec.deserved", 7)]
    selects = manifest("ClusterQueue", KUEUE, spec={"stopPolicy": "None"})
    assert ("selects-nothing", "policies[0].spec", 1) in warnings(selects)


# ── Removal ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_what_is_removed_says_nothing_else_and_takes_the_place_of_what_is_inherited():
    parent = flat("components: {volcano: {version: 1.15.1, presets: [ha], values: {a: 1}}}")
    (gone,) = flat("components: {volcano: {remove: true}}", parent).components
    assert (gone.is_gone, gone.version, gone.presets, dict(gone.values)) == (True, "", (), {})
    (back,) = flat("components: {volcano: {version: 1.15.1}}", flat("components: {volcano: {remove: true}}")).components
    assert (back.is_gone, back.version) == (False, "1.15.1")
    assert Content.from_json(flat("components: {volcano: {remove: true}}").to_json()).components[0].is_gone


@pytest.mark.parametrize("more", ["version: 1.15.1", "presets: [ha]", "values: {a: 1}"])
def test_what_is_removed_has_no_version_presets_or_values(more):
    (problem,) = problems(f"components: {{volcano: {{remove: true, {more}}}}}")
    assert problem.path == "components.volcano.remove"


@pytest.mark.parametrize("said", ["false", "'true'", "1", "yes please"])
def test_remove_is_true_or_left_out(said):
    (problem,) = problems(f"components: {{volcano: {{remove: {said}}}}}")
    assert problem.path == "components.volcano.remove"
