"""Values: layers as Helm merges them, the origin of each, and what is wrong with them for a chart."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.errors import Invalid
from components.catalog import catalog, values_check
from components.catalog.catalog import Unknown
from components.helm import process
from components.values.paths import dotted
from components.values.schema import violations

SECRET = {"$secret": {"name": "grafana", "key": "password"}}

keys = st.sampled_from(["a", "b", "c", "nodeSelector", "kubernetes.io/os"])
scalars = st.none() | st.booleans() | st.integers(-1000, 1000) | st.text("xyz: -#", max_size=5)
trees = st.recursive(
    scalars, lambda deeper: st.dictionaries(keys, deeper, max_size=4) | st.lists(deeper, max_size=3), max_leaves=12
)
maps = st.dictionaries(keys, trees, max_size=4)


# ── Layers ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_cluster_stands_over_profile_presets_and_catalog():
    layered = values_check.layered(
        "gpu-operator",
        presets=["operator-driver", "one-node-at-a-time"],
        profile_values={"driver": {"version": "595.1", "upgradePolicy": {"maxParallelUpgrades": 2}}},
        cluster_values={"driver": {"version": "595.2"}},
    )

    assert layered.version == catalog.get("gpu-operator").newest
    assert layered.values["driver"]["version"] == "595.2"
    assert layered.values["driver"]["upgradePolicy"]["maxParallelUpgrades"] == 2
    assert layered.origins["driver.version"] == "cluster"
    assert layered.origins["driver.upgradePolicy.maxParallelUpgrades"] == "profile"
    assert layered.origins["driver.upgradePolicy.maxUnavailable"] == "preset one-node-at-a-time"
    assert layered.origins["driver.enabled"] == "preset operator-driver"
    base = values_check.layered("cert-manager")
    assert base.values == {"crds": {"enabled": True, "keep": True}}
    assert base.origins == {"crds.enabled": "catalog", "crds.keep": "catalog"}


def test_lists_and_null_replace_and_mappings_merge():
    def of(profile: dict[str, Any], cluster: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        layered = values_check.layered("volcano", profile_values=profile, cluster_values=cluster)
        return layered.values, layered.origins

    assert of({"a": [1, 2]}, {"a": [3]}) == ({"a": [3]}, {"a": "cluster"})
    assert of({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}) == (
        {"a": {"b": None, "c": 2}},
        {"a.b": "cluster", "a.c": "profile"},
    )
    assert of({"a": {"b": 1}}, {"a": None}) == ({"a": None}, {"a": "cluster"})
    assert of({"a": None}, {"a": {"b": 1}}) == ({"a": {"b": 1}}, {"a.b": "cluster"})
    assert of({"a": 1}, {"a": {}}) == ({"a": {}}, {"a": "cluster"})
    assert of({"a": {"b": 1}}, {"a": {}}) == ({"a": {"b": 1}}, {"a.b": "profile"})
    assert of({"s": SECRET}, {"s": {"x": 1}}) == ({"s": {"x": 1}}, {"s.x": "cluster"})
    assert of({"s": {"x": 1}}, {"s": SECRET}) == ({"s": SECRET}, {"s": "cluster"})
    assert of({"nodeSelector": {"kubernetes.io/os": "linux"}}, {})[1] == {'nodeSelector["kubernetes.io/os"]': "profile"}


@pytest.mark.parametrize("name", [component.name for component in catalog.all()])
def test_every_preset_can_be_layered_and_no_catalog_data_is_changed(name):
    component = catalog.get(name)
    before = copy.deepcopy({key: dict(preset.values) for key, preset in component.presets.items()})

    for preset in component.presets:
        layered = values_check.layered(component, presets=[preset], cluster_values={"crds": {"enabled": False}})
        layered.values.clear()

    assert {key: dict(preset.values) for key, preset in component.presets.items()} == before


def test_presets_that_exclude_each_other_are_refused_either_way_round():
    for presets in (["native-routing", "tunnel"], ["tunnel", "native-routing"]):
        with pytest.raises(Invalid, match=r"presets .* and .* of Cilium exclude each other"):
            values_check.layered("cilium", presets=presets)


def test_an_unknown_component_or_preset_is_refused_with_the_nearest():
    with pytest.raises(Unknown, match="did you mean native-routing"):
        values_check.layered("cilium", presets=["native-rooting"])
    with pytest.raises(Unknown, match="did you mean volcano"):
        values_check.layered("volcanoe")


@given(maps, maps, maps)
def test_merging_is_associative_and_changes_nothing_it_is_given(bottom, middle, top):
    before = copy.deepcopy((bottom, middle, top))

    left = values_check.merged(values_check.merged(bottom, middle), top)

    assert (bottom, middle, top) == before
    assert values_check.merged({}, bottom) == bottom
    assert values_check.merged(bottom, bottom) == bottom
    assert set(left) == {*bottom, *middle, *top}


@given(maps, maps, maps)
def test_each_value_has_one_origin_that_has_it(presets, profile, cluster):
    layered = values_check.layered(
        "volcano", profile_values=values_check.merged(presets, profile), cluster_values=cluster
    )

    paths = list(values_check.leaves(layered.values))
    assert {dotted(path) for path in paths} == set(layered.origins)
    layers = {"profile": values_check.merged(presets, profile), "cluster": cluster}
    for path in paths:
        layer: Any = layers[layered.origins[dotted(path)]]
        merged: Any = layered.values
        for step in path:
            layer, merged = layer[step], merged[step]
        assert layer == merged


# ── What helm makes of them ───────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def helm() -> str:
    return process.find_program("", os.environ)


def rendered_by(helm: str, defaults: Any, layers: list[Any]) -> Any:
    """Return .Values as a template of this chart sees them, with these files given in this order."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "templates").mkdir()
        (folder / "Chart.yaml").write_text("apiVersion: v2\nname: seen\nversion: 1.0.0\n")
        (folder / "values.yaml").write_text(json.dumps(defaults))
        (folder / "templates" / "seen.yaml").write_text("seen: {{ .Values | toJson }}\n")
        given: list[str] = []
        for number, layer in enumerate(layers):
            (folder / f"layer{number}.json").write_text(json.dumps(layer))
            given += ["--values", str(folder / f"layer{number}.json")]
        environment = {"HOME": name, "PATH": os.environ["PATH"]}
        out = subprocess.run(
            [helm, "template", "seen", name, *given],
            capture_output=True,
            check=True,
            timeout=60,
            env=environment,
        )
        return yaml.safe_load(out.stdout)["seen"]


@settings(max_examples=30)
@given(maps, maps, maps)
@example({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"d": None}})
@example({"a": {"b": 1}}, {"a": None}, {"a": {"c": 1}})
@example({"a": {"b": 1}}, {"a": None}, {})
@example({"a": 1}, {"a": {"b": 1}}, {"b": None})
@example({}, {"a": {"b": None}}, {"c": None})
@example({"a": {"b": {"c": 1}}}, {"a": {"b": None}}, {})
@example({"a": None}, {"a": None}, {})
@example({"a": {"b": None}}, {"a": {"c": 1}}, {})
def test_layers_and_defaults_come_out_as_helm_itself_merges_them(helm, defaults, profile, cluster):
    ours = values_check.coalesced(values_check.merged(profile, cluster), defaults)

    assert ours == rendered_by(helm, defaults, [profile, cluster])


# ── Secrets ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_secret_is_a_reference_until_helm_runs():
    given = {"grafana": {"adminPassword": SECRET}, "list": [{"token": SECRET}]}

    assert [(s.path, s.name, s.key) for s in values_check.secrets(given)] == [
        ("grafana.adminPassword", "grafana", "password"),
        ("list[0].token", "grafana", "password"),
    ]
    open_ = values_check.resolved(given, lambda name, key: f"{name}/{key}")
    assert open_ == {"grafana": {"adminPassword": "grafana/password"}, "list": [{"token": "grafana/password"}]}
    assert given["grafana"]["adminPassword"] is SECRET


@pytest.mark.parametrize(
    "bad",
    [
        {"$secret": "name/key"},
        {"$secret": {"name": "a"}},
        {"$secret": {"name": "a", "key": ""}},
        {"$secret": {"name": "a", "key": "b", "c": 1}},
        {"$secret": {"name": "a", "key": 1}},
        {"$secret": {"name": "a", "key": "b"}, "other": 1},
    ],
)
def test_a_malformed_reference_is_refused_by_its_path(bad):
    with pytest.raises(Invalid, match=r"x\.y: write"):
        values_check.secrets({"x": {"y": bad}})
    layered = values_check.layered("volcano", profile_values={"x": {"y": bad}})
    assert [(note.path, note.severity, note.code) for note in values_check.judge(layered)] == [
        ("x.y", "block", "bad-secret")
    ]
    assert values_check.masked({"x": bad})  # a page can show it all the same


def test_nothing_that_looks_like_a_secret_is_shown():
    given = {"adminPassword": "hunter2", "passwordKey": "admin-password", "secretName": "s", "a": [{"apiKey": "k1"}]}

    shown = values_check.masked({**given, "token": SECRET})

    assert "hunter2" not in json.dumps(shown)
    assert "k1" not in json.dumps(shown)
    assert shown["passwordKey"] == "admin-password"
    assert shown["secretName"] == "s"
    assert shown["token"] == "(secret grafana, key password)"
    assert values_check.masked_text("it said hunter2hunter", ["hunter", "hunter2", ""]) == "it said ••••••••••"


def test_a_plain_password_in_a_profile_is_told():
    layered = values_check.layered("kube-prometheus-stack", profile_values={"grafana": {"adminPassword": "admin"}})
    noted = {(note.path, note.code) for note in values_check.judge(layered)}
    assert ("grafana.adminPassword", "plain-secret") in noted
    assert not any(
        "admin" in note.message.split() for note in values_check.judge(layered) if note.code == "plain-secret"
    )


# ── Judgment ──────────────────────────────────────────────────────────────────────────────────────────────────────────
DEFAULTS = {
    "replicas": 1,
    "labels": {"app": "x"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "extra": {},
    "nothing": None,
    "image": {"repository": "a", "tag": ""},
    "classes": [{"name": "a"}],
    "resources": {"limits": {"cpu": 1}},
    "sub": {"enabled": True},
}
TEXT = "replicas: 1\nimage:\n  repository: a\n  # pullPolicy: Always\n#  - hidden: true\n"


def unknown(given: dict[str, Any], **kwargs: Any) -> dict[str, str]:
    layered = values_check.layered("volcano", profile_values=given)
    return {note.path: note.code for note in values_check.judge(layered, DEFAULTS, **kwargs)}


def test_a_key_that_the_chart_does_not_know_is_told_with_the_nearest():
    layered = values_check.layered("volcano", profile_values={"image": {"repositry": "b"}, "replica": 2})
    notes = {note.path: note for note in values_check.judge(layered, DEFAULTS)}

    assert notes["image.repositry"].severity == "warn"
    assert "did you mean repository" in notes["image.repositry"].message
    assert "did you mean replicas" in notes["replica"].message


@pytest.mark.parametrize(
    "given",
    [
        {"replicas": 2, "image": {"tag": "v1"}},
        {"labels": {"mine": "y"}, "nodeSelector": {"a.b/c": "d"}},
        {"extra": {"any": {"thing": 1}}, "nothing": {"any": 1}},
        {"classes": [{"hostDir": "/mnt"}]},
        {"resources": {"limits": {"nvidia.com/gpu": 1}, "claims": []}},
        {"global": {"imageRegistry": "x"}},
        {"replicas": None, "image": None},
        {"image": {"tag": SECRET}},
    ],
)
def test_what_a_chart_may_know_is_left_alone(given):
    assert unknown(given) == {}


def test_a_key_in_a_comment_is_told_apart_from_one_that_nobody_knows():
    assert unknown({"image": {"pullPolicy": "Never"}, "hidden": 1, "gone": 2}, text=TEXT) == {
        "image.pullPolicy": "commented-key",
        "hidden": "commented-key",
        "gone": "unknown-key",
    }


def test_a_subcharts_own_keys_are_its_own_matter():
    assert unknown({"sub": {"deep": 1}}) == {"sub.deep": "unknown-key"}
    assert unknown({"sub": {"deep": 1}, "other": {"a": 1}}, subcharts=["sub", "other"]) == {}


def test_a_mapping_where_the_chart_has_none_is_told():
    assert unknown({"image": "a", "replicas": {"a": 1}}) == {"image": "wrong-shape", "replicas": "wrong-shape"}


def test_keys_without_effect_and_open_decisions_are_told():
    layered = values_check.layered("gpu-operator", profile_values={"driver": {"useOpenKernelModules": True}})
    (note,) = values_check.judge(layered)
    assert (note.code, note.severity) == ("no-effect", "warn")
    assert "kernelModuleType" in note.message

    layered = values_check.layered("local-static-provisioner")
    (note,) = values_check.judge(layered)
    assert (note.path, note.code, note.severity) == ("classes", "decision", "block")
    answered = values_check.layered("local-static-provisioner", cluster_values={"classes": [{"name": "x"}]})
    assert values_check.judge(answered) == []


# ── Schemas ───────────────────────────────────────────────────────────────────────────────────────────────────────────
SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "mode": {"enum": ["a", "b"]},
        "deep": {"type": "object", "properties": {"count": {"type": ["integer", "null"], "minimum": 1}}},
        "list": {"type": "array", "items": {"type": "string"}},
    },
}


def test_a_schema_is_asked_of_the_values_with_the_charts_defaults_under_them():
    layered = values_check.layered(
        "volcano", profile_values={"mode": "c", "deep": {"count": "hunter2"}, "list": ["a", 1]}
    )

    notes = {
        note.path: note.message for note in values_check.judge(layered, {"name": "x"}, SCHEMA) if note.code == "schema"
    }

    assert notes["mode"] == "must be one of a, b"
    assert notes["deep.count"] == "must be a whole number or null, not text"
    assert notes["list[1]"] == "must be text, not a number"
    assert "hunter2" not in json.dumps(notes)
    assert ("", "lacks name") in violations({"mode": "a"}, SCHEMA)
    assert violations({"name": SECRET}, SCHEMA) == []
    assert violations({"name": "x", "other": 1}, SCHEMA) == [("", "has keys that the chart does not permit: other")]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.org/elsewhere.json"},
        {"$ref": "file:///etc/passwd"},
        {"type": 5},
        {"properties": {"name": {"$ref": "#/gone"}}},
        {"$ref": "#"},
        {"items": []},
    ],
)
def test_a_schema_that_is_broken_or_points_elsewhere_ends_in_a_sentence(schema):
    refusals = violations({"name": "x"}, schema)
    assert refusals == [] or "cannot be used" in refusals[0][1]


def test_a_pattern_that_would_take_for_ever_is_left_to_helm():
    evil = {"properties": {"name": {"type": "string", "pattern": "^(a+)+$"}}}
    assert violations({"name": "a" * 60 + "!"}, evil) == []


# ── Bad input ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def deep(levels: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for _ in range(levels):
        out = {"a": out}
    return out


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (deep(40), "too-deep"),
        ({"a": [0] * 20_000}, "too-large"),
        ({"a": "x" * 300_000}, "too-large"),
        ({"a": 2**60}, "bad-value"),
        ({"a": float("nan")}, "bad-value"),
        ({"a": float("inf")}, "bad-value"),
        ({"a": "\0"}, "bad-value"),
        ({"a": object()}, "bad-value"),
        ({"a": {1: 2}}, "bad-key"),
    ],
)
def test_values_that_helm_could_not_carry_are_blocked(given, code):
    layered = values_check.layered("volcano", profile_values=given)
    notes = values_check.judge(layered, DEFAULTS, SCHEMA)
    assert code in {note.code for note in notes}
    assert {note.severity for note in notes} == {"block"}


@given(maps, maps)
def test_whatever_is_given_is_judged_without_an_exception(given, defaults):
    layered = values_check.layered("cilium", presets=["kube-proxy-replacement"], profile_values=given)
    for note in values_check.judge(layered, defaults, SCHEMA, text=TEXT):
        assert note.severity in ("block", "warn")
        assert note.message
