"""Laws of writing and restoring, over arbitrary values, steps and power cuts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.journal import Journal
from contract.keys import satisfied
from contract.nodetuning import Restore
from tests.agent.kernel import HUGE, SYS, Agent, Kernel, PowerCut, states, through, want

numbers = st.integers(-5, 2**40)


@given(numbers, numbers)
def test_satisfied_is_arithmetic(wanted, effective):
    assert satisfied("=", str(wanted), f"0{effective}" if effective >= 0 else str(effective)) == (wanted == effective)
    assert satisfied(">=", str(wanted), str(effective)) == (effective >= wanted)
    assert satisfied("<=", str(wanted), str(effective)) == (effective <= wanted)
    assert not satisfied(">=", str(wanted), None)


@given(
    st.lists(numbers, min_size=1, max_size=4),
    st.lists(numbers, min_size=1, max_size=4),
    st.sampled_from(["=", ">=", "<="]),
)
def test_satisfied_lists_need_every_element_and_the_same_length(wanted, effective, operator):
    got = satisfied(operator, " ".join(map(str, wanted)), "\t".join(map(str, effective)))
    each = [satisfied(operator, str(w), str(e)) for w, e in zip(wanted, effective, strict=False)]
    assert got == (len(wanted) == len(effective) and all(each))


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100), st.sampled_from(["=", ">=", "<="]))
def test_nothing_is_ever_written_over_what_is_neither_expected_nor_wanted(effective, expect, wanted, operator):
    kernel = Kernel(**{SYS + "vm/swappiness": str(effective)})
    agent = Agent(kernel)

    status = agent.ask(want("vm.swappiness", str(wanted), str(expect), operator))

    if effective != expect or satisfied(operator, str(wanted), str(effective)):
        assert kernel.writes() == []
    else:
        assert kernel.value("vm.swappiness") == str(wanted)
    assert (states(status)["vm.swappiness"] == "Moved") == (
        effective != expect and not satisfied(operator, str(wanted), str(effective))
    )


MENU = {
    "vm.swappiness": ["1", "10", "60", "100"],
    "vm.max_map_count": ["262144", "1048576"],
    "vm.dirty_ratio": ["5", "10", "40"],
    "vm.dirty_bytes": ["1048576", "8388608"],
    "vm.dirty_background_bytes": ["1048576", "2097152"],
    "net.ipv4.tcp_rmem": ["4096 87380 268435456"],
    "transparent_hugepage.enabled": ["always", "never"],
    "block.nvme.read_ahead_kb": ["4096", "128"],
    "hugepages-2Mi": ["128", "512"],
    "module.ib_umad": ["loaded"],
    "cpu.scaling_governor": ["performance"],
    "cmdline.iommu": ["pt"],
}


@st.composite
def steps(draw):
    """A few steps, each some keys and values; never both of a coupled pair."""
    out = []
    for _ in range(draw(st.integers(1, 3))):
        chosen = draw(st.lists(st.sampled_from(sorted(MENU)), min_size=1, max_size=5, unique=True))
        if "vm.dirty_ratio" in chosen and "vm.dirty_bytes" in chosen:
            chosen.remove("vm.dirty_ratio")
        out.append({key: draw(st.sampled_from(MENU[key])) for key in chosen})
    return out


@settings(max_examples=400, deadline=None)
@given(steps(), st.integers(0, 40), st.booleans(), st.integers(0, 20))
def test_apply_then_restore_gives_the_originals_back_wherever_the_power_fails(plan, cut_apply, before, cut_restore):
    kernel = Kernel()
    agent = Agent(kernel)
    original = kernel.tuned()
    kernel.before, kernel.fuse = before, cut_apply
    touched: set[str] = set()
    for step in plan:
        now = {key: agent.core._node.answer(key) for key in step}
        through(agent, lambda s=step, n=now: agent.ask(*(want(k, v, n[k]) for k, v in s.items())))
        touched |= set(step)
    kernel.fuse = cut_restore
    entries = Journal(kernel).content.entries
    expect = {key: agent.core._node.answer(key) for key in touched}
    restores = tuple(Restore(key, None, expect[key]) for key in sorted(touched) if key in entries)
    status = through(agent, lambda: agent.ask(restore=restores))

    assert set(states(status).values()) <= {"Restored", "PendingRestart"}
    assert kernel.tuned() == original
    kernel.reboot()
    assert kernel.tuned() == original
    assert kernel.disk == {}
    assert Journal(kernel).content.entries == {}


def test_huge_pages_restored_across_a_power_cut_still_make_the_kubelet_wait(agent, kernel):
    agent.ask(want("hugepages-2Mi", "512", "0"))
    agent.core._node.journal.content.pending.clear()  # as after a kubelet restart
    agent.core._node.journal.save()
    kernel.fuse, kernel.before = 1, False  # journal, then the write itself, then dark
    with pytest.raises(PowerCut):
        agent.ask(restore=(Restore("hugepages-2Mi", "0", "512"),))
    assert kernel.live[HUGE] == "0"
    kernel.fuse = None
    agent.restart()

    assert states(agent.again()) == {"hugepages-2Mi": "PendingRestart"}
