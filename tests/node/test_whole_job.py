"""The whole job over REST on a machine with its own kernel, boot loader, kubelet and container runtime."""

from __future__ import annotations

from tests.nodemachine.node import Node


def test_the_agent_of_the_daemon_set_runs_on_the_node(node: Node) -> None:
    assert node.is_ready
    assert node.boot_id == node.machine.read("/proc/sys/kernel/random/boot_id")
