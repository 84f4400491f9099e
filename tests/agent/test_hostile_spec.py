"""The agent keeps to its rules and stays alive with any spec of a control plane that was taken over."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.boot_loader import DROP_IN
from agent.gate import key_of
from agent.persisted import SYSCTL
from contract import fitness, judging, key_lists, keys
from contract.fitness import GIB, MachineSize
from contract.nodetuning import LONGEST_GRANT_SECONDS, Malformed, RestartGrant, Restore, Spec, Wanted
from jobs.forecast.strategy import BOUNDS
from profiles.catalog import known_settings
from tests.agent.kernel import EXPIRES, HUGE, SYS, Agent, Kernel, states, want

GIANT = HUGE.replace("2048", "1048576")
MIB_2 = 2 << 20
PAGES = 16384000 * 1024 // MIB_2
"""Huge pages of 2 MiB that all of the test node's memory would make."""


# ── what is judged is what the kernel reads ───────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("value", ["3 0", "3 3", "3 x", "18446744073709551619", "mixed:3"])
def test_a_value_that_the_kernel_reads_as_a_denied_one_is_denied(agent, kernel, value):
    """The kernel takes the first number of `3 0` and ignores the rest: seen on Linux 6.18 with tcp_fin_timeout."""
    kernel.live[SYS + "kernel/yama/ptrace_scope"] = "1"

    assert states(agent.ask(want("kernel.yama.ptrace_scope", value, "1"))) == {"kernel.yama.ptrace_scope": "Denied"}
    assert states(agent.ask(restore=(Restore("kernel.yama.ptrace_scope", value, "1"),))) == {
        "kernel.yama.ptrace_scope": "Denied"
    }
    assert kernel.writes() == []


def test_the_agent_and_the_catalog_know_alike_how_many_values_a_sysctl_takes():
    infos = [info for info in known_settings.all() if keys.kind_of(info.key) is keys.KeyKind.SYSCTL]

    assert {info.key: info.count for info in infos if info.count > 1} == dict(key_lists.SYSCTL_WORDS)


@pytest.mark.parametrize(("key", "value"), [("kernel.shmmax", "18446744073692774399"), ("kernel.sem", "1 2 3 4")])
def test_what_kernels_have_by_themselves_can_be_written(key, value):
    assert judging.refusal(key, value) is None


def test_memory_of_the_crash_kernel_is_not_taken_away_by_a_word_for_reports(agent, kernel):
    status = agent.ask(want("cmdline.crashkernel", "mixed:512M", None))

    assert states(status) == {"cmdline.crashkernel": "Denied"}
    assert DROP_IN not in kernel.disk


def test_the_word_for_places_that_differ_is_written_nowhere(agent, kernel):
    kernel.live[SYS + "net/core/default_qdisc"] = "fq"

    assert states(agent.ask(want("net.core.default_qdisc", "mixed:fq_codel", "fq"))) == {
        "net.core.default_qdisc": "Denied"
    }
    assert kernel.writes() == []


# ── huge pages take of one memory ─────────────────────────────────────────────────────────────────────────────────
def test_a_key_that_only_looks_like_huge_pages_does_not_end_the_agent(agent, kernel):
    status = agent.ask(want("hugepages-2Mi", "10", "0"), want("hugepages-3Mi", "5", "0"))

    assert states(status) == {"hugepages-2Mi": "Observed", "hugepages-3Mi": "Denied"}
    assert fitness.together([("hugepages-3Mi", "=", "5")], MachineSize(GIB)) == ""


def test_pages_of_an_earlier_step_count_with_those_of_a_later_one(agent, kernel):
    kernel.live[GIANT] = "0"
    assert states(agent.ask(want("hugepages-2Mi", "6000", "0"))) == {"hugepages-2Mi": "PendingRestart"}

    assert states(agent.ask(want("hugepages-1Gi", "8", "0"))) == {
        "hugepages-1Gi": "Denied",
        "hugepages-2Mi": "Orphaned",
    }
    assert kernel.live[GIANT] == "0"


def test_pages_that_go_back_count_with_those_that_come(agent, kernel):
    kernel.live[GIANT] = "0"

    status = agent.ask(want("hugepages-2Mi", "6000", "0"), restore=(Restore("hugepages-1Gi", "8", "0"),))

    assert states(status) == {"hugepages-2Mi": "Denied", "hugepages-1Gi": "Denied"}
    assert kernel.writes() == []


def test_a_step_may_lower_what_others_took_too_much_of(agent, kernel):
    kernel.live[GIANT] = "14"
    kernel.live[HUGE] = "2000"

    assert states(agent.ask(want("hugepages-2Mi", "1000", "2000"))) == {"hugepages-2Mi": "PendingRestart"}


def test_one_size_may_make_room_for_the_other(agent, kernel):
    kernel.live[GIANT] = "8"

    status = agent.ask(want("hugepages-1Gi", "0", "8"), want("hugepages-2Mi", "6000", "0"))

    assert set(states(status).values()) == {"PendingRestart"}


@pytest.mark.parametrize(
    "sizes", [{"cmdline.hugepagesz": "1G"}, {"cmdline.default_hugepagesz": "1G"}, {"cmdline.hugepagesz": "1g"}]
)
def test_pages_of_the_command_line_are_of_the_size_that_it_names(agent, kernel, sizes):
    """100 pages of 2 MiB fit these 15.6 GiB, 100 of 1 GiB leave no memory to boot with."""
    status = agent.ask(want("cmdline.hugepages", "100", None), *(want(k, v, None) for k, v in sizes.items()))

    assert states(status)["cmdline.hugepages"] == "Denied"
    assert DROP_IN not in kernel.disk


@pytest.mark.parametrize(("first", "second"), [("hugepages=100", "hugepagesz=1G"), ("hugepagesz=1G", "hugepages=100")])
@pytest.mark.parametrize("booted", [False, True])
def test_the_size_and_the_count_are_judged_together_though_they_come_one_after_the_other(
    agent, kernel, first, second, booted
):
    steps = [word.partition("=")[::2] for word in (first, second)]
    agent.ask(want(f"cmdline.{steps[0][0]}", steps[0][1], None))
    if booted:
        kernel.reboot()
        agent.restart()

    assert states(agent.ask(want(f"cmdline.{steps[1][0]}", steps[1][1], None)))[f"cmdline.{steps[1][0]}"] == "Denied"
    assert second not in kernel.disk[DROP_IN]


# ── what is called an original ────────────────────────────────────────────────────────────────────────────────────
def test_what_only_the_spec_calls_an_original_is_judged_as_a_wish(agent, kernel):
    """The node has no journal that could confirm the value as an original."""
    kernel.live[SYS + "kernel/pid_max"] = "4194304"

    status = agent.ask(restore=(Restore("kernel.pid_max", "301", "4194304"),))

    assert states(status) == {"kernel.pid_max": "Denied"}
    assert "too low" in status.setting("kernel.pid_max").reason
    assert kernel.value("kernel.pid_max") == "4194304"


def test_what_the_journal_knows_goes_back_however_low_it_was(agent, kernel):
    kernel.live[SYS + "kernel/pid_max"] = "4096"
    agent.ask(want("kernel.pid_max", "65536", "4096"))

    assert states(agent.ask(restore=(Restore("kernel.pid_max", "4096", "65536"),))) == {"kernel.pid_max": "Restored"}
    assert kernel.value("kernel.pid_max") == "4096"


def test_what_only_raises_now_does_not_lower_the_next_boot(agent, kernel):
    """The file assigns: a kernel that boots with 4194304 would be left with 400."""
    kernel.live[SYS + "kernel/pid_max"] = "301"

    assert states(agent.ask(want("kernel.pid_max", "400", "301", ">="))) == {"kernel.pid_max": "Denied"}
    assert kernel.writes() == []
    assert SYSCTL not in kernel.disk


def test_a_repair_does_not_leave_it_to_the_next_boot_either(agent, kernel):
    kernel.live[SYS + "kernel/pid_max"] = "4194304"
    assert states(agent.ask(want("kernel.pid_max", "400", "4194304", ">="), mode="enforce")) == {
        "kernel.pid_max": "Effective"
    }
    kernel.live[SYS + "kernel/pid_max"] = "301"

    status = agent.core.verify()

    assert states(status) == {"kernel.pid_max": "Drifted"}
    assert "too low" in status.setting("kernel.pid_max").reason
    assert SYSCTL not in kernel.disk


@pytest.mark.parametrize("operator", ["=", ">=", "<="])
def test_the_crash_kernels_memory_is_not_taken_away_by_an_operator(agent, kernel, operator):
    kernel.live["/proc/cmdline"] += " crashkernel=512M"

    status = agent.ask(want("cmdline.crashkernel", "0M", "512M", operator))

    assert states(status) == {"cmdline.crashkernel": "Denied"}
    assert fitness.unfit("cmdline.crashkernel", operator, "0M", MachineSize(64 * GIB))


def test_a_node_that_does_not_say_its_memory_is_asked_for_none(agent, kernel):
    del kernel.live["/proc/meminfo"]

    assert states(agent.ask(want("hugepages-2Mi", "10", "0"))) == {"hugepages-2Mi": "Denied"}
    kernel.live["/proc/meminfo"] = "MemTotal:       16384000 kB"
    assert states(agent.ask(want("hugepages-2Mi", "10", "0"))) == {"hugepages-2Mi": "PendingRestart"}


def test_a_module_that_the_journal_does_not_know_is_not_unloaded(agent, kernel):
    """`modprobe -r mlx5_core` on the word of a spec would take the node's network away."""
    kernel.live |= {"/sys/module/mlx5_core/initstate": "live", "/sys/module/mlx5_core/refcnt": "0"}

    status = agent.ask(restore=(Restore("module.mlx5_core", None, "loaded"),))

    assert states(status) == {"module.mlx5_core": "PendingRestart"}
    assert "journal" in status.setting("module.mlx5_core").reason
    assert [e for e in kernel.effects if e[0] == "run"] == []


# ── nothing that can be written ends the agent ────────────────────────────────────────────────────────────────────
ODD = ["", "..", "vm", "vm.", "vm..swappiness", "vm/swappiness", "kernel/yama/ptrace_scope", "VM.SWAPPINESS",
       "net.ipv4.conf.eth0/1.x", "hugepages-", "hugepages-9Gi", "hugepages-2Mi.node00", "hugepages-2Mi.node9999",
       "block.sd", "block.sd.x", "module.", "module.a-b", "cmdline.", "cmdline.a b", "kernel.sem\n", "kernel.\u0455em",
       "vm.swappiness\x00", "\ud800", "x" * 128, "cpu", "cpu.scaling_governor.x", "transparent_hugepage.x"]  # fmt: skip
VALUES = ["", " ", "0", "-0", "+1", "1_000", "0x10", "010", "\uff11\uff10", "1 ", "1\n2", "9" * 400, "mixed:",
          "mixed:1,2", "\x00", "\\", "\ud800", "1e3", "loaded", "present", "no", "1 2 3", "fq", "a" * 512,
          "1,2", "0:1,1:2"]  # fmt: skip
key_ = (
    st.sampled_from(ODD) | st.sampled_from(sorted(key_lists.ALLOWED | key_lists.DENIED.keys())) | st.text(max_size=20)
)
value_ = st.sampled_from(VALUES) | st.text(max_size=8)
wanted_ = st.builds(Wanted, key_, st.sampled_from(["=", ">=", "<="]), value_, st.none() | value_)
restore_ = st.builds(Restore, key_, st.none() | value_, st.none() | value_)


def machine_with_everything() -> Kernel:
    """Each sysctl and module parameter that may be set is there."""
    kernel = Kernel()
    for key in key_lists.ALLOWED:
        if keys.kind_of(key) is keys.KeyKind.SYSCTL:
            kernel.live.setdefault(SYS + key.replace(".", "/"), " ".join(["1"] * key_lists.SYSCTL_WORDS.get(key, 1)))
        elif keys.kind_of(key) is keys.KeyKind.MODULE_PARAMETER:
            _, module, parameter = key.split(".")
            kernel.live[f"/sys/module/{module}/parameters/{parameter}"] = "1"
    return kernel


@settings(max_examples=300, deadline=None)
@given(
    wishes=st.lists(wanted_, max_size=4, unique_by=lambda w: w.key),
    backs=st.lists(restore_, max_size=3, unique_by=lambda r: r.key),
    mode=st.sampled_from(["apply", "enforce", "observe"]),
    observe=st.lists(key_, max_size=3),
    answered=st.booleans(),
)
def test_no_spec_ends_the_agent_and_each_write_is_one_that_may_be(wishes, backs, mode, observe, answered):
    kernel = machine_with_everything()
    agent = Agent(kernel)
    named = {w.key for w in wishes}
    backs = [r for r in backs if r.key not in named]
    if answered:  # an attacker who knows the node names what it answers
        seen = agent.ask(mode="observe", observe=tuple(w.key for w in wishes)).observed
        wishes = [Wanted(w.key, w.operator, w.value, seen.get(w.key)) for w in wishes]
    for _ in range(2):
        agent.ask(*wishes, restore=tuple(backs), mode=mode, observe=tuple(observe)).to_json()
        agent.core.verify()
        agent.restart()
    machine = MachineSize(16384000 * 1024)
    for path, value in [effect[1:] for effect in kernel.writes()]:
        key = key_of(path)
        assert key is not None
        assert judging.refusal(key, value) is None
        assert not fitness.unfit(key, ">=", value, machine)


json_ = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("nodeUID", "mode", "protocol", "attempt", "settings", "restore", "observe", "restart")


@settings(max_examples=300, deadline=None)
@given(raw=json_ | st.dictionaries(st.sampled_from(FIELDS), json_, max_size=8))
def test_what_is_no_spec_is_malformed_and_nothing_else(raw: Any):
    """JSON of any type in place of an object is refused as Malformed."""
    try:
        Spec.from_json(raw)
    except Malformed:
        pass


# ── a grant is used once ──────────────────────────────────────────────────────────────────────────────────────────
def test_a_spent_grant_is_remembered_however_many_others_are_refused(agent, kernel):
    """Refused ones that name another boot must not push it out of the journal."""
    spent = RestartGrant("g-1", "kubelet", "boot-1", EXPIRES)
    agent.ask(restart=spent)
    agent.core.restart(agent.confirm, lambda status: None)
    for number in range(80):
        agent.ask(restart=RestartGrant(f"bogus-{number}", "kubelet", "no-boot", EXPIRES))
        agent.core.restart(agent.confirm, lambda status: None)
    agent.restart()

    agent.ask(restart=spent)
    agent.core.restart(agent.confirm, lambda status: None)

    assert [effect for effect in kernel.effects if effect[:2] == ("run", "RESTART_KUBELET")] == [
        ("run", "RESTART_KUBELET")
    ]


def test_a_grant_whose_end_is_far_away_has_none(agent, kernel):
    """A clock that is wrong by years, or a backup of the cluster, would leave a grant that never ends."""
    agent.ask(restart=RestartGrant("g-1", "reboot", "boot-1", "2038-01-01T00:00:00Z"))

    status = agent.core.restart(agent.confirm, lambda status: None)

    assert status.restart.state == "Refused"
    assert "hours away" in status.restart.reason
    assert kernel.boots == 1


def test_the_longest_step_fits_the_longest_grant():
    assert BOUNDS["step_deadline_seconds"][1] < LONGEST_GRANT_SECONDS
