"""Law 2 on the node: nothing is written over a value the plan did not see; law 8: only the kernel's answer counts."""

from __future__ import annotations

import errno

import pytest

from agent.persisted import SYSCTL, TMPFILES
from contract.nodetuning import MAX_SETTINGS, Restore
from tests.agent.kernel import HUGE, SYS, THP, Kernel, states, want


def test_a_value_the_plan_saw_is_written_verified_and_persisted(agent, kernel):
    status = agent.ask(want("vm.swappiness", "10", "60"))

    assert kernel.value("vm.swappiness") == "10"
    report = status.setting("vm.swappiness")
    assert (report.state, report.written, report.effective, report.original) == ("Effective", "10", "10", "60")
    assert "vm.swappiness = 10\n" in kernel.disk[SYSCTL]
    assert status.condition("Applied").status == status.condition("Effective").status == "True"
    assert status.observed_generation == 1


def test_a_moved_value_is_not_written_and_holds_the_whole_step(agent, kernel):
    kernel.live[SYS + "vm/swappiness"] = "42"

    status = agent.ask(want("vm.swappiness", "10", "60"), want("net.core.rmem_max", "500000", "212992"))

    assert kernel.writes() == []
    assert states(status) == {"vm.swappiness": "Moved", "net.core.rmem_max": "Observed"}
    assert "the plan saw 60, the kernel answers 42" in status.setting("vm.swappiness").reason
    assert "vm.swappiness" in status.setting("net.core.rmem_max").reason
    assert status.condition("Applied").reason == "Moved"


def test_a_moved_step_stays_unwritten_when_the_agent_restarts_and_the_value_comes_back(agent, kernel):
    kernel.live[SYS + "vm/swappiness"] = "42"
    agent.ask(want("vm.swappiness", "10", "60"))
    kernel.live[SYS + "vm/swappiness"] = "60"

    agent.restart()
    agent.again()

    assert kernel.writes() == []


def test_a_satisfied_raise_only_key_is_neither_written_nor_persisted(agent, kernel):
    kernel.live[SYS + "vm/max_map_count"] = "1048576"

    status = agent.ask(want("vm.max_map_count", "262144", "65530", ">="))

    assert kernel.writes() == []
    assert SYSCTL not in kernel.disk
    assert states(status) == {"vm.max_map_count": "Effective"}


def test_only_what_differs_is_written(agent, kernel):
    agent.ask(want("vm.swappiness", "60", "60"), want("net.core.rmem_max", "500000", "212992"))

    assert [w[1] for w in kernel.writes()] == [SYS + "net/core/rmem_max"]


def test_lists_compare_without_regard_to_tabs(agent, kernel):
    status = agent.ask(want("net.ipv4.tcp_rmem", "4096 87380 268435456", "4096 131072 6291456"))

    assert states(status) == {"net.ipv4.tcp_rmem": "Effective"}
    assert status.setting("net.ipv4.tcp_rmem").original == "4096 131072 6291456"


def test_a_value_the_kernel_rounds_is_reported_with_both_and_is_no_success(agent, kernel):
    kernel.rounding[SYS + "net/core/rmem_max"] = lambda v: str(min(int(v), 400000))

    status = agent.ask(want("net.core.rmem_max", "500000", "212992"))

    report = status.setting("net.core.rmem_max")
    assert (report.state, report.written, report.effective) == ("NotEffective", "500000", "400000")
    assert "500000" in report.reason
    assert "400000" in report.reason
    assert status.condition("Effective").status == "False"


def test_a_write_the_kernel_refuses_is_reported_and_leaves_no_trace(agent, kernel):
    kernel.refusing[SYS + "vm/swappiness"] = errno.EINVAL

    status = agent.ask(want("vm.swappiness", "10", "60"), want("net.core.rmem_max", "500000", "212992"))

    assert states(status) == {"vm.swappiness": "Failed", "net.core.rmem_max": "Effective"}
    assert "swappiness" not in kernel.disk[SYSCTL]
    assert status.setting("vm.swappiness").written is None


def test_a_refused_second_write_keeps_what_the_first_one_persisted(agent, kernel):
    agent.ask(want("vm.swappiness", "10", "60"))
    kernel.refusing[SYS + "vm/swappiness"] = errno.EINVAL

    agent.ask(want("vm.swappiness", "300", "10"))

    assert "vm.swappiness = 10\n" in kernel.disk[SYSCTL]
    del kernel.refusing[SYS + "vm/swappiness"]
    agent.ask(restore=(Restore("vm.swappiness", None, "10"),))
    assert kernel.value("vm.swappiness") == "60"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kernel.core_pattern", "core"),
        ("kernel.modules_disabled", "1"),
        ("vm.panic_on_oom", "2"),
        ("vm.overcommit_memory", "2"),
        ("net.ipv4.ip_forward", "1"),
        ("net.ipv4.conf.all.forwarding", "1"),
        ("vm.laptop_mode", "1"),
        ("vm/swappiness", "1"),
        ("vm..swappiness", "1"),
        ("vm.swappiness\n", "1"),
        ("../../etc/passwd", "1"),
        ("cmdline.init", "/bin/sh"),
        ("kubelet.cpuManagerPolicyOptions.align-by-socket", "true"),
        ("vm.swappiness", "1\nkernel.core_pattern = |/bin/sh"),
        ("cmdline.iommu", "pt$(reboot)"),
        ("cmdline.pci", "realloc=off;reboot"),
        ("module.ib_umad", "unloaded"),
        ("hugepages-2Mi", "-1"),
    ],
)
def test_what_may_never_be_set_is_refused_on_the_node_whatever_the_spec_says(agent, kernel, key, value):
    status = agent.ask(want(key, value, None), want("net.core.rmem_max", "500000", "212992"))

    assert kernel.writes() == []
    assert kernel.disk == {}
    assert status.settings[0].state == "Denied"


def test_a_key_the_kernel_lacks_holds_the_step(agent, kernel):
    status = agent.ask(want("net.netfilter.nf_conntrack_max", "1048576", None), want("vm.swappiness", "10", "60"))

    assert states(status) == {"net.netfilter.nf_conntrack_max": "Unsupported", "vm.swappiness": "Observed"}
    assert kernel.writes() == []


def test_a_module_of_the_step_may_bring_the_key(agent, kernel):
    settings = (
        want("net.netfilter.nf_conntrack_max", "1048576", None),
        want("module.nf_conntrack", "loaded", None),
    )
    status = agent.ask(*settings)

    assert states(status) == {"net.netfilter.nf_conntrack_max": "Effective", "module.nf_conntrack": "Effective"}
    assert status.setting("net.netfilter.nf_conntrack_max").original == "262144"
    kernel.reboot()
    assert kernel.value("net.netfilter.nf_conntrack_max") == "1048576"


def test_mode_observe_writes_nothing(agent, kernel):
    status = agent.ask(want("vm.swappiness", "10", "60"), mode="observe", observe=("net.core.rmem_max", "vm.bogus"))

    assert kernel.effects == []
    assert states(status) == {"vm.swappiness": "Observed"}
    assert status.observed == {"vm.swappiness": "60", "net.core.rmem_max": "212992"}


def test_coupled_keys_both_set_contradict_each_other(agent, kernel):
    status = agent.ask(want("vm.dirty_ratio", "5", "20"), want("vm.dirty_bytes", "1048576", "0"))

    assert kernel.writes() == []
    assert set(states(status).values()) == {"Denied"}


def test_a_coupled_zero_is_what_the_kernel_does_itself(agent, kernel):
    status = agent.ask(want("vm.dirty_ratio", "0", "20"), want("vm.dirty_bytes", "1048576", "0"))

    assert set(states(status).values()) == {"Effective"}
    assert [w[1] for w in kernel.writes()] == [SYS + "vm/dirty_bytes"]


def test_huge_pages_wait_for_the_kubelet_and_partial_ones_are_reported(agent, kernel):
    status = agent.ask(want("hugepages-2Mi", "512", "0"))
    assert states(status) == {"hugepages-2Mi": "PendingRestart"}
    assert status.condition("RestartRequired").reason == "Kubelet"
    assert "nr_hugepages - - - - 512" in kernel.disk[TMPFILES]

    kernel.free_pages = 700
    status = agent.ask(want("hugepages-2Mi", "1024", "512"))
    assert states(status) == {"hugepages-2Mi": "NotEffective"}
    assert "the kernel answers 700" in status.setting("hugepages-2Mi").reason
    assert len([w for w in kernel.writes() if w[2] == "1024"]) > 1  # it tried again


def test_huge_pages_that_would_take_the_node_s_memory_are_refused(agent, kernel):
    status = agent.ask(want("hugepages-2Mi", "8000", "0"))

    assert states(status) == {"hugepages-2Mi": "Denied"}
    assert kernel.live[HUGE] == "0"


def test_transparent_huge_pages_are_the_word_in_brackets(agent, kernel):
    status = agent.ask(want("transparent_hugepage.enabled", "always", "madvise"))
    assert states(status) == {"transparent_hugepage.enabled": "Effective"}
    assert kernel.live[THP] == "[always] madvise never"

    status = agent.ask(want("transparent_hugepage.enabled", "sometimes", "always"))
    assert "always, madvise, never" in status.setting("transparent_hugepage.enabled").reason


def test_disks_that_differ_are_each_raised_and_each_put_back(agent, kernel):
    key = "block.nvme.read_ahead_kb"
    status = agent.ask(want(key, "4096", "mixed:128,8192", ">="))

    assert kernel.writes() == [("write", "/sys/block/nvme0n1/queue/read_ahead_kb", "4096")]
    assert states(status) == {key: "Effective"}

    status = agent.ask(restore=(Restore(key, None, "mixed:4096,8192"),))
    assert states(status) == {key: "Restored"}
    assert kernel.live["/sys/block/nvme0n1/queue/read_ahead_kb"] == "128"
    assert kernel.live["/sys/block/nvme1n1/queue/read_ahead_kb"] == "8192"


def test_a_governor_no_cpu_offers_is_refused_and_none_at_all_is_unsupported(agent, kernel):
    assert states(agent.ask(want("cpu.scaling_governor", "schedutil", "powersave"))) == {
        "cpu.scaling_governor": "Failed"
    }
    assert states(agent.ask(want("cpu.scaling_governor", "performance", "powersave"))) == {
        "cpu.scaling_governor": "Effective"
    }
    virtual = Kernel()
    for path in [p for p in virtual.live if "cpufreq" in p]:
        del virtual.live[path]
    agent.kernel = virtual
    agent.restart()
    assert states(agent.ask(want("cpu.scaling_governor", "performance", None))) == {
        "cpu.scaling_governor": "Unsupported"
    }


def test_files_that_cannot_be_written_are_said_and_the_live_value_stands(agent, kernel):
    kernel.refusing[SYSCTL] = errno.EROFS

    status = agent.ask(want("vm.swappiness", "10", "60"))

    assert states(status) == {"vm.swappiness": "Effective"}
    assert "until the next boot" in status.setting("vm.swappiness").reason
    assert (status.condition("Degraded").status, status.condition("Degraded").reason) == ("True", "NotPersisted")


def test_a_status_never_lists_more_than_the_contract_allows(agent, kernel):
    keys = [f"vm.key_{n}" for n in range(MAX_SETTINGS)]
    agent.ask(want("vm.swappiness", "10", "60"))
    status = agent.ask(*(want(key, "1", "1") for key in keys))
    assert len(status.settings) == MAX_SETTINGS


def test_a_value_that_would_leave_the_machine_unusable_is_refused(agent, kernel):
    """The agent judges by its own memory and cores, not by those the plan assumed."""
    kernel.live["/proc/meminfo"] = "MemTotal:       8388608 kB"
    kernel.live[SYS + "vm/min_free_kbytes"] = "67584"

    status = agent.ask(want("vm.min_free_kbytes", "4194304", "67584"))

    assert kernel.writes() == []
    assert states(status) == {"vm.min_free_kbytes": "Denied"}
    assert "memory" in status.setting("vm.min_free_kbytes").reason


@pytest.mark.parametrize(
    ("now", "operator"),
    [("126000", "="), ("20", "="), ("10", ">=")],
    ids=["lowered", "there already", "raised to it"],
)
def test_a_value_too_low_for_any_machine_is_refused(agent, kernel, now, operator):
    """The gate judges what a value would take; that it is too little is judged of wishes, also one that holds."""
    kernel.live[SYS + "kernel/threads-max"] = now

    status = agent.ask(want("kernel.threads-max", "20", now, operator=operator))

    assert kernel.writes() == []
    assert states(status) == {"kernel.threads-max": "Denied"}
