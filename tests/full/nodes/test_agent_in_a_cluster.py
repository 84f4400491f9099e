"""The agent as a process, with a pod's own token, on a real API server and the kernel of this machine."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clusters.kube.fleet import KubeFleet
from contract import clock, names
from contract.nodetuning import RestartGrant, Restore, Spec, Status, Wanted
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane

pytestmark = pytest.mark.full
ROOT = pathlib.Path(__file__).parents[3]
SWAPPINESS = pathlib.Path("/proc/sys/vm/swappiness")
HUGE = pathlib.Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
ANSWER_SECONDS = 20.0


def grant(action: str, boot: str, seconds: float = 3600) -> RestartGrant:
    return RestartGrant("grant-1", action, boot, clock.stamp(time.time() + seconds))


class Agent:
    """`python -m agent` beside a first process of its own in place of the node's, because this machine's cannot
    always be looked at. Host files go under `folder`, and so do the programs it finds."""

    def __init__(
        self, plane: Plane, admin: Admin, fleet: KubeFleet, node: dict[str, Any], folder: pathlib.Path
    ) -> None:
        self.admin, self.fleet, self.folder = admin, fleet, folder
        self.name, self.uid = node["metadata"]["name"], node["metadata"]["uid"]
        (folder / "token").write_text(admin.agent_token(self.name))
        (folder / "ca.crt").write_text(plane.authority.pem)
        self._options = {
            "server": plane.url,
            "token-file": folder / "token",
            "ca-file": folder / "ca.crt",
            "host-root": folder / "root",
            "journal": folder / "journal",
            "nsenter": "no",
            "verify-seconds": "1",
            "node": self.name,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, protocol: int = names.PROTOCOL) -> None:
        """`protocol`: play an agent of another version, which speaks that one."""
        program = f"import contract.names as n, sys; n.PROTOCOL = {protocol}; import agent.__main__ as a; "
        run = ["-m", "agent"] if protocol == names.PROTOCOL else ["-c", f"{program}sys.exit(a.main(sys.argv[1:]))"]
        options = [f"--{name}={value}" for name, value in self._options.items()]
        outer = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", '"$@" & wait $!', "sh"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*outer, sys.executable, *run, *options], cwd=ROOT, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """kill -9, of the process and of the namespace around it."""
        if self._process:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def program(self, name: str) -> pathlib.Path:
        """A program of the node that notes how it was called; returns its notes."""
        path, notes = self.folder / "root/usr/bin" / name, self.folder / f"{name}.calls"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\necho "$*" >> {notes}\n')
        path.chmod(0o755)
        return notes

    def ask(self, **spec: Any) -> Status:
        generation = self.fleet.tune(self.name, Spec(self.uid, **spec))["metadata"]["generation"]
        return self.answer(lambda status: status.observed_generation == generation)

    def answer(self, is_it: Callable[[Status], bool]) -> Status:
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            status = Status.from_json(self.fleet.tuning(self.name).get("status") or {})
            if is_it(status):
                return status
            log = (self.folder / "log").read_text()
            assert time.monotonic() < deadline, f"the agent did not answer; last {status}; it says {log[-2000:]}"
            time.sleep(0.1)


@pytest.fixture
def agent(
    deployed: Plane,
    cluster_admin: Admin,
    controller_fleet: KubeFleet,
    a_node: Callable[..., dict[str, Any]],
    tmp_path: pathlib.Path,
) -> Iterator[Agent]:
    if os.geteuid() != 0:
        pytest.skip("writing kernel settings needs root")
    before = {path: path.read_text() for path in (SWAPPINESS, HUGE)}
    running = Agent(deployed, cluster_admin, controller_fleet, a_node(), tmp_path)
    running.fleet.observe(running.name, running.uid, Spec(running.uid, observe=("vm.swappiness",)))
    running.start()
    try:
        yield running
    finally:
        running.kill()
        for path, value in before.items():
            path.write_text(value)


def test_a_setting_is_observed_applied_and_put_back_across_a_killed_agent(agent):
    original = SWAPPINESS.read_text().strip()
    wanted = "9" if original != "9" else "8"
    status = agent.answer(lambda s: s.observed_generation == 1)
    assert status.observed == {"vm.swappiness": original}
    assert status.node_uid == agent.uid

    status = agent.ask(mode="apply", step="s-1", settings=(Wanted("vm.swappiness", "=", wanted, original),))
    assert (status.step, status.setting("vm.swappiness").state) == ("s-1", "Effective")
    assert SWAPPINESS.read_text().strip() == wanted

    agent.kill()
    agent.start()
    status = agent.ask(mode="apply", step="s-2", restore=(Restore("vm.swappiness", None, wanted),))
    assert status.setting("vm.swappiness").state == "Restored"
    assert SWAPPINESS.read_text().strip() == original


def test_liveness_is_a_lease_that_goes_with_the_node(agent):
    agent.answer(lambda s: s.observed_generation == 1)
    deadline = time.monotonic() + ANSWER_SECONDS
    while (lease := agent.admin.find("leases", agent.name, names.NAMESPACE)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert lease["spec"]["leaseDurationSeconds"] == 180
    assert lease["metadata"]["ownerReferences"][0]["uid"] == agent.uid


def test_a_quiet_agent_writes_no_status(agent):
    agent.answer(lambda s: s.observed_generation == 1)
    version = agent.fleet.tuning(agent.name)["metadata"]["resourceVersion"]
    time.sleep(4)  # four looks
    agent.kill()
    agent.start()
    time.sleep(2)
    assert agent.fleet.tuning(agent.name)["metadata"]["resourceVersion"] == version


def test_a_kubelet_restart_by_grant_runs_once_and_survives_kill(agent):
    calls = agent.program("systemctl")
    pages = HUGE.read_text().strip()
    settings = (Wanted("hugepages-2Mi", "=", str(int(pages) + 4), pages),)
    status = agent.ask(mode="apply", settings=settings)
    assert status.setting("hugepages-2Mi").state == "PendingRestart"
    once = grant("kubelet", status.boot_id)

    agent.ask(mode="apply", settings=settings, restart=once)
    status = agent.answer(lambda s: s.restart is not None and s.restart.state == "Done")
    assert status.setting("hugepages-2Mi").state == "Effective"
    agent.kill()
    agent.start()
    agent.ask(mode="apply", attempt=2, settings=settings, restart=once)
    assert calls.read_text() == "restart kubelet.service\n"


def test_a_reboot_grant_for_another_boot_is_refused(agent):
    calls = agent.program("systemctl")
    agent.ask(mode="apply", restart=grant("reboot", "00000000-another-boot"))

    status = agent.answer(lambda s: s.restart is not None)

    assert status.restart.state == "Refused"
    assert not calls.exists()


def test_a_grant_whose_time_is_over_by_the_api_servers_date_is_refused(agent):
    calls = agent.program("systemctl")
    status = agent.ask(mode="apply")
    agent.ask(mode="apply", restart=grant("reboot", status.boot_id, seconds=-5))

    status = agent.answer(lambda s: s.restart is not None)

    assert status.restart.state == "Refused"
    assert "over" in status.restart.reason
    assert not calls.exists()


@pytest.mark.parametrize(("newer", "apart"), [("agent", 1), ("control plane", 1), ("agent", 2), ("control plane", 2)])
def test_versions_one_apart_work_and_two_apart_refuse_on_the_installed_schema(agent, newer, apart):
    ours, theirs = (names.PROTOCOL + (apart if side == newer else 0) for side in ("agent", "control plane"))
    original = SWAPPINESS.read_text().strip()
    wanted = "9" if original != "9" else "8"
    agent.kill()
    agent.start(protocol=ours)

    status = agent.ask(mode="apply", protocol=theirs, settings=(Wanted("vm.swappiness", "=", wanted, original),))

    assert status.protocol == ours
    if apart <= names.MAX_SKEW:
        assert status.setting("vm.swappiness").state == "Effective"
        assert SWAPPINESS.read_text().strip() == wanted
    else:
        assert status.condition("Degraded").reason == "Skew"
        assert SWAPPINESS.read_text().strip() == original


def test_a_field_that_the_installed_schema_lacks_is_dropped_and_the_rest_obeyed(agent):
    """A newer control plane on an older CRD: the API server prunes, and nothing else is lost."""
    original = SWAPPINESS.read_text().strip()
    wanted = "9" if original != "9" else "8"
    spec = Spec(agent.uid, mode="apply", settings=(Wanted("vm.swappiness", "=", wanted, original),)).to_json()
    spec["settings"][0]["hint"] = "of a later version"

    generation = agent.fleet.tune(agent.name, _Raw(spec))["metadata"]["generation"]
    status = agent.answer(lambda s: s.observed_generation == generation)

    assert status.setting("vm.swappiness").state == "Effective"
    assert "hint" not in agent.fleet.tuning(agent.name)["spec"]["settings"][0]


class _Raw:
    """A spec of a later version."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec

    def to_json(self) -> dict[str, Any]:
        return self._spec
