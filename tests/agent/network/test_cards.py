"""Network cards among interfaces, each of one class, and never what belongs to pods."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import cards
from agent.gate import Denied, Gate
from contract import nics
from tests.agent.kernel import Kernel
from tests.agent.network.node import MACHINE, NET, NIC, card, rdma, routes, virtual


def of(*parts: dict[str, str]) -> dict[str, str]:
    machine: dict[str, str] = {}
    for part in parts:
        machine |= part
    return cards.classes(Kernel(**machine))


def beneath(upper: str, *lowers: str) -> dict[str, str]:
    links = {f"{NET}{upper}/lower_{lower}/mtu": "1500" for lower in lowers}
    return virtual(upper) | links | {f"{NET}{lower}/upper_{upper}/mtu": "1500" for lower in lowers}


def test_each_card_is_of_one_class_and_what_has_no_device_of_none():
    assert of(MACHINE) == {"eno1": nics.DEFAULT_ROUTE, "eno2": nics.OTHER, "roce0": nics.RDMA, "roce1": nics.RDMA}


def test_the_default_route_counts_before_rdma():
    assert of(card("a"), rdma("a"), routes("a")) == {"a": nics.DEFAULT_ROUTE}


def test_the_default_route_reaches_down_to_the_cards_that_carry_it():
    machine = [card("a"), card("b"), card("c"), beneath("bond0", "a", "b"), beneath("bond0.7", "bond0")]

    assert of(*machine, beneath("br0", "bond0.7"), routes("br0")) == {
        "a": nics.DEFAULT_ROUTE, "b": nics.DEFAULT_ROUTE, "c": nics.OTHER
    }  # fmt: skip


def test_interfaces_in_a_ring_are_followed_to_an_end():
    assert of(card("a"), beneath("x", "y"), beneath("y", "x"), routes("x")) == {"a": nics.OTHER}


def test_a_default_route_of_ipv6_is_one_and_a_prefix_of_zeros_is_none():
    zeros, via = "0" * 32, "fe80" + "0" * 28
    route = f"{zeros} 00 {zeros} 00 {via} 00000400 00000001 00000000 00000003 %s"
    prefix = f"{zeros} 60 {zeros} 00 {via} 00000400 00000001 00000000 00000003 b"

    machine = {"/proc/net/ipv6_route": f"{route % 'a'}\n{prefix}\n{route % 'lo'}\n"}
    assert of(card("a"), card("b"), virtual("lo"), machine) == {"a": nics.DEFAULT_ROUTE, "b": nics.OTHER}


def test_a_card_with_soft_roce_is_an_rdma_card():
    assert of(card("a"), {"/sys/class/infiniband/rxe0/parent": "a"}) == {"a": nics.RDMA}


def test_a_virtual_function_is_nobody_s_card_here():
    assert of(card("pf"), card("vf"), {f"{NET}vf/device/physfn/vendor": "0x15b3"}) == {"pf": nics.OTHER}


@pytest.mark.parametrize("interface", ["lo", "cali1", "docker0", "vf", "gone", "..", "a b", "-x"])
@pytest.mark.parametrize("attribute", sorted(nics.ATTRIBUTES))
def test_the_gate_lets_no_write_through_to_what_is_no_card(interface, attribute):
    kernel = Kernel(**MACHINE, **card("vf"), **{f"{NET}vf/device/physfn/vendor": "0x15b3"})
    path = cards.place(interface, attribute)
    kernel.live[path] = "1"

    with pytest.raises(Denied):
        Gate(kernel).write_text(path, "1500" if attribute == "mtu" else "1")
    assert kernel.writes() == []


@given(st.text(st.sampled_from("/.nictusyedvacl_0129ro*-"), max_size=30))
def test_a_path_is_a_card_s_or_no_card_s_and_leads_nowhere_else(text):
    for path in (NIC + text, NET + text, text):
        if (parts := cards.parsed(path)) is not None:
            assert "/" not in parts[0]
            assert cards.place(*parts) == path
