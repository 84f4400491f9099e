"""Settings of network cards by class: compared, written to every card, verified, put back."""

from __future__ import annotations

import errno

import pytest

from contract.nodetuning import Restore
from tests.agent.kernel import states, want
from tests.agent.network.node import DRIVER, MACHINE, NET, NIC, NetworkAgent, NetworkNode, rdma, routes

MTU = want("nic.rdma.mtu", "9000", "1500")
RX = want("nic.default-route.rx_ring", "4096", "512")


def of(status, key):
    return status.setting(key)


def test_every_card_of_the_class_is_written_and_no_other(agent, kernel):
    status = agent.ask(MTU, RX)

    assert states(status) == {"nic.rdma.mtu": "Effective", "nic.default-route.rx_ring": "Effective"}
    changed = {path: value for path, value in kernel.cards().items() if MACHINE[path] != value}
    assert changed == {NET + "roce0/mtu": "9000", NET + "roce1/mtu": "9000", NIC + "eno1/rx_ring": "4096"}


def test_what_the_plan_saw_otherwise_is_not_written(agent, kernel):
    kernel.live[NIC + "eno1/rx_ring"] = "1024"

    assert of(agent.ask(RX, MTU), RX.key).state == "Moved"
    assert kernel.writes() == []


def test_cards_that_differ_are_reported_as_mixed_and_each_gets_its_own_back(agent, kernel):
    key = "nic.rdma.rx_ring"

    status = agent.ask(want(key, "2048", "mixed:1024,512"))
    assert (of(status, key).state, of(status, key).original) == ("Effective", "mixed:1024,512")
    status = agent.ask(restore=(Restore(key, "mixed:1024,512", "2048"),))
    assert of(status, key).state == "Restored"
    assert kernel.cards() == {path: MACHINE[path] for path in kernel.cards()}


def test_at_least_leaves_the_card_that_has_more(agent, kernel):
    agent.ask(want("nic.rdma.rx_ring", "800", "mixed:1024,512", ">="))
    assert (kernel.live[NIC + "roce0/rx_ring"], kernel.live[NIC + "roce1/rx_ring"]) == ("800", "1024")


def test_more_than_a_driver_takes_is_refused_with_both_numbers_before_anything_is_written(agent, kernel):
    kernel.live[NIC + "roce1/rx_ring_max"] = "2048"

    reason = of(agent.ask(want("nic.rdma.rx_ring", "4096", "mixed:1024,512"), RX), "nic.rdma.rx_ring").reason
    assert "roce1: 4096 is more than 2048" in reason
    assert kernel.writes() == []


def test_an_mtu_beyond_the_driver_s_is_refused_with_both_numbers(agent, kernel):
    setting = of(agent.ask(want(MTU.key, "9001", "1500")), MTU.key)
    assert (setting.state, "9001 is more than 9000" in setting.reason) == ("Failed", True)
    assert kernel.writes() == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nic.rdma.mtu", "1279"), ("nic.rdma.rx_ring", "63"), ("nic.other.combined_channels", "0"),
        ("nic.rdma.tso", "2"), ("nic.rdma.tso", "on"), ("nic.rdma.mtu", "65537"), ("nic.rdma.mtu", "0x2328"),
        ("nic.rdma.lro", "1"), ("nic.rdma.speed", "1"), ("nic.eth0.mtu", "9000"), ("nic.lo.mtu", "9000"),
    ],
)  # fmt: skip
def test_what_no_card_may_have_is_denied(agent, kernel, key, value):
    assert of(agent.ask(want(key, value, "1")), key).state == "Denied"
    assert kernel.writes() == []


def test_a_class_without_cards_or_a_driver_without_the_attribute_is_unsupported(agent, kernel):
    for path in [path for path in kernel.live if path.startswith(NIC + "eno2/")]:
        del kernel.live[path]

    assert of(agent.ask(want("nic.other.gro", "0", None)), "nic.other.gro").state == "Unsupported"
    assert kernel.writes() == []


def test_the_mtu_of_a_card_that_carries_others_is_theirs_to_follow(agent, kernel):
    kernel.live[NET + "roce0/upper_bond0/mtu"] = "1500"

    setting = of(agent.ask(MTU), MTU.key)
    assert (setting.state, "roce0 carries bond0" in setting.reason) == ("Unsupported", True)
    assert kernel.writes() == []


def test_a_driver_that_refuses_the_second_card_leaves_none_changed(agent, kernel):
    kernel.refusing[NIC + "roce1/tso"] = errno.EOPNOTSUPP

    assert of(agent.ask(want("nic.rdma.tso", "0", "1")), "nic.rdma.tso").state == "Failed"
    assert kernel.cards() == {path: MACHINE[path] for path in kernel.cards()}
    assert agent.core._node.journal.content.entries == {}


def test_a_value_that_the_driver_rounds_is_named(agent, kernel):
    kernel.rounding[NIC + "eno1/rx_ring"] = lambda value: "4000"

    setting = of(agent.ask(RX), RX.key)
    assert (setting.state, setting.effective) == ("NotEffective", "4000")


@pytest.mark.parametrize("change", [routes("eno2"), rdma("eno1"), routes("roce0")])
def test_a_card_that_changed_its_class_since_is_put_back_all_the_same(agent, kernel, change):
    agent.ask(RX)
    kernel.live |= change
    agent.restart()

    assert "4096" in of(agent.again(), RX.key).effective
    status = agent.ask(restore=(Restore(RX.key, "512", "4096"),))
    assert of(status, RX.key).state == "Restored"
    assert kernel.cards() == {path: MACHINE[path] for path in kernel.cards()}


def test_two_settings_never_share_a_card(agent, kernel):
    agent.ask(RX)
    kernel.live |= routes("eno2")
    agent.restart()

    other = "nic.other.rx_ring"  # eno1 would be of this class now
    status = agent.ask(RX, want(other, "128", None))
    assert of(status, other).state == "Unsupported"
    assert kernel.live[NIC + "eno1/rx_ring"] == "4096"


def test_a_card_that_came_later_is_shown_and_written_only_after_the_key_was_put_back(agent, kernel):
    agent.ask(RX)
    kernel.live |= routes("eno1", "eno2")
    agent.restart()

    drifted = of(agent.again(), RX.key)
    assert (drifted.state, drifted.effective) == ("Drifted", "mixed:4096,512")
    held = of(agent.ask(want(RX.key, "4096", "mixed:4096,512")), RX.key)
    assert (held.state, "eno2 came to this class after" in held.reason) == ("Failed", True)
    agent.ask(restore=(Restore(RX.key, "512", "4096"),))
    assert of(agent.ask(RX), RX.key).effective == "4096"
    assert kernel.live[NIC + "eno2/rx_ring"] == "4096"


def test_a_card_that_came_later_is_not_put_back_to_what_it_never_had(agent, kernel):
    agent.ask(want("nic.other.gro", "0", "1"))
    late = {
        f"{NET}late/device/vendor": "1",
        f"{NET}late/mtu": "1500",
        **{f"{NIC}late/{k}": v for k, v in DRIVER.items()},
    }
    kernel.live |= late | {NIC + "late/gro": "0"}
    agent.restart()
    agent.again()

    agent.ask(restore=(Restore("nic.other.gro", "1", "0"),))
    assert (kernel.live[NIC + "eno2/gro"], kernel.live[NIC + "late/gro"]) == ("1", "0")


def test_a_value_that_somebody_changed_since_is_not_put_back(agent, kernel):
    agent.ask(RX)
    kernel.live[NIC + "eno1/rx_ring"] = "2048"

    status = agent.ask(restore=(Restore(RX.key, "512", "4096"),))
    assert (of(status, RX.key).state, kernel.live[NIC + "eno1/rx_ring"]) == ("Moved", "2048")


def test_drift_that_only_a_disturbance_could_repair_is_reported_and_left(agent, kernel):
    tso = want("nic.default-route.tso", "0", "1")
    agent.ask(RX, tso, mode="enforce")
    kernel.live |= {NIC + "eno1/rx_ring": "512", NIC + "eno1/tso": "1"}

    status = agent.again()
    assert states(status) == {RX.key: "Drifted", tso.key: "Effective"}
    assert (kernel.live[NIC + "eno1/rx_ring"], kernel.live[NIC + "eno1/tso"]) == ("512", "0")


def test_no_file_of_the_next_boot_sets_a_card(agent, kernel):
    agent.ask(RX, MTU)
    assert kernel.disk == {}


def test_after_a_boot_the_agent_writes_again_once():
    kernel = NetworkNode()
    agent = NetworkAgent(kernel)
    agent.ask(RX, MTU)
    kernel.reboot()
    assert kernel.live[NIC + "eno1/rx_ring"] == "512"
    agent.restart()

    assert set(states(agent.again()).values()) == {"Effective"}
    assert (kernel.live[NIC + "eno1/rx_ring"], kernel.live[NET + "roce1/mtu"]) == ("4096", "9000")
    kernel.live[NIC + "eno1/rx_ring"] = "512"
    assert of(agent.again(), RX.key).state == "Drifted"  # in the same boot it is another party's change


def test_after_a_boot_originals_are_known_still(agent, kernel):
    agent.ask(RX)
    kernel.reboot()
    agent.restart()
    agent.again()

    assert of(agent.ask(restore=(Restore(RX.key, "512", "4096"),)), RX.key).state == "Restored"
    assert kernel.live[NIC + "eno1/rx_ring"] == "512"
