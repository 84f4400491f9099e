"""Restarts that Setpoint did not make: the wait that they end is over, and its reason is reported."""

from __future__ import annotations

import pytest

from agent.host import Command
from contract.nodetuning import Restore
from tests.agent.kernel import HUGE, PowerCut, states, want
from tests.agent.test_restarts import PAGES, grant

STAT = "/proc/4242/stat"


def somebody_restarts_the_kubelet(kernel, pid="5151"):
    for name in ("comm", "stat"):
        kernel.live[f"/proc/{pid}/{name}"] = kernel.live.pop(f"/proc/4242/{name}")
    kernel.live[f"/proc/{pid}/stat"] = kernel.live[f"/proc/{pid}/stat"].replace(" 1000 0", " 7000 0")


def test_a_kubelet_restarted_by_somebody_else_has_counted_the_pages(agent, kernel):
    assert states(agent.ask(PAGES)) == {"hugepages-2Mi": "PendingRestart"}
    assert states(agent.core.verify()) == {"hugepages-2Mi": "PendingRestart"}
    somebody_restarts_the_kubelet(kernel)

    status = agent.core.verify()

    assert states(status) == {"hugepages-2Mi": "Effective"}
    assert status.setting("hugepages-2Mi").reason == "the kubelet was restarted, and not by Setpoint"
    assert status.condition("RestartRequired").status == "False"
    agent.restart()
    assert agent.again().setting("hugepages-2Mi").reason == "the kubelet was restarted, and not by Setpoint"


def test_it_is_seen_although_the_agent_was_away_meanwhile(agent, kernel):
    agent.ask(PAGES)
    somebody_restarts_the_kubelet(kernel)
    agent.restart()

    assert states(agent.again()) == {"hugepages-2Mi": "Effective"}


def test_the_same_process_number_with_another_start_is_another_run(agent, kernel):
    agent.ask(PAGES)
    kernel.live[STAT] = kernel.live[STAT].replace(" 1000 0", " 7000 0")

    assert states(agent.core.verify()) == {"hugepages-2Mi": "Effective"}


def test_a_kubelet_that_is_down_has_counted_nothing_yet(agent, kernel):
    agent.ask(PAGES)
    gone = {name: kernel.live.pop(f"/proc/4242/{name}") for name in ("comm", "stat")}
    assert states(agent.core.verify()) == {"hugepages-2Mi": "PendingRestart"}

    kernel.live |= {
        "/proc/6000/comm": gone["comm"],
        "/proc/6000/stat": gone["stat"].replace(" 1000 0", " 9000 0"),
    }
    assert states(agent.core.verify()) == {"hugepages-2Mi": "Effective"}


def test_a_kubelet_inside_of_a_pod_is_not_the_node_s(agent, kernel):
    """Clusters of containers run kubelets, whose parent is not the node's first process."""
    agent.ask(PAGES)
    kernel.live |= {"/proc/300/comm": "kubelet", "/proc/300/stat": f"300 (kubelet) S 299 {'0 ' * 17}8000 0"}
    del kernel.live["/proc/4242/comm"]

    assert states(agent.core.verify()) == {"hugepages-2Mi": "PendingRestart"}


def test_a_run_that_began_before_the_write_was_over_counts_for_nothing(agent, kernel):
    """The agent was killed after the write, and the kubelet restarted before it was back: the order is unknown."""
    kernel.before, kernel.fuse = False, 1  # the journal's word, then the write, then dark
    with pytest.raises(PowerCut):
        agent.ask(PAGES)
    assert kernel.live[HUGE] == "512"
    kernel.fuse = None
    somebody_restarts_the_kubelet(kernel)
    agent.restart()

    assert states(agent.again()) == {"hugepages-2Mi": "PendingRestart"}


def test_pages_put_back_wait_for_a_restart_of_anybody(agent, kernel):
    agent.ask(PAGES)
    somebody_restarts_the_kubelet(kernel)
    agent.core.verify()
    restore = (Restore("hugepages-2Mi", None, "512"),)
    assert states(agent.ask(restore=restore)) == {"hugepages-2Mi": "PendingRestart"}
    kernel.live["/proc/5151/stat"] = kernel.live["/proc/5151/stat"].replace(" 7000 0", " 8000 0")

    status = agent.core.verify()

    assert states(status) == {"hugepages-2Mi": "Restored"}
    assert "not by Setpoint" in status.setting("hugepages-2Mi").reason


def test_a_restart_by_grant_is_not_called_somebody_else_s(agent, kernel):
    agent.ask(PAGES, restart=grant())

    status = agent.core.restart(agent.confirm, lambda s: None)

    assert status.setting("hugepages-2Mi").reason == ""


def test_a_kubelet_restart_does_not_stand_for_a_boot(agent, kernel):
    agent.ask(want("cmdline.iommu", "pt", None))
    somebody_restarts_the_kubelet(kernel)

    assert states(agent.core.verify()) == {"cmdline.iommu": "PendingRestart"}


def test_a_boot_by_somebody_else_makes_the_argument_effective_and_is_said(agent, kernel):
    agent.ask(want("cmdline.iommu", "pt", None), PAGES)
    kernel.reboot()
    agent.restart()

    status = agent.again()

    assert states(status) == {"cmdline.iommu": "Effective", "hugepages-2Mi": "Effective"}
    assert {s.reason for s in status.settings} == {"the node was booted, and not by Setpoint"}


def test_a_boot_by_grant_is_not_called_somebody_else_s(agent, kernel):
    agent.ask(want("cmdline.iommu", "pt", None), restart=grant("reboot"))
    agent.core.restart(agent.confirm, lambda s: None)
    agent.restart()

    assert agent.again().setting("cmdline.iommu").reason == ""


def test_a_boot_that_the_boot_loader_was_not_ready_for_ends_no_wait(agent, kernel):
    kernel.codes[Command.UPDATE_GRUB] = 1
    agent.ask(want("cmdline.iommu", "pt", None))
    kernel.reboot()
    kernel.codes.clear()
    agent.restart()

    assert states(agent.again()) == {"cmdline.iommu": "PendingRestart"}  # update-grub succeeded now
    kernel.reboot()
    agent.restart()
    assert states(agent.again()) == {"cmdline.iommu": "Effective"}


def test_a_value_that_drifts_later_gives_its_own_reason(agent, kernel):
    agent.ask(PAGES)
    somebody_restarts_the_kubelet(kernel)
    agent.core.verify()
    kernel.live[HUGE] = "3"

    setting = agent.core.verify().setting("hugepages-2Mi")

    assert (setting.state, setting.reason) == ("Drifted", "the kernel answers 3")
