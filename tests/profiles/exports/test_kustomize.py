"""Kustomize's two files, read back as it reads them: YAML, resources by file name, charts by repository."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from common import hooks
from common.hooks import ComponentRelease
from profiles import exports
from profiles.content.cluster import WantedComponent, WantedObject
from profiles.content.content import Content, Mark, WantedTaint, build
from profiles.document import schema
from tests.profiles.exports.test_exports import written
from tests.profiles.strategies import objects

TEAM = WantedObject("v1", "Namespace", "team", "", {}, "x r1")


def of_cluster(*policies: WantedObject) -> Content:
    return build(settings=[], labels=[], annotations=[], taints=[], policies=list(policies))


def kustomization(content: Content) -> tuple[exports.Export, dict[str, Any]]:
    export = written(content, "kustomize")
    return export, yaml.safe_load(export.text)


@settings(max_examples=60)
@given(st.lists(objects, max_size=6))
def test_every_object_is_in_the_file_as_a_rollout_would_make_it(wanted: list[WantedObject]) -> None:
    content = of_cluster(*{policy.title: policy for policy in wanted}.values())

    export = written(content, "objects")

    assert [document for document in yaml.safe_load_all(export.text) if document] == [
        policy.manifest for policy in content.policies
    ]
    assert export.missing == ()


def test_the_kustomization_names_the_file_that_the_other_format_is_saved_as() -> None:
    content = of_cluster(TEAM)

    export, document = kustomization(content)

    assert export.filename == "kustomization.yaml"
    assert document == {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [written(content, "objects").filename],
    }
    assert any(document["resources"][0] in remark for remark in export.remarks)


def test_without_objects_no_file_is_named_that_is_not_there() -> None:
    assert kustomization(Content())[1].keys() == {"apiVersion", "kind"}
    assert list(yaml.safe_load_all(written(Content(), "objects").text)) in ([], [None])


def test_charts_are_rendered_as_helm_would_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [
        ComponentRelease("a", "https://x.example", "chart-a", "1", "team", values={"x": {"y": [1]}}),
        ComponentRelease("b", "oci://registry.example/charts", "b", "2", "other", secrets=("p",), decisions=("q",)),
        ComponentRelease("c", problem="no"),
    ]
    monkeypatch.setattr(hooks, "component_releases", lambda content: known)
    wanted = (*map(WantedComponent, "abc"), WantedComponent("d", is_gone=True))

    export, document = kustomization(Content(components=wanted, policies=(TEAM,)))

    first, second = document["helmCharts"]
    assert first == {
        "name": "chart-a",
        "repo": "https://x.example",
        "version": "1",
        "releaseName": "a",
        "namespace": "team",
        "includeCRDs": True,
        "valuesInline": {"x": {"y": [1]}},
    }
    assert (second["repo"], "valuesInline" in second) == ("oci://registry.example/charts", False)
    assert {entry.key for entry in export.missing} == {"b.values.p", "b.values.q", "c", "d"}
    assert "These namespaces must be there: other." in export.remarks, "team is among the objects"


def test_what_is_of_nodes_is_named_as_missing() -> None:
    flat = schema.flatten(schema.parse("settings: {vm.swappiness: 10}\n"), None, origin="x").content
    marks = (Mark("x.io/a", "b", "x"),)
    taints = (WantedTaint("x.io/t", "", "NoSchedule", "x"),)

    for to in ("objects", "kustomize"):
        export = written(Content(settings=flat.settings, labels=marks, annotations=marks, taints=taints), to)
        assert [entry.part for entry in export.missing] == ["settings", "labels", "annotations", "taints"]
