"""A second agent on a node, and one of another release: one works, and only one that understands the control plane."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contract import names
from tests.controlplane.admin import Admin
from tests.full.harness.client import eventually
from tests.full.harness.site import Site
from tests.nodemachine.node import Node

pytestmark = pytest.mark.usefixtures("judged")

DAEMON_SET = "setpoint-agent"
SECOND = "second-agent"
NEWER = f"""\
import sys
from contract import names
names.PROTOCOL += {names.MAX_SKEW + 1}
from agent.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
WANTED = {"net.ipv4.tcp_keepalive_probes": "7"}


@pytest.fixture
def pool(site: Site) -> int:
    return site.pool(pool="machines")


@pytest.fixture
def agents(cluster_admin: Admin, node: Node) -> Iterator[Agents]:
    opened = Agents(cluster_admin, node)
    yield opened
    opened.put_back()


class Agents:
    """The DaemonSet's pods on one node, and a pod of our own beside them."""

    def __init__(self, admin: Admin, node: Node) -> None:
        self._admin, self._node = admin, node
        self._spec = admin.get("daemonsets", DAEMON_SET, names.NAMESPACE)["spec"]["template"]["spec"]

    def start_second(self) -> None:
        spec = self._spec | {"nodeName": self._node.name}
        metadata = {"name": SECOND, "namespace": names.NAMESPACE}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self._admin.create("pods", pod, names.NAMESPACE)

    def await_second(self, words: str) -> None:
        """Wait until the second agent has said this."""
        self._node.eventually(lambda: words in self._node.pod_log(SECOND, names.NAMESPACE))

    def second_has_begun(self) -> bool:
        return "started" in self._node.pod_log(SECOND, names.NAMESPACE)

    def end_first(self) -> None:
        self._patch({"nodeSelector": {"no": "node"}})

    def run(self, program: str) -> None:
        """Let the DaemonSet's agent be this program."""
        self._patch({"containers": [self._spec["containers"][0] | {"command": ["python", "-S", "-OO", "-c", program]}]})

    def put_back(self) -> None:
        """End the second agent, and let the DaemonSet's be the one that it was."""
        self._patch({"nodeSelector": {"no": None}, "containers": self._spec["containers"]})
        if self._admin.find("pods", SECOND, names.NAMESPACE):
            self._admin.delete("pods", SECOND, names.NAMESPACE)
            self._admin.wait_gone("pods", SECOND, names.NAMESPACE)
        self.await_protocol(names.PROTOCOL)

    def await_protocol(self, number: int) -> None:
        """Wait until an agent of this protocol runs and has answered."""
        self._node.eventually(lambda: self._node.agent_is_running() and self._protocol() == number)

    def _protocol(self) -> int:
        tuning = self._admin.find("nodetunings", self._node.name) or {}
        return int(tuning.get("status", {}).get("protocol", 0))

    def _patch(self, spec: dict[str, object]) -> None:
        self._admin.patch("daemonsets", DAEMON_SET, {"spec": {"template": {"spec": spec}}}, names.NAMESPACE)


def test_a_second_agent_waits_for_the_first_and_takes_its_place(
    site: Site, node: Node, pool: int, agents: Agents
) -> None:
    before = node.values(WANTED)
    agents.start_second()
    agents.await_second("waiting for another agent")
    rollout = site.rollout_of(pool, site.revision(WANTED))
    site.until(rollout, "succeeded", seconds=300)
    assert node.values(WANTED) == WANTED
    assert not agents.second_has_begun()

    agents.end_first()
    agents.await_second("started")
    site.act(rollout, "revert")
    site.until(rollout, "reverted", seconds=300)
    assert node.values(WANTED) == before


def test_an_agent_of_a_release_too_far_away_writes_nothing_and_the_step_says_which_to_upgrade(
    site: Site, node: Node, pool: int, agents: Agents
) -> None:
    before = node.values(WANTED)
    plan = site.plan(pool, site.revision(WANTED))
    site.approve(plan)
    newer = names.PROTOCOL + names.MAX_SKEW + 1
    agents.run(NEWER)
    agents.await_protocol(newer)
    await_row(site, node, newer)

    rollout = site.start(plan)
    step = site.until_step(rollout, node.name, "held", says="upgrade the control plane")

    assert node.values(WANTED) == before
    agents.put_back()
    await_row(site, node, names.PROTOCOL)
    site.act(rollout, "retry-failed", step=step["id"])
    site.until(rollout, "succeeded", seconds=300)
    site.act(rollout, "revert")
    site.until(rollout, "reverted", seconds=300)
    assert node.values(WANTED) == before


def await_row(site: Site, node: Node, protocol: int) -> None:
    """Wait until Setpoint knows of the agent with this protocol."""
    eventually(
        lambda: site.node(node.name)["tuning"]["protocol"] == protocol, lambda: str(site.node(node.name)), seconds=60
    )
