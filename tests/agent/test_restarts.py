"""Restart grants: once, for the boot they name, confirmed past every cache, journalled before anything ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.host import Command
from contract.nodetuning import RestartGrant
from tests.agent.kernel import EXPIRES, PowerCut, states, want

PAGES = want("hugepages-2Mi", "512", "0")


def grant(action="kubelet", boot="boot-1", name="grant-1"):
    return RestartGrant(name, action, boot, EXPIRES)


def ran(kernel):
    return [effect[1] for effect in kernel.effects if effect[0] == "run"]


def test_a_kubelet_restart_makes_huge_pages_effective(agent, kernel):
    assert states(agent.ask(PAGES)) == {"hugepages-2Mi": "PendingRestart"}
    agent.ask(PAGES, restart=grant())
    announced = []

    status = agent.core.restart(agent.confirm, announced.append)

    assert ran(kernel) == ["RESTART_KUBELET"]
    assert [a.restart.state for a in announced] == ["Journalled"]
    assert (status.restart.id, status.restart.state) == ("grant-1", "Done")
    assert states(status) == {"hugepages-2Mi": "Effective"}
    assert status.condition("RestartRequired").status == "False"


def test_the_grant_is_journalled_before_the_command(agent, kernel):
    agent.ask(PAGES, restart=grant("reboot"))
    seen = []
    agent.core.restart(agent.confirm, lambda status: seen.append((kernel.journal, ran(kernel))))

    [(journal, commands)] = seen
    assert "grant-1" in journal
    assert commands == []


def test_a_spent_grant_is_never_carried_out_again(agent, kernel):
    agent.ask(PAGES, restart=grant())
    agent.core.restart(agent.confirm, lambda status: None)
    agent.restart()
    status = agent.again()

    assert agent.core.restart(agent.confirm, lambda s: None) is None
    agent.ask(PAGES, restart=grant(), attempt=2)
    assert agent.core.restart(agent.confirm, lambda s: None) is None
    assert ran(kernel) == ["RESTART_KUBELET"]
    assert status.restart.state == "Done"


def test_a_grant_for_another_boot_is_refused_and_stays_refused(agent, kernel):
    agent.ask(PAGES, restart=grant("reboot", boot="boot-0"))

    status = agent.core.restart(agent.confirm, lambda s: None)

    assert status.restart.state == "Refused"
    assert "boot-0" in status.restart.reason
    assert ran(kernel) == []


@pytest.mark.parametrize("change", ["gone", "withdrawn", "another grant", "another node"])
def test_what_the_api_server_says_just_before_counts(agent, kernel, change):
    agent.ask(PAGES, restart=grant("reboot"))
    fresh = {
        "gone": None,
        "withdrawn": replace(agent.spec, restart=None),
        "another grant": replace(agent.spec, restart=grant("reboot", name="grant-2")),
        "another node": replace(agent.spec, node_uid="uid-2"),
    }[change]

    agent.core.restart(lambda: fresh and agent.confirm(fresh), lambda s: None)

    assert ran(kernel) == []


def test_mode_observe_restarts_nothing(agent, kernel):
    agent.ask(mode="observe", restart=grant("reboot"))

    assert agent.core.restart(agent.confirm, lambda s: None).restart.state == "Refused"
    assert ran(kernel) == []


def test_a_reboot_is_done_when_the_boot_is_another(agent, kernel):
    agent.ask(want("cmdline.iommu", "pt", None), restart=grant("reboot"))
    agent.core.restart(agent.confirm, lambda s: None)
    agent.restart()

    status = agent.again()

    assert (status.boot_id, status.restart.state) == ("boot-2", "Done")
    assert states(status) == {"cmdline.iommu": "Effective"}
    assert agent.core.restart(agent.confirm, lambda s: None) is None


@pytest.mark.parametrize(("before", "expected", "times"), [(True, "Refused", 0), (False, "Done", 1)])
def test_an_agent_killed_around_the_command_never_repeats_it(agent, kernel, before, expected, times):
    agent.ask(PAGES, restart=grant())
    kernel.before, kernel.fuse = before, 1  # the journal's word, then the command
    with pytest.raises(PowerCut):
        agent.core.restart(agent.confirm, lambda s: None)
    kernel.fuse = None
    agent.restart()

    status = agent.again()

    assert status.restart is not None, "nobody remembers the grant"
    assert status.restart.state == expected
    assert agent.core.restart(agent.confirm, lambda s: None) is None
    assert len(ran(kernel)) == times
    assert states(status) == {"hugepages-2Mi": "Effective" if times else "PendingRestart"}


def test_a_restart_that_fails_is_reported(agent, kernel):
    kernel.codes[Command.RESTART_KUBELET] = 5
    agent.ask(PAGES, restart=grant())

    status = agent.core.restart(agent.confirm, lambda s: None)

    assert status.restart.state == "Refused"
    assert "answered 5" in status.restart.reason
    assert states(status) == {"hugepages-2Mi": "PendingRestart"}


@pytest.mark.parametrize("code", [-15, -9, 124])
def test_a_reboot_whose_command_was_ended_may_be_on_its_way_and_is_not_called_refused(agent, kernel, code):
    """A node that goes down ends every process: `systemctl reboot` itself, while the agent still runs."""
    kernel.codes[Command.REBOOT] = code
    agent.ask(want("cmdline.iommu", "pt", None), restart=grant("reboot"))

    status = agent.core.restart(agent.confirm, lambda s: None)

    assert status.restart.state == "Journalled"
    kernel.reboot()
    agent.restart()
    status = agent.again()
    assert (status.restart.state, states(status)) == ("Done", {"cmdline.iommu": "Effective"})


@pytest.mark.parametrize(
    ("expires", "date", "why"),
    [
        (EXPIRES, 3600.0, "over"),
        (EXPIRES, 1e9, "over"),
        (EXPIRES, None, "no Date"),
        ("", 0.0, "no end"),
        ("tomorrow", 0.0, "no time"),
    ],
)
def test_a_grant_counts_until_its_end_by_the_api_servers_clock(agent, kernel, expires, date, why):
    """The node's own clock says nothing: it may be wrong by years."""
    agent.ask(PAGES, restart=replace(grant("reboot"), expires=expires))

    status = agent.core.restart(lambda: agent.confirm(date=date), lambda s: None)

    assert ran(kernel) == []
    assert status.restart.state == "Refused"
    assert why in status.restart.reason
    assert agent.core.restart(agent.confirm, lambda s: None) is None, "a refused grant stays refused"


def test_a_grant_is_carried_out_to_its_last_second(agent, kernel):
    agent.ask(PAGES, restart=grant("reboot"))
    agent.core.restart(lambda: agent.confirm(date=3599.0), lambda s: None)
    assert ran(kernel) == ["REBOOT"]


def test_a_confirmed_grant_does_not_wait_for_ever_on_a_slow_machine(agent, kernel):
    """A withdrawal waits a minute and returns the node: after that the grant must not count any more."""
    agent.ask(PAGES, restart=grant("reboot"))

    def announce(status):
        agent.now += 31

    status = agent.core.restart(agent.confirm, announce)

    assert ran(kernel) == []
    assert status.restart.state == "Refused"


def test_a_journalled_grant_whose_time_is_over_is_not_begun_by_the_next_agent(agent, kernel):
    agent.ask(PAGES, restart=grant())
    kernel.before, kernel.fuse = True, 1
    with pytest.raises(PowerCut):
        agent.core.restart(agent.confirm, lambda s: None)
    kernel.fuse = None
    agent.restart()
    agent.again()

    agent.core.restart(lambda: agent.confirm(date=1e9), lambda s: None)

    assert ran(kernel) == []
