"""Settings of network cards on a real machine: its only card, over which its kubelet and agent reach the cluster."""

from __future__ import annotations

import pytest

from tests.full.harness.site import Site
from tests.nodemachine.node import Node

pytestmark = [pytest.mark.usefixtures("judged"), pytest.mark.long]

MTU, TSO, RING = "nic.default-route.mtu", "nic.default-route.tso", "nic.default-route.rx_ring"


def test_the_card_of_the_default_route_is_changed_in_a_drained_node_and_put_back(site: Site, node: Node) -> None:
    read = "cat /sys/class/net/eth0/mtu"
    assert node.machine.shell(read).strip() == "1500"
    assert site.observed(node.name, MTU) == "1500"
    assert int(site.observed(node.name, RING)) >= 64, "virtio's driver tells its rings"
    boot = node.boot_id
    offload = site.observed(node.name, TSO)
    other = {"1": "0", "0": "0"}[offload]

    plan = site.plan(site.pool(pool="machines"), site.revision({MTU: "1400", TSO: other}))
    assert plan["worst_class"] == "drain"
    site.approve(plan)
    rollout = site.start(plan)
    site.until(rollout, "succeeded", seconds=600)

    assert node.machine.shell(read).strip() == "1400"
    assert site.observed(node.name, TSO) == other

    site.act(rollout, "revert")
    site.until(rollout, "reverted", seconds=600)

    assert node.machine.shell(read).strip() == "1500"
    assert site.observed(node.name, TSO) == offload
    assert node.boot_id == boot, "nothing was restarted"
