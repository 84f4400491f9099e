"""The whole job over REST: real processes, a real API server, and the kernel of the machine that runs the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.harness.client import Problem, eventually
from tests.full.harness.machine import Machine, other
from tests.full.harness.site import Site

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("judged")]

KEYS = (
    "vm.swappiness",
    "vm.dirty_ratio",
    "vm.dirty_bytes",
    "vm.max_map_count",
    "transparent_hugepage.enabled",
    "hugepages-2Mi",
    "net.core.somaxconn",
    "net.ipv4.tcp_keepalive_time",
)


@pytest.fixture
def machine(site: Site, deployed: Plane, cluster_admin: Admin, tmp_path: Path) -> Iterator[Machine]:
    if os.geteuid() != 0:
        pytest.skip("writing kernel settings needs root")
    made = Machine(deployed, cluster_admin, tmp_path, KEYS, role="this-machine")
    try:
        yield made
    finally:
        made.close()


def wishes(machine: Machine) -> dict[str, str]:
    """Values that differ from what this machine runs, none of which hurts it."""
    now = machine.values()
    return {
        "vm.swappiness": other(now["vm.swappiness"], "17", "18"),
        "vm.dirty_bytes": other(now["vm.dirty_bytes"], "536870912", "268435456"),
        "vm.max_map_count": f">= {int(now['vm.max_map_count']) + 4096}",
        "transparent_hugepage.enabled": other(now["transparent_hugepage.enabled"], "madvise", "always"),
        "hugepages-2Mi": str(int(now["hugepages-2Mi"]) + 6),
        "net.core.somaxconn": other(now["net.core.somaxconn"], "8192", "16384"),
        "net.ipv4.tcp_keepalive_time": other(now["net.ipv4.tcp_keepalive_time"], "600", "900"),
    }


def test_a_reviewed_plan_tunes_this_machine_and_its_revert_puts_the_originals_back(site: Site, machine: Machine):
    before = machine.values()
    wanted = wishes(machine)
    site.await_observed([machine.name])
    assert site.observed(machine.name, "vm.swappiness") == before["vm.swappiness"]

    plan = site.plan(site.pool(role="this-machine"), site.revision(wanted))
    shown = {c["key"]: (c["before"], c["after"]) for group in plan["differences"] for c in group["changes"]}
    assert set(shown) == set(wanted)
    assert shown["vm.swappiness"] == (before["vm.swappiness"], wanted["vm.swappiness"])
    assert plan["worst_class"] == "kubelet-restart"
    assert machine.values() == before, "a plan changes nothing"

    with pytest.raises(Problem) as refused:
        site.start(plan)
    assert refused.value.status == 409, "nothing starts unapproved"
    site.approve(plan)
    assert machine.values() == before, "an approval changes nothing"

    rollout = site.start(plan)
    site.until(rollout, "succeeded")

    now = machine.values()
    assert {key: now[key] for key in wanted} == {key: value.removeprefix(">= ") for key, value in wanted.items()}
    assert now["vm.dirty_ratio"] == "0", "the kernel's own: setting bytes zeroes the ratio"
    assert machine.restarts.read_text() == "restart kubelet.service\n"
    assert not machine.admin.get("nodes", machine.name)["spec"].get("unschedulable")
    eventually(
        lambda: site.observed(machine.name, "vm.swappiness") == wanted["vm.swappiness"],
        lambda: site.node(machine.name)["tuning"],
    )

    site.act(rollout, "revert")
    site.until(rollout, "reverted")

    assert machine.values() == before
    assert not machine.admin.get("nodes", machine.name)["spec"].get("unschedulable")


def test_what_moved_after_the_approval_is_held_and_nothing_is_written(site: Site, machine: Machine):
    site.await_observed([machine.name])
    before = machine.values()
    wanted = other(before["vm.swappiness"], "21", "22")
    plan = site.plan(
        site.pool(role="this-machine"), site.revision({"vm.swappiness": wanted, "net.core.somaxconn": "12345"})
    )
    site.approve(plan)
    somebody_elses = other(before["vm.swappiness"], "33", "34")
    Path("/proc/sys/vm/swappiness").write_text(somebody_elses)

    rollout = site.start(plan)
    step = site.until_step(rollout, machine.name, "held")

    assert "vm.swappiness moved" in step["error"]
    assert machine.value("vm.swappiness") == somebody_elses
    assert machine.value("net.core.somaxconn") == before["net.core.somaxconn"], "all or nothing"
    site.act(rollout, "skip", step=step["id"])
    site.until(rollout, "succeeded")


def test_an_agent_killed_in_between_finishes_what_it_began(site: Site, machine: Machine):
    site.await_observed([machine.name])
    before = machine.values()
    wanted = wishes(machine)
    plan = site.plan(site.pool(role="this-machine"), site.revision(wanted))
    site.approve(plan)
    machine.kill_agent()
    rollout = site.start(plan)
    site.until_step(rollout, machine.name, "restarting", says="agent")
    assert machine.values() == before

    machine.start_agent()
    eventually(lambda: machine.value("vm.swappiness") == wanted["vm.swappiness"], machine.agent_says)
    machine.kill_agent()
    machine.start_agent()

    site.until(rollout, "succeeded")
    assert machine.value("hugepages-2Mi") == wanted["hugepages-2Mi"]
    site.act(rollout, "revert")
    site.until(rollout, "reverted")
    assert machine.values() == before
