"""Law 12 on the real control plane: docs/operating.md, *Restore a backup* and *Move a cluster*, word for word.

The API server, its admission policies and the agents' journals outlive the database. All that a takeover shows is held
against the kernels, which are looked at outside Setpoint, in the files that keep the agents' machines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from contract import names
from tests.controlplane.admin import EVICTED, Admin
from tests.controlplane.plane import Plane
from tests.full.harness.client import Problem, eventually
from tests.full.harness.kwok_fleet import KwokFleet
from tests.full.harness.processes import Installation
from tests.full.harness.servers import Postgres, Redis
from tests.full.harness.site import PROCESSES, SETTINGS, Site

pytestmark = [pytest.mark.full, pytest.mark.long]

PATHS = {
    "vm.swappiness": "/proc/sys/vm/swappiness",
    "hugepages-2Mi": "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
}
READY_SECONDS = 240.0
ROLLOUT_SECONDS = 300.0
DRAINS = "taints:\n- key: example.com/maintenance\n  value: amid\n  effect: NoExecute\n"
ORIGINALS = {"vm.swappiness": "60", "hugepages-2Mi": "0"}


@pytest.fixture(scope="module")
def site(deployed: Plane, cluster_admin: Admin, postgres: Postgres, redis_server: Redis) -> Iterator[Site]:
    with Installation(postgres.url, redis_server.url, SETTINGS, ready_seconds=READY_SECONDS) as installation:
        installation.environment["SETPOINT_AUDIT_HEADS_FILE"] = str(installation.folder / "heads.log")
        opened = Site(deployed, cluster_admin, installation)
        try:
            yield opened.open()
        finally:
            opened.close()


@dataclass
class Nodes:
    """`done` ran a rollout to its end; `amid` is cordoned and was just written to; `draining` is only cordoned."""

    fleet: KwokFleet
    admin: Admin
    prefix: str

    def __post_init__(self) -> None:
        self.done, self.amid, self.draining = (f"{self.prefix}-{name}" for name in ("a", "b", "c"))
        self.fleet.add(self.done, labels={"pool": f"{self.prefix}-done"})
        self.fleet.add(self.amid, self.draining, labels={"pool": f"{self.prefix}-amid"})

    @property
    def all(self) -> tuple[str, str, str]:
        return self.done, self.amid, self.draining

    def pools(self, site: Site) -> tuple[int, int]:
        return site.pool(pool=f"{self.prefix}-done"), site.pool(pool=f"{self.prefix}-amid")

    def kernel(self, node: str) -> dict[str, str]:
        """Return the node's current values, by key."""
        changed = json.loads((self.fleet.folder / "state" / f"{node}.json").read_text())["changed"]
        return {key: changed.get(path, ORIGINALS[key]).strip() for key, path in PATHS.items()}

    def kernels(self) -> dict[str, dict[str, str]]:
        return {node: self.kernel(node) for node in self.all}

    def cordons(self) -> dict[str, str]:
        """Return the owner of each cordon, by node."""
        nodes = {node: self.admin.get("nodes", node) for node in self.all}
        marks = {node: raw["metadata"]["annotations"].get(names.CORDONED_BY, "") for node, raw in nodes.items()}
        return {node: marks[node] for node, raw in nodes.items() if raw["spec"].get("unschedulable")}

    def spec(self, node: str) -> dict[str, Any]:
        return dict(self.admin.get("nodetunings", node)["spec"])

    def has_carried_out(self, node: str) -> bool:
        raw = self.admin.get("nodetunings", node)
        return bool(raw["status"].get("observedGeneration") == raw["metadata"]["generation"])

    def leave_amid(self, site: Site, pools: tuple[int, int], settings: dict[str, str]) -> None:
        """A rollout ends on the first node; another one is on its way with the others when Setpoint stops."""
        site.until(site.rollout_of(pools[0], site.revision(settings)), "succeeded", seconds=ROLLOUT_SECONDS)
        marks = {"guarded": self.prefix}
        self.admin.pod(f"guarded-{self.prefix}", node=self.draining, labels=marks, spec=EVICTED)
        self.admin.budget(f"guard-{self.prefix}", selector=marks, min_available=1)
        self.fleet.freeze()
        try:
            how = {"canary": 0, "batch": "2", "order": "name", "delete_unmanaged_pods": True}
            rollout = site.rollout_of(pools[1], site.revision(settings, extra=DRAINS), **how)
            site.until_step(rollout, self.amid, "restarting", "verifying", says="agent", seconds=ROLLOUT_SECONDS)
            site.until_step(rollout, self.draining, "draining", seconds=ROLLOUT_SECONDS)
            stop(site)
        finally:
            self.fleet.thaw()
        eventually(lambda: self.has_carried_out(self.amid), lambda: self.admin.get("nodetunings", self.amid))
        self.admin.delete("poddisruptionbudgets", f"guard-{self.prefix}")
        self.admin.delete("pods", f"guarded-{self.prefix}", "default", grace=0)
        assert set(self.cordons()) == {self.amid, self.draining}, "or this tries too little"
        assert self.kernel(self.done).items() >= settings.items()
        assert self.kernel(self.amid).items() >= settings.items()

    def release(self) -> None:
        """Clean up after a failed test: no cordon for the next one."""
        for node in self.cordons():
            free = {"spec": {"unschedulable": None}, "metadata": {"annotations": {names.CORDONED_BY: None}}}
            self.admin.patch("nodes", node, free)


@pytest.fixture
def make_nodes(make_fleet: Callable[..., KwokFleet], cluster_admin: Admin) -> Iterator[Callable[[str], Nodes]]:
    made: list[Nodes] = []

    def make(prefix: str) -> Nodes:
        nodes = Nodes(make_fleet(prefix), cluster_admin, prefix)
        made.append(nodes)
        return nodes

    yield make
    for nodes in made:
        nodes.release()
        nodes.fleet.close()


def stop(site: Site) -> None:
    for name in PROCESSES:
        site.setpoint.stop(name)


def newer(site: Site) -> dict[str, dict[str, Any]]:
    """Return the newer NodeTunings that the product shows, by node."""
    answer = site.admin.get(f"clusters/{site.cluster['id']}/takeover")
    return {row["name"]: row for row in answer["newer"]}


def take_over(site: Site, nodes: Nodes) -> None:
    """Steps 3 and 4 of *Restore a backup*: shown, asked by an admin, approved by another, and nothing is written."""
    where = f"clusters/{site.cluster['id']}/takeover"
    kernels, cordons = nodes.kernels(), nodes.cordons()
    shown = newer(site)
    assert set(shown) == set(nodes.all)
    for node in (nodes.done, nodes.amid):
        assert {setting["key"]: setting["now"] for setting in shown[node]["settings"]} == kernels[node]
        assert {setting["key"]: setting["original"] for setting in shown[node]["settings"]} == ORIGINALS
        assert all(setting["is_written"] for setting in shown[node]["settings"])
    assert {node: row["cordon"] for node, row in shown.items() if row["cordon"]} == cordons

    takeover = site.admin.post(where, {"message": "They are newer than the database.", "release_cordons": True})
    with pytest.raises(Problem) as refused:
        site.admin.post(f"{where}/actions/approve", {"digest": takeover["digest"]})
    assert refused.value.status == 403
    site.consenter.post(f"{where}/actions/approve", {"digest": takeover["digest"]})
    eventually(
        lambda: site.admin.get(where)["takeover"]["status"] == "done",
        lambda: f"{site.admin.get(where)} {site.complaints('worker')}",
        seconds=ROLLOUT_SECONDS,
    )

    assert newer(site) == {}
    assert nodes.kernels() == kernels, "no value is written"
    assert nodes.cordons() == {}
    for node in (nodes.done, nodes.amid):
        spec = nodes.spec(node)
        assert (spec["mode"], spec.get("step") or "", spec.get("settings") or [], spec.get("restart")) == (
            "observe",
            "",
            [],
            None,
        )
    acts = {record["action"]: record["actor"] for record in site.admin.every("audit")}
    assert {"takeover.request", "takeover.approve", "takeover.done"} <= set(acts)


def assert_plans_are_blocked(site: Site, pools: tuple[int, int], revision: str) -> None:
    for pool in pools:
        plan = site.plan(pool, revision)
        held = site.operator.every(f"plans/{plan['id']}/nodes")
        assert all(row["left_out"] for row in held), held
        with pytest.raises(Problem):
            site.operator.post(f"plans/{plan['id']}/actions/request", {"comment": "please"})


def roll_out_and_revert(site: Site, nodes: Nodes, pools: tuple[int, int], revision: str) -> None:
    wanted = {"vm.swappiness": "30", "hugepages-2Mi": "16"}
    for pool in pools:
        rollout = site.rollout_of(pool, revision, canary=0, batch="2", delete_unmanaged_pods=True)
        site.until(rollout, "succeeded", seconds=ROLLOUT_SECONDS)
        mine = set(site.steps(rollout))
        assert {node: nodes.kernel(node) for node in mine} == dict.fromkeys(mine, wanted)
        revert(site, rollout)
    assert nodes.cordons() == {}


def revert(site: Site, rollout: str) -> None:
    site.act(rollout, "revert")
    site.until(rollout, "reverted", seconds=ROLLOUT_SECONDS)


def test_a_restored_backup_takes_over_what_is_newer(
    site: Site, make_nodes: Callable[[str], Nodes], postgres: Postgres
) -> None:
    nodes = make_nodes("restored")
    site.await_observed(nodes.all)
    site.set_budget(2)
    pools = nodes.pools(site)
    first = site.revision({"vm.swappiness": "10", "hugepages-2Mi": "16"})
    third = site.revision({"vm.swappiness": "30", "hugepages-2Mi": "16"})
    earlier = [site.rollout_of(pools[0], first), site.rollout_of(pools[1], site.revision({"vm.swappiness": "10"}))]
    for rollout in earlier:
        site.until(rollout, "succeeded", seconds=ROLLOUT_SECONDS)
    backup = postgres.dump()
    nodes.leave_amid(site, pools, {"vm.swappiness": "20", "hugepages-2Mi": "32"})

    postgres.restore(backup)
    completed = site.setpoint.attempt("verify_audit")
    assert completed.returncode != 0, "the kept heads are newer than the record"
    site.setpoint.manage("verify_audit", "--accept", "restored the backup of today")
    site.setpoint.start(*PROCESSES)
    eventually(lambda: set(newer(site)) == set(nodes.all), lambda: newer(site))
    assert_plans_are_blocked(site, pools, third)

    take_over(site, nodes)
    roll_out_and_revert(site, nodes, pools, third)
    known = {"vm.swappiness": "10", "hugepages-2Mi": "16"}, {"vm.swappiness": "10", "hugepages-2Mi": "0"}
    assert nodes.kernels() == {nodes.done: known[0], nodes.amid: known[1], nodes.draining: known[1]}, (
        "what was approved last as far as this database knows"
    )
    for rollout in earlier:
        revert(site, rollout)
    assert nodes.kernels() == dict.fromkeys(nodes.all, ORIGINALS), "as before the first of all rollouts"


def test_a_cluster_moves_to_an_installation_that_knows_nothing_of_it(
    site: Site, make_nodes: Callable[[str], Nodes], deployed: Plane, redis_server: Redis
) -> None:
    """The one that owned it is lost in the middle of a rollout."""
    nodes = make_nodes("moved")
    site.await_observed(nodes.all)
    site.set_budget(2)
    nodes.leave_amid(site, nodes.pools(site), {"vm.swappiness": "20", "hugepages-2Mi": "32"})

    with (
        Postgres() as postgres,
        Installation(postgres.url, redis_server.url, SETTINGS, ready_seconds=READY_SECONDS) as installation,
    ):
        other = Site(deployed, nodes.admin, installation).open(is_connected=False)
        try:
            with pytest.raises(Problem) as refused:
                other.connect("staging")
            assert refused.value.problem["code"] == "foreign-installation"
            other.connect("staging", take_over=True)
            other.await_observed(nodes.all)
            other.set_budget(2)
            pools = nodes.pools(other)
            third = other.revision({"vm.swappiness": "30", "hugepages-2Mi": "16"})
            eventually(lambda: set(newer(other)) == set(nodes.all), lambda: newer(other))
            assert_plans_are_blocked(other, pools, third)

            take_over(other, nodes)
            roll_out_and_revert(other, nodes, pools, third)
            assert nodes.kernels() == dict.fromkeys(nodes.all, ORIGINALS), "by the journals alone"
        finally:
            other.close()
