"""Components and objects are in every file that can hold them, and named as missing in every other."""

from __future__ import annotations

import json

import pytest
import yaml

from profiles import exports
from profiles.document import schema
from tests.profiles.exports.test_exports import CLUSTER, written


@pytest.mark.parametrize("to", exports.FORMATS)
def test_what_belongs_to_the_cluster_is_in_the_file_or_said_to_be_missing(to):
    export = written(CLUSTER, to)

    if to in exports.WHOLE:
        again = schema.flatten(schema.parse(export.text), None, origin="x r1").content
        assert schema.digest(again) == schema.digest(CLUSTER)
        assert again.component("cilium") == CLUSTER.component("cilium")
    elif to == "objects":
        assert [document["kind"] for document in yaml.safe_load_all(export.text)] == ["Namespace"]
        assert {m.key for m in export.missing if m.part == "components"} == {"cilium", "volcano"}
    elif to == "kustomize":
        assert {m.key for m in export.missing if m.part == "components"} == {"cilium"}, "it has no preset of this name"
        assert [chart["releaseName"] for chart in yaml.safe_load(export.text)["helmCharts"]] == ["volcano"]
    elif to in exports.OF_CLUSTER:
        assert {m.key for m in export.missing if m.part == "components"} == {"cilium"}, "it has no preset of this name"
        resources = json.loads(export.text)["resource"]
        assert resources["kubernetes_manifest"]["Namespace_team-a"]["manifest"]["metadata"] == {"name": "team-a"}
        assert {*resources["helm_release"]} == {"volcano"}
    else:
        missing = {(m.part, m.kind, m.key, m.wanted) for m in export.missing if m.part in ("components", "policies")}
        assert missing == {
            ("components", "component", "cilium", "1.20.0"),
            ("components", "component", "volcano", "newest tested"),
            ("policies", "object", "Namespace/team-a", "v1"),
        }
        assert "#   object Namespace/team-a v1: " in export.text
        assert export.format.title in export.missing[-1].why
