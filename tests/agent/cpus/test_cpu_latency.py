"""The longest that a CPU may take to wake: one value on all CPUs, after a boot too, and each gets its own back."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.persisted import TMPFILES
from contract import keys
from contract.keys import BadValue
from contract.nodetuning import Restore
from profiles.document import setting_check
from tests.agent.kernel import Agent, Kernel, PowerCut, states, want

KEY = "cpu.resume_latency_us"
CPU = "/sys/devices/system/cpu/cpu{}/power/pm_qos_resume_latency_us"
DRIVER = {"/sys/devices/system/cpu/cpuidle/current_driver": "intel_idle"}


def node_of(*latencies):
    return Kernel(**DRIVER, **{CPU.format(number): text for number, text in enumerate(latencies)})


def values(node):
    return [node.live[path] for path in sorted(node.live) if path.endswith("/pm_qos_resume_latency_us")]


def test_every_cpu_gets_the_limit_now_and_at_the_next_boot():
    node = node_of("0", "0", "0")

    assert states(Agent(node).ask(want(KEY, "1", "0"))) == {KEY: "Effective"}

    assert values(node) == ["1"] * 3
    assert "w /sys/devices/system/cpu/cpu[0-9]*/power/pm_qos_resume_latency_us - - - - 1\n" in node.disk[TMPFILES]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["0", "1", "20", "n/a", "100000"]), min_size=1, max_size=5), st.integers(0, 9))
def test_each_cpu_gets_its_own_back(before, cut):
    """A power cut in the middle of the writes changes nothing of it, nor a tool that had CPUs not sleep at all."""
    node = node_of(*before)
    agent = Agent(node)
    seen = agent.ask(mode="observe", observe=(KEY,)).observed[KEY]
    agent.ask(want(KEY, "50", seen))
    assert values(node) == ["50"] * len(before)

    node.fuse = cut
    with contextlib.suppress(PowerCut):
        agent.ask(restore=(Restore(KEY, seen, "50"),))
    node.fuse = None
    agent.restart()

    assert agent.again().setting(KEY).state == "Restored"
    assert values(node) == before
    assert TMPFILES not in node.disk


def test_what_another_tool_wrote_since_the_plan_is_not_written_over():
    node = node_of("0", "n/a")

    assert states(Agent(node).ask(want(KEY, "1", "0"))) == {KEY: "Moved"}
    assert values(node) == ["0", "n/a"]


@pytest.mark.parametrize("driver", ["none", None])
def test_a_kernel_that_would_keep_no_limit_is_unsupported(driver):
    node = node_of("0", "0")
    node.live = {path: text for path, text in node.live.items() if path not in DRIVER}
    if driver:
        node.live |= dict.fromkeys(DRIVER, driver)

    setting = Agent(node).ask(want(KEY, "1", "0")).setting(KEY)

    assert setting.state == "Unsupported"
    assert "cpuidle" in setting.reason
    assert values(node) == ["0", "0"]


@pytest.mark.parametrize("text", ["-1", "1.5", "1us", "auto", "N/A", "01"])
def test_no_other_text_is_a_latency(text):
    with pytest.raises(BadValue):
        keys.check_value(KEY, text)


@pytest.mark.parametrize(("value", "operator"), [("n/a", "="), ("100001", "="), ("1", "<="), ("1", ">=")])
def test_a_profile_names_a_number_in_bounds_and_no_less_or_more(value, operator):
    """0 is no limit, so neither sign has a meaning; to let no CPU sleep gains nothing over 1, and doubles the heat."""
    with pytest.raises(setting_check.SettingRefused):
        setting_check.ask(KEY, value, operator)
