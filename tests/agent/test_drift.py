"""Drift, repair and contention; whose orders the agent obeys; and how little it says when nothing happens."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from agent.journal import Journal
from contract.names import PROTOCOL
from contract.nodetuning import Restore
from tests.agent.kernel import SYS, Agent, Kernel, states, want

SWAPPINESS = want("vm.swappiness", "10", "60")


def drift(kernel, value="77"):
    kernel.live[SYS + "vm/swappiness"] = value


def test_apply_reports_drift_with_the_file_that_fights_and_leaves_it(agent, kernel):
    kernel.disk["/usr/lib/sysctl.d/50-default.conf"] = "vm.swappiness = 60\n"
    kernel.disk["/etc/sysctl.d/99-zzz-other.conf"] = "# note\n-vm/swappiness=77\n"
    agent.ask(SWAPPINESS)
    drift(kernel)

    status = agent.core.verify()

    report = status.setting("vm.swappiness")
    assert (report.state, report.effective) == ("Drifted", "77")
    assert "/etc/sysctl.d/99-zzz-other.conf:2" in report.reason
    assert kernel.value("vm.swappiness") == "77"
    drift(kernel, "10")
    assert states(agent.core.verify()) == {"vm.swappiness": "Effective"}


def test_a_status_never_has_two_answers_for_one_key(agent, kernel):
    agent.ask(SWAPPINESS)
    drift(kernel)

    status = agent.core.verify(observe=False)  # most looks read the keys of the spec alone

    assert (status.setting("vm.swappiness").effective, status.observed["vm.swappiness"]) == ("77", "77")


def test_a_file_hidden_by_one_of_the_same_name_does_not_fight(agent, kernel):
    kernel.disk["/usr/lib/sysctl.d/50-x.conf"] = "vm.swappiness = 77\n"
    kernel.disk["/etc/sysctl.d/50-x.conf"] = "# emptied by the operator\n"
    agent.ask(SWAPPINESS)
    drift(kernel)

    assert "50-x" not in agent.core.verify().setting("vm.swappiness").reason


def test_enforce_repairs_three_times_in_ten_minutes_and_then_stops(agent, kernel):
    kernel.disk["/etc/sysctl.d/99-zzz-other.conf"] = "vm.swappiness = 77\n"
    agent.ask(SWAPPINESS, mode="enforce")
    for n in range(3):
        drift(kernel)
        status = agent.core.verify()
        assert states(status) == {"vm.swappiness": "Effective"}
        assert f"repaired {n + 1} times" in status.setting("vm.swappiness").reason
        assert kernel.value("vm.swappiness") == "10"
        agent.now += 60
    drift(kernel)

    status = agent.core.verify()

    assert states(status) == {"vm.swappiness": "Contended"}
    assert "99-zzz-other.conf:1" in status.setting("vm.swappiness").reason
    assert kernel.value("vm.swappiness") == "77"
    agent.now += 3600
    agent.restart()  # neither time nor a restart of the agent starts the fight again
    assert states(agent.again()) == {"vm.swappiness": "Contended"}
    assert kernel.value("vm.swappiness") == "77"


def test_repairs_that_are_far_apart_are_no_contention(agent, kernel):
    agent.ask(SWAPPINESS, mode="enforce")
    for _ in range(6):
        drift(kernel)
        agent.core.verify()
        agent.now += 400

    assert kernel.value("vm.swappiness") == "10"


def test_enforce_repairs_a_value_it_never_had_to_write_and_still_knows_the_original(agent, kernel):
    kernel.live[SYS + "vm/swappiness"] = "10"
    agent.ask(SWAPPINESS, mode="enforce")
    drift(kernel)

    assert agent.core.verify().setting("vm.swappiness").original == "77"
    assert kernel.value("vm.swappiness") == "10"


def test_enforce_never_writes_over_a_moved_value(agent, kernel):
    drift(kernel)
    agent.ask(SWAPPINESS, mode="enforce")

    assert states(agent.core.verify()) == {"vm.swappiness": "Moved"}
    assert kernel.writes() == []


@pytest.mark.parametrize("protocol", [PROTOCOL - 2, PROTOCOL + 2])
def test_a_control_plane_two_versions_away_is_not_obeyed(agent, kernel, protocol):
    status = agent.ask(SWAPPINESS, protocol=protocol)

    assert kernel.effects == []
    assert status.condition("Degraded").reason == "Skew"
    assert "upgrade" in status.condition("Degraded").message


@pytest.mark.parametrize("protocol", [PROTOCOL - 1, PROTOCOL + 1])
def test_one_version_apart_works(agent, protocol):
    assert states(agent.ask(SWAPPINESS, protocol=protocol)) == {"vm.swappiness": "Effective"}


def test_a_spec_for_another_node_is_not_obeyed(agent, kernel):
    agent.spec = replace(
        agent.ask(mode="observe") and agent.spec, mode="apply", settings=(SWAPPINESS,), node_uid="uid-2"
    )
    agent.generation += 1

    status = agent.again()

    assert kernel.effects == []
    assert status.condition("Degraded").reason == "WrongNode"
    assert status.settings == ()


def test_a_key_named_twice_is_not_guessed_at(agent, kernel):
    status = agent.ask(SWAPPINESS, restore=(Restore("vm.swappiness", "60", "10"),))

    assert kernel.effects == []
    assert status.condition("Degraded").reason == "BadSpec"


@pytest.mark.parametrize("damage", ["torn", "changed", "empty", "of another time"])
def test_a_journal_that_cannot_be_believed_stops_all_writing(agent, kernel, damage):
    agent.ask(SWAPPINESS)
    kernel.journal = {
        "torn": kernel.journal[: len(kernel.journal) // 2],
        "changed": kernel.journal.replace('"60"', '"30"'),
        "empty": "",
        "of another time": "0" * 64 + "\n{}\n",
    }[damage]
    kernel.effects.clear()
    agent.restart()

    status = agent.ask(restore=(Restore("vm.swappiness", "60", "10"),))

    assert kernel.effects == []
    assert status.condition("Degraded").reason == "JournalCorrupt"
    assert kernel.value("vm.swappiness") == "10"


def test_a_journal_that_cannot_be_written_stops_before_the_kernel_and_goes_on_later(agent, kernel, monkeypatch):
    def full(text):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(kernel, "save", full)
    status = agent.ask(SWAPPINESS)
    assert kernel.writes() == []
    assert status.condition("Degraded").reason == "JournalUnwritable"

    monkeypatch.undo()
    assert states(agent.core.verify()) == {"vm.swappiness": "Effective"}
    assert Journal(kernel).content.entries["vm.swappiness"].original == "60"


def test_a_quiet_node_says_the_same_thing_every_time_and_writes_nothing(agent, kernel):
    first = agent.ask(SWAPPINESS, mode="enforce", observe=("vm.max_map_count",))
    kernel.effects.clear()
    for _ in range(5):
        agent.now += 61
        assert agent.core.verify() == first
    agent.restart()
    agent.core.remember(first)

    assert agent.again() == first
    assert kernel.effects == []


def test_an_agent_that_restarts_does_not_do_its_work_twice(agent, kernel):
    agent.ask(SWAPPINESS)
    drift(kernel)
    agent.restart()

    assert states(agent.again()) == {"vm.swappiness": "Drifted"}


def test_an_object_made_anew_with_the_same_generation_is_new_work():
    kernel = Kernel()
    agent = Agent(kernel)
    agent.ask(SWAPPINESS)
    agent.generation = 0

    agent.ask(want("vm.swappiness", "5", "10"))

    assert kernel.value("vm.swappiness") == "5"
