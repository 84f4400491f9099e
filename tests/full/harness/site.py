"""A whole Setpoint at work: its processes on PostgreSQL and Redis, and a real cluster that is connected over REST."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from typing import Any

from contract import names
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.harness.client import ALL_SCOPES, Person, Problem, eventually
from tests.full.harness.laws import Judge
from tests.full.harness.processes import Installation

PASSWORD = "a slow kernel is a sad kernel"
SETTINGS = {
    "SETPOINT_LEASE_SECONDS": "2",
    "SETPOINT_CALL_TIMEOUT_SECONDS": "1",
    "SETPOINT_SWEEP_SECONDS": "1",
}
PROCESSES = ("web", "worker", "beat", "watch")
ENDED = ("succeeded", "failed", "cancelled", "reverted")
BUSY = ("admitted", "cordoning", "draining", "applying", "restarting", "verifying", "returning", "soaking")


class Site:
    """Everything a test needs to drive Setpoint as its users do, and to look at the cluster past it."""

    def __init__(self, plane: Plane, admin: Admin, installation: Installation, *, server: str = "") -> None:
        """`server`: the address under which Setpoint reaches the API server, where that is another than its own."""
        self.plane = plane
        self.server = server or plane.url
        self.cluster_admin = admin
        self.setpoint = installation
        self.since = plane.audit_position()
        self.cluster: dict[str, Any] = {}
        self._serial = 0

    def open(self, *, environment: str = "staging", is_connected: bool = True) -> Site:
        """Start everything, make the people, connect the cluster."""
        self.setpoint.migrate()
        self.setpoint.environment["SETPOINT_ADMIN_PASSWORD"] = PASSWORD
        for name in ("admin", "consenter"):
            self.setpoint.manage("createadmin", f"{name}@example.com")
        self.setpoint.start(*PROCESSES)
        self.admin, self.consenter = self._somebody("admin"), self._somebody("consenter")
        self.operator = self.person("operator", "operator")
        self.author = self.person("author", "operator")
        self.approver = self.person("approver", "approver")
        self.second = self.person("second", "approver")
        if is_connected:
            self.connect(environment)
        return self

    def beside(self, plane: Plane, admin: Admin, *, name: str, environment: str) -> Site:
        """Connect another cluster to the same Setpoint, and return it with the same people."""
        other = copy.copy(self)
        other.plane, other.server, other.cluster_admin = plane, plane.url, admin
        other.since = plane.audit_position()
        other.connect(environment, name=name)
        return other

    def close(self) -> None:
        """Leave the cluster as another installation would want to find it."""
        if self.setpoint.is_running("watch"):
            self.setpoint.stop("watch")
        self.cluster_admin.delete("configmaps", names.INSTALLATION_CONFIGMAP, names.NAMESPACE)

    # ── people ────────────────────────────────────────────────────────────────────────────────────────────────────
    def person(self, name: str, role: str) -> Person:
        """Made by one administrator, consented to by another where the role can approve; the password is their own."""
        email = f"{name}@example.com"
        link = self.admin.post("users", {"email": email})["link"]
        given = self.admin.post("role-bindings", {"user": email, "role": role, "scope": "*"})
        if "proposed_by" in given:
            consented = self.consenter.post(f"pending-changes/{given['id']}/actions/consent")
            link = consented["link"] or link
        Person(self.setpoint.url, email).set_password(link["link"], PASSWORD, given.get("code") or "")
        return self._somebody(name)

    def _somebody(self, name: str) -> Person:
        somebody = Person(self.setpoint.url, f"{name}@example.com")
        somebody.log_in(PASSWORD, ALL_SCOPES)
        return somebody

    # ── the cluster ───────────────────────────────────────────────────────────────────────────────────────────────
    def connect(self, environment: str, *, name: str = "atlas", take_over: bool = False) -> None:
        """Connect the cluster by URL, CA and token, after the test of the connection succeeds."""
        how = {
            "server": self.server,
            "ca": self.plane.authority.pem,
            "token": self.cluster_admin.controller_token(),
        }
        verdict = self.admin.post("clusters/actions/test", how)
        assert verdict["is_connectable"] or verdict.get("is_foreign"), verdict["checks"]
        named = {**how, "name": name, "environment": environment}
        self.cluster = self.admin.post("clusters", {**named, "take_over": True} if take_over else named)

    def set_budget(self, budget: int) -> None:
        self.cluster = self.admin.patch(f"clusters/{self.cluster['id']}", {"budget": budget})

    def node(self, name: str) -> dict[str, Any]:
        """Return the current node of that name as Setpoint sees it."""
        rows = [n for n in self.operator.every("nodes", cluster=self.cluster["id"], name=name) if n["name"] == name]
        if not rows:
            raise LookupError(name)
        return dict(self.operator.get(f"nodes/{rows[0]['id']}"))

    def compliance(self, name: str) -> str:
        """Return the state of compliance that REST gives for a node."""
        rows = self.operator.every("compliance/nodes", cluster=self.cluster["id"], name=name)
        return next((str(row["state"]) for row in rows if row["name"] == name), "")

    def observed(self, name: str, key: str) -> str | None:
        try:
            return (self.node(name)["tuning"] or {}).get("observed", {}).get(key)
        except LookupError:
            return None

    def await_observed(self, nodes: Sequence[str], key: str = "vm.swappiness") -> None:
        """Wait until the agents of these nodes have reported to Setpoint, and it sees the cluster at this time.

        What a test before this one did to the API server may have ended a moment ago, and the watch comes back later.
        """
        for name in nodes:
            eventually(
                lambda name=name: self.observed(name, key) is not None,
                lambda name=name: "\n".join([str(self._tuning(name)), *self.complaints("watch")]),
            )
        eventually(lambda: self._reach() == "reachable", lambda: "\n".join(self.complaints("watch")))

    def _reach(self) -> str:
        return str(self.operator.get(f"clusters/{self.cluster['id']}")["reach"])

    def _tuning(self, name: str) -> dict[str, Any] | None:
        return self.cluster_admin.find("nodetunings", name)

    # ── from wish to rollout ──────────────────────────────────────────────────────────────────────────────────────
    def pool(self, **labels: str) -> int:
        self._serial += 1
        wanted = {"name": f"pool-{self._serial}-{time.monotonic_ns()}", "selector": {"matchLabels": labels}}
        return int(self.operator.post(f"clusters/{self.cluster['id']}/pools", wanted)["id"])

    def revision(self, settings: Mapping[str, Any], *, profile: str = "", extra: str = "") -> str:
        """Published by the author; its id: profiles with equal content share a digest."""
        self._serial += 1
        name = profile or f"profile-{self._serial}"
        lines = "".join(f'  {key}: "{value}"\n' for key, value in settings.items())
        source = (f"settings:\n{lines}" if settings else "") + extra
        try:
            self.author.post("profiles", {"name": name, "source": source})
        except Problem as error:
            if error.status not in (400, 409, 422) or not profile:
                raise
            self.author.patch(f"profiles/{name}", {"source": source})
        status, headers, _ = self.author.raw("GET", f"profiles/{name}")
        assert status == 200
        made = self.author.ask("POST", f"profiles/{name}/actions/publish", {}, {"If-Match": headers["ETag"]})
        return str(made["id"])

    def plan(self, pool: int, revision: str, **strategy: Any) -> dict[str, Any]:
        return dict(self.operator.post("plans", {"pool": pool, "revision": revision, "strategy": strategy}))

    def approve(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Requested by its maker, approved by as many others as it needs."""
        requested = self.operator.post(f"plans/{plan['id']}/actions/request", {"comment": "please"})
        answer = dict(requested)
        for somebody in (self.approver, self.second)[: requested["approval"]["needed"]]:
            typed = {"digest": plan["digest"], "consent": plan["summary"].get("consent", "")}
            answer = dict(somebody.post(f"plans/{plan['id']}/actions/approve", typed))
        assert answer["status"] == "approved", answer
        return answer

    def start(self, plan: Mapping[str, Any]) -> str:
        return str(self.operator.post(f"plans/{plan['id']}/actions/start")["id"])

    def rollout_of(self, pool: int, revision: str, **strategy: Any) -> str:
        """Planned, approved and started; its id."""
        plan = self.plan(pool, revision, **strategy)
        self.approve(plan)
        return self.start(plan)

    # ── watching it ───────────────────────────────────────────────────────────────────────────────────────────────
    def rollout(self, pk: str) -> dict[str, Any]:
        return dict(self.operator.get(f"rollouts/{pk}"))

    def steps(self, pk: str) -> dict[str, dict[str, Any]]:
        """Return the rollout's steps by node or component name."""
        return {s["node_name"] or s["component"]: s for s in self.operator.every(f"rollouts/{pk}/steps")}

    def events(self, pk: str) -> list[str]:
        return [
            f"{e['node'] or e['component'] or ''}: {e['text']}" for e in self.operator.every(f"rollouts/{pk}/events")
        ]

    def act(self, pk: str, verb: str, **body: Any) -> dict[str, Any]:
        return dict(self.operator.post(f"rollouts/{pk}/actions/{verb}", body))

    def give_up(self, pk: str) -> None:
        """Clean up after a failed test: leave no slot and no cordon to the next one."""
        if self.rollout(pk)["actions"]["abort"]:
            self.act(pk, "abort")
        eventually(lambda: not any(s["status"] in BUSY for s in self.steps(pk).values()), lambda: self.story(pk))
        for step in self.steps(pk).values():
            if step["status"] in ("failed", "held") and self.rollout(pk)["actions"]["skip"]:
                self.act(pk, "skip", step=step["id"])
        self.until(pk, *ENDED, seconds=30)

    def until(self, pk: str, *statuses: str, seconds: float = 120.0) -> dict[str, Any]:
        """Wait until the rollout has one of these statuses."""
        return dict(
            eventually(
                lambda: (rollout := self.rollout(pk))["status"] in statuses and rollout,
                lambda: self.story(pk),
                seconds=seconds,
            )
        )

    def until_step(self, pk: str, node: str, *statuses: str, says: str = "", seconds: float = 90.0) -> dict[str, Any]:
        """Wait until a node's step has one of these statuses and `says` is in its reason for waiting or failing."""

        def there() -> Any:
            step = self.steps(pk)[node]
            return step["status"] in statuses and says in f"{step['waiting_for']} {step['error']}" and step

        return dict(eventually(there, lambda: self.story(pk), seconds=seconds))

    def story(self, pk: str) -> str:
        """All that is known of a rollout, for a failed test."""
        rollout = self.rollout(pk)
        steps = [
            f"  {name} {s['status']} ({s['direction']} {s['attempt']}): {s['waiting_for'] or s['error']}"
            for name, s in self.steps(pk).items()
        ]
        head = f"{rollout['name']} {rollout['status']}: {rollout['waiting_for']}"
        return "\n".join([head, *steps, *self.events(pk)[-40:], *self._all_complaints()])

    def _all_complaints(self) -> list[str]:
        return [line for process in ("worker", "helm", "watch") for line in self.complaints(process)]

    def complaints(self, process: str) -> list[str]:
        """The latest warnings and errors in a process's log."""
        lines = self.setpoint.log(process, characters=200_000).splitlines()
        bad = [line for line in lines if '"level": "info"' not in line and line.startswith("{")]
        return [f"{process}: {line[:600]}" for line in bad[-8:]]

    # ── the laws ──────────────────────────────────────────────────────────────────────────────────────────────────
    def judge(self) -> Judge:
        """Judge the API server's log of each of its rollouts so far against their plans, verdicts and steps."""
        judge = Judge(self.setpoint.environment["SETPOINT_INSTALLATION"])
        for rollout in self.operator.every("rollouts", cluster=self.cluster["id"]):
            plan = self.operator.get(f"plans/{rollout['plan']}")
            nodes = self.operator.every(f"plans/{rollout['plan']}/nodes")
            judge.expect(rollout=rollout, plan=plan, nodes=nodes, steps=list(self.steps(rollout["id"]).values()))
        return judge.hear(self.plane.audit(self.since))
