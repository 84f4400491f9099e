"""The catalog's findings on a profile while it is written: asked through hooks.profile_findings."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from common import hooks
from components.catalog import catalog
from components.charts import archives, profile_findings
from components.models import Archive
from profiles.content.content import Content, WantedComponent
from profiles.document.schema import InvalidProfile
from profiles.services import editing
from tests.components.packing import packed

pytestmark = pytest.mark.django_db


def findings(*wanted: WantedComponent) -> dict[str, tuple[str, str]]:
    """(severity, code) by path."""
    return {
        note.path: (note.severity, note.code)
        for note in profile_findings.component_findings(Content(components=wanted))
    }


def want(name: str, *presets: str, version: str = "", values: dict[str, Any] | None = None) -> WantedComponent:
    return WantedComponent(name, version, presets, values or {})


def test_it_is_asked_wherever_a_profile_is_judged():
    with pytest.raises(InvalidProfile) as refused:
        editing.check("description: x\ncomponents:\n  volcano: {}\n  cillium: {}\n")

    (problem,) = refused.value.problems
    assert (problem.path, problem.line, problem.code) == ("components.cillium", 4, "unknown-component")
    assert "did you mean cilium" in problem.message
    assert profile_findings.component_findings in hooks.profile_findings._subscribers


def test_a_warning_stands_on_the_line_it_speaks_of():
    source = "components:\n  network-operator:\n    values:\n      operator: {}\n      nvIpam: {deploy: true}\n"

    checked = editing.check(source)

    noted = {(note.code, note.path): note.line for note in checked.warnings}
    assert noted["no-effect", "components.network-operator.values.nvIpam"] == 5


def test_nothing_is_said_of_nothing_and_of_what_is_well():
    assert findings() == {}
    assert findings(want("volcano", "ha", "deserved-shares", version="1.15.1")) == {}
    assert findings(want("cert-manager", version="1.21.1")) == {}  # written without the chart's v


def test_unknown_presets_and_such_that_exclude_each_other_block():
    assert findings(want("cilium", "multus", "tunel")) == {"components.cilium.presets[1]": ("block", "unknown-preset")}
    excluded = findings(want("cilium", "tunnel", "native-routing"))
    assert excluded["components.cilium.presets"] == ("block", "presets-exclude")


def test_another_version_than_the_checked_one_is_a_warning():
    assert findings(want("volcano", version="1.14.0")) == {"components.volcano.version": ("warn", "untested-version")}


def test_two_components_that_fight_block_and_a_preset_settles_it():
    nfd, gpu = want("node-feature-discovery"), want("gpu-operator")
    assert findings(nfd, gpu)["components.gpu-operator"] == ("block", "conflict")
    assert findings(nfd, want("gpu-operator", "shared-nfd")) == {}
    assert findings(nfd, want("gpu-operator", values={"nfd": {"enabled": False}})) == {}
    assert findings(want("kueue"), want("volcano"))["components.volcano"] == ("warn", "conflict")


DEVICE_PLUGINS = ("gpu-operator", "hami", "nvidia-device-plugin")
OFF = {"devicePlugin": {"enabled": False}}


def blocking(*wanted: WantedComponent) -> list[str]:
    """Codes of what blocks: a component may have a sentence of another kind at the same path."""
    notes = profile_findings.component_findings(Content(components=wanted))
    return [note.code for note in notes if note.severity == "block"]


@pytest.mark.parametrize("pair", [*itertools.combinations(DEVICE_PLUGINS, 2)], ids=" ".join)
def test_two_device_plugins_for_the_same_gpus_block_until_one_is_switched_off(pair):
    name, other = pair
    assert blocking(want(name), want(other)) == ["conflict"], "one sentence for the pair"
    assert blocking(want(name, values=OFF), want(other)) == []
    assert blocking(want(name), want(other, values=OFF)) == []


@pytest.mark.parametrize("plugin", DEVICE_PLUGINS)
def test_the_dra_driver_shares_no_gpu_with_a_device_plugin(plugin):
    driver = "dra-driver-nvidia-gpu"
    assert blocking(want(plugin), want(driver)) == [], "ComputeDomains alone take no GPU from it"
    assert blocking(want(plugin), want(driver, "gpus")) == ["conflict"]
    assert blocking(want(plugin, values=OFF), want(driver, "gpus")) == []


def test_what_must_be_there_first_is_named():
    assert findings(want("gpu-operator", "gpu-metrics")) == {"components.gpu-operator": ("warn", "needs")}
    with_it = findings(want("gpu-operator", "gpu-metrics"), want("kube-prometheus-stack", "no-grafana"))
    assert "components.gpu-operator" not in with_it


def test_a_decision_is_each_clusters_so_a_profile_is_only_told():
    noted = findings(want("cilium", "kube-proxy-replacement"))
    assert noted["components.cilium.values.k8sServiceHost"] == ("warn", "decision")
    answered = findings(
        want("cilium", "kube-proxy-replacement", values={"k8sServiceHost": "auto", "ipam": {"mode": "kubernetes"}})
    )
    assert answered == {}


def test_values_that_helm_could_not_carry_block():
    noted = findings(want("volcano", values={"custom": {"a": 2**60}}))
    assert noted == {"components.volcano.values.custom.a": ("block", "bad-value")}
    noted = findings(want("volcano", values={"x": {"$secret": "oops"}}))
    assert noted == {"components.volcano.values.x": ("block", "bad-secret")}


CHART = """apiVersion: v2
name: volcano
version: 1.15.1
dependencies: [{name: jobflow, version: 1.0.0, repository: ""}, {name: a, alias: other, version: 1.0.0}]
"""
INSIDE = {f"charts/{name}/Chart.yaml": f"apiVersion: v2\nname: {name}\nversion: 1.0.0\n" for name in ("jobflow", "a")}


@pytest.mark.parametrize("origin", ["uploaded", catalog.get("volcano").chart.reference])
def test_unknown_keys_are_told_once_the_chart_was_fetched_or_uploaded(origin, django_assert_max_num_queries):
    given = {"custum": {}, "jobflow": {"any": 1}, "other": {"b": 1}, "hidden": True, "basic": {"image_tag": "x"}}
    assert findings(want("volcano", values=given)) == {}  # the chart is not known yet
    values_yaml = "custom: {}\nbasic:\n  image_tag_version: latest\n# hidden: false\n"
    archives.store(packed(INSIDE | {"Chart.yaml": CHART, "values.yaml": values_yaml}, "volcano"), origin=origin)

    with django_assert_max_num_queries(3):
        noted = findings(want("volcano", values=given))

    assert noted == {
        "components.volcano.values.custum": ("warn", "unknown-key"),
        "components.volcano.values.hidden": ("warn", "commented-key"),
        "components.volcano.values.basic.image_tag": ("warn", "unknown-key"),
    }


def test_an_archive_that_was_damaged_in_the_database_is_the_plans_matter():
    archives.store(
        packed(INSIDE | {"Chart.yaml": CHART.replace("1.15.1", "1.15.7"), "values.yaml": ""}, "volcano"),
        origin="uploaded",
    )
    Archive.objects.update(content=b"rubbish")

    assert findings(want("volcano", version="1.15.7")) == {"components.volcano.version": ("warn", "untested-version")}
