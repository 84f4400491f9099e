"""Originals come back: from the journal first, for coupled keys together, after any interruption."""

from __future__ import annotations

from itertools import permutations

import pytest

from agent.boot_loader import DROP_IN
from agent.journal import Journal
from agent.persisted import MODULES, SYSCTL
from contract import keys
from contract.nodetuning import Restore
from tests.agent.kernel import HUGE, SYS, Agent, Kernel, states, want


def test_an_original_that_the_journal_knows_otherwise_is_not_put_back(agent, kernel):
    """The agent cannot know which of the two is right: the step is held with both, and nothing of it is written."""
    agent.ask(want("vm.swappiness", "10", "60"))
    kernel.effects.clear()

    status = agent.ask(want("net.core.rmem_max", "425984", "212992"), restore=(Restore("vm.swappiness", "30", "10"),))

    assert states(status) == {"vm.swappiness": "Moved", "net.core.rmem_max": "Observed"}
    reason = status.setting("vm.swappiness").reason
    assert "30" in reason
    assert "60" in reason
    assert kernel.writes() == []
    assert kernel.value("vm.swappiness") == "10"


def test_the_control_plane_s_original_helps_when_the_journal_is_lost(agent, kernel):
    agent.ask(want("vm.swappiness", "10", "60"))
    kernel.journal = None
    agent.restart()

    assert states(agent.ask(restore=(Restore("vm.swappiness", "60", "10"),))) == {"vm.swappiness": "Restored"}
    assert kernel.value("vm.swappiness") == "60"


def test_without_any_original_nothing_is_put_back(agent, kernel):
    kernel.live[SYS + "vm/swappiness"] = "10"

    assert states(agent.ask(restore=(Restore("vm.swappiness", None, "10"),))) == {"vm.swappiness": "Failed"}
    assert kernel.writes() == []


def test_a_value_somebody_changed_since_is_not_put_back(agent, kernel):
    agent.ask(want("vm.swappiness", "10", "60"))
    kernel.live[SYS + "vm/swappiness"] = "15"

    assert states(agent.ask(restore=(Restore("vm.swappiness", "60", "10"),))) == {"vm.swappiness": "Moved"}
    assert kernel.value("vm.swappiness") == "15"


@pytest.mark.parametrize("key", ["kernel.core_pattern", "kernel.modprobe", "vm.some_new_key"])
def test_what_may_never_be_set_is_not_put_back_either(agent, kernel, key):
    """The author of a spec might call anything an original."""
    kernel.live[SYS + key.replace(".", "/")] = "core"

    assert states(agent.ask(restore=(Restore(key, "|/bin/sh", "core"),))) == {key: "Denied"}
    assert kernel.writes() == []


DENIED_ORIGINALS = [
    ("kernel.yama.ptrace_scope", "1", "3"),
    ("vm.panic_on_oom", "0", "2"),
    ("kernel.panic", "10", "0"),
    ("hugepages-2Mi", "0", "99999999"),
    ("net.core.default_qdisc", "fq", "fq\nkernel.core_pattern = |/bin/sh"),
    ("net.core.default_qdisc", "fq", "$(reboot)"),
    ("transparent_hugepage.enabled", "madvise", "always never"),
]


@pytest.mark.parametrize(("key", "now", "original"), DENIED_ORIGINALS)
def test_an_original_that_may_never_be_set_is_not_put_back_without_a_journal_either(agent, kernel, key, now, original):
    if keys.kind_of(key) is keys.KeyKind.SYSCTL:
        kernel.live[SYS + key.replace(".", "/")] = now

    status = agent.ask(restore=(Restore(key, original, now),))

    assert states(status) == {key: "Denied"}
    assert kernel.writes() == []


def test_nor_where_the_journal_knows_it_and_nothing_beside_it_is_written(agent, kernel):
    kernel.live[SYS + "kernel/panic"] = "0"
    agent.ask(want("kernel.panic", "10", "0"))

    status = agent.ask(want("vm.swappiness", "10", "60"), restore=(Restore("kernel.panic", "0", "10"),))

    assert states(status) == {"kernel.panic": "Denied", "vm.swappiness": "Observed"}
    assert (kernel.value("kernel.panic"), kernel.value("vm.swappiness")) == ("10", "60")


def test_the_original_is_the_one_before_the_first_write_not_the_last(agent, kernel):
    agent.ask(want("vm.swappiness", "10", "60"))
    status = agent.ask(want("vm.swappiness", "5", "10"))
    assert status.setting("vm.swappiness").original == "60"

    agent.ask(restore=(Restore("vm.swappiness", "60", "5"),))
    assert kernel.value("vm.swappiness") == "60"


@pytest.mark.parametrize(
    "keys", [("vm.dirty_bytes",), ("vm.dirty_bytes", "vm.dirty_ratio"), ("vm.dirty_ratio", "vm.dirty_bytes")]
)
def test_putting_0_bytes_back_does_not_zero_the_ratio(agent, kernel, keys):
    agent.ask(want("vm.dirty_bytes", "1048576", "0"))
    assert (kernel.value("vm.dirty_ratio"), kernel.value("vm.dirty_bytes")) == ("0", "1048576")

    originals = {"vm.dirty_bytes": "0", "vm.dirty_ratio": "20"}
    expects = {"vm.dirty_bytes": "1048576", "vm.dirty_ratio": "0"}
    status = agent.ask(restore=tuple(Restore(k, originals[k], expects[k]) for k in keys))

    assert (kernel.value("vm.dirty_ratio"), kernel.value("vm.dirty_bytes")) == ("20", "0")
    assert set(states(status).values()) == {"Restored"}
    assert Journal(kernel).content.entries == {}
    assert SYSCTL not in kernel.disk


def test_a_lost_journal_and_half_a_coupled_pair_are_not_guessed_at(agent, kernel):
    agent.ask(want("vm.dirty_bytes", "1048576", "0"))
    kernel.journal = None
    agent.restart()

    status = agent.ask(restore=(Restore("vm.dirty_bytes", "0", "1048576"),))

    assert states(status) == {"vm.dirty_bytes": "Failed"}
    assert "vm.dirty_ratio" in status.setting("vm.dirty_bytes").reason
    assert kernel.value("vm.dirty_bytes") == "1048576"


def test_a_revision_may_move_from_one_coupled_key_to_the_other(agent, kernel):
    agent.ask(want("vm.dirty_bytes", "1048576", "0"))

    status = agent.ask(want("vm.dirty_ratio", "5", "0"), restore=(Restore("vm.dirty_bytes", "0", "1048576"),))

    assert states(status) == {"vm.dirty_ratio": "Effective", "vm.dirty_bytes": "Restored"}
    agent.ask(restore=(Restore("vm.dirty_ratio", "20", "5"),))
    assert (kernel.value("vm.dirty_ratio"), kernel.value("vm.dirty_bytes")) == ("20", "0")


def test_a_key_that_left_the_spec_is_an_orphan_and_stays_as_it_is(agent, kernel):
    agent.ask(want("vm.swappiness", "10", "60"))
    kernel.effects.clear()

    status = agent.ask()

    assert states(status) == {"vm.swappiness": "Orphaned"}
    assert status.setting("vm.swappiness").original == "60"
    assert kernel.writes() == []
    assert kernel.value("vm.swappiness") == "10"


def test_no_object_means_that_nothing_is_changed(agent, kernel):
    agent.ask(want("vm.swappiness", "10", "60"))
    kernel.effects.clear()

    agent.core.forget()

    assert kernel.effects == []
    assert agent.core.restart(lambda: None, lambda status: None) is None


def test_a_module_is_unloaded_only_when_it_was_absent_before_and_nobody_uses_it(agent, kernel):
    agent.ask(want("module.ib_umad", "loaded", None))
    assert kernel.disk[MODULES].endswith("\nib_umad\n")
    kernel.live["/sys/module/ib_umad/refcnt"] = "2"

    status = agent.ask(restore=(Restore("module.ib_umad", None, "loaded"),))

    assert states(status) == {"module.ib_umad": "PendingRestart"}
    assert "in use (2)" in status.setting("module.ib_umad").reason
    assert MODULES not in kernel.disk
    kernel.reboot()
    agent.restart()
    assert states(agent.again()) == {"module.ib_umad": "Restored"}


@pytest.mark.parametrize("order", list(permutations(["ib_uverbs", "rdma_ucm", "rdma_rxe"])))
def test_modules_are_unloaded_before_those_that_they_use(agent, kernel, order):
    """The kernel has ib_uverbs held by the two others."""
    names = [f"module.{name}" for name in order]
    agent.ask(*(want(name, "loaded", None) for name in names))
    kernel.hold("ib_uverbs", "rdma_ucm", "rdma_rxe")

    status = agent.ask(restore=tuple(Restore(name, None, "loaded") for name in names))

    assert set(states(status).values()) == {"Restored"}
    assert not kernel.glob("/sys/module/ib_uverbs/*")


def test_a_module_that_another_program_loaded_keeps_what_it_uses(agent, kernel):
    agent.ask(want("module.ib_uverbs", "loaded", None), want("module.rdma_ucm", "loaded", None))
    kernel.hold("ib_uverbs", "rdma_ucm", "mlx5_ib")

    status = agent.ask(restore=tuple(Restore(f"module.{name}", None, "loaded") for name in ("ib_uverbs", "rdma_ucm")))

    assert states(status) == {"module.ib_uverbs": "PendingRestart", "module.rdma_ucm": "Restored"}


def test_an_unused_module_is_unloaded(agent, kernel):
    agent.ask(want("module.ib_umad", "loaded", None))

    assert states(agent.ask(restore=(Restore("module.ib_umad", None, "loaded"),))) == {"module.ib_umad": "Restored"}
    assert ("run", "UNLOAD", "ib_umad") in kernel.effects


def test_a_module_that_was_there_is_never_unloaded(agent, kernel):
    kernel.live["/sys/module/ib_umad/initstate"] = "live"
    agent.ask(want("module.ib_umad", "loaded", "loaded"))

    agent.ask(restore=(Restore("module.ib_umad", "loaded", "loaded"),))

    assert not any(effect[0] == "run" for effect in kernel.effects)


def test_a_kernel_argument_goes_through_the_drop_in_and_a_boot_and_back(agent, kernel):
    status = agent.ask(want("cmdline.iommu", "pt", None), want("cmdline.nosoftlockup", "present", None))
    assert set(states(status).values()) == {"PendingRestart"}
    assert kernel.disk[DROP_IN].endswith('GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX iommu=pt nosoftlockup"\n')

    kernel.reboot()
    agent.restart()
    assert set(states(agent.again()).values()) == {"Effective"}
    assert kernel.cmdline()["quiet"] == "present"  # foreign arguments stay

    restores = (Restore("cmdline.iommu", None, "pt"), Restore("cmdline.nosoftlockup", None, "present"))
    assert set(states(agent.ask(restore=restores)).values()) == {"PendingRestart"}
    assert DROP_IN not in kernel.disk
    kernel.reboot()
    agent.restart()
    assert set(states(agent.again()).values()) == {"Restored"}
    assert "iommu" not in kernel.cmdline()


def test_a_boot_that_did_not_bring_the_argument_is_no_success(agent, kernel):
    agent.ask(want("cmdline.iommu", "pt", None))
    kernel.grub_done = ""
    kernel.reboot()
    agent.restart()

    status = agent.again()

    assert states(status) == {"cmdline.iommu": "NotEffective"}
    assert "no such argument" in status.setting("cmdline.iommu").reason


def test_a_menu_that_a_power_cut_took_back_is_written_again(agent, kernel):
    agent.ask(want("cmdline.iommu", "pt", None))
    kernel.reboot()
    agent.restart()
    assert states(agent.again()) == {"cmdline.iommu": "Effective"}
    kernel.grub_done = ""  # as it was before; the drop-in and the journal were written through
    kernel.reboot()
    agent.restart()
    agent.again()
    assert "iommu" not in kernel.cmdline(), "no boot without a grant"

    kernel.reboot()

    assert kernel.cmdline()["iommu"] == "pt"


def test_a_failed_update_grub_is_said_and_tried_again(agent, kernel):
    from agent.host import Command

    kernel.codes[Command.UPDATE_GRUB] = 1
    assert states(agent.ask(want("cmdline.iommu", "pt", None))) == {"cmdline.iommu": "Failed"}

    kernel.codes.clear()
    agent.now += 601
    assert states(agent.core.verify()) == {"cmdline.iommu": "PendingRestart"}
    assert "iommu=pt" in kernel.grub_done


def test_grubby_hosts_get_the_argument_by_command(agent, kernel):
    kernel.programs = {"grubby"}

    assert states(agent.ask(want("cmdline.iommu", "pt", None))) == {"cmdline.iommu": "PendingRestart"}
    assert ("run", "GRUBBY_ADD", "iommu=pt") in kernel.effects
    assert states(agent.ask(restore=(Restore("cmdline.iommu", None, None),))) == {"cmdline.iommu": "Restored"}
    assert ("run", "GRUBBY_REMOVE", "iommu=pt") in kernel.effects


def test_grubby_hosts_know_a_boot_that_brought_an_argument_after_one_that_lacked_another(agent, kernel):
    """No menu of ours is made there, so none may be called stale: a boot would never count as one with arguments."""
    kernel.programs = {"grubby"}
    agent.ask(want("cmdline.iommu", "pt", None))
    kernel.live["/proc/cmdline"] += " iommu=pt"
    kernel.boots += 1
    agent.restart()
    assert states(agent.again()) == {"cmdline.iommu": "Effective"}
    kernel.live["/proc/cmdline"] = "ro quiet"  # a boot without it
    kernel.boots += 1
    agent.restart()
    agent.again()

    agent.ask(want("cmdline.nosoftlockup", "present", None))
    kernel.live["/proc/cmdline"] += " nosoftlockup"
    kernel.boots += 1
    agent.restart()
    agent.again()

    assert not agent.core._node.journal.content.boot_loader_stale
    assert not agent.core._node.journal.content.pending


def test_a_host_without_a_boot_loader_tool_says_so(agent, kernel):
    kernel.programs = set()

    status = agent.ask(want("cmdline.iommu", "pt", None))

    assert states(status) == {"cmdline.iommu": "Unsupported"}
    assert status.setting("cmdline.iommu").reason.startswith("unsupported here: ")


def test_a_node_that_boots_keeps_what_was_written(agent, kernel):
    agent.ask(
        want("vm.swappiness", "10", "60"),
        want("vm.dirty_bytes", "1048576", "0"),
        want("transparent_hugepage.enabled", "always", "madvise"),
        want("hugepages-2Mi", "512", "0"),
        want("block.nvme.scheduler", "mq-deadline", "none"),
        want("cpu.scaling_governor", "performance", "powersave"),
    )
    kernel.reboot()
    agent.restart()

    assert set(states(agent.again()).values()) == {"Effective"}


def test_uneven_pools_of_numa_nodes_are_put_back_as_they_were():
    pools = {n: f"/sys/devices/system/node/node{n}/hugepages/hugepages-2048kB/nr_hugepages" for n in (0, 1)}
    kernel = Kernel(**{pools[0]: "100", pools[1]: "28"})
    agent = Agent(kernel)
    assert states(agent.ask(want("hugepages-2Mi.node1", "512", "28"))) == {"hugepages-2Mi.node1": "PendingRestart"}
    assert (kernel.live[pools[0]], kernel.live[pools[1]]) == ("100", "512")
    assert "/sys/devices/system/node/node1/hugepages/" in kernel.disk["/etc/tmpfiles.d/setpoint.conf"]

    agent.ask(restore=(Restore("hugepages-2Mi.node1", None, "512"),))
    assert (kernel.live[pools[0]], kernel.live[pools[1]]) == ("100", "28")

    # For the whole node the kernel spreads evenly; what it spread is put back pool by pool.
    def spread(path, value):
        Kernel._take(kernel, path, value)
        if path == HUGE:
            kernel.live |= {pool: str(int(value) // 2) for pool in pools.values()}

    kernel._take = spread
    assert agent.ask(want("hugepages-2Mi", "512", "128")).setting("hugepages-2Mi").effective == "512"
    assert kernel.live[pools[1]] == "256"
    agent.ask(restore=(Restore("hugepages-2Mi", None, "512"),))
    assert (kernel.live[pools[0]], kernel.live[pools[1]]) == ("100", "28")
