"""The kubelet's resource managers on a real machine, as the kernel's own CPU sets of pods show them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from contract.resource_managers import RESERVED
from tests.full.harness.client import eventually
from tests.full.harness.site import Site
from tests.node.test_services import FLAGS, FOLDER, KUBELET, restart_kubelet
from tests.nodemachine.node import Node

pytestmark = [pytest.mark.usefixtures("judged", "_with_drop_ins"), pytest.mark.long]

POLICY, CPUS = "kubelet.cpuManagerPolicy", "kubelet.reservedSystemCPUs"
STATE = "/var/lib/kubelet/cpu_manager_state"
OWN = f"""\
mkdir -p {FOLDER}
printf '%s\\n' 'kind: KubeletConfiguration' 'apiVersion: kubelet.config.k8s.io/v1beta1' \\
  'kubeReserved: {{cpu: 500m}}' > {FOLDER}/10-own.conf
"""
"""Half a CPU reserved by the node's own files: the static policy keeps one of two to itself, and the agent and a pod of
a whole CPU have room on the other one and a half."""


@pytest.fixture
def pool(site: Site) -> int:
    return site.pool(pool="machines")


@pytest.fixture
def _with_drop_ins(node: Node) -> Iterator[None]:
    """A kubelet that reads drop-ins and that systemd starts again, for this test."""
    node.machine.shell(f"mkdir -p {FLAGS.rpartition('/')[0]}\n{OWN}")
    node.machine.write(FLAGS, KUBELET)
    restart_kubelet(node)
    yield
    node.machine.shell(f"rm -rf {FLAGS.rpartition('/')[0]} {FOLDER} /var/lib/kubelet/cpu_manager_state")
    restart_kubelet(node)


def cpus_of_a_pod(node: Node, name: str) -> str:
    """Return the CPUs that the kernel lets a new Guaranteed pod of one whole CPU run on."""
    node.run_pod(name, ["python", "-S", "-c", "import time; time.sleep(3600)"], {"cpu": "1", "memory": "64Mi"})
    try:
        uid = node.admin.find("pods", name)["metadata"]["uid"].replace("-", "_")
        find = f"find /sys/fs/cgroup -path '*pod{uid}.slice/*.scope/cpuset.cpus.effective'"
        node.eventually(lambda: node.admin.find("pods", name)["status"].get("phase") == "Running")
        return "+".join(sorted(node.machine.shell(f"cat $({find})").split()))
    finally:
        node.admin.delete("pods", name)
        node.eventually(lambda: node.admin.find("pods", name) is None)


def policy(node: Node) -> str:
    return str(json.loads(node.machine.shell(f"cat {STATE}"))["policyName"])


def test_a_guaranteed_pod_gets_a_cpu_of_its_own_and_the_policy_goes_back(site: Site, node: Node, pool: int) -> None:
    online = node.machine.shell("cat /sys/devices/system/cpu/online").strip()
    before = cpus_of_a_pod(node, "before")
    assert (policy(node), before.split("+")[-1]) == ("none", online)
    boot = node.boot_id
    eventually(lambda: "cpu=500" in str(site.observed(node.name, RESERVED)), node.story, seconds=150)

    plan = site.plan(pool, site.revision({POLICY: "static"}))
    assert plan["worst_class"] == "drain"
    assert not [finding for finding in plan["findings"] if finding["severity"] == "block"]
    site.approve(plan)
    rollout = site.start(plan)
    site.until(rollout, "succeeded", seconds=900)

    assert policy(node) == "static"
    own = cpus_of_a_pod(node, "tuned").split("+")
    assert [cpus for cpus in own if cpus.isdecimal() and cpus != "0"], own
    assert site.observed(node.name, POLICY) == "static"

    site.act(rollout, "revert")
    site.until(rollout, "reverted", seconds=900)

    assert (policy(node), cpus_of_a_pod(node, "after")) == ("none", before)
    assert node.machine.shell("find /etc -name '*setpoint*'") == ""
    assert node.boot_id == boot


def test_a_kubelet_that_does_not_come_up_is_put_back_by_systemd(site: Site, node: Node, pool: int) -> None:
    """Defect of this kubelet's own that no check knows: it ends where it finds Setpoint's file."""
    broken = KUBELET.replace(
        "[Service]\n", f"[Service]\nExecStartPre=/bin/sh -c '! [ -e {FOLDER}/99-zz-setpoint-managers.conf ]'\n"
    )
    node.machine.write(FLAGS.replace("10-config-dir", "99-zzz-broken"), broken)
    node.machine.run("systemctl", "daemon-reload")
    rollout = site.rollout_of(pool, site.revision({POLICY: "static", CPUS: "0"}))

    site.until_step(rollout, node.name, "failed", says="did not come up", seconds=900)

    assert policy(node) == "none"
    node.await_ready()
    site.act(rollout, "revert")
    site.until(rollout, "reverted", seconds=900)
    assert node.machine.shell("find /etc -name '*setpoint*'") == ""
