"""The catalog is data that people act on: every entry is allowed, bounded and sourced."""

from __future__ import annotations

import pytest

from contract import fitness, key_lists, keys
from contract.nodetuning import MAX_KEY, MAX_OBSERVED
from profiles.catalog import known_settings
from profiles.catalog.known_settings import Namespace, Shape
from profiles.document import setting_check

ENTRIES = known_settings.all()


def test_it_describes_every_key_that_may_be_written_and_every_key_that_may_only_be_seen():
    described = {info.key for info in ENTRIES}

    assert described == key_lists.ALLOWED | key_lists.READ_ONLY | key_lists.CNI_OWNED


def test_an_entry_is_settable_exactly_when_the_contract_allows_its_key():
    for info in ENTRIES:
        assert keys.is_observable(info.key), info.key
        assert info.observe_only is not keys.is_allowed(info.key), info.key


def test_an_entry_says_what_it_does_what_it_risks_and_where_that_is_from():
    for info in ENTRIES:
        assert info.title, info.key
        assert info.effect.endswith("."), info.key
        assert info.risk.endswith("."), info.key
        assert info.sources, info.key
        for source in info.sources:
            assert source.text, info.key
            assert source.url.startswith("https://") or source.key in ("measured", "judgement")


def test_class_and_coupled_keys_are_the_contracts():
    for info in ENTRIES:
        assert info.apply_class is keys.apply_class(info.key), info.key
        assert set(info.coupled) == keys.coupled_with(info.key), info.key


def test_a_number_has_a_range_and_the_range_is_not_empty():
    for info in ENTRIES:
        if info.is_number:
            assert info.minimum is not None, info.key
            assert info.maximum is not None, info.key
            assert info.minimum < info.maximum, info.key
        else:
            assert info.choices or info.shape is Shape.WORD, info.key


def test_the_kernels_default_is_a_value_one_could_ask_for():
    for info in ENTRIES:
        if info.default is None:
            assert info.default_note or not info.is_number or info.observe_only, "a missing default is explained"
        elif not info.observe_only and not info.default_outside_range and info.owner != "kubelet":
            assert setting_check.ask(info.key, info.default).value == info.default, info.key


def test_platform_limits_lie_within_what_the_kernel_takes():
    for info in ENTRIES:
        for limit in info.platforms:
            if limit.minimum is None:
                continue
            assert info.minimum <= limit.minimum < limit.maximum <= info.maximum, info.key


def test_values_that_each_network_namespace_has_for_itself_are_marked():
    assert known_settings.get("net.ipv4.tcp_rmem").namespace is Namespace.NET
    assert known_settings.get("net.core.rmem_max").namespace is Namespace.NONE, "one for the node, seen by all"
    assert known_settings.get("kernel.shmmax").namespace is Namespace.IPC
    assert known_settings.get("kernel.pid_max").namespace is Namespace.PID
    assert known_settings.get("vm.swappiness").namespace is Namespace.NONE


def test_a_family_speaks_for_its_members_and_for_nobody_else():
    assert known_settings.get("module.overlay").key == "module.overlay"
    assert known_settings.get("block.vd.scheduler").choices == known_settings.get("block.nvme.scheduler").choices
    assert known_settings.get("hugepages-2Mi.node3").unit == "pages"
    assert known_settings.get("cmdline.audit").apply_class is keys.ApplyClass.REBOOT
    for stranger in (
        "module.rootkit",
        "block.nvme.zoned",
        "block.loop.scheduler",
        "cmdline.init",
        "module.*",
        "",
        "vm",
    ):
        assert known_settings.get(stranger) is None


def test_an_entry_of_its_own_beats_its_family():
    assert "InfiniBand" in known_settings.get("module.ib_umad").title
    assert "trials" in known_settings.get("module.rdma_rxe").caution


def test_agents_are_asked_for_no_more_than_the_contract_carries():
    observable = known_settings.observable_keys()

    assert len(observable) <= MAX_OBSERVED
    assert len(set(observable)) == len(observable)
    assert all(keys.is_observable(key) and len(key) <= MAX_KEY for key in observable)
    assert {"vm.swappiness", "hugepages-2Mi.node0", "kubelet.cpuManagerPolicy"} <= set(observable)
    assert "net.ipv4.conf.all.rp_filter" in observable, "owned by the network plugin, and shown"


def test_the_facts_that_surprise_are_in_it():
    assert "pod" in known_settings.get("net.core.somaxconn").caution
    assert known_settings.get("vm.max_map_count").suggested_operator == ">="
    assert known_settings.get("net.netfilter.nf_conntrack_max").owner == "kube-proxy"
    limit = known_settings.get("net.core.rmem_max").platforms[0]
    assert (limit.platform, limit.minimum, limit.maximum) == ("AKS", 212992, 134217728)
    assert not limit.permits(536870912), "NVIDIA's own figure is beyond it"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("vm.swapiness", "vm.swappiness"), ("swappiness", "vm.swappiness"), ("net.core.rmem-max", "net.core.rmem_max")],
)
def test_a_slip_of_the_pen_is_answered_with_the_nearest_key(typed, meant):
    assert known_settings.nearest(typed) == meant


def test_a_search_wants_every_word():
    matches = {info.key for info in known_settings.search("neighbors clean-up")}

    assert "net.ipv4.neigh.default.gc_thresh1" in matches
    assert "net.ipv4.neigh.default.gc_thresh3" not in matches, "it speaks of neighbors, not of clean-up"
    assert known_settings.search("") == ENTRIES
    assert known_settings.search("no such words anywhere") == ()


@pytest.mark.parametrize("key", sorted(fitness.LIMITS))
def test_no_range_holds_what_leaves_every_node_unusable(key):
    info = known_settings.get(key)
    if key == "net.ipv4.ip_local_port_range":
        return  # its range is of the ports' numbers; how many there are is another limit
    for number in (info.minimum, info.maximum):
        words = " ".join([str(number)] * key_lists.SYSCTL_WORDS.get(key, 1))
        assert number is None or not fitness.unfit(key, "=", words, fitness.MachineSize())


@pytest.mark.parametrize(
    ("value", "is_cautioned"),
    [
        ("realloc=off", False),
        ("disable_acs_redir=pci:0:0", True),
        ("realloc=off,disable_acs_redir=pci:0:0", True),
        ("nocrs", False),
    ],
)
def test_an_option_that_removes_isolation_is_told_wherever_it_is_in_a_list(value, is_cautioned):
    cautions = setting_check.ask("cmdline.pci", value).cautions

    assert any("isolation" in why for _, why in cautions) == is_cautioned
