"""A valid body for each write of the API that takes one, and the roles that may send it. Only data: tests try it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile

from accounts.models import WorkloadRule
from common.clock import now
from components.charts import archives
from jobs.models import Plan, Rollout, Takeover
from jobs.planning import digests
from jobs.rollouts import takeovers
from tests import marks
from tests.components.packing import entry, tiny
from tests.jobs.conftest import World
from tests.platform.rest.doors import ROLES, Doors

EVERYONE = (*ROLES, "team", "none")
"""For what is of one's own account."""
SOURCE = "settings:\n  vm.swappiness: 10\n"
URL, OTHER = "https://moved.example:6443", "https://new.example:6443"
"""Of API servers that answer, where the test puts them: the cluster's own at another address, and one that is new."""


@dataclass(frozen=True)
class Sent:
    method: str
    route: str
    body: Callable[[World, Doors], dict[str, Any]]
    may: tuple[str, ...]
    """Of the roles."""
    elsewhere: bool = field(default=False, kw_only=True)
    """Whether it belongs to no cluster, so that a role anywhere is enough."""
    version: str = field(default="", kw_only=True)
    """The address whose version is sent along, where that is not its own."""
    now: str = field(default="", kw_only=True)
    """Why a permitted account gets 409 at present, with the code of that answer: the object's state, which others do
    not see. Empty: it is taken."""

    def __str__(self) -> str:
        return f"{self.method} {self.route.removeprefix('api/v1/')}"


def _always(**fields: Any) -> Callable[[World, Doors], dict[str, Any]]:
    return lambda world, doors: fields


def _here(**fields: Any) -> Callable[[World, Doors], dict[str, Any]]:
    return lambda world, doors: {"cluster": str(world.cluster.pk), **fields}


def _binding(world: World, doors: Doors) -> dict[str, Any]:
    return {"user": doors.people["viewer"].email, "role": "viewer", "scope": f"cluster:{world.cluster.pk}"}


def _workload_rule(world: World, doors: Doors) -> dict[str, Any]:
    account = WorkloadRule.objects.get().account.email
    sent = {"name": "other", "issuer": "https://gitlab.com", "conditions": {"project_path": "ml/infra"}}
    return sent | {"account": account, "scopes": ["read"]}


def _plan(world: World, doors: Doors) -> dict[str, Any]:
    return {"pool": world.pool.pk, "revision": Plan.objects.get(status="review").revision_id}


def _fleet_run(world: World, doors: Doors) -> dict[str, Any]:
    plan = world.plan(world.revision({"vm.swappiness": "31"}))
    return {"name": "x", "rings": [{"name": "a", "plans": [str(plan.pk)]}]}


def _member(world: World, doors: Doors) -> dict[str, Any]:
    return {"plan": str(Plan.objects.get(status="review").pk), "reason": "x"}


def _added(world: World, doors: Doors) -> dict[str, Any]:
    """Another plan of the pool, in place of the one that the run has."""
    Plan.objects.filter(status="review").update(ring_left="x")
    return {"plan": str(world.plan(world.revision({"vm.swappiness": "31"})).pk), "ring": 1}


def _silence(world: World, doors: Doors) -> dict[str, Any]:
    return {"until": (now() + timedelta(hours=2)).isoformat(), "note": "known"}


def _verdict(world: World, doors: Doors) -> dict[str, Any]:
    """Verdict on the plan as it was made: the table's objects added parts that no digest of its own covers."""
    plan = Plan.objects.get(status="review")
    plan.components.all().delete()
    marks.put(Plan.objects.filter(pk=plan.pk), digest=digests.plan_digest(plan))
    return {"digest": digests.plan_digest(plan), "comment": "Read."}


def _step(world: World, doors: Doors) -> dict[str, Any]:
    return {"step": str(Rollout.objects.get().steps.earliest("position").pk)}


def _archive(world: World, doors: Doors) -> dict[str, Any]:
    return {"archive": SimpleUploadedFile("other.tgz", tiny(other="kind: ConfigMap"), "application/gzip")}


def _drafted(world: World, doors: Doors) -> dict[str, Any]:
    workload = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: drafted}\n"
    return {"archive": archives.store(tiny(drafted=workload), origin="uploaded").pk}


def _newer(world: World, doors: Doors) -> dict[str, Any]:
    return {"message": "Moved here."}


def _takeover(world: World, doors: Doors) -> dict[str, Any]:
    row = Takeover.objects.filter(cluster=world.cluster).first()
    if row is None:
        row = takeovers.request(world.cluster, by=world.admin, message="Moved here.")
    return {"digest": row.digest}


def _selection(world: World, doors: Doors) -> dict[str, Any]:
    seen = doors.client.get("/api/v1/nodes/selection?query=q%3Dn1", **doors.tokens["operator"]).json()
    return {name: seen[name] for name in ("query", "count", "digest")}


def _price(world: World, doors: Doors) -> dict[str, Any]:
    day = (now() + timedelta(days=2)).date().isoformat()
    return {"kind": "gpu", "model": "NVIDIA-H100-80GB-HBM3", "amount": "2.40", "valid_from": day}


def _on_a_node(world: World, doors: Doors) -> dict[str, Any]:
    return {"check_name": "fio-scratch", "cluster": str(world.cluster.pk), "nodes": ["n1"]}


TEAM_RULES = [{"by": "namespace", "pattern": "a-*", "team": "A"}]
A_CLUSTER = "api/v1/clusters/<uuid:cluster_pk>"
ONE, PLAN, ROLLOUT = "api/v1/clusters/<uuid:pk>", "api/v1/plans/<uuid:pk>/actions", "api/v1/rollouts/<uuid:pk>/actions"
TARGET = "api/v1/compliance/assignments/<int:pk>"
SELECTOR = {"matchLabels": {"pool": "others"}}
SECRET = "a secret of sixteen"
HOOK = {"name": "new", "kind": "webhook", "url": "https://127.0.0.1/hook", "secret": SECRET, "what": ["alerts"]}
PROMETHEUS = {"kind": "prometheus", "url": "https://127.0.0.1/prometheus"}
MIRROR = {"name": "mirror", "url": "https://127.0.0.1/others"}
OTHER_ENTRY = entry("another", "1.0.0", workload="Deployment/another")
CHANGED_ENTRY = entry("tool", "2.0.0", workload="Deployment/tool")
CREDENTIAL = {"server": URL, "token": "fresh"}
NEW = {"name": "new", "environment": "staging", "server": OTHER, "token": "fresh"}
POLICY = "facts: 1\nzone: UTC\nrules: [{name: a, when: 'plan.nodes > 3', refuse: No.}]\n"
NIGHT = {"name": "nightly", "kind": "window", "starts": "2026-01-05T22:00", "zone": "UTC", "minutes": 60}
NIGHT |= {"rule": "FREQ=DAILY"}
FLEET = "api/v1/fleet-runs/<uuid:pk>/actions"
EVENT = "BEGIN:VEVENT\nUID:n\nSUMMARY:nights\nDTSTART:20260105T220000Z\nDURATION:PT1H\nEND:VEVENT"
NIGHTS = f"BEGIN:VCALENDAR\n{EVENT}\nEND:VCALENDAR\n"
ALL = [
    Sent("POST", "api/v1/users", _always(email="new@example.com"), ("admin",)),
    Sent("POST", "api/v1/role-bindings", _binding, ("admin",)),
    Sent("POST", "api/v1/workload-rules", _workload_rule, ("admin",)),
    Sent("PATCH", "api/v1/workload-rules/<uuid:pk>", _always(is_enabled=False), ("admin",)),
    Sent("POST", "api/v1/saved-filters", _always(page="nodes", name="y", query="q=x"), ROLES, elsewhere=True),
    Sent("POST", f"{A_CLUSTER}/pools", _always(name="others", selector=SELECTOR), ("operator",)),
    Sent("POST", "api/v1/clusters/<uuid:pk>/pools/preview", _always(selector=SELECTOR), ROLES),
    Sent("PATCH", "api/v1/clusters/<uuid:pk>", _always(budget=2), ("admin",)),
    Sent("PATCH", "api/v1/pools/<int:pk>", _always(name="renamed"), ("operator",)),
    Sent("POST", "api/v1/profiles", _always(name="mine", source=SOURCE), ("operator",), elsewhere=True),
    Sent("PATCH", "api/v1/profiles/<slug:name>", _always(source=SOURCE), ("operator",), elsewhere=True),
    Sent("POST", "api/v1/plans", _plan, ("operator",)),
    Sent("POST", "api/v1/fleet-runs", _fleet_run, ("operator",)),
    Sent("POST", f"{FLEET}/request", _always(message="x"), ("operator",), now="wrong-state"),
    Sent("POST", f"{FLEET}/hold", _always(reason="x"), ("operator",), now="wrong-state"),
    Sent("POST", f"{FLEET}/open-ring", _always(reason="x"), ("operator",), now="wrong-state"),
    Sent("POST", f"{FLEET}/leave-out", _member, ("operator",)),
    Sent("POST", f"{FLEET}/add", _added, ("operator",)),
    Sent("POST", f"{FLEET}/cancel", _always(reason="x"), ("operator",)),
    Sent("POST", "api/v1/freezes", _here(reason="night"), ("operator",)),
    Sent("POST", "api/v1/approval-rules", _here(name="more", approvers=3), ("admin",)),
    Sent("PATCH", "api/v1/approval-rules/<int:pk>", _always(approvers=3), ("admin",)),
    Sent("POST", "api/v1/policy-versions", _always(text=POLICY, message="x"), ("admin",)),
    Sent("POST", "api/v1/policy-versions/actions/test", _always(text=POLICY), ("admin",)),
    Sent("POST", "api/v1/change-record-rules", _always(environment="staging", pattern="CHG[0-9]+"), ("admin",)),
    Sent("PATCH", "api/v1/change-record-rules/<int:pk>", _always(must_release=True), ("admin",)),
    Sent("POST", "api/v1/ticket-connections", _always(name="new", secret="whsec_" + "B" * 32), ("admin",)),
    Sent("POST", f"{PLAN}/change-record", _always(change_record="CHG0030192"), ("operator",)),
    Sent("POST", "api/v1/calendar-rules", _here(**NIGHT), ("admin",)),
    Sent("POST", "api/v1/calendar-rules/actions/import", _here(file=NIGHTS, kind="window"), ("admin",)),
    Sent("PATCH", "api/v1/calendar-rules/<int:pk>", _always(minutes=90), ("admin",)),
    Sent("POST", "api/v1/alerts/<uuid:pk>/actions/silence", _silence, ("operator",)),
    Sent("PATCH", "api/v1/alert-rules/<slug:name>", _always(is_enabled=False), ("admin",)),
    Sent("PATCH", f"{A_CLUSTER}/alert-rules/<slug:name>", _always(is_enabled=False), ("admin",)),
    Sent("POST", "api/v1/notice-channels", _always(**HOOK), ("admin",)),
    Sent("PATCH", "api/v1/notice-channels/<uuid:pk>", _always(name="renamed", secret=SECRET), ("admin",)),
    Sent("PUT", f"{A_CLUSTER}/component-values/<slug:name>", _always(values={"a": 1}), ("operator",)),
    Sent("POST", "api/v1/clusters", _always(**NEW), ("admin",)),
    Sent("POST", "api/v1/clusters/actions/test", _always(**CREDENTIAL), ("admin",), elsewhere=True),
    Sent("POST", f"{ONE}/actions/rotate-credential", _always(**CREDENTIAL), ("admin",)),
    Sent("POST", f"{A_CLUSTER}/takeover", _newer, ("admin",)),
    Sent("POST", f"{A_CLUSTER}/takeover/actions/approve", _takeover, ("approver", "admin")),
    Sent("POST", "api/v1/gpus/prices", _price, ("admin",)),
    Sent("PUT", "api/v1/gpus/checks/<slug:name>/image", _always(image="r.example/fio:1"), ("admin",)),
    Sent("POST", "api/v1/gpus/check-runs", _on_a_node, ("operator",), now="wrong-state"),
    Sent("POST", "api/v1/gpus/check-schedules", _here(check_name="dcgm-long", every_days=7), ("operator",)),
    Sent("PATCH", "api/v1/gpus/check-schedules/<int:pk>", _always(every_days=9), ("operator",)),
    Sent("POST", "api/v1/gpus/teams", _always(name="B", budget="100.00"), ("admin",)),
    Sent("PATCH", "api/v1/gpus/teams/<int:pk>", _always(budget="10.00"), ("admin",)),
    Sent("PUT", "api/v1/gpus/team-rules", _always(rules=TEAM_RULES), ("admin",)),
    Sent("POST", "api/v1/gpus/team-rules/preview", _always(rules=TEAM_RULES), ("admin",)),
    Sent("PUT", f"{A_CLUSTER}/telemetry", _always(**PROMETHEUS), ("admin",)),
    Sent("POST", f"{A_CLUSTER}/telemetry/actions/test", _always(**PROMETHEUS), ("admin",)),
    Sent("POST", "api/v1/chart-archives", _archive, ("admin",)),
    Sent("POST", "api/v1/chart-repositories", _always(**MIRROR), ("admin",)),
    Sent("PATCH", "api/v1/chart-repositories/<uuid:pk>", _always(name="renamed"), ("admin",)),
    Sent("POST", "api/v1/site-entries", _always(text=OTHER_ENTRY), ("admin",)),
    Sent("PATCH", "api/v1/site-entries/<slug:name>", _always(text=CHANGED_ENTRY), ("admin",)),
    Sent("POST", "api/v1/site-entries/actions/draft", _drafted, ("admin",)),
    Sent("POST", "api/v1/nodes/selection/actions/plan", _selection, ("operator",)),
    Sent("POST", "api/v1/nodes/selection/actions/refresh", _selection, ("operator", "admin")),
    Sent("POST", "api/v1/tokens", _always(name="new", scopes=["read"], days=1), EVERYONE, elsewhere=True),
    Sent("POST", "api/v1/sessions/actions/end-others", _always(), EVERYONE, elsewhere=True),
    Sent("PATCH", "api/v1/users/<int:pk>", _always(first_name="New"), ("admin",)),
    Sent("POST", "api/v1/profiles/<slug:name>/actions/check", _always(source=SOURCE), ROLES, elsewhere=True),
    Sent(
        "POST",
        "api/v1/profiles/<slug:name>/actions/publish",
        _always(message="m"),
        ("operator",),
        elsewhere=True,
        version="api/v1/profiles/<slug:name>",
        now="wrong-state",
    ),
    Sent(
        "POST", "api/v1/profiles/actions/import", _always(name="brought", source=SOURCE), ("operator",), elsewhere=True
    ),
    Sent("POST", "api/v1/alerts/<uuid:pk>/actions/acknowledge", _always(note="seen"), ("operator",)),
    Sent(
        "POST",
        "api/v1/compliance/assignments/<int:pk>/actions/observe",
        _always(reason="x"),
        ("operator",),
        now="wrong-state",
    ),
    Sent("POST", f"{PLAN}/approve", _verdict, ("approver",)),
    Sent("POST", f"{PLAN}/reject", _verdict, ("approver",)),
    Sent("POST", f"{PLAN}/request-changes", _verdict, ("approver",)),
    Sent("POST", f"{PLAN}/request", _always(comment="Please."), ("operator",), now="wrong-state"),
    Sent("POST", f"{PLAN}/start", _always(), ("operator",), now="wrong-state"),
    Sent("POST", f"{PLAN}/withdraw", _always(comment="No."), ("admin",)),
    Sent("POST", f"{ROLLOUT}/abort", _always(in_flight="finish"), ("operator",)),
    Sent("POST", f"{ROLLOUT}/retry-failed", _step, ("operator",), now="wrong-state"),
    Sent("POST", f"{ROLLOUT}/review-break-glass", _always(verdict="ok", text="x"), ("approver",), now="wrong-state"),
    Sent("POST", f"{ROLLOUT}/revert", _always(reason="x"), ("operator",), now="wrong-state"),
    Sent("POST", f"{ROLLOUT}/skip", _step, ("operator",)),
]
