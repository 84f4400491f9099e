"""A difference shows what changes, in which order, and nothing that is secret."""

from __future__ import annotations

import pytest

from components.helm.rendering import Manifest
from components.plans import diff
from tests.components.plans.comparing import CRDS, MAPS, comparison, differences, manifest, there


# ── What changes ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_what_is_not_there_is_created_as_the_api_server_would(kube):
    kube.say("POST", MAPS, lambda how: (201, {**how["body"], "immutable": False}))
    (difference,) = differences(kube, manifest("ConfigMap", data={"x": "1"}))
    assert (difference.change, difference.kind, difference.namespace, difference.name) == (
        "created",
        "ConfigMap",
        "space",
        "a",
    )
    assert "+immutable: false" in difference.diff
    (request,) = [request for request in kube.asked if request["method"] == "POST"]
    assert request["query"] == {"dryRun": "All", "fieldManager": "helm"}
    assert request["body"]["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "Helm"}


def test_a_kind_or_namespace_that_is_not_there_yet_is_not_validated(kube):
    elsewhere = Manifest({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "later"}})
    shown = differences(kube, elsewhere, manifest("Later", api_version="later.example.com/v1"))
    assert [(difference.kind, difference.change, difference.namespace) for difference in shown] == [
        ("ConfigMap", "unvalidated", "later"),
        ("Later", "unvalidated", "space"),
    ]
    assert all(request["method"] == "GET" for request in kube.asked)


def test_what_would_stay_the_same_is_not_shown(kube):
    config_map = manifest("ConfigMap", data={"x": "1"})
    there(kube, config_map)
    assert differences(kube, config_map, old=(config_map,)) == []


def test_a_custom_resource_with_the_same_manifest_is_not_even_asked_about(kube):
    custom = manifest("Thing", api_version="example.com/v1", spec={"x": 1})
    there(kube, custom, spec={"x": 2})
    assert differences(kube, custom, old=(custom,)) == []
    assert [request["method"] for request in kube.asked if "things" in request["path"]] == ["GET"]


def test_helm_v4_applies_and_is_asked_so(kube):
    config_map = manifest("ConfigMap", data={"x": "1"})
    there(kube, config_map, becomes={"data": {"x": "2"}})
    differences(kube, config_map, old=(config_map,), is_server_side=True)
    (request,) = [request for request in kube.asked if request["method"] == "PATCH"]
    assert request["content_type"] == "application/apply-patch+yaml"


def test_what_the_new_manifest_lacks_is_deleted_unless_it_is_kept_or_gone(kube):
    keep = {"metadata": {"name": "kept", "annotations": {"helm.sh/resource-policy": "keep"}}}
    gone, stays = manifest("ConfigMap", "gone"), manifest("ConfigMap", "stays", data={"x": "1"})
    there(kube, stays)
    (difference,) = differences(kube, old=(gone, stays, manifest("ConfigMap", **keep)))
    assert (difference.change, difference.name) == ("deleted", "stays")
    assert "-  x: '1'" in difference.diff


def test_an_object_under_a_newer_version_of_its_api_is_the_same_object(kube):
    kube.say("GET", MAPS + "/a", {"kind": "ConfigMap", "metadata": {"name": "a"}})
    comparator = comparison(kube)
    assert comparator.identity(manifest("Thing", api_version="example.com/v1beta1")) == comparator.identity(
        manifest("Thing", api_version="example.com/v1")
    )


def test_the_gravest_stands_first(kube):
    kube.say("POST", MAPS, lambda how: (201, how["body"]))
    crd = manifest("CustomResourceDefinition", "things.example.com", CRDS, spec={})
    changed, claim = manifest("ConfigMap", "b", data={"x": "1"}), manifest("PersistentVolumeClaim", "c")
    there(kube, changed, becomes={"data": {"x": "2"}})
    there(kube, crd)
    there(kube, claim)
    shown = differences(kube, manifest("ConfigMap", "a"), changed, old=(crd, claim, changed))
    assert [(difference.kind, difference.change) for difference in shown] == [
        ("CustomResourceDefinition", "deleted"),
        ("PersistentVolumeClaim", "deleted"),
        ("ConfigMap", "changed"),
        ("ConfigMap", "created"),
    ]


# ── What is never shown ───────────────────────────────────────────────────────────────────────────────────────────────
def test_a_secret_shows_which_keys_change_and_no_value(kube):
    secret = manifest("Secret", data={"same": "c2FtZQ==", "other": "bmV3", "added": "YWRk"})
    before = {"same": "c2FtZQ==", "other": "b2xk", "removed": "Z29uZQ=="}
    last = {"kubectl.kubernetes.io/last-applied-configuration": "c2FtZQ=="}
    there(kube, secret, data=before, becomes={"data": secret.raw["data"]})
    path = "/api/v1/namespaces/space/secrets/a"
    kube.answers["GET", path][1]["metadata"]["annotations"] |= last
    (shown,) = differences(kube, secret, old=(secret,))
    lines = [line for line in shown.diff.splitlines() if line[0] in "+-"]
    assert lines == [
        "-  other: (hidden)",
        "-  removed: (hidden)",
        "+  added: (hidden)",
        "+  other: (hidden, changed)",
    ]
    assert not any(text in shown.diff for text in ("c2FtZQ", "bmV3", "b2xk", "YWRk", "Z29uZQ"))


def test_what_is_generated_is_marked_and_a_resolved_secret_is_covered(kube):
    config_map = manifest("ConfigMap", generated=("/data/ca",), data={"ca": "CA-2", "url": "https://u:hunter2@x"})
    there(kube, config_map, data={"ca": "CA-1", "url": "y"}, becomes={"data": dict(config_map.raw["data"])})
    (shown,) = differences(kube, config_map, old=(config_map,), hidden=("hunter2",))
    assert "+  ca: (regenerated)" in shown.diff
    assert "+  url: https://u:(hidden)@x" in shown.diff
    assert "CA-2" not in shown.diff


@pytest.mark.parametrize(
    ("secret", "written", "leaked"),
    [
        ("it's: here", "url: {}", "it''s"),  # as YAML quotes it
        (
            "-----BEGIN-----\nbm90aGluZw\n-----END-----\n",
            "tls:\n    key: |\n      {}",
            "bm90aGluZw",
        ),  # indented by a chart
        ("-----BEGIN-----\nbm90aGluZw\n-----END-----\n", '{{"key": "{}"}}', "bm90aGluZw"),
        ("hunter22", "auth: aHVudGVyMjI=", "aHVudGVyMjI="),
        ("24680", "{}", "24680"),
    ],
)
def test_a_secret_is_covered_however_a_chart_writes_it(secret, written, leaked):
    text = written.format(secret.strip().replace("\n", "\\n" if "{{" in written else "\n      "))
    shown = diff.unified({}, {"data": {"config": int(text) if text.isdigit() else text}}, (secret,))
    assert leaked not in shown
    assert "(hidden)" in shown


def test_one_changed_line_of_a_long_text_is_one_line_of_the_difference():
    long = "\n".join(f"line {number}" for number in range(50))
    text = diff.unified({"data": {"a": long}}, {"data": {"a": long.replace("line 25", "other")}})
    assert [line for line in text.splitlines() if line[0] in "+-"] == ["-    line 25", "+    other"]


def test_a_difference_beyond_all_measure_is_cut(monkeypatch):
    monkeypatch.setattr(diff, "MAX_DIFF", 1000)
    text = diff.unified({}, {"data": {str(number): "x" * 50 for number in range(100)}})
    assert len(text) < 1100
    assert text.endswith("… and more")
