"""Configurations that charts take as one text, merged by key."""

from __future__ import annotations

from itertools import permutations

import pytest
import yaml

from components.catalog import catalog, text_values, values_check
from components.catalog.layering import layered
from components.importer import preset_match

VOLCANO, KUEUE = "custom.scheduler_config_override", "managerConfig.controllerManagerConfigYaml"


def scheduler(*presets: str, **more: object) -> dict:
    made = layered("volcano", presets=presets, profile_values=more).values
    return yaml.safe_load(made["custom"]["scheduler_config_override"])


def plugins(config: dict) -> dict[str, dict]:
    return {plugin["name"]: plugin for tier in config["tiers"] for plugin in tier["plugins"]}


def kueue(*presets: str, **more: object) -> dict:
    made = layered("kueue", presets=presets, profile_values=more).values
    return yaml.safe_load(made["managerConfig"]["controllerManagerConfigYaml"])


def test_gangs_reclaim_gpu_binpacking_and_topology_go_together_in_any_order():
    for order in permutations(("gang-and-reclaim", "binpack", "network-topology-aware", "task-topology")):
        config = scheduler(*order)
        enabled = plugins(config)
        assert config["actions"] == "enqueue, allocate, preempt, reclaim, backfill"
        assert enabled["binpack"]["arguments"]["binpack.resources"] == "nvidia.com/gpu"
        assert "network-topology-aware" in enabled
        assert enabled["task-topology"]["arguments"] == {"task-topology.weight": 10}
        assert {"gang", "proportion", "predicates", "nodeorder", "overcommit"} <= set(enabled)
        assert enabled["gang"]["enablePreemptable"] is False, "what the chart says stays"


def test_deserved_shares_take_the_plugin_that_contradicts_them_away():
    enabled = plugins(scheduler("deserved-shares", "binpack"))
    assert "capacity" in enabled
    assert "proportion" not in enabled
    assert "$gone" not in str(enabled)


def test_without_a_preset_the_chart_keeps_its_own():
    assert "scheduler_config_override" not in layered("volcano", presets=["ha"]).values["custom"]


@pytest.mark.parametrize("preset", ["opt-in", "gpu-batch"])
def test_kueue_keeps_its_concurrency_and_what_else_is_not_spoken_of(preset):
    config, own = kueue(preset), yaml.safe_load(catalog.get("kueue").texts[KUEUE])
    assert config["controller"] == own["controller"]
    assert config["clientConnection"] == own["clientConnection"]
    assert config["managedJobsNamespaceSelector"] == {"matchLabels": {"kueue-managed": "true"}}
    if preset == "opt-in":
        assert config["integrations"] == own["integrations"]


def test_a_profile_adds_to_a_preset_by_key_and_replaces_the_whole_by_a_text():
    more = {"managerConfig": {"controllerManagerConfigYaml": {"clientConnection": {"qps": 50}, "webhook": None}}}
    config = kueue("opt-in", **more)
    assert config["clientConnection"] == {"qps": 50, "burst": 500}
    assert "webhook" not in config
    assert "managedJobsNamespaceSelector" in config
    whole = {"managerConfig": {"controllerManagerConfigYaml": "kind: Configuration\n"}}
    assert kueue("opt-in", **whole) == {"kind": "Configuration"}


@pytest.mark.parametrize("text", ["just words", "- a\n- b\n", "a: [", "a: 1\n---\nb: 2\n"])
def test_a_text_that_is_no_mapping_is_named_and_nothing_is_merged_into_it(text):
    below = {"custom": {"scheduler_config_override": text}}
    for cluster in ({}, {"custom": {"scheduler_config_override": {"actions": "allocate"}}}):
        notes = values_check.judge(layered("volcano", profile_values=below, cluster_values=cluster))
        assert [(note.path, note.severity) for note in notes if note.code == "bad-text"] == [(VOLCANO, "block")]


def test_the_layers_below_are_left_as_they_are():
    component = catalog.get("volcano")
    before = str(component.presets["binpack"].values)
    layered(component, presets=["gang-and-reclaim", "binpack", "network-topology-aware"])
    assert str(component.presets["binpack"].values) == before


def test_presets_are_known_again_in_a_release_by_what_its_text_says():
    component = catalog.get("volcano")
    given = layered(component, presets=["gang-and-reclaim", "binpack"]).values
    text = yaml.safe_dump(yaml.safe_load(given["custom"]["scheduler_config_override"]), sort_keys=True)
    defaults = {"custom": {"scheduler_config_override": ""}}

    names, rest = preset_match.presets_in(component, {"custom": {"scheduler_config_override": text}}, defaults)

    assert layered(component, presets=names, profile_values=rest).values.keys() == {"custom"}
    again = layered(component, presets=names, profile_values=rest).values["custom"]["scheduler_config_override"]
    assert text_values.parsed(again) == text_values.parsed(text)


def test_a_preset_without_the_one_it_works_with_is_named_and_its_values_are_enough():
    alone = values_check.judge(layered("cilium", presets=["netkit"]))
    assert {note.severity for note in alone if note.code == "preset-needs"} == {"block"}
    given = {"kubeProxyReplacement": True}
    for presets, more in ((["netkit"], given), (["netkit", "kube-proxy-replacement", "ebpf-host-routing"], {})):
        notes = values_check.judge(layered("cilium", presets=presets, cluster_values=more))
        assert [note for note in notes if note.code == "preset-needs"] == []
    refused = {"kubeProxyReplacement": "false"}
    off = values_check.judge(layered("cilium", presets=["bbr", "ebpf-host-routing"], cluster_values=refused))
    assert [note for note in off if note.code == "preset-needs"]
