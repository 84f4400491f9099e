"""Layouts of RAID 0: an array only of empty disks that the plan names, and never a second time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.gate import Denied, Gate
from agent.host import Command
from agent.kinds.arrays import PLACE
from contract import disk_layouts
from contract.disk_layouts import parsed
from contract.nodetuning import Restore
from tests.agent.disks.array_node import (
    CHANGES,
    KEY,
    RAID,
    RAID_XFS,
    SEEN,
    SERIALS,
    VOLUME,
    ArrayNode,
    ask,
    block_of,
    folder,
)
from tests.agent.disks.layout_node import held
from tests.agent.kernel import Agent, PowerCut

OWN = parsed(RAID).array_uuid(VOLUME.name)


@pytest.fixture
def node():
    return ArrayNode()


@pytest.fixture
def agent(node):
    return Agent(node)


def revert(agent, value=RAID):
    return agent.ask(restore=(Restore(KEY, SEEN, value),)).setting(KEY)


# ── what the plan sees ────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("answer", "serials"),
    [
        (SEEN, SERIALS),
        ("empty=S1:999,S2:1000,S3:1000,S4:8001;mkfs=ext4+mdadm", ("S2", "S3")),
        ("empty=S1:5,S2:5;mkfs=ext4", ()),
        ("empty=S1:5,S2:5;mkfs=mdadm+xfs", ()),
        ("empty=S1:1000;mkfs=ext4+mdadm", ()),
        ("empty=S1:1000,S2:1001;mkfs=ext4+mdadm", ()),
        ("empty=S1:1000,S1:1000;mkfs=ext4+mdadm", ()),
    ],
)
def test_an_array_takes_two_or_more_disks_of_one_size_where_the_host_has_mdadm(answer, serials):
    limits = ",min=1000,max=8000" if "8001" in answer else ""

    assert disk_layouts.selected(f"{RAID}{limits}", answer) == serials


def test_an_array_and_single_disks_share_no_identifier():
    single, raid = parsed(RAID.replace("raid0", "single")), parsed(RAID)
    uuids = {layout.uuid(name) for layout in (single, raid) for name in (*SERIALS, VOLUME.name)}

    assert len(uuids) == 8
    assert raid.array_uuid(VOLUME.name) not in {uuid.replace("-", "") for uuid in uuids}
    assert raid.array_uuid(VOLUME.name) != raid.array_uuid("+".join(SERIALS[:2]))
    assert raid.volumes(reversed(SERIALS)) == (VOLUME,)


def test_an_agent_from_before_arrays_is_planned_no_array_and_refuses_one_that_comes_anyway(agent, node):
    """Its answer is without mdadm, also where the host has it, and its grammar has no raid0."""
    older = "empty=S6AAAA:1,S6BBBB:1,S6CCCC:1;mkfs=ext4+xfs"

    assert disk_layouts.selected(RAID, older) == ()
    assert disk_layouts.filesystems_of(SEEN) == disk_layouts.filesystems_of(older) == ("ext4", "xfs")
    assert ask(agent, RAID, older).state == "Moved"
    assert (node.joined, node.formats) == ([], [])


# ── the array is made, and stays ──────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("value", [RAID, RAID_XFS])
@pytest.mark.parametrize("at_boot", [True, False])
def test_an_array_is_made_formatted_and_mounted_once(agent, node, value, at_boot):
    node.is_assembled_at_boot = at_boot
    assert ask(agent, value).state == "Effective"
    assert (node.joined, len(node.formats)) == ([SERIALS], 1)
    assert node.mounts == {folder(value): ("md127", parsed(value).filesystem)}
    node.put("md127", 1 << 25, b"a checkpoint")
    data = held(node)

    assert ask(agent, value).state == "Effective"
    agent.restart()
    assert agent.again().setting(KEY).state == "Effective"
    node.reboot()
    agent.restart()
    booted = agent.again().setting(KEY)

    if not at_boot:  # a host whose mdadm.conf has AUTO -all: drift, which a plan repairs and nothing formats
        assert booted.effective == f"unmounted={','.join(SERIALS)}"
        booted = ask(agent, value, booted.effective)
    assert booted.state == "Effective"
    assert list(node.mounts) == [folder(value)]
    assert (held(node), node.joined, len(node.formats), node.harmed) == (data, [SERIALS], 1, [])


def test_revert_unmounts_and_keeps_array_and_data(agent, node):
    ask(agent)
    data = held(node)

    setting = revert(agent)

    assert setting.state == "Restored"
    assert all(serial in setting.reason for serial in SERIALS)
    assert (node.mounts, node.enabled, held(node)) == ({}, set(), data)
    node.reboot()
    assert node.mounts == {}
    assert ask(agent, RAID, "empty=;mkfs=ext4+mdadm+xfs").state == "Unsupported"
    assert (node.joined, len(node.formats)) == ([SERIALS], 1)


@pytest.mark.parametrize("program", ["mdadm", "mkfs.ext4", "systemctl"])
def test_a_missing_program_is_named_before_anything_is_written(agent, node, program):
    node.programs.discard(program)
    seen = agent.ask(mode="observe", observe=(KEY,)).observed[KEY]

    setting = ask(agent, RAID, seen)

    assert setting.state == "Unsupported"
    assert program in setting.reason
    assert (node.joined, node.formats) == ([], [])


def test_a_kernel_without_raid_0_is_named_before_anything_is_written(agent, node):
    node.has_raid0 = False

    setting = ask(agent)

    assert setting.state == "Failed"
    assert "raid0" in setting.reason
    assert not any(held(node).values())
    node.has_raid0 = True
    assert ask(agent).state == "Effective"


# ── what may never be written to ──────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("change", CHANGES)
def test_a_disk_that_changed_between_plan_and_run_is_joined_to_nothing(agent, node, change):
    agent.ask(mode="observe", observe=(KEY,))
    CHANGES[change](node)
    data = held(node)

    setting = ask(agent)

    assert setting.state != "Effective"
    assert setting.reason
    assert (node.joined, node.formats, held(node)) == ([], [], data)


@pytest.mark.parametrize("change", CHANGES)
def test_a_disk_that_changes_at_the_last_moment_is_joined_to_nothing(agent, node, change):
    """Between the first look at every disk and the exclusive one right before mdadm."""
    claims = []

    def before_claim(name):
        claims.append(name)
        if len(claims) == len(SERIALS) + 1:
            CHANGES[change](node)

    node.before_claim = before_claim

    assert ask(agent).state != "Effective"
    assert (node.joined, node.formats, node.harmed) == ([], [], [])


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    ("mark", "names"),
    [
        (block_of("ab" * 16, 3), "another array"),
        (block_of(OWN, 2), "another array"),
        (block_of(OWN, 3, level=1), "another array"),
        (b"", "no superblock"),
    ],
)
def test_an_array_that_is_not_wholly_the_plans_is_never_formatted(agent, node, number, mark, names):
    """Members are swapped while the agent is away, after the array was made and before it is formatted."""
    node.codes[Command.MAKE_EXT4] = 1
    assert ask(agent).state == "Failed"
    del node.codes[Command.MAKE_EXT4]
    node.put(f"nvme{number}n1", PLACE, mark)
    agent.restart()

    setting = ask(agent)

    assert setting.state == "Failed"
    assert SERIALS[number] in setting.reason
    assert names in setting.reason
    assert node.formats == []


def test_data_on_the_array_that_was_made_is_not_formatted(agent, node):
    node.codes[Command.MAKE_EXT4] = 1
    ask(agent)
    del node.codes[Command.MAKE_EXT4]
    node.put("md127", 4096, b"a checkpoint")
    agent.restart()

    assert ask(agent).state == "Failed"
    assert node.formats == []


def test_data_that_comes_to_the_array_at_the_last_moment_is_not_formatted(agent, node):
    node.before_claim = lambda name: node.put(name, 4096, b"a checkpoint") if name.startswith("md") else None

    setting = ask(agent)

    assert setting.state == "Failed"
    assert "is not empty" in setting.reason
    assert (node.joined, node.formats) == ([SERIALS], [])


@pytest.mark.parametrize("serial", SERIALS)
def test_a_missing_member_is_named_and_nothing_is_made_again(agent, node, serial):
    ask(agent)
    node.unplug(f"nvme{SERIALS.index(serial)}n1")
    node.reboot()
    drifted = agent.core.verify().setting(KEY)
    assert (drifted.state, drifted.effective) == ("Drifted", f"unmounted={','.join(SERIALS)}")

    setting = ask(agent, RAID, drifted.effective)

    assert setting.state == "Failed"
    assert f"no disk has the serial number {serial}" in setting.reason
    assert (node.joined, len(node.formats)) == ([SERIALS], 1)


# ── cut short ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def moments(act):
    node = ArrayNode()
    act(Agent(node))
    return len(node.effects)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("boots", [False, True])
def test_cut_at_every_moment_a_second_run_completes_or_names_what_is_there(before, boots):
    ends = set()
    for moment in range(moments(ask)):
        node = ArrayNode()
        agent = Agent(node)
        node.before, node.fuse = before, moment
        with pytest.raises(PowerCut):
            ask(agent)
        node.fuse = None
        if boots:
            node.reboot()
        agent.restart()
        data = held(node)

        setting = agent.again().setting(KEY)

        assert node.harmed == []
        ends.add(setting.state)
        if setting.state == "Effective":
            assert list(node.mounts) == [folder()]
            assert len(node.joined) == 1 or not any(data.values())
        else:
            assert setting.state == "Failed"
            assert "was cut short" in setting.reason
            assert held(node) == data
            assert revert(agent).state == "Restored"
            assert node.mounts == {}
    assert ends == {"Effective", "Failed"}


@pytest.mark.parametrize("before", [False, True])
def test_a_revert_that_is_cut_at_every_moment_ends_unmounted_and_keeps_all_data(before):
    def both(agent):
        ask(agent)
        agent.kernel.effects.clear()
        revert(agent)

    for moment in range(moments(both)):
        node = ArrayNode()
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


@settings(max_examples=40, deadline=None)
@given(
    cut=st.integers(0, 25),
    before=st.booleans(),
    boots=st.booleans(),
    change=st.sampled_from([*CHANGES, ""]),
    value=st.sampled_from([RAID, RAID_XFS]),
)
def test_whatever_changes_while_the_agent_is_away_nothing_with_data_is_written_to(cut, before, boots, change, value):
    node = ArrayNode()
    agent = Agent(node)
    node.before, node.fuse = before, cut
    try:
        ask(agent, value)
    except PowerCut:
        pass
    node.fuse = None
    if boots:
        node.reboot()
    if change:
        CHANGES[change](node)
    marks = {name: set(content) for name, content in held(node).items() if name.startswith("nvme")}
    agent.restart()

    agent.again()
    ask(agent, value)

    assert node.harmed == []
    assert all(places <= set(node.content[name]) for name, places in marks.items())
    assert set(node.joined) <= {SERIALS}
    assert len(node.formats) <= 2


# ── the gate ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_no_other_way_leads_to_mdadm(node):
    for command in (Command.MAKE_RAID0, Command.ASSEMBLE_ARRAY):
        with pytest.raises(Denied):
            Gate(node).run(command, "--uuid=0", "/dev/md/x", "/dev/nvme0n1")
    with pytest.raises(Denied):
        Gate(node).run(Command.LOAD_RAID0, "dm_mod")
    assert node.effects == []
