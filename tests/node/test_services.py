"""The kubelet's configuration and a limit of containerd on a real machine, as its control groups and a pod see them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.full.harness.site import Site
from tests.nodemachine.node import Node

pytestmark = [pytest.mark.usefixtures("judged"), pytest.mark.long]

FOLDER = "/etc/kubernetes/kubelet.conf.d"
FLAGS = "/etc/systemd/system/kubelet.service.d/10-config-dir.conf"
KUBELET = f"""\
[Service]
ExecStart=
ExecStart=/parts/bin/kubelet --config=/etc/kubelet.yaml --config-dir={FOLDER} --kubeconfig=/parts/kubelet.kubeconfig \\
  --hostname-override=${{NODE_NAME}}
"""
PIDS, MEMLOCK, FILES = "kubelet.podPidsLimit", "containerd.LimitMEMLOCK", "containerd.LimitNOFILE"
LIMIT = """\
import resource as r, time
print(*r.getrlimit(r.RLIMIT_MEMLOCK), *r.getrlimit(r.RLIMIT_NOFILE), flush=True)
time.sleep(3600)"""


@pytest.fixture
def pool(site: Site) -> int:
    return site.pool(pool="machines")


@pytest.fixture
def _with_drop_ins(node: Node) -> Iterator[None]:
    """A kubelet that reads drop-ins, for this test."""
    node.machine.shell(f"mkdir -p {FOLDER} {FLAGS.rpartition('/')[0]}")
    node.machine.write(FLAGS, KUBELET)
    restart_kubelet(node)
    yield
    node.machine.shell(f"rm -r {FLAGS.rpartition('/')[0]} {FOLDER}")
    restart_kubelet(node)


def restart_kubelet(node: Node) -> None:
    node.machine.run("systemctl", "daemon-reload")
    node.machine.run("systemctl", "restart", "kubelet")
    node.await_ready()


def limits_of_a_pod(node: Node, name: str) -> tuple[str, str, str]:
    """Return pids.max of a new pod's control group, and the limits of locked memory and files of its program."""
    node.run_pod(name, ["python", "-S", "-c", LIMIT], {"memory": "64Mi"})
    try:
        node.eventually(lambda: node.pod_log(name))
        uid = node.admin.find("pods", name)["metadata"]["uid"].replace("-", "_")
        pids = node.machine.shell(f"cat $(find /sys/fs/cgroup -path '*pod{uid}.slice/pids.max')")
        words = node.pod_log(name).split()[-4:]
        return pids, " ".join(words[:2]), " ".join(words[2:])
    finally:
        node.admin.delete("pods", name)
        node.eventually(lambda: node.admin.find("pods", name) is None)


@pytest.mark.usefixtures("_with_drop_ins")
def test_limits_of_processes_memory_and_files_reach_a_new_pod_and_go_back(site: Site, node: Node, pool: int) -> None:
    before = limits_of_a_pod(node, "before")
    assert before[1] == "8388608 8388608"
    boot = node.boot_id

    plan = site.plan(pool, site.revision({PIDS: "2048", MEMLOCK: "infinity", FILES: "131072"}))
    shown = {c["key"]: c["before"] for group in plan["differences"] for c in group["changes"]}
    assert shown == {PIDS: "-1", MEMLOCK: "8388608", FILES: before[2].split()[1]}
    assert plan["worst_class"] == "containerd-restart"
    site.approve(plan)
    rollout = site.start(plan)
    site.until(rollout, "succeeded", seconds=600)

    assert limits_of_a_pod(node, "tuned") == ("2048", "-1 -1", "131072 131072")
    assert site.observed(node.name, MEMLOCK) == "infinity"
    assert site.observed(node.name, FILES) == "131072"

    site.act(rollout, "revert")
    site.until(rollout, "reverted", seconds=600)

    assert limits_of_a_pod(node, "after") == before
    assert node.left_behind() == []
    assert node.boot_id == boot


def test_a_kubelet_without_a_directory_for_drop_ins_fails_the_step_with_what_to_add(
    site: Site, node: Node, pool: int
) -> None:
    rollout = site.rollout_of(pool, site.revision({PIDS: "2048"}))

    site.until_step(rollout, node.name, "failed", says=f"add --config-dir={FOLDER}", seconds=300)
    assert node.machine.shell("find /etc -name '*setpoint*'") == ""

    site.act(rollout, "revert")
    site.until(rollout, "reverted", seconds=300)
    assert node.left_behind() == []
