"""Terraform's file, read back as Terraform reads it: JSON first, then templates in every string and name."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.hooks import ComponentRelease
from profiles import exports
from profiles.content.cluster import WantedComponent
from profiles.content.content import Content, Mark, WantedTaint, build
from profiles.document import schema
from profiles.exports.terraform import literal
from tests.profiles.exports.test_exports import written
from tests.profiles.strategies import documents, objects, plain

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Interpolation(Exception):
    """A string that Terraform would compute."""


def text_of(template: str) -> str:
    """Return the text of a template without any expression, by HCL's specification, "Template Literals"."""
    out, at = "", 0
    while at < len(template):
        if template[at : at + 3] in ("$${", "%%{"):
            out, at = out + template[at + 1 : at + 3], at + 3
        elif template[at : at + 2] in ("${", "%{"):
            raise Interpolation(template)
        else:
            out, at = out + template[at], at + 1
    return out


def read(value: Any) -> Any:
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, dict):
        return {text_of(name): read(item) for name, item in value.items()}
    return [read(item) for item in value] if isinstance(value, list) else value


def resources(export: exports.Export) -> dict[str, dict[str, Any]]:
    document = json.loads(export.text)
    assert {*document} <= {"//", "terraform", "variable", "resource"}
    out: dict[str, dict[str, Any]] = document.get("resource", {})
    return out


nasty = st.text('${}%$"\\\n é~', max_size=12)


@settings(max_examples=300)
@given(st.recursive(nasty, lambda inner: st.lists(inner) | st.dictionaries(nasty, inner), max_leaves=8) | plain)
@example("$$${a} %%%{b} ${")
@example({"${x}": ["$$", "$${y}", "%{ if }"]})
def test_every_string_is_read_as_it_was_written(value: Any) -> None:
    assert read(json.loads(json.dumps(literal(value)))) == value


@settings(max_examples=80)
@given(documents(st.none()), st.lists(objects, max_size=6))
def test_each_object_and_each_mark_is_in_the_file(document: schema.ProfileDocument, wanted: list[Any]) -> None:
    policies = {policy.title: policy for policy in wanted}
    flat = schema.flatten(document, None, origin="x r1").content
    content = build(
        settings=list(flat.settings),
        labels=list(flat.labels),
        annotations=list(flat.annotations),
        taints=list(flat.taints),
        policies=list(policies.values()),
    )

    export = written(content, "terraform")

    made = resources(export)
    manifests = [read(resource["manifest"]) for resource in made.get("kubernetes_manifest", {}).values()]
    assert manifests == [policy.manifest for policy in content.policies]
    for part in ("labels", "annotations"):
        marks = made.get(f"kubernetes_{part}", {}).get("nodes", {}).get(part, {})
        assert read(marks) == {mark.key: mark.value for mark in getattr(content, part)}
    taints = made.get("kubernetes_node_taint", {}).get("nodes", {}).get("taint", [])
    assert [(t["key"], t["effect"], t["value"]) for t in read(taints)] == [
        (t.key, t.effect, t.value) for t in content.taints
    ]
    assert {entry.key for entry in export.missing} == {setting.key for setting in content.settings}
    for kind, of_kind in made.items():
        for name, resource in of_kind.items():
            assert NAME.fullmatch(name), name
            for other in resource.get("depends_on", ()):
                other_kind, _, other_name = other.partition(".")
                assert other_name in made[other_kind]
                assert (other_kind, other_name) != (kind, name)


def test_two_objects_never_share_a_name_in_the_state() -> None:
    text = """
policies:
  - {apiVersion: v1, kind: Namespace, metadata: {name: a-b}}
  - {apiVersion: v1, kind: Namespace, metadata: {name: a}}
  - {apiVersion: v1, kind: ResourceQuota, metadata: {name: b.c, namespace: a}, spec: {hard: {pods: 1}}}
  - {apiVersion: v1, kind: ResourceQuota, metadata: {name: b-c, namespace: a}, spec: {hard: {pods: 1}}}
  - {apiVersion: v1, kind: ResourceQuota, metadata: {name: b, namespace: a-b}, spec: {hard: {pods: 1}}}
"""
    content = schema.flatten(schema.parse(text), None, origin="x").content

    assert len(resources(written(content, "terraform"))["kubernetes_manifest"]) == 5


def components(text: str) -> exports.Export:
    return written(schema.flatten(schema.parse(text), None, origin="x").content, "terraform")


def test_a_component_is_a_release_with_the_values_that_setpoint_would_give() -> None:
    export = components(
        "components: {cert-manager: {presets: [ha], values: {global: {leaderElection: {namespace: '${x}'}}}}}\n"
    )

    release = resources(export)["helm_release"]["cert-manager"]
    assert (release["repository"], release["chart"]) == ("oci://quay.io/jetstack/charts", "cert-manager")
    assert release["version"].startswith("v1.")
    assert (release["namespace"], release["create_namespace"]) == ("cert-manager", True)
    (values,) = (json.loads(text_of(text)) for text in release["values"])
    assert values["crds"] == {"enabled": True, "keep": True}, "the catalog's own"
    assert values["webhook"]["replicaCount"] == 3, "the preset's"
    assert values["global"]["leaderElection"]["namespace"] == "${x}", "the profile's"
    assert export.missing == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("components: {volcano: {remove: true}}\n", "state"),
        ("components: {nonsense: {}}\n", "no component"),
        ("components: {cilium: {presets: [nonsense]}}\n", "no preset"),
    ],
)
def test_a_component_that_cannot_be_a_release_is_named(text: str, why: str) -> None:
    export = components(text)

    assert "helm_release" not in resources(export)
    assert [why in entry.why for entry in export.missing] == [True]


def test_a_secret_is_left_out_and_named() -> None:
    secret = "{$secret: {name: grafana, key: password}}"
    export = components(
        f"components: {{kube-prometheus-stack: {{values: {{grafana: {{adminPassword: {secret}}}}}}}}}\n"
    )

    (text,) = resources(export)["helm_release"]["kube-prometheus-stack"]["values"]
    assert "$secret" not in text
    assert "password" not in text
    assert "adminPassword" not in text
    named = {entry.key: entry.why for entry in export.missing}
    assert "secret" in named["kube-prometheus-stack.values.grafana.adminPassword"]


def test_a_release_comes_after_what_it_requires_and_after_its_namespace(monkeypatch: Any) -> None:
    from common import hooks

    known = [
        ComponentRelease("a", "https://x.example", "a", "1", "team", requires=("b", "c", "absent")),
        ComponentRelease("b", "https://x.example", "b", "1", "other"),
        ComponentRelease("c", problem="no"),
    ]
    monkeypatch.setattr(hooks, "component_releases", lambda content: known)
    namespace = schema.flatten(
        schema.parse("policies: [{apiVersion: v1, kind: Namespace, metadata: {name: team}}]\n"), None, origin="x"
    ).content
    content = Content(components=tuple(WantedComponent(name) for name in "abc"), policies=namespace.policies)

    releases = resources(written(content, "terraform"))["helm_release"]

    assert releases["a"]["depends_on"] == ["helm_release.b", "kubernetes_manifest.Namespace_team"]
    assert (releases["a"]["create_namespace"], releases["b"]["create_namespace"]) == (False, True)
    assert "c" not in releases


def test_marks_are_of_the_nodes_that_are_named() -> None:
    content = Content(labels=(Mark("x.io/a", "b", "x"),), taints=(WantedTaint("x.io/t", "", "NoSchedule", "x"),))

    export = written(content, "terraform")

    assert json.loads(export.text)["variable"]["nodes"]["type"] == "set(string)"
    for kind in ("kubernetes_labels", "kubernetes_node_taint"):
        resource = resources(export)[kind]["nodes"]
        assert resource["for_each"] == "${var.nodes}"
        assert resource["metadata"] == {"name": "${each.value}"}
    assert "variable" not in json.loads(written(Content(), "terraform").text)
