"""A whole small world: a simulated cluster, its rows, people, a profile; and the watch replaced by `look()`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.hashers import make_password

from accounts.models import RoleBinding, User
from clusters.connection import registry
from clusters.inventory import store
from clusters.models import Cluster, Node, Pool
from common.clock import now
from compliance.models import SettingState
from contract.nodetuning import Spec
from jobs.approvals import reviews, verdicts
from jobs.engine import component_runner, reconcile
from jobs.forecast.strategy import parse
from jobs.models import Approval, Plan, Rollout, Step
from jobs.planning import planner
from jobs.rollouts import rollout_actions
from profiles.catalog import known_settings
from profiles.content import content
from profiles.models import Profile, Revision
from simfleet import SimCluster, SimFleet

SWAPPINESS = {"vm.swappiness": "10"}
OBSERVED = (
    "vm.swappiness", "vm.max_map_count", "vm.dirty_ratio", "vm.dirty_bytes", "fs.aio-max-nr", "net.core.rmem_max",
    "net.core.wmem_max", "kernel.pid_max", "hugepages-2Mi", "transparent_hugepage.enabled",
    "cmdline.iommu", "module.ib_umad",
)  # fmt: skip
"""A short catalog: each of its 277 keys would be read and compared on every look."""


class TestClock:
    """The simulated fleet lives in the test's time, which is Django's."""

    __test__ = False

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.behind = timedelta(0)
        """Of Setpoint's own clock, which a test made jump."""

    def now(self) -> Any:
        return self.clock() - self.behind

    def advance(self, seconds: float) -> None:
        self.clock.forward(seconds)


class Pauses:
    """Pauses between two slices: `first` seconds after anything moved, and ever longer while nothing does.

    Most of a rollout's time is soaking and rebooting, where a look every second finds the same. The simulated fleet
    plays every event at its own time however long a tick is, and keeps its own record of who was out.
    """

    GROWTH, LONGEST = 2.0, 5.0
    """From one pause to the next; and how many times the first."""

    def __init__(self, rollout: Rollout, first: float, longest: float = LONGEST) -> None:
        self.rollout, self.first, self.pause = rollout, first, first
        self.longest = longest
        self._before: Any = None

    def next(self) -> float:
        state = (self.rollout.status, list(self.rollout.steps.order_by("pk").values_list("status", "attempt")))
        grown = min(self.pause * self.GROWTH, self.first * self.longest)
        self.pause = grown if state == self._before else self.first
        self._before = state
        return self.pause


def given_again(plan: Plan, **changes: Any) -> None:
    """The plan's verdicts as if they had been given with these values, each with the mark of its giver's process."""
    given = list(plan.approvals.values())
    plan.approvals.all().delete()
    for row in given:
        Approval.objects.create(**row | changes)


class World:
    """Everything a test about the engine needs, by short names."""

    __test__ = False

    def __init__(
        self,
        clock: Any,
        *,
        nodes: int = 1,
        gpus: int = 8,
        environment: str = "staging",
        name: str = "atlas",
        beside: World | None = None,
    ) -> None:
        """`beside`: another world, whose people and clock this one has; it then needs a name of its own."""
        self.clock = clock
        self._seen: dict[str, list[tuple[str, str]]] = {}
        """By kind, what the watch last heard: UIDs and versions."""
        self._parts: dict[Any, bool] = {}
        self.sim = SimCluster(seed=1 + Cluster.objects.count(), clock=TestClock(clock))
        for number in range(1, nodes + 1):
            self.sim.add_node(f"n{number}", gpus=gpus, labels={"pool": "train"})
        self.fleet = SimFleet(self.sim)
        from django.conf import settings

        installation = settings.SETPOINT_INSTALLATION
        self.fleet.claim(installation)
        self.cluster = Cluster.objects.create(
            uid=self.sim.uid,
            name=name,
            environment=environment,
            server="https://127.0.0.1:1",
            credential=b"-",
            credential_key="-",
            ownership=Cluster.Ownership.OURS,
            ownership_mark=installation,
            budget=1,
        )
        registry.install(self.cluster.pk, self.fleet)
        names = ("operator", "author", "approver", "second", "admin")
        roles = dict(zip(names, ("operator", "operator", "approver", "approver", "admin"), strict=True))
        made = [getattr(beside, role) for role in names] if beside else people(**roles)
        self.operator, self.author, self.approver, self.second, self.admin = made
        self.observe()
        self.pool = Pool.objects.create(cluster=self.cluster, name="train", selector={"matchLabels": {"pool": "train"}})

    # ── the watch, by hand ────────────────────────────────────────────────────────────────────────────────────────
    def observe(self) -> None:
        """A NodeTuning for every node, as the watch makes them on connecting, and the agents' first answers."""
        for raw in self.fleet.list("nodes").items:
            name, uid = raw["metadata"]["name"], raw["metadata"]["uid"]
            self.fleet.observe(name, uid, Spec(uid, observe=tuple(known_settings.observable_keys())))
        self.tick(5)

    def look(self) -> None:
        """Do what the watch would have done by now: of what did not change, it hears nothing."""
        at = now()
        nodes, tunings = self.fleet.list("nodes").items, self.fleet.list("nodetunings").items
        pods = self.fleet.list("pods").items
        if self._are_news("nodes", nodes):
            store.observe_nodes(self.cluster, nodes, complete=True, at=at)
        if self._are_news("nodetunings", [*nodes, *tunings]):
            store.observe_tunings(self.cluster, tunings, complete=True, at=at)
        if self._are_news("pods", [*nodes, *pods]):
            store.observe_pods(self.cluster, pods, complete=True, at=at)
        store.observe_leases(self.cluster, self.fleet.list("leases").items, at=at)
        Cluster.objects.filter(pk=self.cluster.pk).update(observed_at=at, reach=Cluster.Reach.REACHABLE)
        self.cluster.refresh_from_db()

    def _are_news(self, kind: str, objects: list[dict[str, Any]]) -> bool:
        seen = [(raw["metadata"]["uid"], raw["metadata"]["resourceVersion"]) for raw in objects]
        before, self._seen[kind] = self._seen.get(kind), seen
        return seen != before

    def tick(self, seconds: float = 1.0) -> None:
        self.sim.tick(seconds)
        self.look()

    # ── profiles and plans ────────────────────────────────────────────────────────────────────────────────────────
    def revision(self, settings: dict[str, str] | None = None, **marks: Any) -> Revision:
        """A published revision. A value may begin with an operator: `>= 262144`."""
        profile, _ = Profile.objects.get_or_create(name="gpu")
        wanted = []
        for key, text in (settings if settings is not None else SWAPPINESS).items():
            operator, _, value = text.rpartition(" ") if text.startswith((">=", "<=")) else ("=", "", text)
            wanted.append(content.WantedSetting(key, operator or "=", value, _class_of(key), "gpu"))
        built = content.build(
            settings=wanted,
            labels=[content.Mark(k, v, "gpu") for k, v in marks.get("labels", {}).items()],
            annotations=[content.Mark(k, v, "gpu") for k, v in marks.get("annotations", {}).items()],
            taints=[content.WantedTaint(*taint, origin="gpu") for taint in marks.get("taints", ())],
            components=marks.get("components", ()),
            policies=marks.get("policies", ()),
        )
        row = Revision.objects.create(
            profile=profile,
            number=profile.revisions.count() + 1,
            digest=content.digest(built) + "",
            source="",
            content=built.to_json(),
        )
        row.authors.add(self.author)
        return row

    def plan(self, revision: Revision | None = None, **strategy: Any) -> Plan:
        return planner.make(
            pool=self.pool, revision=revision or self.revision(), strategy=parse(strategy), by=self.operator
        )

    def approved(self, plan: Plan | None = None, **strategy: Any) -> Plan:
        plan = plan or self.plan(**strategy)
        reviews.request(plan, by=self.operator)
        for person_ in (self.approver, self.second)[: verdicts.strictest_requirement(plan).approvers]:
            plan = reviews.approve(plan, by=person_, digest=plan.digest)
        return plan

    def started(self, plan: Plan | None = None, **strategy: Any) -> Rollout:
        return rollout_actions.start(self.approved(plan, **strategy), by=self.operator)

    # ── the engine ────────────────────────────────────────────────────────────────────────────────────────────────
    def slice(self, rollout: Rollout) -> None:
        reconcile.run(rollout.pk)
        if self._has_parts(rollout):
            for step_id in component_runner.due_steps(rollout.pk):  # a helm worker, by hand
                component_runner.carry_out(step_id)
        rollout.refresh_from_db()

    def _has_parts(self, rollout: Rollout) -> bool:
        """Asked once a rollout: nothing but nodes joins one that runs."""
        if rollout.pk not in self._parts:
            self._parts[rollout.pk] = rollout.steps.of_components().exists()
        return self._parts[rollout.pk]

    def run(self, rollout: Rollout, *, seconds: float = 600, step: float = 1.0) -> Rollout:
        """Slices and time in turn until the rollout rests, or time is up."""
        until = now() + timedelta(seconds=seconds)
        pauses = Pauses(rollout, step)
        while now() < until:
            self.slice(rollout)
            rests = not rollout.is_live or rollout.status in (Rollout.Status.PAUSED, Rollout.Status.STOPPED)
            if rests and not rollout.steps.filter(status__in=Step.ACTIVE).exists():
                return rollout
            self.tick(min(pauses.next(), (until - now()).total_seconds()))
        return rollout

    def until(
        self,
        rollout: Rollout,
        status: str,
        *,
        seconds: float = 600,
        node: str = "n1",
        longest: float = Pauses.LONGEST,
    ) -> Step:
        """Run until this node's step is in this status, with pauses of up to `longest` seconds while nothing moves."""
        until = now() + timedelta(seconds=seconds)
        pauses = Pauses(rollout, 1.0, longest)
        while True:
            self.slice(rollout)
            step = rollout.steps.get(node_name=node)
            if step.status == status:
                return step
            if now() >= until:
                raise AssertionError(
                    f"{node} never was {status}: it is {step.status}, {step.waiting_for or step.error}"
                )
            self.tick(pauses.next())

    # ── what there is ─────────────────────────────────────────────────────────────────────────────────────────────
    def value(self, node: str, key: str = "vm.swappiness") -> str | None:
        return self.sim.kernel(node).sysctl(key)

    def node(self, name: str) -> Node:
        return Node.objects.get(cluster=self.cluster, name=name, gone_at=None)

    def state(self, name: str, key: str = "vm.swappiness") -> SettingState:
        return SettingState.objects.get(node=self.node(name), key=key)


def _class_of(key: str) -> str:
    from contract.keys import apply_class

    return apply_class(key)


def person(name: str, role: str = "") -> User:
    return people(**{name: role or name})[0]


def people(**roles: str) -> list[User]:
    """Create users by name, each with one role everywhere."""
    rows = [User(username=f"{n}@example.com", email=f"{n}@example.com", password=make_password("x")) for n in roles]
    users = User.objects.bulk_create(rows)
    RoleBinding.objects.bulk_create(
        RoleBinding(user=user, role=role, scope="*") for user, role in zip(users, roles.values(), strict=True)
    )
    return users


@pytest.fixture
def make_world(db: None, clock: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`make_world(nodes=3)`: one cluster `atlas`, pool `train`."""
    monkeypatch.setattr(known_settings, "observable_keys", lambda: OBSERVED)
    made: list[World] = []

    def make(**fields: Any) -> World:
        world = World(clock, **fields)
        made.append(world)
        return world

    yield make
    for world in made:
        registry.uninstall(world.cluster.pk)


@pytest.fixture
def world(make_world: Any) -> World:
    return make_world(nodes=3)
