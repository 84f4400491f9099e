"""The agent's core on the kernel of the machine that runs the tests: written by the agent, read back here by hand.

What belongs to a network namespace is written in one of the test's own; what belongs to the machine is changed for the
moment of a test, and put back in every case.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agent.host import LinuxHost
from agent.journal import FileStore, Journal
from agent.reconcile import Reconciler
from contract.nodetuning import Restore, Spec, Status, Wanted

pytestmark = pytest.mark.full
ROOT = pathlib.Path(__file__).parents[3]
SYS = pathlib.Path("/proc/sys")
CPUS = pathlib.Path("/sys/devices/system/cpu")
THP = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
HUGE = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")


def read(path: pathlib.Path) -> str:
    return " ".join(path.read_text().split())


def chosen(text: str) -> str:
    return text.partition("[")[2].partition("]")[0]


def put(path: pathlib.Path, value: str) -> None:
    path.write_text(value + "\n")


class Agent:
    def __init__(self, folder: pathlib.Path) -> None:
        self.root = folder / "root"
        self.store = FileStore(str(folder / "journal"))
        self.generation = 0
        self.start()

    def start(self) -> None:
        host = LinuxHost(root=str(self.root), init_pid=None)
        self.core = Reconciler(host, Journal(self.store), time.time, node_uid="uid-1", agent_version="test")

    def ask(self, *settings: Wanted, restore: tuple[Restore, ...] = (), mode: str = "apply") -> Status:
        self.generation += 1
        return self.core.reconcile(Spec("uid-1", mode=mode, settings=settings, restore=restore), self.generation)

    def file(self, path: str) -> str:
        return (self.root / path).read_text()


@pytest.fixture
def agent(tmp_path: pathlib.Path) -> Agent:
    if os.geteuid() != 0:
        pytest.skip("writing kernel settings needs root")
    return Agent(tmp_path)


@pytest.fixture
def kept() -> Iterator[Any]:
    """Remember files of the kernel; each is put back after the test, the last one first."""
    before: list[tuple[pathlib.Path, str]] = []

    def keep(path: pathlib.Path) -> str:
        before.append((path, chosen(text) if "[" in (text := read(path)) else text))
        return before[-1][1]

    yield keep
    for path, value in reversed(before):
        now = read(path)
        if (chosen(now) if "[" in now else now) != value:
            put(path, value)


def only(status: Status) -> Any:
    [setting] = status.settings
    return setting


def test_a_sysctl_is_written_verified_persisted_and_put_back(agent, kept):
    path = SYS / "vm/swappiness"
    original = kept(path)
    wanted = "7" if original != "7" else "8"

    setting = only(agent.ask(Wanted("vm.swappiness", "=", wanted, original)))

    assert read(path) == wanted
    assert (setting.state, setting.effective, setting.original) == ("Effective", wanted, original)
    assert f"vm.swappiness = {wanted}" in agent.file("etc/sysctl.d/99-zz-setpoint.conf")
    agent.start()  # a new process knows the original from the journal on disk
    assert only(agent.ask(restore=(Restore("vm.swappiness", None, wanted),))).state == "Restored"
    assert read(path) == original
    assert not (agent.root / "etc/sysctl.d/99-zz-setpoint.conf").exists()


def test_a_value_changed_behind_the_plan_s_back_is_left_alone(agent, kept):
    path = SYS / "vm/swappiness"
    original = kept(path)
    moved = "33" if original != "33" else "34"
    put(path, moved)

    assert only(agent.ask(Wanted("vm.swappiness", "=", "7", original))).state == "Moved"
    assert read(path) == moved


def test_raise_only_raises_and_leaves_what_is_higher(agent, kept):
    path = SYS / "vm/max_map_count"
    original = int(kept(path))

    lower = only(agent.ask(Wanted("vm.max_map_count", ">=", str(original - 1), str(original))))
    assert (lower.state, lower.written) == ("Effective", None)
    assert not (agent.root / "etc/sysctl.d/99-zz-setpoint.conf").exists()
    higher = only(agent.ask(Wanted("vm.max_map_count", ">=", str(original + 1000), str(original))))
    assert (higher.state, read(path)) == ("Effective", str(original + 1000))
    agent.ask(restore=(Restore("vm.max_map_count", None, str(original + 1000)),))
    assert read(path) == str(original)


def test_the_kernel_s_refusal_is_reported(agent, kept):
    original = kept(SYS / "vm/swappiness")

    setting = only(agent.ask(Wanted("vm.swappiness", "=", "100000", original)))

    assert (setting.state, setting.effective) == ("Failed", original)
    assert "Invalid argument" in setting.reason


def test_dirty_bytes_and_ratio_are_put_back_together(agent, kept):
    ratio, bytes_ = SYS / "vm/dirty_ratio", SYS / "vm/dirty_bytes"
    before = (kept(ratio), kept(bytes_))
    if before[1] != "0":
        put(ratio, "20")
        before = ("20", "0")
    try:
        assert only(agent.ask(Wanted("vm.dirty_bytes", "=", "268435456", "0"))).state == "Effective"
        assert (read(ratio), read(bytes_)) == ("0", "268435456")
        assert only(agent.ask(restore=(Restore("vm.dirty_bytes", None, "268435456"),))).state == "Restored"
        assert (read(ratio), read(bytes_)) == before
    finally:
        if (read(ratio), read(bytes_)) != before:
            put(ratio, before[0])


def test_transparent_huge_pages(agent, kept):
    original = kept(THP)
    wanted = "always" if original != "always" else "madvise"

    assert only(agent.ask(Wanted("transparent_hugepage.enabled", "=", wanted, original))).state == "Effective"
    assert chosen(read(THP)) == wanted
    agent.ask(restore=(Restore("transparent_hugepage.enabled", None, wanted),))
    assert chosen(read(THP)) == original


def test_a_latency_of_the_cpus(agent, kept):
    cpus = [path / "power/pm_qos_resume_latency_us" for path in CPUS.glob("cpu[0-9]*")]
    originals = {kept(path) for path in cpus}
    [original] = originals
    wanted = "20" if original != "20" else "30"

    assert only(agent.ask(Wanted("cpu.resume_latency_us", "=", wanted, original))).state == "Effective"
    assert {read(path) for path in cpus} == {wanted}
    agent.start()
    assert only(agent.ask(restore=(Restore("cpu.resume_latency_us", None, wanted),))).state == "Restored"
    assert {read(path) for path in cpus} == originals


def test_huge_pages_are_allocated_wait_for_the_kubelet_and_go_back(agent, kept):
    original = kept(HUGE)
    wanted = str(int(original) + 8)

    setting = only(agent.ask(Wanted("hugepages-2Mi", "=", wanted, original)))

    assert (setting.state, setting.effective, read(HUGE)) == ("PendingRestart", wanted, wanted)
    agent.ask(restore=(Restore("hugepages-2Mi", None, wanted),))
    assert read(HUGE) == original


def test_more_huge_pages_than_the_machine_can_give_are_refused(agent, kept):
    original = kept(HUGE)

    setting = only(agent.ask(Wanted("hugepages-2Mi", "=", "100000000", original)))

    assert (setting.state, read(HUGE)) == ("Denied", original)


def test_enforce_repairs_and_then_stops_fighting(agent, kept):
    path = SYS / "vm/swappiness"
    original = kept(path)
    wanted = "7" if original != "7" else "8"
    agent.ask(Wanted("vm.swappiness", "=", wanted, original), mode="enforce")
    for _ in range(3):
        put(path, "44")
        agent.core.verify()
        assert read(path) == wanted
    put(path, "44")

    assert only(agent.core.verify()).state == "Contended"
    assert read(path) == "44"


def test_every_key_of_the_allow_list_can_be_read_here(agent):
    """No kind of key may raise on a real machine; what it lacks is simply absent."""
    from contract.key_lists import ALLOWED, READ_ONLY

    spec = Spec("uid-1", observe=tuple(sorted(ALLOWED | READ_ONLY)))
    started = time.process_time()
    status = agent.core.reconcile(spec, 1)
    spent = time.process_time() - started

    assert status.observed["vm.swappiness"] == read(SYS / "vm/swappiness")
    assert status.observed["net.ipv4.tcp_rmem"] == read(SYS / "net/ipv4/tcp_rmem")
    assert len(status.observed) > 80
    assert spent < 0.5, f"{spent:.3f} s of CPU for one reading of everything"


IN_A_NAMESPACE = """
    import json, pathlib, sys
    sys.path.insert(0, {root!r})
    from agent.host import LinuxHost
    from agent.journal import FileStore, Journal
    from agent.reconcile import Reconciler
    from contract.nodetuning import Restore, Spec, Wanted

    keys = ("net.ipv4.tcp_rmem", "net.core.somaxconn")
    places = {{k: pathlib.Path("/proc/sys/" + k.replace(".", "/")) for k in keys}}
    read = lambda: {{k: " ".join(p.read_text().split()) for k, p in places.items()}}
    before = read()
    host = LinuxHost(root={folder!r} + "/root", init_pid=None)
    core = Reconciler(host, Journal(FileStore({folder!r} + "/journal")), lambda: 0.0, node_uid="u", agent_version="t")
    wanted = {{"net.ipv4.tcp_rmem": "4096 87380 16777216", "net.core.somaxconn": "12345"}}
    settings = tuple(Wanted(k, "=", v, before[k]) for k, v in wanted.items())
    applied = core.reconcile(Spec("u", "apply", settings=settings), 1)
    during = read()
    restored = core.reconcile(Spec("u", "apply", restore=tuple(Restore(k, None, v) for k, v in wanted.items())), 2)
    print(json.dumps([before, during, read(), [[s.state for s in status.settings] for status in (applied, restored)]]))
"""


def test_network_keys_change_in_their_own_namespace_and_nowhere_else(agent, tmp_path):
    here = read(SYS / "net/core/somaxconn")
    code = textwrap.dedent(IN_A_NAMESPACE.format(root=str(ROOT), folder=str(tmp_path)))
    ran = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    before, during, after, states = json.loads(ran.stdout)

    assert during == {"net.ipv4.tcp_rmem": "4096 87380 16777216", "net.core.somaxconn": "12345"}
    assert after == before
    assert states == [["Effective"] * 2, ["Restored"] * 2]
    assert read(SYS / "net/core/somaxconn") == here


REFUSES = [sys.executable, "-m", "agent", "--server", "https://127.0.0.1:1", "--ca-file", ""]


@pytest.mark.parametrize(("unshared", "message"), [([], ""), (["--net"], "hostNetwork"), (["--ipc"], "hostIPC")])
def test_the_agent_refuses_another_namespace_than_its_first_process_s(agent, tmp_path, unshared, message):
    """Process 1 of a PID namespace of its own takes the place of the node's; the agent is started beside it."""
    (tmp_path / "token").write_text("not a bound token")
    inner = ["unshare", *unshared, *REFUSES] if unshared else REFUSES
    shell = 'cd "$0" && "$@" & wait $!'
    command = ["unshare", "--pid", "--fork", "--mount-proc", "--net", "--ipc", "sh", "-c", shell, str(ROOT), *inner]
    ran = subprocess.run(
        [*command, "--token-file", str(tmp_path / "token"), "--journal", str(tmp_path / "j")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 3, ran.stderr
    # In the right namespaces the next thing it looks at is its token.
    assert (message or "does not name a node") in ran.stderr


def loadable() -> str | None:
    """A module of the allow-list that this kernel has on disk and that is not loaded: harmless ones only."""
    release = os.uname().release
    for name in ("dummy", "nbd", "sch_fq", "tcp_bbr", "nvme_fabrics"):
        has_file = any(pathlib.Path(f"/lib/modules/{release}").rglob(f"{name.replace('_', '[-_]')}.ko*"))
        if has_file and not pathlib.Path(f"/sys/module/{name}").exists():
            return name
    return None


@pytest.fixture
def with_modprobe(agent: Agent) -> Agent:
    """The machine's own modprobe, found where the agent looks for the node's programs."""
    real = shutil.which("modprobe", path="/usr/sbin:/usr/bin:/sbin:/bin")
    if real is None:
        pytest.skip("needs hardware: this machine has no modprobe")
    (agent.root / "usr/sbin").mkdir(parents=True)
    (agent.root / "usr/sbin/modprobe").symlink_to(real)
    return agent


def test_a_module_is_loaded_by_the_real_modprobe_and_unloaded(with_modprobe):
    name = loadable()
    if name is None:
        pytest.skip("needs hardware: a kernel with loadable modules; /lib/modules here has none")
    try:
        status = with_modprobe.ask(Wanted(f"module.{name}", "=", "loaded", None))
        assert (only(status).state, pathlib.Path(f"/sys/module/{name}").exists()) == ("Effective", True)
        assert with_modprobe.file("etc/modules-load.d/setpoint.conf").endswith(f"\n{name}\n")
        assert only(with_modprobe.ask(restore=(Restore(f"module.{name}", None, "loaded"),))).state == "Restored"
        assert not pathlib.Path(f"/sys/module/{name}").exists()
    finally:
        subprocess.run(["modprobe", "-r", name], check=False, capture_output=True)


def test_the_real_modprobe_s_refusal_is_reported_in_its_own_words(with_modprobe):
    missing = next(
        (
            n
            for n in ("lustre", "xpmem", "knem", "gdrdrv")  # modules of other vendors: no distribution has them
            if not pathlib.Path(f"/sys/module/{n}").exists()
        ),
        None,
    )
    assert missing

    setting = only(with_modprobe.ask(Wanted(f"module.{missing}", "=", "loaded", None)))

    assert setting.state == "Failed"
    assert "modprobe answered 1: modprobe: FATAL: Module" in setting.reason
    assert not (with_modprobe.root / "etc/modules-load.d/setpoint.conf").exists()
