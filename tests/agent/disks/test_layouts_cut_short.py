"""An agent that is killed, or a node that loses power, while a layout of local disks is made or taken away."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.journal import Journal
from contract.nodetuning import Restore
from tests.agent.disks.layout_node import CHANGES, EXT4, KEY, SEEN, SERIALS, XFS, LayoutNode, ask, folders, held, revert
from tests.agent.kernel import Agent, PowerCut, states


@pytest.fixture
def node():
    return LayoutNode(*SERIALS)


@pytest.fixture
def agent(node):
    return Agent(node)


def effects_of(act):
    node = LayoutNode(*SERIALS)
    agent = Agent(node)
    act(agent, node)
    return len(node.effects)


@pytest.mark.parametrize(("value", "boots"), [(EXT4, False), (XFS, True)])
@pytest.mark.parametrize("before", [False, True])
def test_cut_at_every_moment_a_second_run_completes_or_names_what_is_on_the_disk(value, before, boots):
    moments = effects_of(lambda agent, node: ask(agent, value))
    ends = set()
    for moment in range(moments):
        node = LayoutNode(*SERIALS)
        agent = Agent(node)
        node.before, node.fuse = before, moment
        with pytest.raises(PowerCut):
            ask(agent, value)
        node.fuse = None
        if boots:
            node.reboot()
        agent.restart()
        data = held(node)

        setting = agent.again().setting(KEY)

        assert node.harmed == []
        ends.add(setting.state)
        if setting.state == "Effective":
            assert set(node.mounts) == folders(value)
            assert len(node.uuids) == 2
        else:
            assert setting.state == "Failed"
            assert any(f"{serial} was cut short" in setting.reason for serial in SERIALS)
            assert held(node) == data
            assert states(agent.ask(restore=(Restore(KEY, SEEN, value),)))[KEY] == "Restored"
            assert node.mounts == {}
        agent.core.verify()
        assert node.harmed == []
    # Only before a save of the journal is a file system whole that the journal calls half made.
    assert ends == ({"Effective", "Failed"} if before else {"Effective"})


@pytest.mark.parametrize("before", [False, True])
def test_a_revert_that_is_cut_at_every_moment_ends_unmounted_and_keeps_all_data(before):
    def both(agent, node):
        ask(agent)
        node.effects.clear()
        revert(agent)

    for moment in range(effects_of(both)):
        node = LayoutNode(*SERIALS)
        agent = Agent(node)
        ask(agent)
        data = held(node)
        node.before, node.fuse = before, moment
        with pytest.raises(PowerCut):
            revert(agent)
        node.fuse = None
        node.reboot()
        agent.restart()

        assert agent.again().setting(KEY).state == "Restored"
        assert (node.mounts, node.enabled, held(node)) == ({}, set(), data)
        assert Journal(node).content.layout.value == ""


@settings(max_examples=25, deadline=None)
@given(
    cut=st.integers(0, 40),
    before=st.booleans(),
    boots=st.booleans(),
    change=st.sampled_from([*CHANGES, ""]),
    value=st.sampled_from([EXT4, XFS]),
)
def test_whatever_changes_while_the_agent_is_away_no_disk_with_data_is_written_to(cut, before, boots, change, value):
    node = LayoutNode(*SERIALS)
    agent = Agent(node)
    node.before, node.fuse = before, cut
    try:
        ask(agent, value)
    except PowerCut:
        node.fuse = None
    node.fuse = None
    if boots:
        node.reboot()
    if change:
        CHANGES[change](node)
    data = {name: len(content) for name, content in held(node).items()}
    agent.restart()

    agent.again()
    ask(agent, value)

    assert node.harmed == []
    assert all(len(node.content[name]) >= count for name, count in data.items())
    assert set(node.formats) <= set(SERIALS)


def test_a_lost_journal_formats_and_unmounts_nothing(agent, node):
    ask(agent)
    data = held(node)
    node.journal = None
    agent.restart()

    assert ask(agent).state == "Unsupported"
    assert revert(agent).state != "Restored"
    assert (set(node.mounts), held(node), node.formats) == (folders(), data, list(SERIALS))
