"""Layouts of local disks: only empty disks that the approved plan names are written to."""

from __future__ import annotations

import pytest

from agent.gate import Denied, Gate
from agent.host import Command
from contract import disk_layouts
from contract.disk_layouts import parsed
from tests.agent.disks.layout_node import CHANGES, EXT4, KEY, SEEN, SERIALS, XFS, LayoutNode, ask, folders, held, revert
from tests.agent.kernel import Agent


@pytest.fixture
def node():
    return LayoutNode(*SERIALS)


@pytest.fixture
def agent(node):
    return Agent(node)


# ── what the plan sees ────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_answer_names_each_empty_disk_and_no_other(node, agent):
    node.add("S6FULL")
    node.put("nvme2n1", 0, b"XFSB")
    node.add("", name="nvme3n1")
    node.add("S6TWIN", name="nvme4n1")
    node.add("S6TWIN", name="nvme5n1")
    agent.ask(mode="observe", observe=(KEY,))

    assert agent.core.verify().observed[KEY] == SEEN


def test_more_disks_than_an_answer_can_name_are_none(agent, node):
    for number in range(2, 32):
        node.add(f"S6{number:018}")

    assert agent.ask(mode="observe", observe=(KEY,)).observed[KEY] == "empty=;mkfs="


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "empty=S1:5",
        f"{SEEN};more=1",
        "empty=S1:5,S1:6;mkfs=ext4",
        "empty=S1;mkfs=ext4",
        "empty=../x:5;mkfs=ext4",
        "empty=S1:5;mkfs=xfs",
        EXT4,
        "unmounted=S6AAAA",
        None,
    ],
)
def test_an_answer_that_is_not_understood_whole_selects_nothing(answer):
    assert disk_layouts.selected(EXT4, answer) == ()


def test_limits_of_size_select(node):
    answer = "empty=S1:999,S2:1000,S3:8000,S4:8001;mkfs=ext4"

    assert disk_layouts.selected(f"{EXT4},min=1000,max=8000", answer) == ("S2", "S3")


# ── the layout is made, and stays ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("value", [EXT4, XFS])
def test_disks_are_formatted_mounted_and_never_formatted_again(agent, node, value):
    assert ask(agent, value).state == "Effective"
    assert node.formats == list(SERIALS)
    assert set(node.mounts) == folders(value)
    for name in node.sizes:
        node.put(name, 1 << 25, b"a checkpoint")
    data = held(node)

    again = ask(agent, value)
    agent.restart()
    restarted = agent.again().setting(KEY)
    node.reboot()
    booted = agent.again().setting(KEY)
    agent.restart()

    assert {again.state, restarted.state, booted.state, agent.again().setting(KEY).state} == {"Effective"}
    assert set(node.mounts) == folders(value)
    assert (held(node), node.formats) == (data, list(SERIALS))


def test_revert_unmounts_and_leaves_the_data(agent, node):
    ask(agent)
    data = held(node)

    setting = revert(agent)

    assert setting.state == "Restored"
    assert all(serial in setting.reason for serial in SERIALS)
    assert (node.mounts, node.enabled, held(node)) == ({}, set(), data)
    assert not [path for path in node.disk if path.endswith(".mount")]
    node.reboot()
    assert (node.mounts, node.formats) == ({}, list(SERIALS))
    assert ask(agent, EXT4, "empty=;mkfs=ext4+xfs").state == "Unsupported"
    assert node.formats == list(SERIALS)


def test_a_busy_mount_is_named_and_a_retry_ends_it(agent, node):
    ask(agent)
    busy = sorted(folders())[0]
    node.busy.add(busy)

    setting = revert(agent)

    assert setting.state == "Failed"
    assert busy in setting.reason
    assert busy in node.mounts
    node.reboot()
    assert busy in node.mounts  # what could not be unmounted is still mounted at the next boot
    node.busy.clear()
    assert revert(agent).state == "Restored"
    assert node.mounts == {}


def test_drift_is_reported_and_nothing_is_formatted_for_it(agent, node):
    ask(agent)
    node.mounts.pop(parsed(EXT4).where("S6AAAA"))
    agent.spec = agent.spec.__class__("uid-1", mode="enforce", settings=agent.spec.settings)

    setting = agent.core.verify().setting(KEY)

    assert (setting.state, setting.effective) == ("Drifted", "unmounted=S6AAAA")
    assert ask(agent, EXT4, "unmounted=S6AAAA").state == "Effective"
    assert (set(node.mounts), node.formats) == (folders(), list(SERIALS))


def test_another_layout_waits_for_the_revert_of_the_first(agent, node):
    ask(agent)

    setting = ask(agent, XFS, EXT4)

    assert setting.state == "Failed"
    assert "revert that first" in setting.reason
    assert (set(node.mounts), node.formats) == (folders(), list(SERIALS))


# ── what may never be written to ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("change", CHANGES)
def test_a_disk_that_changed_between_plan_and_run_is_not_written_to(agent, node, change):
    agent.ask(mode="observe", observe=(KEY,))
    CHANGES[change](node)

    setting = ask(agent)

    assert setting.state != "Effective"
    assert setting.reason
    assert "S6BBBB" not in node.formats
    assert node.harmed == []


@pytest.mark.parametrize("change", CHANGES)
def test_a_disk_that_changes_at_the_last_moment_is_not_written_to(agent, node, change):
    """Between the comparison with the plan and the exclusive look right before the program."""

    def before_claim(name):
        if node.formats and node.serial(name) == "S6BBBB":
            CHANGES[change](node)

    node.before_claim = before_claim

    setting = ask(agent)

    assert setting.state != "Effective"
    assert "S6BBBB" in setting.reason
    assert node.formats == ["S6AAAA"]
    assert node.harmed == []


def test_no_disk_is_written_to_while_another_of_the_plan_is_not_empty(agent, node):
    agent.ask(mode="observe", observe=(KEY,))
    node.put("nvme1n1", 77, b"x", counts=False)  # the agent's earlier look still calls it empty

    assert "S6BBBB is not empty" in ask(agent).reason
    assert node.formats == []


def test_a_disk_that_the_plan_did_not_name_is_never_written_to(agent, node):
    agent.ask(mode="observe", observe=(KEY,))
    node.add("S6LATE")

    assert ask(agent).state == "Moved"
    assert node.formats == []


@pytest.mark.parametrize(
    "expect",
    [
        "",
        "empty=;mkfs=ext4",
        "empty=S6AAAA:1;mkfs=ext4+xfs",
        "empty=S6AAAA:1,S6BBBB:1;mkfs=ext4",
        "empty=S6AAAA:1,S6BBBB:2;mkfs=ext4+xfs",
        "empty=S6AAAA:1,S6CCCC:1;mkfs=ext4+xfs",
        None,
        EXT4,
    ],
)
def test_a_plan_that_saw_anything_else_formats_nothing(expect):
    node = LayoutNode(*SERIALS)

    assert ask(Agent(node), EXT4, expect).state != "Effective"
    assert node.formats == []


def test_disks_of_another_size_stay_as_they_are(agent, node):
    big = node.add("S6BIG", size=3 << 30)

    assert ask(agent, f"{EXT4},min=3", "empty=S6AAAA:1,S6BBBB:1,S6BIG:3;mkfs=ext4+xfs").state == "Effective"
    assert node.formats == ["S6BIG"]
    assert [name for name, content in node.content.items() if content] == [big]


@pytest.mark.parametrize(("program", "value"), [("mkfs.ext4", EXT4), ("mkfs.xfs", XFS), ("systemctl", EXT4)])
def test_a_missing_program_is_named_before_anything_is_written(agent, node, program, value):
    node.programs.discard(program)
    seen = agent.ask(mode="observe", observe=(KEY,)).observed[KEY]

    setting = ask(agent, value, seen)

    assert setting.state == "Unsupported"
    assert program in setting.reason
    assert node.formats == []


@pytest.mark.parametrize("text", ["[Mount]\nWhat=/dev/sdz\n", "# Written by the Setpoint agent for disk S6BBBB; "])
def test_a_unit_of_another_party_is_kept_and_nothing_is_formatted(agent, node, text):
    path = f"{disk_layouts.UNIT_FOLDER}/{disk_layouts.unit_of(parsed(EXT4).where('S6AAAA'))}"
    node.disk[path] = text

    assert ask(agent).state == "Failed"
    assert (node.disk[path], node.formats) == (text, [])


def test_a_program_that_fails_is_not_run_again_on_what_it_left(agent, node):
    run = node.run

    def fails(command, *words):
        if command is Command.MAKE_EXT4:
            node.put("nvme0n1", 0, b"half")
            return run(Command.RELOAD_UNITS).__class__(1, "no space")
        return run(command, *words)

    node.run = fails
    agent.restart()
    assert "no space" in ask(agent).reason
    node.run = run
    agent.restart()

    setting = ask(agent)

    assert setting.state == "Failed"
    assert "S6AAAA was cut short" in setting.reason
    node.wipe("nvme0n1")
    assert ask(agent).state == "Effective"
    assert node.harmed == []


# ── the gate ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_no_other_way_leads_to_a_program_that_formats_or_to_another_unit(node):
    gate = Gate(node)

    for command in (Command.MAKE_EXT4, Command.MAKE_XFS):
        with pytest.raises(Denied):
            gate.run(command, "-U", parsed(EXT4).uuid("S6AAAA"), "/dev/nvme0n1")
    for unit in ("kubelet.service", "mnt.mount", "mnt-x.mount", "etc-12345678.mount", "--all", ""):
        with pytest.raises(Denied):
            gate.run(Command.UNMOUNT_UNIT, unit)
    for path in ("/etc/systemd/system/mnt-x.mount", "/etc/systemd/system/../x.mount", "/etc/fstab"):
        with pytest.raises(Denied):
            gate.persist(path, "text")
    assert node.effects == []


def test_names_of_units_lead_back_to_their_folders():
    for value in (EXT4, XFS, "layout=single,filesystem=ext4,mount=/data/a-b_c/d/e"):
        where = parsed(value).where("S6:A.B-C_D")
        unit = disk_layouts.unit_of(where)
        assert disk_layouts.where_of(unit) == where
        assert "/" not in unit
