"""Kernel arguments and the reboot by grant, with real programs and real kills.

update-grub, grubby and systemctl are scripts that note their calls, run through the agent's own LinuxHost; the "boot"
evaluates the drop-in with a shell, as update-grub does. The agent is a process, and is killed at each of its effects.
"""

from __future__ import annotations

import errno
import json
import os
import pathlib
import subprocess

import pytest

from agent.boot_loader import DROP_IN
from agent.host import Command, LinuxHost
from contract.nodetuning import RestartGrant, Restore, Spec, Status
from tests.agent.kernel import EXPIRES, states, want
from tests.agent.power_cut import live

UPDATE_GRUB = """
for file in "$root"/etc/default/grub.d/*.cfg; do [ -e "$file" ] && . "$file"; done
printf '%s\\n' "$GRUB_CMDLINE_LINUX" > "$root/boot-line"
"""
GRUBBY = """
name="${3%%=*}"
line=$(cat "$root/boot-line")
kept=""
for word in $line; do [ "${word%%=*}" = "$name" ] || kept="$kept $word"; done
case "$2" in --args) kept="$kept $3" ;; esac
printf '%s\\n' "$kept" > "$root/boot-line"
"""
SYSTEMCTL = """
[ "$1" = reboot ] || exit 0
echo "boot-$(($(grep -c reboot "$root/systemctl.calls") + 1))" > "$root/../proc/sys/kernel/random/boot_id"
(printf 'ro quiet '; cat "$root/boot-line") > "$root/../proc/cmdline"
"""


class Node:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.root = folder, folder / "root"
        self.put("proc/sys/kernel/random/boot_id", "boot-1")
        self.put("proc/sys/kernel/osrelease", "6.8.0")
        self.put("proc/cmdline", "ro quiet")
        self.put("proc/meminfo", "MemTotal:       67108864 kB")
        self.put("root/boot-line", "")
        (folder / "sys").mkdir()

    def put(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text + "\n")

    def program(self, name: str, body: str) -> None:
        notes = f'root={self.root}; echo "$*" >> "$root/{name}.calls"\n'
        self.put(f"root/usr/sbin/{name}", f"#!/bin/sh\n{notes}{body}")
        (self.root / "usr/sbin" / name).chmod(0o755)

    def calls(self, name: str) -> list[str]:
        notes = self.root / f"{name}.calls"
        return notes.read_text().splitlines() if notes.exists() else []

    def arguments(self) -> str:
        return (self.folder / "proc/cmdline").read_text().strip()

    def power(self) -> None:
        """Boot again, without a grant."""
        subprocess.run(["/bin/sh", self.root / "power", self.root], check=True)

    def agent(self, spec: Spec, effect: int = -1) -> Status | None:
        """One life of the agent; None when it was killed."""
        (self.folder / "spec").write_text(json.dumps(spec.to_json()))
        ran = live(str(self.folder), str(self.folder / "spec"), str(effect))
        if ran.returncode == -9:
            return None
        assert ran.returncode == 0, ran.stderr
        return Status.from_json(json.loads(ran.stdout))


@pytest.fixture
def node(tmp_path: pathlib.Path) -> Node:
    made = Node(tmp_path)
    made.program("systemctl", SYSTEMCTL)
    made.program("update-grub", UPDATE_GRUB)
    return made


IOMMU = want("cmdline.iommu", "pt", None)
PAGES = (want("cmdline.hugepages", "16", None), want("cmdline.hugepagesz", "1G", None))


def spec(*settings, grant: str | None = None, boot: str = "boot-1", **more) -> Spec:
    restart = RestartGrant(grant, "reboot", boot, EXPIRES) if grant else None
    return Spec("uid-1", mode="apply", settings=settings, restart=restart, **more)


def test_the_drop_in_is_what_a_shell_understands_and_a_boot_brings_it(node):
    status = node.agent(spec(IOMMU, want("cmdline.nosoftlockup", "present", None), *PAGES))
    assert set(states(status).values()) == {"PendingRestart"}
    assert node.calls("update-grub") == [""]
    assert node.calls("systemctl") == []

    node.agent(spec(IOMMU, want("cmdline.nosoftlockup", "present", None), *PAGES, grant="g-1"))
    status = node.agent(spec(IOMMU, want("cmdline.nosoftlockup", "present", None), *PAGES, grant="g-1"))

    assert node.arguments() == "ro quiet  hugepagesz=1G hugepages=16 iommu=pt nosoftlockup"  # the size before the count
    assert set(states(status).values()) == {"Effective"}
    assert (status.restart.state, status.boot_id) == ("Done", "boot-2")
    assert node.calls("update-grub") == [""]  # nothing changed since


def test_what_programs_of_the_boot_loader_write_is_on_the_disk_before_it_is_called_done(node, monkeypatch):
    menu = node.root / "boot/grub/grub.cfg"
    menu.parent.mkdir(parents=True)
    node.program("update-grub", f"echo menu > {menu}")
    flushed = []
    monkeypatch.setattr("os.fsync", lambda fd: flushed.append(os.readlink(f"/proc/self/fd/{fd}")))
    host = LinuxHost(root=str(node.root), proc=f"{node.folder}/proc", sys=f"{node.folder}/sys", init_pid=None)

    assert host.run(Command.UPDATE_GRUB).code == 0
    assert flushed == [str(menu)]
    menu.unlink()
    node.program("update-grub", "true")
    assert host.run(Command.UPDATE_GRUB).code == 0, "another boot loader's menu is elsewhere"


def test_a_menu_that_the_disk_does_not_take_is_not_called_made(node, monkeypatch):
    menu = node.root / "boot/grub/grub.cfg"
    menu.parent.mkdir(parents=True)
    node.program("update-grub", f"echo menu > {menu}")

    def fails(fd):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.fsync", fails)
    host = LinuxHost(root=str(node.root), proc=f"{node.folder}/proc", sys=f"{node.folder}/sys", init_pid=None)
    ran = host.run(Command.UPDATE_GRUB)
    assert ran.code != 0
    assert "/boot/grub/grub.cfg: Input/output error" in ran.output


def test_putting_back_runs_update_grub_again_and_waits_for_a_boot(node):
    node.agent(spec(IOMMU, grant="g-1"))
    node.agent(spec(IOMMU, grant="g-1"))
    back = (Restore("cmdline.iommu", None, "pt"),)

    assert states(node.agent(spec(restore=back, step="s-2"))) == {"cmdline.iommu": "PendingRestart"}
    assert len(node.calls("update-grub")) == 2
    assert not (node.root / DROP_IN.lstrip("/")).exists()
    node.agent(spec(restore=back, step="s-2", grant="g-2", boot="boot-2"))
    assert states(node.agent(spec(restore=back, step="s-2", grant="g-2", boot="boot-2"))) == {
        "cmdline.iommu": "Restored"
    }
    assert node.arguments() == "ro quiet"


def test_an_update_grub_that_fails_is_said_with_its_own_words(node):
    node.program("update-grub", 'echo "cannot find a device for /"; exit 1')

    setting = node.agent(spec(IOMMU)).setting("cmdline.iommu")

    assert setting.state == "Failed"
    assert "update-grub answered 1: cannot find a device for /" in setting.reason


def test_grubby_is_told_to_add_and_to_take_away(node):
    (node.root / "usr/sbin/update-grub").unlink()
    node.program("grubby", GRUBBY)
    status = node.agent(spec(IOMMU, grant="g-1"))
    status = node.agent(spec(IOMMU, grant="g-1"))
    assert states(status) == {"cmdline.iommu": "Effective"}
    assert node.calls("grubby") == ["--update-kernel=ALL --args iommu=pt"]

    node.agent(spec(restore=(Restore("cmdline.iommu", None, "pt"),), step="s-2"))

    assert node.calls("grubby")[1:] == ["--update-kernel=ALL --remove-args iommu=pt"]
    assert (node.root / "boot-line").read_text().split() == []


HALVES = 18
"""Moments before and after each effect on the way to the reboot; at this one the agent is not killed any more."""


@pytest.mark.parametrize("effect", range(HALVES + 1))
def test_a_reboot_by_grant_is_journalled_carried_out_once_and_done_wherever_the_agent_is_killed(node, effect):
    granted_spec = spec(IOMMU, grant="g-1")
    first = node.agent(granted_spec, effect)
    assert (first is None) == (effect < HALVES)  # else this test kills no agent
    if node.calls("systemctl"):
        assert "g-1" in (node.folder / "journal").read_text()

    node.agent(granted_spec)  # resumed: what was not begun is begun now
    status = node.agent(granted_spec)

    assert len(node.calls("systemctl")) <= 1
    assert status is not None
    if node.calls("systemctl"):
        assert (status.boot_id, status.restart.state) == ("boot-2", "Done")
        assert states(status) == {"cmdline.iommu": "Effective"}
        assert "iommu=pt" in node.arguments()
    else:
        # Killed between the journal's word and the command: it is unknown whether the reboot began, so it is
        # never asked for again, and the control plane's deadline decides.
        assert (status.boot_id, status.restart.state) == ("boot-1", "Journalled")
        assert states(status) == {"cmdline.iommu": "PendingRestart"}
