"""Agent and control plane of different versions: one apart works both ways, two apart refuses both ways.

What either of them writes must pass the schema of the CRD that is installed, whichever of the two is newer.
"""

from __future__ import annotations

import hashlib

import pytest

from agent.journal import Journal, JournalEntry, Pending
from agent.persisted import SYSCTL
from contract.names import MAX_SKEW
from contract.nodetuning import Malformed, Spec, Status
from tests.agent.kernel import Agent, states, want
from tests.agent.test_deploy import SPEC, STATUS

SWAPPINESS = want("vm.swappiness", "10", "60")


def speak(monkeypatch, protocol):
    monkeypatch.setattr("agent.reconcile.PROTOCOL", protocol)


def written(record):
    return {name: value for name, value in record.to_json().items() if value is not None}


def errors(validator, record):
    return [error.message for error in validator.iter_errors(written(record))]


def test_the_distance_is_one():
    assert MAX_SKEW == 1


@pytest.mark.parametrize(("ours", "theirs"), [(1, 2), (2, 1), (0, 1), (5, 6), (6, 5), (7, 7)])
def test_one_version_apart_works_and_fits_the_schema(agent, kernel, monkeypatch, ours, theirs):
    speak(monkeypatch, ours)

    status = agent.ask(SWAPPINESS, protocol=theirs)

    assert states(status) == {"vm.swappiness": "Effective"}
    assert status.protocol == ours
    assert kernel.value("vm.swappiness") == "10"
    assert errors(SPEC, agent.spec) == errors(STATUS, status) == []
    assert Status.from_json(written(status)) == status


@pytest.mark.parametrize(
    ("ours", "theirs", "who"), [(1, 3, "the agent"), (3, 1, "the control plane"), (0, 2, "the agent"), (9, 7, "the c")]
)
def test_two_versions_apart_writes_nothing_and_says_who_must_be_upgraded(agent, kernel, monkeypatch, ours, theirs, who):
    speak(monkeypatch, ours)

    status = agent.ask(SWAPPINESS, protocol=theirs)

    assert kernel.effects == []
    degraded = status.condition("Degraded")
    assert (degraded.status, degraded.reason) == ("True", "Skew")
    assert f"upgrade {who}" in degraded.message
    assert status.protocol == ours  # by which the control plane refuses, too
    assert errors(STATUS, status) == []


def test_fields_of_a_newer_side_are_ignored_by_an_older_one(agent):
    raw = Spec("uid-1", settings=(SWAPPINESS,)).to_json()
    raw |= {"color": "blue", "settings": [raw["settings"][0] | {"hint": {"a": 1}}]}
    assert Spec.from_json(raw).settings == (SWAPPINESS,)

    status = agent.ask(SWAPPINESS)
    answer = written(status)
    answer |= {"mood": 1, "settings": [s | {"since": "x"} for s in answer["settings"]]}
    assert Status.from_json(answer) == status


def test_a_word_of_a_newer_control_plane_is_refused_and_not_guessed():
    raw = Spec("uid-1").to_json() | {"mode": "dry-run"}
    with pytest.raises(Malformed, match="mode"):
        Spec.from_json(raw)
    assert [e.path[0] for e in SPEC.iter_errors({k: v for k, v in raw.items() if v is not None})] == ["mode"]


@pytest.mark.parametrize(
    ("word", "other", "reason"),
    [
        ('"original":"60"', '"original":"60","color":"blue"', "another version of the agent wrote it"),
        ('"format":1', '"format":2', "it has format 2, and this agent knows 1"),
    ],
)
def test_a_journal_of_another_version_is_not_guessed_at(agent, kernel, word, other, reason):
    """A journal of another version is refused even where it could be read: its words may mean something else."""
    agent.ask(SWAPPINESS)
    body = kernel.journal.split("\n")[1]
    assert word in body
    body = body.replace(word, other)
    kernel.journal = f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}\n"
    agent.restart()

    degraded = agent.ask(want("vm.swappiness", "20", "10")).condition("Degraded")

    assert degraded.reason == "JournalCorrupt"
    assert reason in degraded.message
    assert kernel.value("vm.swappiness") == "10"


def test_a_key_that_a_newer_agent_journalled_does_not_end_an_older_one(kernel):
    """An agent that was rolled back reports the key and leaves it as it is."""
    agent = Agent(kernel)
    agent.ask(want("vm.swappiness", "10", "60"))
    journal = Journal(kernel)
    for name, done in (("newkind.a", True), ("newkind.b", False)):
        journal.content.entries[name] = JournalEntry("1", written="2", done=done)
        journal.content.pending[name] = Pending("reboot", "boot-0")
    journal.content.boot_loader_stale = True
    journal.save()
    agent.restart()

    status = agent.ask(want("vm.swappiness", "20", "10"))

    assert states(status) | {"newkind.b": ""} == {
        "vm.swappiness": "Effective",
        "newkind.a": "Orphaned",
        "newkind.b": "",
    }
    assert "newkind" not in kernel.disk[SYSCTL]
