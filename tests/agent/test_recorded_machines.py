"""Laws that need hardware no build machine has, on recorded /sys and /proc trees; recorded/README.md lists it.

The agent's own kinds and its own LinuxHost work on a copy of the tree. What a test reads back, it reads from the files.
"""

from __future__ import annotations

import pathlib
import shutil
import time

import pytest

from agent.journal import FileStore, Journal
from agent.reconcile import Reconciler
from contract import key_lists
from contract.nodetuning import Restore, Spec
from tests.agent.kernel import states, want
from tests.agent.recorded_machine import RECORDS, RecordedHost, lay_out

NAMES = sorted(path.stem for path in RECORDS.glob("*.txt"))
TMPFILES = "etc/tmpfiles.d/setpoint.conf"
GOVERNOR = "/sys/devices/system/cpu/cpufreq/policy{}/scaling_governor"
POOL = "/sys/devices/system/node/node{}/hugepages/hugepages-{}kB/nr_hugepages"


class Machine:
    def __init__(self, name, folder):
        lay_out(name, folder)
        self.folder, self.generation = folder, 0
        self.start()

    def start(self):
        """Start a new agent process, which knows only what the journal holds."""
        self.host = RecordedHost(self.folder)
        journal = Journal(FileStore(str(self.folder / "journal")))
        self.core = Reconciler(self.host, journal, time.time, node_uid="uid-1", agent_version="test")

    def ask(self, *settings, restore=(), mode="apply", **more):
        self.generation += 1
        return self.core.reconcile(
            Spec("uid-1", mode=mode, settings=settings, restore=tuple(restore), **more), self.generation
        )

    def observe(self, *names):
        return self.ask(mode="observe", observe=names).observed

    def values(self, pattern, *places):
        return [(self.folder / pattern.format(*p).lstrip("/")).read_text().strip() for p in places]

    def tree(self):
        return {
            str(p.relative_to(self.folder)): p.read_text()
            for top in ("sys", "proc", "root")
            for p in (self.folder / top).rglob("*")
            if p.is_file()
        }


@pytest.fixture
def two_sockets(tmp_path):
    return Machine("two-sockets", tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_every_key_of_the_allow_list_can_be_observed(name, tmp_path):
    machine = Machine(name, tmp_path)
    before = machine.tree()

    observed = machine.observe(*sorted(key_lists.ALLOWED))

    assert observed["transparent_hugepage.enabled"] == "madvise" or name != "two-sockets"
    assert observed["vm.swappiness"] == before["proc/sys/vm/swappiness"].strip()
    assert observed["hugepages-2Mi"].isdigit()
    assert any(key.startswith("block.") for key in observed)
    for key, value in observed.items():
        assert not set("\n[") & set(value), key
    assert machine.tree() == before
    assert ("cpu.scaling_governor" in observed) == (name == "two-sockets")


def test_cpus_of_different_governors_are_made_one_and_each_gets_its_own_back(two_sockets):
    before = two_sockets.tree()
    mixed = two_sockets.observe("cpu.scaling_governor")["cpu.scaling_governor"]
    assert mixed == "mixed:powersave,schedutil"

    status = two_sockets.ask(want("cpu.scaling_governor", "performance", mixed))

    assert states(status) == {"cpu.scaling_governor": "Effective"}
    assert two_sockets.values(GOVERNOR, *[(n,) for n in range(4)]) == ["performance"] * 4
    persisted = (two_sockets.folder / "root" / TMPFILES).read_text()
    assert "w /sys/devices/system/cpu/cpufreq/policy*/scaling_governor - - - - performance\n" in persisted
    two_sockets.start()
    two_sockets.ask(restore=[Restore("cpu.scaling_governor", None, "performance")])
    assert two_sockets.values(GOVERNOR, (1,), (2,)) == ["schedutil", "powersave"]
    assert two_sockets.tree() == before


def test_a_governor_that_the_driver_does_not_offer_is_refused_by_name(two_sockets):
    mixed = "mixed:powersave,schedutil"

    setting = two_sockets.ask(want("cpu.scaling_governor", "turbo", mixed)).setting("cpu.scaling_governor")

    assert setting.state == "Failed"
    assert "the CPUs offer conservative, ondemand" in setting.reason
    assert two_sockets.host.written == []


def test_pages_of_one_numa_node_leave_the_other_alone(two_sockets):
    status = two_sockets.ask(want("hugepages-2Mi.node1", "1024", "256"))

    assert states(status) == {"hugepages-2Mi.node1": "PendingRestart"}
    assert two_sockets.values(POOL, (0, 2048), (1, 2048)) == ["512", "1024"]
    assert two_sockets.observe("hugepages-2Mi")["hugepages-2Mi"] == "1536"
    two_sockets.start()
    two_sockets.ask(restore=[Restore("hugepages-2Mi.node1", None, "1024")])
    assert two_sockets.values(POOL, (0, 2048), (1, 2048)) == ["512", "256"]


def test_uneven_pools_are_spread_by_the_kernel_and_put_back_uneven(two_sockets):
    before = two_sockets.tree()
    two_sockets.ask(want("hugepages-2Mi", "2048", "768"))
    assert two_sockets.values(POOL, (0, 2048), (1, 2048)) == ["1024", "1024"]

    two_sockets.start()
    two_sockets.ask(restore=[Restore("hugepages-2Mi", None, "2048")])

    assert two_sockets.tree() == before


def test_gigabyte_pages_are_their_own_pool_and_bounded_by_memory(two_sockets):
    assert states(two_sockets.ask(want("hugepages-1Gi", "16", "0"))) == {"hugepages-1Gi": "PendingRestart"}
    assert two_sockets.values(POOL, (0, 1048576), (1, 1048576), (0, 2048)) == ["8", "8", "512"]

    setting = two_sockets.ask(want("hugepages-1Gi", "1900", "16")).setting("hugepages-1Gi")

    assert setting.state == "Denied"
    assert "memory" in setting.reason
    assert two_sockets.values(POOL, (0, 1048576)) == ["8"]


def test_all_whole_nvme_disks_are_set_and_no_path_device_nor_sata_disk(two_sockets):
    before = two_sockets.tree()
    mixed = two_sockets.observe("block.nvme.read_ahead_kb")["block.nvme.read_ahead_kb"]
    assert mixed == "mixed:128,4096"

    status = two_sockets.ask(
        want("block.nvme.read_ahead_kb", "1024", mixed),
        want("block.nvme.scheduler", "kyber", "none"),
        want("block.nvme.nr_requests", "512", "1023"),
    )

    assert set(states(status).values()) == {"Effective"}
    queue = "/sys/block/{}/queue/read_ahead_kb"
    names = [("nvme0n1",), ("nvme1n1",), ("nvme2c0n1",), ("sda",)]
    assert two_sockets.values(queue, *names) == ["1024", "1024", "128", "128"]
    assert two_sockets.values("/sys/block/{}/queue/scheduler", ("nvme1n1",)) == ["none mq-deadline [kyber] bfq"]
    two_sockets.start()
    left = {"block.nvme.read_ahead_kb": "1024", "block.nvme.scheduler": "kyber", "block.nvme.nr_requests": "512"}
    two_sockets.ask(restore=[Restore(key, None, value) for key, value in left.items()])
    assert two_sockets.tree() == before


def test_a_disk_that_went_away_does_not_hold_up_putting_back(two_sockets):
    two_sockets.ask(want("block.nvme.read_ahead_kb", "1024", "mixed:128,4096"))
    link = two_sockets.folder / "sys/block/nvme1n1"
    shutil.rmtree(link.resolve())
    link.unlink()

    status = two_sockets.ask(restore=[Restore("block.nvme.read_ahead_kb", None, "1024")])

    assert two_sockets.values("/sys/block/{}/queue/read_ahead_kb", ("nvme0n1",)) == ["128"]
    assert states(status) == {"block.nvme.read_ahead_kb": "Restored"}


def test_a_scheduler_that_the_disk_does_not_offer_is_refused(two_sockets):
    setting = two_sockets.ask(want("block.sd.scheduler", "cfq", "mq-deadline")).setting("block.sd.scheduler")

    assert setting.state == "Failed"
    assert "sda offers" in setting.reason


@pytest.mark.parametrize(
    ("key", "expect", "value", "state"),
    [
        ("module_parameter.nvme_core.io_timeout", "30", "4294967295", "Effective"),
        ("module_parameter.nf_conntrack.hashsize", "262144", "524288", "Effective"),
        ("module_parameter.mlx5_core.prof_sel", "2", "3", "Failed"),  # 0444: only when the module loads
        ("module_parameter.zswap.accept_threshold_percent", "90", "80", "Unsupported"),
    ],
)
def test_module_parameters_are_written_where_the_kernel_lets_them(two_sockets, key, expect, value, state):
    assert states(two_sockets.ask(want(key, value, expect))) == {key: state}


def test_a_machine_without_frequency_scaling_says_so(tmp_path):
    machine = Machine("virtual-machine", tmp_path)

    status = machine.ask(want("cpu.scaling_governor", "performance", "schedutil"))

    assert states(status) == {"cpu.scaling_governor": "Unsupported"}


def test_the_readme_names_every_record_and_says_which_are_composed():
    readme = (RECORDS / "README.md").read_text()
    for name in NAMES:
        assert f"`{name}`" in readme
        first = (RECORDS / f"{name}.txt").read_text().split("\n", 1)[0]
        assert ("Composed" in first) != ("Recorded" in first)
    assert pathlib.Path(RECORDS / "record.py").exists()
