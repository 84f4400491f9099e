"""The playbook's tasks, carried out: its script really runs, over a tree in place of /sys."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from contract import keys
from contract.keys import KeyKind
from profiles import exports
from profiles.catalog.host_paths import key_of_path, sysfs_path
from profiles.content.content import WantedSetting, build
from profiles.document import schema
from tests.profiles.strategies import SETTABLE, wishes

Tasks = list[dict[str, Any]]


def play_of(text: str) -> dict[str, Any]:
    content = schema.flatten(schema.parse(text), None, origin="x r1").content
    export = exports.export(content, "ansible", name="gpu", revision="gpu r1", digest="sha256:00")
    plays: list[dict[str, Any]] = yaml.safe_load(export.text)
    return plays[0]


def files(play: dict[str, Any]) -> dict[str, str]:
    """Return what the play copies to the host."""
    copies = [task["ansible.builtin.copy"] for task in play["tasks"] if "ansible.builtin.copy" in task]
    return {copy["dest"]: copy["content"] for copy in copies}


class FakeHost:
    """A tree in place of /sys, and the last task of the play run against it."""

    def __init__(self, root: Path, **values: str) -> None:
        self.root = root
        for path, value in values.items():
            self.write(path, value)

    def write(self, path: str, value: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")

    def read(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text().strip()

    def run(self, play: dict[str, Any]) -> tuple[int, bool, str]:
        """Return status, whether the play's own condition calls it changed, and the output."""
        (task,) = (task for task in play["tasks"] if task.get("register") == "setpoint_written")
        shell, path = task["ansible.builtin.command"]["argv"]
        text = files(play)[path].replace("/sys/", f"{self.root}/sys/")
        ran = subprocess.run([shell, "-c", text], capture_output=True, text=True, check=False, timeout=30)
        assert task["changed_when"] == "'changed ' in setpoint_written.stdout"
        assert ran.stderr == "", ran.stderr
        return ran.returncode, "changed " in ran.stdout, ran.stdout


PAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
LARGE = "/sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
READ_AHEAD = "/sys/block/nvme{}n1/queue/read_ahead_kb"


def test_the_first_run_writes_and_the_second_changes_nothing(tmp_path: Path) -> None:
    play = play_of(
        "settings: {hugepages-2Mi: 512, hugepages-1Gi.node1: 4, transparent_hugepage.enabled: madvise, "
        "block.nvme.read_ahead_kb: 4096}\n"
    )
    host = FakeHost(tmp_path, **{PAGES: "0", LARGE: "0", THP: "[always] madvise never"})
    for number in range(2):
        host.write(READ_AHEAD.format(number), "128")

    status, changed, _ = host.run(play)

    assert (status, changed) == (0, True)
    assert [host.read(path) for path in (PAGES, LARGE, THP)] == ["512", "4", "madvise"]
    assert [host.read(READ_AHEAD.format(number)) for number in range(2)] == ["4096", "4096"]
    host.write(THP, "always [madvise] never")  # as the kernel answers
    assert host.run(play) == (0, False, "")


@pytest.mark.parametrize(
    ("wish", "before", "after"),
    [(">= 512", "600", "600"), (">= 512", "8", "512"), ("<= 512", "600", "512"), ("<= 512", "8", "8"), ("8", "9", "8")],
)
def test_no_node_that_is_better_off_loses(tmp_path: Path, wish: str, before: str, after: str) -> None:
    host = FakeHost(tmp_path, **{PAGES: before})

    status, changed, _ = host.run(play_of(f"settings: {{hugepages-2Mi: '{wish}'}}\n"))

    assert (status, changed, host.read(PAGES)) == (0, before != after, after)


def test_a_size_of_pages_that_the_node_lacks_fails_and_the_rest_is_written(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, **{PAGES: "0"})

    play = play_of("settings: {hugepages-1Gi: 4, hugepages-2Mi: 8}\n")
    (path,) = (path for path in files(play) if path.startswith("/usr/local/sbin/"))
    text = files(play)[path].replace("/sys/", f"{tmp_path}/sys/")
    ran = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False, timeout=30)

    assert ran.returncode == 1
    assert "hugepages-1048576kB/nr_hugepages: cannot be read" in ran.stdout
    assert host.read(PAGES) == "8"


def test_a_value_that_the_kernel_does_not_keep_fails(tmp_path: Path) -> None:
    host = FakeHost(tmp_path, **{PAGES: "0"})
    play = play_of("settings: {hugepages-2Mi: 8}\n")
    (path,) = (path for path in files(play) if path.startswith("/usr/local/sbin/"))
    text = files(play)[path].replace("/sys/", f"{host.root}/sys/").replace("printf '%s\\n' \"$3\" >", "printf '5' >")
    ran = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False, timeout=30)

    assert ran.returncode == 1
    assert "the kernel has 5, not 8" in ran.stdout


def test_a_node_without_such_disks_has_nothing_to_write(tmp_path: Path) -> None:
    play = play_of("settings: {block.sd.scheduler: none, cpu.scaling_governor: performance}\n")

    assert FakeHost(tmp_path).run(play) == (0, False, "")


def test_the_scheduler_comes_before_the_queue_that_it_resets() -> None:
    play = play_of("settings: {block.nvme.nr_requests: 256, block.nvme.scheduler: none}\n")

    for path in ("/usr/local/sbin/setpoint-gpu", "/etc/udev/rules.d/90-gpu.rules"):
        assert files(play)[path].index("scheduler") < files(play)[path].index("nr_requests")


def test_disks_that_come_later_have_a_rule_where_a_rule_can_say_it() -> None:
    play = play_of("settings: {block.nvme.scheduler: none, block.sd.read_ahead_kb: '>= 4096'}\n")

    rules = files(play)["/etc/udev/rules.d/90-gpu.rules"].splitlines()
    assert len(rules) == 1
    pairs = dict(re.findall(r'([A-Z]+(?:\{[^}]+\})?)={1,2}"([^"]*)"', rules[0]))
    assert pairs == {
        "ACTION": "add|change",
        "SUBSYSTEM": "block",
        "ENV{DEVTYPE}": "disk",
        "KERNEL": "nvme*n*",
        "ATTR{queue/scheduler}": "none",
    }


def grub_line(drop_in: str, before: str) -> list[str]:
    """Return the words that the shell makes of the drop-in, as update-grub does."""
    script = f"GRUB_CMDLINE_LINUX='{before}'\n{drop_in}printf %s \"$GRUB_CMDLINE_LINUX\""
    ran = subprocess.run(["sh", "-uc", script], capture_output=True, text=True, check=True, timeout=30)
    return ran.stdout.split()


def test_kernel_arguments_are_added_to_those_there_and_each_size_before_its_count() -> None:
    play = play_of(
        "settings: {cmdline.hugepages: 4, cmdline.hugepagesz: 1G, cmdline.default_hugepagesz: 1G, cmdline.audit: 0}\n"
    )

    words = grub_line(files(play)["/etc/default/grub.d/90-gpu.cfg"], "quiet")
    assert words[0] == "quiet"
    assert words.index("hugepagesz=1G") < words.index("hugepages=4")
    assert words.index("default_hugepagesz=1G") < words.index("hugepages=4")
    assert "audit=0" in words
    (grubby,) = (task for task in play["tasks"] if "--update-kernel=ALL" in str(task))
    assert grubby["ansible.builtin.command"]["argv"][2].removeprefix("--args=").split() == words[1:]
    assert {"update-grub"} <= {handler["ansible.builtin.command"]["argv"][0] for handler in play["handlers"]}
    assert "ansible.builtin.assert" in play["tasks"][0], "an unknown boot loader stops it before anything changes"


def test_a_menu_without_the_arguments_is_written_though_the_drop_in_is_there(tmp_path: Path) -> None:
    play = play_of("settings: {cmdline.iommu: pt, cmdline.nosoftlockup: present}\n")
    (look,) = (task for task in play["tasks"] if task.get("register") == "setpoint_menu")
    menu = tmp_path / "grub.cfg"
    argv = [str(menu) if word == "/boot/grub/grub.cfg" else word for word in look["ansible.builtin.command"]["argv"]]

    def is_missing() -> bool:
        ran = subprocess.run(argv, capture_output=True, check=False, timeout=30)
        return ran.returncode != 0

    assert (look["changed_when"], look["failed_when"]) == ("setpoint_menu.rc != 0", False)
    assert look["notify"] in {handler["name"] for handler in play["handlers"]}
    assert is_missing(), "there is no menu yet"
    menu.write_text("linux /vmlinuz root=/dev/x ro quiet\n")
    assert is_missing()
    menu.write_text("linux /vmlinuz root=/dev/x ro iommu=pt nosoftlockup quiet\n")
    assert not is_missing()


def test_a_play_without_kernel_arguments_runs_on_every_distribution() -> None:
    play = play_of("settings: {hugepages-2Mi: 8}\n")

    assert "os_family" not in str(play)
    assert "handlers" not in play


@settings(max_examples=60)
@given(st.lists(wishes(SETTABLE), max_size=10))
def test_every_handler_that_is_notified_exists_and_no_text_is_a_template(wanted: list[Any]) -> None:
    unique = {wish.key: WantedSetting(wish.key, wish.operator, wish.value, "live", "x") for wish in wanted}
    content = build(settings=list(unique.values()), labels=[], annotations=[], taints=[])
    play = yaml.safe_load(exports.export(content, "ansible", name="g", revision="g r1", digest="d").text)[0]

    notified = {task["notify"] for task in play["tasks"] if "notify" in task}
    assert notified == {handler["name"] for handler in play.get("handlers", [])}
    assert len({task["name"] for task in play["tasks"]}) == len(play["tasks"])
    for text in files(play).values():
        assert not re.search(r"\{\{|\{%|\{#", text)
    for path, text in files(play).items():
        if path.startswith("/usr/local/sbin/"):
            subprocess.run(["sh", "-n"], input=text, text=True, check=True, timeout=30)


@pytest.mark.parametrize("info", SETTABLE, ids=lambda info: info.key)
def test_the_path_of_a_key_leads_back_to_it(info: Any) -> None:
    for key in (info.key, f"{info.key}.node3") if info.key.startswith("hugepages-") else (info.key,):
        path = sysfs_path(key)
        assert path is None or key_of_path(path) == key
        if keys.kind_of(key) in (KeyKind.HUGEPAGES, KeyKind.THP, KeyKind.BLOCK, KeyKind.GOVERNOR, KeyKind.CPU_LATENCY):
            assert path
