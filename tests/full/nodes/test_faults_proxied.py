"""One kind of trouble at a time between Setpoint and a real API server, for rollouts that drain and reboot real nodes.

No trouble fails a step: a rollout makes progress where some calls get through, waits and says why where none does, and
continues by itself. Nothing is asked twice, the budget is kept, and every row is
as its object is in the end. Agents and the judge speak past the proxy.
"""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from clusters.kube.apiserver import ApiServer, Call
from contract import names
from contract.nodetuning import Status
from tests.controlplane.plane import LOOPBACK, Plane
from tests.full.harness.client import eventually
from tests.full.harness.fault_proxy import NOTHING, Fault, FaultProxy
from tests.full.harness.kwok_fleet import KwokFleet
from tests.full.harness.site import ENDED, Site
from tests.soak.rows import differences

pytestmark = pytest.mark.full
NODES = ("proxied-1", "proxied-2", "proxied-3")
BUDGET = 2
PATIENCE = 300.0
"""Seconds for a rollout under a fault, on a machine that is busy with others."""
_serial = itertools.count(1)


@pytest.fixture(scope="module")
def site(proxied_site: Site) -> Site:
    return proxied_site


@pytest.fixture(scope="module")
def fleet(site: Site, make_fleet: Callable[..., KwokFleet]) -> KwokFleet:
    made = make_fleet("proxied", *NODES)
    site.set_budget(BUDGET)
    return made


@dataclass
class Under:
    """A rollout of a reboot with a drain over all nodes, and what must be true when it has ended."""

    site: Site
    proxy: FaultProxy
    number: int
    pk: str = ""

    @property
    def wanted(self) -> dict[str, str]:
        return {"cmdline.iommu": ("pt", "on")[self.number % 2], "vm.swappiness": str(10 + self.number)}

    @property
    def pods(self) -> list[str]:
        return [f"proxied-{self.number}-{node}" for node in NODES[:2]]

    def start(self) -> str:
        for pod, node in zip(self.pods, NODES, strict=False):
            self.site.cluster_admin.pod(pod, node=node)
        self.site.await_observed(NODES)
        pool, revision = self.site.pool(pool="proxied"), self.site.revision(self.wanted)
        how = {"canary": 0, "batch": "100%", "delete_unmanaged_pods": True}

        def planned() -> dict[str, Any] | None:
            """Plan all three nodes: one whose agent could not answer a moment ago would be left out."""
            made = self.site.plan(pool, revision, **how)
            return made if made["worst_class"] == "reboot" and len(self._taken(made)) == len(NODES) else None

        plan = eventually(planned, lambda: "\n".join(self.site.complaints("watch")), pause=2)
        self.site.approve(plan)
        self.pk = self.site.start(plan)
        return self.pk

    def _taken(self, plan: dict[str, Any]) -> list[str]:
        return [row["name"] for row in self.site.operator.every(f"plans/{plan['id']}/nodes") if not row["left_out"]]

    def is_under_way(self) -> bool:
        return any(s["status"] in ("draining", "applying", "restarting") for s in self.site.steps(self.pk).values())

    def until_under_way(self) -> None:
        eventually(self.is_under_way, lambda: self.site.story(self.pk), pause=0.05, seconds=PATIENCE)

    def end(self) -> None:
        self.site.until(self.pk, "succeeded", seconds=PATIENCE)
        self.proxy.fault = NOTHING
        steps = self.site.steps(self.pk)
        assert {name: (s["status"], s["attempt"]) for name, s in steps.items()} == dict.fromkeys(
            NODES, ("succeeded", 1)
        )
        admin = self.site.cluster_admin
        for node in NODES:
            assert not admin.get("nodes", node)["spec"].get("unschedulable")
            observed = Status.from_json(admin.get("nodetunings", node)["status"]).observed
            assert {key: observed[key] for key in self.wanted} == self.wanted
        assert [admin.find("pods", pod, "default") for pod in self.pods] == [None] * len(self.pods)
        eventually(lambda: not differences(self.site), lambda: "\n".join(differences(self.site)))
        judge = self.site.judge()
        judge.must_hold()
        assert 0 < judge.peak <= BUDGET


@pytest.fixture
def under(site: Site, proxy: FaultProxy, fleet: KwokFleet) -> Iterator[Under]:
    made = Under(site, proxy, next(_serial))
    proxy.met.clear()
    yield made
    proxy.fault, proxy.further_page = NOTHING, None
    if made.pk and site.rollout(made.pk)["status"] not in ENDED:
        site.give_up(made.pk)
    for pod in made.pods:
        site.cluster_admin.delete("pods", pod, "default", grace=0)


def met(proxy: FaultProxy, *what: str) -> None:
    """The fault happened, or the test tried nothing."""
    assert all(proxy.met[name] for name in what), dict(proxy.met)


# ── answers of trouble ────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(("status", "retry_after"), [(500, ""), (500, "1"), (503, ""), (503, "1")])
def test_a_share_of_answers_in_trouble_costs_time_only(
    under: Under, proxy: FaultProxy, status: int, retry_after: str
) -> None:
    under.start()
    under.until_under_way()
    proxy.fault = Fault(share=0.25, statuses=(status,), retry_after=retry_after)
    under.end()
    met(proxy, str(status), f"{status} after it was done")


def test_an_api_server_that_says_nothing_but_503_is_waited_for(under: Under, site: Site, proxy: FaultProxy) -> None:
    under.start()
    under.until_under_way()
    proxy.fault = Fault(statuses=(503,))
    eventually(lambda: "503" in waiting_text(site, under.pk), lambda: site.story(under.pk), seconds=PATIENCE)
    assert site.rollout(under.pk)["status"] == "running"
    proxy.fault = NOTHING
    under.end()


def waiting_text(site: Site, pk: str) -> str:
    """Return what an operator reads about a waiting rollout: its own sentence, and its steps'."""
    steps = site.steps(pk).values()
    return " ".join([site.rollout(pk)["waiting_for"], *(s["waiting_for"] for s in steps)])


@pytest.mark.long
# ── slowness ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_five_seconds_of_latency_cost_time_only(under: Under, proxy: FaultProxy) -> None:
    under.start()
    under.until_under_way()
    proxy.fault = Fault(latency=5.0)
    under.end()
    met(proxy, "latency")


@pytest.mark.long
def test_answers_that_drip_are_waited_for_with_the_reason_and_go_on(
    under: Under, site: Site, proxy: FaultProxy
) -> None:
    under.start()
    under.until_under_way()
    proxy.fault = Fault(drip=(8, 1.0))
    eventually(
        lambda: "not end in time" in waiting_text(site, under.pk), lambda: site.story(under.pk), seconds=PATIENCE
    )
    assert site.rollout(under.pk)["status"] == "running"
    proxy.fault = NOTHING
    under.end()
    met(proxy, "drip")


# ── broken connections ────────────────────────────────────────────────────────────────────────────────────────────────
def test_connections_cut_in_the_middle_of_a_body_cost_time_only(under: Under, proxy: FaultProxy) -> None:
    under.start()
    under.until_under_way()
    # A slice makes some six calls, and all must get through: with 0.4 of them cut it took from 70 s to over 300.
    proxy.fault = Fault(share=0.15, cuts=True)
    under.end()
    met(proxy, "cut")


# ── what etcd has forgotten ───────────────────────────────────────────────────────────────────────────────────────────
class Etcd:
    """etcd through its JSON gateway, as `etcdctl` speaks to it."""

    def __init__(self, plane: Plane) -> None:
        self._url = f"http://127.0.0.1:{plane.etcd_port}/v3/kv"

    def compact(self) -> None:
        """Everything but what is there now is forgotten."""
        now = int(self._ask("range", {"key": "AA=="})["header"]["revision"])
        self._ask("compaction", {"revision": now, "physical": True})

    def _ask(self, what: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(f"{self._url}/{what}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())


PATHS = ("/api/v1/nodes", "/api/v1/pods", f"/apis/{names.API_VERSION}/{names.PLURAL}")


def forgotten(plane: Plane) -> dict[str, str]:
    """Continue tokens, by path, that the API server has forgotten; no watch can begin at their versions either.

    Kubernetes 1.35 answers further pages from its memory as long as it has them, even those that etcd has forgotten: so
    it is started again.
    """
    server = ApiServer(plane.admin, policy=LOOPBACK, timeout=30)
    try:
        heads = {path: server.get(Call("list", path), f"{path}?limit=1")["metadata"] for path in PATHS}
    finally:
        server.close()
    plane.kubectl("annotate", "node", *NODES, f"example.com/touched={next(_serial)}", "--overwrite")
    Etcd(plane).compact()
    plane.restart("kube-apiserver")
    return {path: head["continue"] for path, head in heads.items() if head.get("continue")}


def test_what_etcd_has_forgotten_in_the_middle_of_a_list_and_of_a_watch_costs_time_only(
    under: Under, site: Site, proxy: FaultProxy, deployed: Plane
) -> None:
    under.start()
    under.until_under_way()
    tokens = forgotten(deployed)
    assert PATHS[0] in tokens

    def old(target: str) -> str:
        path, _, query = target.partition("?")
        pairs = [p for p in query.split("&") if not (path in tokens and p.startswith("continue="))]
        return f"{path}?{'&'.join([*pairs, f'continue={tokens[path]}'])}" if path in tokens else target

    proxy.further_page = old
    proxy.fault = Fault(page=1)
    proxy.cut_all()
    eventually(lambda: "expire" in waiting_text(site, under.pk), lambda: site.story(under.pk), seconds=PATIENCE)
    assert site.rollout(under.pk)["status"] == "running"
    proxy.fault, proxy.further_page = Fault(page=1), None
    under.end()
    met(proxy, "410", "410 in a watch")
