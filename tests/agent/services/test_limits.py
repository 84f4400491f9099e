"""Limits of containerd and the kubelet: what counts is the limit of the running process."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.host import Command, LinuxHost
from agent.journal import Journal
from contract import keys
from contract.nodetuning import Restore
from tests.agent.kernel import Agent, PowerCut, states, through, want
from tests.agent.services.node import CONTAINERD_DROP_IN, KUBELET_DROP_IN, UNIT, ServicesNode, restart

MEMLOCK = want("containerd.LimitMEMLOCK", "infinity", "8388608")
FILES = want("containerd.LimitNOFILE", "1048576", "524288")
BACK = Restore("containerd.LimitMEMLOCK", "8388608", "infinity")
PIDS = want("kubelet.podPidsLimit", "4096", "-1")


def ran(kernel):
    return [effect[1] for effect in kernel.effects if effect[0] == "run"]


def test_a_limit_is_effective_when_its_service_has_restarted_and_nothing_of_it_stays(agent, kernel):
    status = agent.ask(MEMLOCK)
    assert states(status) == {"containerd.LimitMEMLOCK": "PendingRestart"}
    assert status.setting("containerd.LimitMEMLOCK").effective == "8388608"
    assert kernel.disk[CONTAINERD_DROP_IN].splitlines()[1:] == ["[Service]", "LimitMEMLOCK=infinity"]
    assert status.condition("RestartRequired").reason == "Containerd"

    status = restart(agent, "containerd")

    assert ran(kernel) == ["RELOAD_UNITS", "RESTART_CONTAINERD"], "without a reload systemd starts it as before"
    assert states(status) == {"containerd.LimitMEMLOCK": "Effective"}
    assert "unlimited" in kernel.live["/proc/811/limits"]

    assert states(agent.ask(restore=(BACK,))) == {"containerd.LimitMEMLOCK": "PendingRestart"}
    assert kernel.setpoints() == {}
    assert states(restart(agent, "containerd")) == {"containerd.LimitMEMLOCK": "Restored"}
    assert "unlimited" not in kernel.live["/proc/811/limits"]
    assert Journal(kernel).content.entries == {}


def test_open_files_are_proven_by_the_hard_limit_and_go_back(agent, kernel):
    """The soft one says nothing: containerd raises its own, and what it starts gets back what systemd gave."""
    agent.ask(FILES)
    assert kernel.disk[CONTAINERD_DROP_IN].splitlines()[1:] == ["[Service]", "LimitNOFILE=1048576"]
    status = restart(agent, "containerd")
    assert states(status) == {"containerd.LimitNOFILE": "Effective"}

    soft_alone = f"Max open files            {1048576:<20} {524288:<20} files"
    kernel.live["/proc/811/limits"] = soft_alone
    status = agent.core.verify()
    assert status.setting("containerd.LimitNOFILE").effective == "524288"
    kernel.start("containerd")

    assert states(agent.ask(restore=(Restore("containerd.LimitNOFILE", "524288", "1048576"),))) == {
        "containerd.LimitNOFILE": "PendingRestart"
    }
    assert states(restart(agent, "containerd")) == {"containerd.LimitNOFILE": "Restored"}
    assert kernel.setpoints() == {}


@pytest.mark.parametrize(("most", "state"), [("1048576", "PendingRestart"), ("1048575", "Failed")])
def test_more_files_than_the_kernel_gives_anyone_are_not_asked_of_systemd(agent, kernel, most, state):
    """systemd would lower the limit to fs.nr_open and say so nowhere."""
    kernel.live["/proc/sys/fs/nr_open"] = most

    status = agent.ask(FILES)

    assert states(status) == {"containerd.LimitNOFILE": state}
    assert (f"fs.nr_open, which is {most}" in status.setting("containerd.LimitNOFILE").reason) == (state == "Failed")
    assert (CONTAINERD_DROP_IN in kernel.disk) == (state == "PendingRestart")


def test_a_restart_of_containerd_ends_the_waits_for_the_kubelet_too(agent, kernel):
    agent.ask(MEMLOCK, PIDS, want("kubelet.LimitMEMLOCK", "16777216", "8388608"))

    status = restart(agent, "containerd")

    assert set(states(status).values()) == {"Effective"}
    assert kernel.loaded["podPidsLimit"] == 4096
    assert set(kernel.setpoints()) >= {CONTAINERD_DROP_IN, KUBELET_DROP_IN}


def test_a_restart_of_the_kubelet_alone_ends_no_wait_for_containerd(agent, kernel):
    agent.ask(MEMLOCK, PIDS)

    status = restart(agent, "kubelet")

    assert states(status) == {"containerd.LimitMEMLOCK": "PendingRestart", "kubelet.podPidsLimit": "Effective"}


def test_a_containerd_that_somebody_restarts_has_the_limit(agent, kernel):
    agent.ask(MEMLOCK)
    kernel.start("containerd")

    status = agent.core.verify()

    assert states(status) == {"containerd.LimitMEMLOCK": "Effective"}
    assert status.setting("containerd.LimitMEMLOCK").reason == "containerd was restarted, and not by Setpoint"


def test_a_containerd_that_came_up_without_the_limit_is_not_called_effective(agent, kernel):
    agent.ask(MEMLOCK)
    kernel.units["containerd"]["LimitMEMLOCK"] = "65536"

    status = restart(agent, "containerd")

    assert states(status) == {"containerd.LimitMEMLOCK": "NotEffective"}
    assert "65536" in status.setting("containerd.LimitMEMLOCK").reason


def test_units_that_systemd_does_not_reload_fail_the_setting_until_it_does(agent, kernel):
    kernel.codes[Command.RELOAD_UNITS] = 1
    status = agent.ask(MEMLOCK)
    assert states(status) == {"containerd.LimitMEMLOCK": "Failed"}
    assert "daemon-reload answered 1" in status.setting("containerd.LimitMEMLOCK").reason
    kernel.codes.clear()
    agent.restart()

    assert states(agent.again()) == {"containerd.LimitMEMLOCK": "PendingRestart"}
    assert ran(kernel) == ["RELOAD_UNITS"]


@pytest.mark.parametrize(
    ("path", "text", "state", "why"),
    [
        (UNIT, "[Service]\nExecStart=/usr/bin/containerd\n", "Unsupported", "KillMode=process"),
        (UNIT, "[Service]\nKillMode=process\n[Unit]\n", "PendingRestart", ""),
        (UNIT, "[Unit]\nKillMode=process\n", "Unsupported", "KillMode=process"),
        ("/etc/systemd/system/containerd.service.d/a.conf", "[Service]\nKillMode=mixed\n", "Unsupported", "KillMode"),
        ("/etc/systemd/system/containerd.service.d/zz.conf", "[Service]\nLimitMEMLOCK=1G\n", "Failed", "zz.conf"),
        ("/usr/lib/systemd/system/service.d/zz.conf", "[Service]\nLimitMEMLOCK = 1G\n", "Failed", "zz.conf"),
        ("/run/systemd/system/containerd.service.d/10-a.conf", "[Service]\nLimitMEMLOCK=1G\n", "PendingRestart", ""),
        ("/etc/systemd/system/containerd.service.d/zz.conf", "[Service]\n#LimitMEMLOCK=1G\n", "PendingRestart", ""),
        ("/etc/systemd/system/kubelet.service.d/zz.conf", "[Service]\nLimitMEMLOCK=1G\n", "PendingRestart", ""),
        # Debian's containerd does so of files: a unit's own file comes before all drop-ins, under any name.
        (UNIT, "[Service]\nKillMode=process\nLimitMEMLOCK=infinity\n", "PendingRestart", ""),
    ],
)  # fmt: skip
def test_units_that_end_containers_or_overrule_the_drop_in_are_left_alone(path, text, state, why):
    kernel = ServicesNode({path: text})

    status = Agent(kernel).ask(MEMLOCK)

    assert states(status) == {"containerd.LimitMEMLOCK": state}
    assert why in status.setting("containerd.LimitMEMLOCK").reason
    assert (kernel.setpoints() == {}) == (state != "PendingRestart")


@pytest.mark.parametrize("lacks", [UNIT, "systemctl", "process", "parent"])
def test_a_containerd_that_systemd_does_not_run_is_unsupported(agent, kernel, lacks):
    if lacks == UNIT:
        del kernel.files[UNIT]
    elif lacks == "systemctl":
        kernel.programs.remove("systemctl")
    elif lacks == "process":
        del kernel.live["/proc/811/comm"]
    else:
        kernel.live["/proc/811/stat"] = kernel.live["/proc/811/stat"].replace(" S 1 ", " S 700 ")

    assert states(agent.ask(MEMLOCK)) in (
        {"containerd.LimitMEMLOCK": "Unsupported"},
        {"containerd.LimitMEMLOCK": "Moved"},
    )
    assert kernel.setpoints() == {}


@given(st.text("0123456789-+infinityKMGT:. ", max_size=14))
def test_a_limit_is_infinity_or_a_decimal_number_of_bytes(value):
    try:
        keys.check_value("containerd.LimitMEMLOCK", value)
    except (keys.BadValue, keys.BadKey):
        return
    assert value == "infinity" or 65536 <= int(value) < 2**63
    assert value == "infinity" or str(int(value)) == value


@pytest.mark.parametrize(("before", "state", "times"), [(True, "Refused", 0), (False, "Done", 1)])
def test_an_agent_killed_around_the_restart_never_repeats_it(agent, kernel, before, state, times):
    from dataclasses import replace

    from tests.agent.test_restarts import grant

    agent.ask(MEMLOCK)
    agent.spec, agent.generation = replace(agent.spec, restart=grant("containerd")), 2
    agent.again()
    kernel.before, kernel.fuse = before, 1
    with pytest.raises(PowerCut):
        agent.core.restart(agent.confirm, lambda status: None)
    kernel.fuse = None
    agent.restart()

    status = agent.again()

    assert status.restart.state == state
    assert agent.core.restart(agent.confirm, lambda s: None) is None
    assert ran(kernel).count("RESTART_CONTAINERD") == times
    assert states(status) == {"containerd.LimitMEMLOCK": "Effective" if times else "PendingRestart"}


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 14), st.booleans(), st.integers(0, 14), st.booleans())
def test_the_unit_s_own_limit_comes_back_wherever_the_power_fails(cut_apply, before, cut_restore, restarts):
    kernel = ServicesNode()
    agent = Agent(kernel)
    kernel.before, kernel.fuse = before, cut_apply
    through(agent, lambda: agent.ask(MEMLOCK))
    kernel.fuse = None
    status = restart(agent, "containerd") if restarts else agent.core.verify()
    kernel.fuse = cut_restore
    expect = status.setting("containerd.LimitMEMLOCK").effective

    status = through(agent, lambda: agent.ask(restore=(Restore("containerd.LimitMEMLOCK", "8388608", expect),)))

    kernel.fuse = None
    status = agent.core.verify()
    assert kernel.setpoints() == {}
    if states(status)["containerd.LimitMEMLOCK"] == "PendingRestart":
        status = restart(agent, "containerd")
    assert states(status) == {"containerd.LimitMEMLOCK": "Restored"}
    kernel.start("containerd")
    assert "8388608" in kernel.live["/proc/811/limits"], "what systemd knows is what the disk says"
    assert Journal(kernel).content.entries == {}


def test_a_drop_in_goes_with_its_folder_unless_others_have_files_there(tmp_path):
    host = LinuxHost(root=str(tmp_path), init_pid=None)
    for path in (CONTAINERD_DROP_IN, KUBELET_DROP_IN):
        host.persist(path, "[Service]\n")
    (tmp_path / KUBELET_DROP_IN[1:]).with_name("10-kubeadm.conf").write_text("[Service]\n")

    for path in (CONTAINERD_DROP_IN, KUBELET_DROP_IN):
        host.persist(path, None)

    assert not (tmp_path / "etc/systemd/system/containerd.service.d").exists()
    assert os.listdir(tmp_path / "etc/systemd/system/kubelet.service.d") == ["10-kubeadm.conf"]


def test_the_age_of_a_file_is_that_of_its_last_change_also_when_it_was_moved_here(tmp_path):
    host = LinuxHost(root=str(tmp_path), init_pid=None)
    (tmp_path / "new").write_text("x")
    os.utime(tmp_path / "new", (1, 1))  # as a tool does that keeps the time of the file that it copies
    (tmp_path / "new").rename(tmp_path / "file")

    assert 0 <= host.age("/file") < 600
    assert host.age("/none") is None
