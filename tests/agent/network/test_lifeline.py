"""A change of a network card never leaves the node unreachable: by itself the node takes it back."""

from __future__ import annotations

import itertools

import pytest

from agent.journal import Journal
from agent.kinds.lifeline import ANSWER_SECONDS, PAUSE_SECONDS, TRIES, Lifeline
from contract.nodetuning import Restore
from tests.agent.kernel import PowerCut, want
from tests.agent.network.node import MACHINE, NET, NIC, NetworkAgent, NetworkNode
from tests.agent.test_deploy import the

MTU = want("nic.rdma.mtu", "9000", "1500")
RX = want("nic.default-route.rx_ring", "4096", "512")
PLACES = {"nic.default-route.rx_ring": [NIC + "eno1/rx_ring"], "nic.rdma.mtu": [NET + "roce0/mtu", NET + "roce1/mtu"]}


def as_they_were(kernel):
    return {path: MACHINE[path] for path in kernel.cards()}


def test_a_change_that_cuts_the_node_off_is_taken_back_and_named(agent, kernel):
    kernel.cuts[NIC + "eno1/rx_ring"] = "4096"

    setting = agent.ask(RX).setting(RX.key)
    assert kernel.cards() == as_they_were(kernel)
    assert (setting.state, setting.effective) == ("Failed", "512")
    assert "the API server does not answer this node with rx_ring 4096 of eno1, so 512 was put back" in setting.reason
    assert kernel.looks == TRIES
    assert agent.core._node.journal.content.entries == {}


def test_a_card_of_the_class_that_cuts_the_node_off_takes_the_others_back_with_it(agent, kernel):
    kernel.cuts[NET + "roce1/mtu"] = "9000"

    assert agent.ask(MTU).setting(MTU.key).state == "Failed"
    assert kernel.cards() == as_they_were(kernel)


def test_a_card_that_loses_its_link_for_good_is_put_back_although_the_api_server_answers(agent, kernel):
    kernel.drops.add(NET + "roce0/mtu")

    setting = agent.ask(MTU).setting(MTU.key)
    assert (setting.state, "roce0 has no link with mtu 9000" in setting.reason) == ("Failed", True)
    assert kernel.cards() == as_they_were(kernel)


def test_a_card_without_a_link_before_needs_none_afterwards(agent, kernel):
    kernel.live[NET + "roce0/carrier"] = "0"
    assert agent.ask(MTU).setting(MTU.key).state == "Effective"


def test_a_link_that_is_gone_for_a_moment_is_waited_for(kernel):
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == TRIES - 1:
            kernel.cuts.clear()

    kernel.cuts[NIC + "eno1/rx_ring"] = "4096"
    Lifeline(kernel.reaches, wait).change(kernel, Journal(kernel), {NIC + "eno1/rx_ring": "4096"})
    assert kernel.live[NIC + "eno1/rx_ring"] == "4096"
    assert waits == [PAUSE_SECONDS] * (TRIES - 1)


def test_nothing_is_changed_while_the_api_server_does_not_answer(agent, kernel):
    kernel.cuts[NET + "eno2/mtu"] = "1500"  # as it is already

    setting = agent.ask(RX).setting(RX.key)
    assert (setting.state, "does not answer this node now" in setting.reason) == ("Failed", True)
    assert kernel.writes() == []


def test_putting_an_original_back_is_guarded_alike(agent, kernel):
    agent.ask(RX)
    kernel.cuts[NIC + "eno1/rx_ring"] = "512"

    setting = agent.ask(restore=(Restore(RX.key, "512", "4096"),)).setting(RX.key)
    assert (setting.state, kernel.live[NIC + "eno1/rx_ring"]) == ("Failed", "4096")
    kernel.cuts.clear()
    assert agent.ask(restore=(Restore(RX.key, "512", "4096"),)).setting(RX.key).state == "Restored"


def test_what_could_not_be_put_back_is_tried_again_and_nothing_is_changed_meanwhile(agent, kernel):
    path = NIC + "eno1/rx_ring"
    kernel.cuts[path] = "4096"
    put, is_stuck = kernel.write_text, [True]

    def stuck(at, value):
        if at == path and value == "512" and is_stuck[0]:
            raise OSError(5, "Input/output error")
        put(at, value)

    kernel.write_text = stuck
    agent.restart()
    assert "could not be put back" in agent.ask(RX).setting(RX.key).reason
    assert kernel.live[path] == "4096"
    agent.ask(MTU)
    assert kernel.live[NET + "roce0/mtu"] == "1500"
    is_stuck[0] = False
    agent.again()
    assert kernel.live[path] == "512"


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("cuts", [{}, {NIC + "eno1/rx_ring": "4096"}, {NET + "roce1/mtu": "9000"}])
def test_an_agent_killed_at_any_point_leaves_a_node_that_its_next_start_makes_reachable(is_before, cuts):
    """The start alone, without the API server, which the node may have lost: nothing is asked of the network first."""
    for fuse in itertools.count():
        kernel = NetworkNode()
        agent = NetworkAgent(kernel)
        kernel.cuts, kernel.fuse, kernel.before = cuts, fuse, is_before
        was_cut = False
        try:
            agent.ask(RX, MTU)
        except PowerCut:
            was_cut = True
        kernel.fuse = None
        agent.restart()
        assert kernel.is_reachable(), fuse
        status = agent.again()
        assert kernel.is_reachable(), fuse
        for key, original, value in ((RX.key, "512", "4096"), (MTU.key, "1500", "9000")):
            is_cut = any(path in cuts for path in PLACES[key])
            assert status.setting(key).effective == (original if is_cut else value), (fuse, key)
        written = [Restore(w.key, w.expect, w.value) for w in (RX, MTU) if w.key in _entries(kernel)]
        agent.ask(restore=tuple(written))
        assert kernel.cards() == as_they_were(kernel), fuse
        if not was_cut:
            break
    assert fuse > 6


@pytest.mark.parametrize("is_before", [True, False])
def test_an_agent_killed_while_it_puts_originals_back_leaves_a_reachable_node(is_before):
    for fuse in itertools.count():
        kernel = NetworkNode()
        agent = NetworkAgent(kernel)
        agent.ask(RX, MTU)
        kernel.cuts, kernel.fuse, kernel.before = {NIC + "eno1/rx_ring": "512"}, fuse, is_before
        try:
            agent.ask(restore=(Restore(RX.key, "512", "4096"), Restore(MTU.key, "1500", "9000")))
        except PowerCut:
            kernel.fuse = None
        agent.restart()
        assert kernel.is_reachable(), fuse
        if kernel.fuse is not None:
            break
    assert fuse > 3


def test_a_power_cut_needs_nothing_put_back(kernel, agent):
    """The drivers' own values are back; what was guarded is of another boot, and may be what cut the node off."""
    agent.ask(RX)
    kernel.fuse, kernel.before = 1, False  # the journal, then the write
    with pytest.raises(PowerCut):
        agent.ask(want(RX.key, "2048", "4096"))
    assert Journal(kernel).content.guarded.places == {NIC + "eno1/rx_ring": "4096"}
    kernel.fuse = None
    kernel.reboot()
    kernel.cuts[NIC + "eno1/rx_ring"] = "4096"
    agent.restart()

    assert kernel.live[NIC + "eno1/rx_ring"] == "512"
    assert Journal(kernel).content.guarded.places == {}


def test_all_tries_end_before_a_stopped_agent_is_killed():
    pod = the("DaemonSet", "setpoint-agent")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > TRIES * (ANSWER_SECONDS + PAUSE_SECONDS)


def _entries(kernel):
    return {key for key, entry in Journal(kernel).content.entries.items() if entry.written is not None}
