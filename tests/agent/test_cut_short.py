"""A write that the kernel rounds, and a power cut before the journal could note its answer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.journal import Journal
from contract.nodetuning import Restore
from tests.agent.kernel import SYS, Agent, Kernel, PowerCut, states, want

MAPS = SYS + "vm/max_map_count"
ROUNDED = want("vm.max_map_count", "100001", "65536")


def pages(value):
    """Round up to the next 4096, as the kernel does with byte counts."""
    return str(-(-int(value) // 4096) * 4096)


@pytest.fixture
def kernel():
    return Kernel(**{MAPS: "65536"})


@pytest.fixture
def cut(agent, kernel):
    """The kernel has taken and rounded the value; the journal knows only that it was to be written."""
    kernel.rounding[MAPS] = pages
    kernel.before, kernel.fuse = False, 1
    with pytest.raises(PowerCut):
        agent.ask(ROUNDED)
    assert kernel.live[MAPS] == pages("100001") == "102400"
    kernel.fuse = None
    agent.restart()
    return agent


def test_the_intent_stands_in_the_journal_beside_the_original_before_the_write(agent, kernel):
    kernel.before, kernel.fuse = True, 1
    with pytest.raises(PowerCut):
        agent.ask(ROUNDED)

    entries = Journal(kernel).content.entries
    assert list(entries) == ["vm.max_map_count"]
    entry = entries["vm.max_map_count"]
    assert (entry.original, entry.written, entry.done) == ("65536", "100001", False)


def test_it_is_said_to_be_rounded_and_not_to_have_moved(cut, kernel):
    kernel.effects.clear()

    setting = cut.again().setting("vm.max_map_count")

    assert (setting.state, setting.original, setting.effective) == ("NotEffective", "65536", "102400")
    assert "100001 was being written" in setting.reason
    assert kernel.writes() == []  # it may be another party's


def test_the_other_settings_of_the_step_are_still_written(agent, kernel):
    kernel.rounding[MAPS] = pages
    kernel.before, kernel.fuse = False, 1
    with pytest.raises(PowerCut):
        agent.ask(ROUNDED, want("vm.swappiness", "10", "60"))
    kernel.fuse = None
    agent.restart()

    assert states(agent.again()) == {"vm.max_map_count": "NotEffective", "vm.swappiness": "Effective"}


@pytest.mark.parametrize("expect", ["100001", "102400"])
def test_the_original_is_put_back_whatever_the_control_plane_had_heard(cut, kernel, expect):
    cut.again()

    assert states(cut.ask(restore=(Restore("vm.max_map_count", None, expect),))) == {"vm.max_map_count": "Restored"}
    assert kernel.live[MAPS] == "65536"


def test_the_next_plan_writes_over_what_it_saw(cut, kernel):
    cut.again()

    assert states(cut.ask(want("vm.max_map_count", "200704", "102400"))) == {"vm.max_map_count": "Effective"}
    assert cut.again().setting("vm.max_map_count").original == "65536"


def test_a_value_from_before_is_still_a_value_that_moved(agent, kernel):
    """The write never happened, and the value that the plan saw is gone too: another party put an older one back."""
    agent.ask(want("vm.max_map_count", "70000", "65536"))
    kernel.before, kernel.fuse = True, 1
    with pytest.raises(PowerCut):
        agent.ask(want("vm.max_map_count", "80000", "70000"))
    kernel.fuse = None
    kernel.live[MAPS] = "70000"
    agent.restart()
    agent.spec = agent.spec.__class__("uid-1", mode="apply", settings=(want("vm.max_map_count", "80000", "65536"),))

    assert states(agent.again()) == {"vm.max_map_count": "Moved"}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 12), st.booleans(), st.integers(0, 12), st.sampled_from(["100001", "40960", "65537"]))
def test_a_rounding_kernel_and_power_cuts_never_keep_the_original_away(cut_apply, before, cut_restore, value):
    original = "65536"
    kernel = Kernel(**{MAPS: original})
    kernel.rounding[MAPS] = pages
    agent = Agent(kernel)
    kernel.before, kernel.fuse = before, cut_apply
    status = through(agent, lambda: agent.ask(want("vm.max_map_count", value, original)))
    assert states(status)["vm.max_map_count"] in ("NotEffective", "Effective")
    kernel.fuse = cut_restore
    expect = kernel.live[MAPS]

    status = through(agent, lambda: agent.ask(restore=(Restore("vm.max_map_count", None, expect),)))

    assert states(status)["vm.max_map_count"] == "Restored"
    assert kernel.live[MAPS] == original
    kernel.fuse = None
    agent.core.verify()
    assert Journal(kernel).content.entries == {}


def through(agent, ask):
    try:
        return ask()
    except PowerCut:
        agent.kernel.fuse = None
        agent.restart()
        return agent.again()
