"""The catalog: one YAML file a component, read strictly, and the order in which components are installed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from components.catalog import catalog
from components.catalog.catalog import BadCatalog, Unknown
from components.catalog.entry import INTENTS, NODES
from profiles.services import library

NAMES = sorted(component.name for component in catalog.all())

SMALL = """
name: {name}
title: A small one
summary: It does nothing.
documentation: https://example.org/docs
chart: {{kind: http, url: "https://charts.example.org", chart: small}}
sources: {{S: {{text: "Its README", url: "https://example.org"}}}}
versions: [{{version: 1.2.3}}]
namespace: small
pod_security: restricted
disruption: live
crds: {{names: [], stay: true}}
presets:
  big: {{title: Bigger, why: For tests, values: {{replicas: 2}}, sources: [S]}}
readiness: [{{workloads: {{namespace: small, names: ["{{release}}"]}}}}]
hazards:
  upgrade: [{{text: None that is known, sources: [S]}}]
  removal: [{{text: None that is known, sources: [S]}}]
"""


def write(folder: Path, text: str = "", name: str = "small", **replaced: str) -> Path:
    out = SMALL.format(name=name)
    for old, new in replaced.items():
        assert f"{old}:" in out, old
        lines = [line for line in out.splitlines() if not line.startswith(f"{old}:")]
        out = "\n".join([*lines, new])
    (folder / f"{name}.yaml").write_text(out + "\n" + text, encoding="utf-8")
    return folder


def test_every_file_of_the_catalog_is_a_component_of_it():
    assert sorted(path.stem for path in catalog.HERE.iterdir()) == NAMES
    assert len(NAMES) >= 9


@pytest.mark.parametrize("name", NAMES)
def test_each_says_what_a_person_must_know(name):
    component = catalog.get(name)

    assert component.presets or not component.usual, "presets for the intents, where the chart has anything to set"
    assert component.readiness
    assert component.upgrade_hazards
    assert component.removal_hazards
    hazards = (*component.upgrade_hazards, *component.removal_hazards, *component.running_hazards)
    assert all(hazard.sources for hazard in hazards)
    assert all(preset.sources and preset.why for preset in component.presets.values())
    assert component.tested(component.newest.removeprefix("v")) is component.versions[0]
    assert component.pod_security in ("privileged", "baseline", "restricted")


def test_the_intents_are_the_profiles_that_come_with_setpoint():
    assert set(INTENTS) == set(library.intents())
    named = {
        intent for component in catalog.all() for preset in component.presets.values() for intent in preset.intents
    }
    assert named == set(INTENTS)


def test_the_order_is_the_network_first_and_the_batch_schedulers_behind_what_they_need():
    order = [component.name for component in catalog.all()]

    assert order[0] == "cilium"
    assert order.index("cert-manager") < order.index("kube-prometheus-stack")
    assert order.index("node-feature-discovery") < order.index("network-operator") < order.index("gpu-operator")
    last = max(order.index(name) for name in ("gpu-operator", "kube-prometheus-stack", "local-static-provisioner"))
    assert last < min(order.index("kueue"), order.index("volcano"))
    assert catalog.order(["volcano", "gpu-operator", NODES, "cilium"]) == (NODES, "cilium", "gpu-operator", "volcano")


@given(st.sets(st.sampled_from(NAMES)))
def test_whatever_is_wanted_each_stands_behind_what_it_needs(names):
    order = catalog.order(names)

    assert set(order) == names
    for place, name in enumerate(order):
        component = catalog.get(name)
        before = {*component.needs(component.presets), *component.after} & names
        assert before <= {*order[:place]}


# ── One YAML file ─────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_component_is_added_by_one_yaml_file(tmp_path):
    write(tmp_path, "requires: [cilium]")
    with pytest.raises(Unknown):
        catalog.get("small")

    with catalog.extended(tmp_path):
        small = catalog.get("small")
        assert small.presets["big"].values == {"replicas": 2}
        assert catalog.order(["small", "cilium"]) == ("cilium", "small")
        assert small.tests("mine", {})[0].what == {"namespace": "small", "names": ["mine"]}
        assert len(catalog.all()) == len(NAMES) + 1

    with pytest.raises(Unknown):
        catalog.get("small")


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(Unknown, match="did you mean cilium"):
        catalog.get("cillium")


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"title": "titel: A small one"}, "title is missing"),
        ({"summary": "summary: x\nsumary: y"}, r"sumary: unknown; known here are .*summary"),
        ({"summary": "summary: 5"}, "summary: must be text"),
        ({"documentation": "documentation: http://example.org"}, "documentation: must be an address of https"),
        ({"chart": "chart: {kind: git, url: x, chart: y}"}, "chart.kind: 'git' is none of http, oci"),
        ({"chart": 'chart: {kind: oci, url: "https://x.org", chart: y}'}, "chart.url: must be an address of oci"),
        (
            {"chart": "chart: {kind: http, url: 'https://x.org', chart: y, hosts: ['*.x.org']}"},
            r"chart.hosts\[0\]: '\*.x.org' is not the name of a host",
        ),
        ({"chart": "chart: small"}, "chart: must be a mapping"),
        ({"versions": "versions: []"}, "versions: must not be empty"),
        ({"versions": "versions: [{version: newest}]"}, r"versions\[0\].version: 'newest' is not a version"),
        ({"versions": "versions: [{version: 1.2.3}, {version: 1.2.3}]"}, "versions: names a version twice"),
        ({"versions": "versions: [{version: 1.2.3, kubernetes_from: '1'}]"}, r"kubernetes_from: '1' is not a minor"),
        ({"pod_security": "pod_security: any"}, "pod_security: 'any' is none of privileged"),
        ({"disruption": "disruption: a lot"}, "disruption: 'a lot' is none of live"),
        ({"namespace": "namespace: [a]"}, "namespace: must be text"),
        ({"sources": "sources: {}"}, "sources.0.: 'S' is not among the file's own sources"),
        ({"crds": "crds: {names: [a, a]}"}, "crds.names: names something twice"),
        ({"crds": "crds: {names: [], stay: maybe}"}, "crds.stay: must be true or false"),
    ],
)
def test_a_mistake_in_a_file_names_file_line_and_path(tmp_path, replaced, message):
    write(tmp_path, **replaced)

    with pytest.raises(BadCatalog, match=message) as refused:
        catalog.load(tmp_path)

    assert "small.yaml" in str(refused.value)
    assert "line " in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("requires: [small]", "requires: must not name the component itself"),
        ("requires: [cillium]", "requires: there is no component 'cillium'"),
        ("after: [a, a]", "after: names something twice"),
        ("decisions: [{path: a, question: b, presets: [gone], sources: [S]}]", "there is no preset 'gone'"),
        ("decisions: [{path: a, question: b}]", r"decisions\[0\]: says nothing of where it comes from"),
        ("conflicts: [{with: small, why: x, sources: [S]}]", "must not name the component itself"),
        ("conflicts: [{with: none, why: x, sources: [S]}]", "conflicts: there is no component 'none'"),
        ("conflicts: [{why: x, sources: [S]}]", "must have either `with`, a component, or `title`"),
        ("conflicts: [{with: none, title: N, why: x, sources: [S]}]", "must have either `with`, a component"),
        ("conflicts: [{title: N, why: x, sources: [S]}]", r"title: with a title must have workloads"),
        ("conflicts: [{title: N, why: x, sources: [S], workloads: {kind: Pod, names: [a]}}]", "'Pod' is none of"),
        ("conflicts: [{title: N, why: x, sources: [S], workloads: {kind: DaemonSet}}]", "must be a list of names"),
        ("conflicts: [{title: N, why: x, sources: [S], workloads: {kind: DaemonSet, name: a}}]", "names|unknown"),
        ("upgrades: {rule: lines, why: x, sources: [S]}", "needs a list of lines"),
        ("upgrades: {rule: sometimes, why: x, sources: [S]}", "'sometimes' is none of any"),
        ("examples: [{title: a, why: b, body: {kind: X}, sources: [S]}]", "must be a Kubernetes object"),
        ("usual: {a: 5}", "usual.a: must be text"),
        ("values: &a {b: *a}", "anchors and aliases"),
        ("no_effect: [a]", "no_effect: must be a mapping"),
    ],
)
def test_what_a_file_says_besides_must_make_sense(tmp_path, text, message):
    write(tmp_path, text)

    with pytest.raises(BadCatalog, match=message) as refused:
        catalog.load(tmp_path)

    assert "small.yaml" in str(refused.value)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("{}", "must have exactly one of workloads"),
        ("{workloads: {namespace: a, names: [b]}, taint_absent: c}", "must have exactly one of"),
        ("{workloads: {names: [b]}}", "namespace is missing"),
        ("{workloads: {namespace: a}}", "either names or selector"),
        ("{workloads: {namespace: a, names: [b], selector: c}}", "either names or selector"),
        ("{workloads: {namespace: a, names: []}}", "must be a list of names"),
        ("{field: {apiVersion: v1, kind: A, name: b, path: c}}", "equals is missing"),
        ("{field: {apiVersion: v1, kind: A, name: b, path: c, equals: d, reads: 0}}", "whole number of 1 or more"),
        ("{allocatable: {resource: a, nodes: b, at_least: many}}", "whole number of 1 or more"),
        ("{taint_absent: ''}", "taint_absent: must not be empty"),
        ("{crds: {names: [a], kind: b}}", "unknown"),
        ("{crds: [a]}", "crds"),
        ("{workloads: {namespace: a, names: [b]}, unless: {a: [1]}}", "must be one value to compare with"),
    ],
)
def test_readiness_has_a_small_vocabulary(tmp_path, test, message):
    write(tmp_path, readiness=f"readiness: [{test}]")

    with pytest.raises(BadCatalog, match=message):
        catalog.load(tmp_path)


def test_a_cycle_is_refused_with_all_who_wait_in_it(tmp_path):
    write(tmp_path, "requires: [b]", name="a")
    write(tmp_path, "after: [c]", name="b")
    write(tmp_path, "after: [a]", name="c")
    write(tmp_path, name="d")

    with pytest.raises(BadCatalog, match=r"wait for one another: a → b → c → a"):
        catalog.load(tmp_path)


def test_excluding_is_mutual_whichever_of_both_says_so():
    gpu = catalog.get("gpu-operator")
    for preset in gpu.presets.values():
        for other in preset.excludes:
            assert preset.name in gpu.presets[other].excludes
    assert set(gpu.presets["gpudirect-rdma"].excludes) == {"host-driver", "aks"}


FIELD_NAMES = """
    name title summary documentation chart sources versions namespace pod_security disruption values requires after
    conflicts presets decisions readiness upgrades hazards crds examples usual open also_known no_effect
"""
DEEPER_NAMES = """
    name names text url sources version values title why kind namespace key path equals rule with stay upgrade removal
    workloads field taint_absent allocatable crds presets unless body kernel S small
"""
rubbish = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text("aS1.-:{", max_size=4),
    lambda deeper: (
        st.lists(deeper, max_size=3) | st.dictionaries(st.sampled_from(DEEPER_NAMES.split()), deeper, max_size=5)
    ),
    max_leaves=10,
)


@given(st.sampled_from(FIELD_NAMES.split()), rubbish)
def test_whatever_stands_in_a_field_it_is_read_or_refused_by_name(field, value):
    with tempfile.TemporaryDirectory() as name:
        data = yaml.safe_load(SMALL.format(name="small")) | {field: value}
        (Path(name) / "small.yaml").write_text(json.dumps(data), encoding="utf-8")
        message = "small.yaml"
        try:
            catalog.load(Path(name))
        except BadCatalog as refused:
            message = str(refused)
    assert "small.yaml" in message


def test_two_files_cannot_describe_one_component(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    write(tmp_path / "one")
    write(tmp_path / "two")

    with pytest.raises(BadCatalog, match=r"small is described in .*one/small.yaml already"):
        catalog.load(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize("name", ["Upper", "nodes", "-a", "a-", "a" * 54, "a.b"])
def test_a_components_name_is_a_releases_name(tmp_path, name):
    with pytest.raises(BadCatalog, match="name: must be at most 53"):
        catalog.load(write(tmp_path, name=name))


def test_a_file_is_called_like_its_component(tmp_path):
    write(tmp_path).joinpath("small.yaml").rename(tmp_path / "other.yaml")

    with pytest.raises(BadCatalog, match="must be called like its file"):
        catalog.load(tmp_path)


# ── What the catalog decides ────────────────────────────────────────────────────────────────────────────────────────
def test_one_discovery_of_node_features_only():
    gpu, network = catalog.get("gpu-operator"), catalog.get("network-operator")
    with_nfd = next(c for c in gpu.conflicts if c.other == "node-feature-discovery")
    with_network = next(c for c in gpu.conflicts if c.other == "network-operator")

    assert with_nfd.applies({}, {})
    assert not with_nfd.applies(gpu.presets["shared-nfd"].values, {})
    assert with_network.applies({}, {})
    assert not with_network.applies({}, network.presets["shared-nfd"].values)
    assert gpu.needs(["shared-nfd"]) == ("node-feature-discovery",)
    assert gpu.needs([]) == ()


def test_volcano_and_kueue_warn_of_each_other():
    conflict = next(c for c in catalog.get("volcano").conflicts if c.other == "kueue")
    assert conflict.applies({}, {})
    assert not conflict.is_block


def test_multus_needs_a_cilium_that_is_not_exclusive():
    conflict = next(c for c in catalog.get("network-operator").conflicts if c.other == "cilium")
    assert conflict.applies({}, {})
    assert not conflict.applies({}, catalog.get("cilium").presets["multus"].values)


def test_what_nobody_can_guess_is_asked():
    cilium = catalog.get("cilium")

    def questions(presets: list[str], values: dict[str, object]) -> set[str]:
        return {decision.path for decision in cilium.open_decisions(presets, values) if decision.is_required}

    assert questions([], {}) == set()
    assert questions(["kube-proxy-replacement"], {}) == {"k8sServiceHost", "k8sServicePort"}
    assert questions(["kube-proxy-replacement"], {"k8sServiceHost": "auto"}) == set()
    assert questions(["kube-proxy-replacement"], {"k8sServiceHost": "a", "k8sServicePort": 6443}) == set()
    assert questions(["native-routing"], {"ipv4NativeRoutingCIDR": ""}) == {
        "ipv4NativeRoutingCIDR",
        "autoDirectNodeRoutes",
    }
    assert (
        questions(["native-routing"], {"ipv4NativeRoutingCIDR": "10.0.0.0/8", "autoDirectNodeRoutes": False}) == set()
    )
    provisioner = catalog.get("local-static-provisioner")
    assert [d.path for d in provisioner.open_decisions([], {})] == ["classes"]
    assert [d.path for d in provisioner.open_decisions([], {"classes": []})] == ["classes"]
    assert provisioner.open_decisions([], {"classes": [{"name": "local"}]}) == []


def test_readiness_follows_the_values():
    gpu = catalog.get("gpu-operator")
    ready = next(test for test in gpu.tests("gpu-operator", {}) if test.kind == "field")
    assert (ready.what["equals"], ready.what["reads"]) == ("ready", 2)
    assert "allocatable" in {test.kind for test in gpu.tests("gpu-operator", {})}
    assert "allocatable" not in {test.kind for test in gpu.tests("gpu-operator", {"mig": {"strategy": "mixed"}})}
    names = [test.what.get("names") for test in catalog.get("volcano").tests("batch", {})]
    assert ["batch-scheduler", "batch-controllers", "batch-admission"] in names
