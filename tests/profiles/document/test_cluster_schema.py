"""The parts `components` and `policies`: what is accepted, what it means over a parent, and what is refused where."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.content.content import Content, diff
from profiles.document import schema
from tests.profiles.document.judging import (
    KUEUE,
    VOLCANO,
    cluster_queue,
    flat,
    group,
    manifest,
    problems,
    warnings,
)
from tests.profiles.strategies import whole_documents


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
def test_a_difference_is_there_exactly_where_the_digests_differ(draft, other):
    a, b = (schema.flatten(document, None, origin="x").content for document in (draft, other))

    assert bool(diff(a, b)) == (schema.digest(a) != schema.digest(b))


@pytest.mark.parametrize("written", ["volcano: {}", "volcano:", "volcano: {values: {}}", "volcano: {presets: []}"])
def test_a_component_may_be_wanted_by_its_name_alone(written):
    components = flat(f"components:\n  {written}\n").components

    assert [(c.name, c.version, c.presets, dict(c.values)) for c in components] == [("volcano", "", (), {})]


def test_numbers_have_one_form_so_that_a_database_cannot_change_the_digest():
    content = flat("components: {a: {values: {x: 1.0, y: 1e3, z: 0.5, n: [2.0]}}}")
    other = flat("components: {a: {values: {x: 1, y: 1000, z: 0.50, n: [2]}}}")

    assert schema.digest(content) == schema.digest(other)
    assert json.dumps(content.components[0].values) == '{"x": 1, "y": 1000, "z": 0.5, "n": [2]}'


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
    policies = flat(f"policies: [{queue}]", BASE, "top r1").policies

    assert [(o.title, o.origin) for o in policies] == [("Queue/gpu", "top r1"), ("ResourceQuota/t/q", "base r3")]
    assert policies[0].body == {"spec": {"weight": 5}}


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


@pytest.mark.parametrize("value", ["false", "'true'", "1", "yes please"])
def test_remove_is_true_or_left_out(value):
    (problem,) = problems(f"components: {{volcano: {{remove: {value}}}}}")
    assert problem.path == "components.volcano.remove"
