"""Every address of the product with an object behind it, and each kind of person with a way in, for tests of access."""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.files import File
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from accounts.models import ApiToken, PendingChange, RoleBinding, SavedFilter, ScimClient, User, WorkloadRule
from accounts.people import services
from accounts.people.pending import Proposed
from accounts.providers import OidcProvider
from accounts.scim import clients
from audit.models import Record
from clusters.models import Cluster, GpuJob
from common.clock import now
from compliance.models import Assignment, ComponentStanding, Outlier, SettingChange, SettingState
from compliance.services import standings
from components.catalog import catalog
from components.charts import archives
from components.plans.authority import Authority
from components.plans.prepared import Prepared
from gpus.models import CheckRun, CheckSchedule, GpuDevice, GpuPrice, NodePace, Study, StudyNode, Team
from jobs.approvals import reviews
from jobs.models import (
    ApprovalRule,
    CalendarRule,
    ChangeRecordRule,
    FleetRun,
    Plan,
    PlanComponent,
    PlanRequest,
    StepEvent,
    TicketConnection,
    short_numbers,
)
from jobs.rollouts import freezes
from notices.models import Alert, Channel, Delivery
from profiles.models import Revision
from tests.components.factories import ClusterValuesFactory, RepositoryFactory, SiteEntryFactory
from tests.components.packing import tiny
from tests.factories import TokenClient, UserFactory
from tests.gpus.starts.recorded import start
from tests.gpus.waiting import waiting
from tests.jobs.conftest import World
from tests.platform.rest.policies import policy_addresses

ROLES = ("viewer", "operator", "approver", "admin", "auditor")
WHO = ("anonymous", *ROLES, "outside", "team", "none")
"""`outside` holds all roles, but only in production; everything that an address names is of a staging cluster. `team`
is a viewer of one team alone, which addresses name, and `none` an account without any role."""
TABLE = Path(__file__).with_name("access.txt")


def addresses() -> Iterator[tuple[str, Any]]:
    def walk(resolver: URLResolver, prefix: str) -> Iterator[tuple[str, Any]]:
        for entry in resolver.url_patterns:
            route = f"{prefix}{entry.pattern}"
            if isinstance(entry, URLResolver):
                yield from walk(entry, route)
            elif isinstance(entry, URLPattern):
                yield route, entry.callback

    yield from walk(get_resolver(), "")


@functools.cache
def expected() -> Mapping[tuple[str, str], tuple[int, ...]]:
    """(method, route) → the status that each of WHO gets."""
    out = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            method, *statuses, route = line.split(maxsplit=1 + len(WHO))
            out[method, "" if route == "/" else route] = tuple(int(status) for status in statuses)
    return out


def _night(cluster: Cluster) -> CalendarRule:
    when = {"starts": "2026-01-05T22:00", "zone": "UTC", "minutes": 60, "rule": "FREQ=DAILY"}
    return CalendarRule.objects.create(name="night", kind="window", cluster=cluster, **when)


class Doors:
    """Each of WHO with a way in, and the objects that addresses name."""

    def __init__(self, world: World) -> None:
        plan = reviews.request(world.plan(world.revision({"vm.swappiness": "30"})), by=world.author)
        rollout = world.started()
        freeze = freezes.freeze(cluster=world.cluster, reason="x", by=world.operator)
        rule = ApprovalRule.objects.create(name="here", cluster=world.cluster)
        part = PlanComponent.objects.create(plan=plan, component="kueue", prepared={}, position=1, left_out="x")
        made = Prepared("volcano", "volcano", "volcano-system", "1.0.0", authority=Authority("setpoint-helm")).to_json()
        done = PlanComponent.objects.create(plan=plan, component="volcano", prepared=made, position=2)
        event = StepEvent.objects.create(rollout=rollout, text="x")
        other = UserFactory(roles=["viewer"])
        ClusterValuesFactory(cluster=world.cluster, component="cilium")
        team = Team.objects.create(name="A")
        self.people = _people(team)
        self.tokens = {name: TokenClient(user).defaults for name, user in self.people.items()}
        ApiToken.objects.update(last_used_at=now())  # else each request would note that, for what it does is undone
        self.cookies = {name: cookies_of(user) for name, user in self.people.items()}
        self.world, self.client = world, Client()
        """For the requests of every account: each client would build the middleware again."""
        study = Study.objects.create(rollout=rollout, hours=6, settle_minutes=15)
        began = {"began_at": rollout.created_at, "ended_at": rollout.created_at}
        pairs = StudyNode.objects.create(study=study, node=world.node("n1"), node_name="n1", **began)
        self.values = {
            **_tickets(),
            "gpus/effects/<uuid:rollout_pk>/nodes/<int:pk>": f"{rollout.pk}/nodes/{pairs.pk}",
            "gpus/effects/<uuid:pk>": rollout.pk,
            "gpus/prices/<int:pk>": _price().pk,
            **dict.fromkeys(("gpus/teams/<int:pk>", "team/<int:pk>"), team.pk),
            "plans/P-<int:number>/components/<int:pk>": f"{plan.number}/components/{done.pk}",
            **dict.fromkeys(("plans/P-<int:number>", "^plans/P-(?P<number>[0-9]{1,9})"), plan.number),
            "rollouts/R-<int:number>": rollout.number,
            "^rollouts/R-(?P<number>[0-9]{1,9})": rollout.number,
            "(?P<verb>request|verdict|approve|request-changes|reject|retract|withdraw|start)": "withdraw",
            "(?P<verb>pause|resume|go-on|abort|retry-failed|skip|revert|keep-cordoned)": "pause",
            "steps/<uuid:pk>": rollout.steps.first().pk,
            "steps/<str:pk>": rollout.steps.first().pk,
            "events/<str:pk>": event.pk,
            "<uuid:plan_pk>/components/<str:pk>": f"{plan.pk}/components/{part.pk}",
            "nodes/<str:pk>": plan.nodes.first().pk,
            "<uuid:plan_pk>": plan.pk,
            "<uuid:rollout_pk>": rollout.pk,
            "<uuid:cluster_pk>": world.cluster.pk,
            "plans/<uuid:pk>": plan.pk,
            "rollouts/<uuid:pk>": rollout.pk,
            "clusters/<uuid:pk>": world.cluster.pk,
            "audit/<uuid:pk>": Record.objects.filter(cluster_id=world.cluster.pk)[0].pk,
            "freezes/<int:pk>": freeze.pk,
            "saved-filters/<int:pk>": 0,
            "filters/<int:pk>": SavedFilter.objects.create(owner=other, page="nodes", name="x", query="q=x").pk,
            **dict.fromkeys(("calendar-rules/<int:pk>", "windows/<int:pk>"), _night(world.cluster).pk),
            **dict.fromkeys(("rules/<int:pk>", "approval-rules/<int:pk>"), rule.pk),
            "pools/<int:pk>": world.pool.pk,
            "pools/<str:pk>": world.pool.pk,
            "nodes/<int:pk>": world.node("n1").pk,
            **_accounts(other),
            **_content(plan.revision),
            **_notices(world),
            **_compliance(world, plan.revision),
            **_plan_request(plan),
            **_fleet_run(plan),
        }

    def address(self, route: str) -> str:
        """Address of an existing object."""
        path = route
        for name, value in self.values.items():
            shown = name[name.index("<") if "(" not in name else name.index("(") :]
            path = path.replace(name, name.removesuffix(shown) + str(value))
        path = path.replace("^", "").replace("$", "")
        assert "<" not in path, f"how is {route} filled in?"
        return "/" + path

    def knock(self, who: str, method: str, route: str) -> int:
        """The status that comes back; nothing stays of what it did."""
        return self.answer(who, method, route)[0]

    def answer(
        self, who: str, method: str, route: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, str]:
        """Status and content."""
        is_api = route.startswith("api/")
        self.client.cookies.clear()
        if not is_api:
            self.client.cookies.load(self.cookies.get(who, {}))
        sent: dict[str, Any] = dict(self.tokens.get(who, {})) if is_api else {}
        if isinstance(body, dict) and any(isinstance(value, File) for value in body.values()):
            sent |= {"data": body}
        elif is_api and method != "GET":
            sent |= {"content_type": "application/json", "data": json.dumps(body or {}).encode()}
        with transaction.atomic():
            answer = getattr(self.client, method.lower())(self.address(route), headers=headers, **sent)
            content = b"".join(answer) if answer.streaming else answer.content
            transaction.set_rollback(True)
        return int(answer.status_code), content.decode(errors="replace")


def _people(team: Team) -> dict[str, User]:
    """One account for each of WHO that logs in."""
    roles = {name: [name] for name in ROLES} | {"outside": [f"{role}@env:production" for role in ROLES]}
    roles |= {"team": [f"viewer@team:{team.pk}"], "none": []}
    return {name: UserFactory(roles=held) for name, held in roles.items()}


def _plan_request(plan: Plan) -> dict[str, Any]:
    of_plan = {"cluster": plan.cluster, "pool": plan.pool, "revision": plan.revision, "strategy": plan.strategy}
    row = PlanRequest.objects.create(**of_plan, requested_by=plan.created_by, content="x")
    return dict.fromkeys(("plan-requests/<uuid:pk>", "plans/requests/<uuid:pk>"), row.pk)


def _fleet_run(plan: Plan) -> dict[str, Any]:
    """A run of one ring, which has not started. Its plan is no draft, which only its making would mind."""
    with transaction.atomic():
        number = short_numbers.next_number("fleet")
    run = FleetRun.objects.create(number=number, name="x", rings=[{"name": "a", "soak_minutes": 0}])
    Plan.objects.filter(pk=plan.pk).update(fleet_run=run, ring=1)
    verbs = "(?P<verb>request|start|hold|release|open-ring|leave-out|add|cancel)"
    numbered = dict.fromkeys(("fleet-runs/F-<int:number>", "^fleet-runs/F-(?P<number>[0-9]{1,9})"), run.number)
    return {**numbered, "fleet-runs/<uuid:pk>": run.pk, verbs: "hold"}


def _tickets() -> dict[str, Any]:
    """A change record rule, and a ticket system."""
    rule = ChangeRecordRule.objects.create(environment="development", pattern="CHG[0-9]+")
    row = TicketConnection(name="tickets")
    row.set_secret("whsec_" + "A" * 32)
    row.save()
    names = ("ticket-connections/<uuid:pk>", "connections/<uuid:pk>", "hooks/change-records/<uuid:key>")
    return {"change-record-rules/<int:pk>": rule.pk, "change-records/rules/<int:pk>": rule.pk} | dict.fromkeys(
        names, row.pk
    )


def _price() -> GpuPrice:
    """A price from tomorrow on, so that it can be withdrawn."""
    day = now().date() + timedelta(days=1)
    return GpuPrice.objects.create(kind="gpu", model="H100", valid_from=day, amount=2, created_by="x")


def _change(subject: User) -> PendingChange:
    """A role that waits for consent."""
    subject.is_vouched = True
    subject.save(update_fields=["is_vouched"])
    scope = f"cluster:{uuid.uuid4()}"
    done = services.bind(user=subject, role="approver", scope=scope, by=UserFactory(roles=["admin"]))
    assert isinstance(done, Proposed)
    return done.change


def _rule() -> WorkloadRule:
    """A rule of workload identity; its issuer is never connected to."""
    machine = UserFactory(is_service=True)
    return WorkloadRule.objects.create(
        name="deploy", issuer="https://issuer.example", audience="http://testserver", account=machine,
        conditions={"sub": "x"}, scopes=["read"], minutes=15, made_by="x",
    )  # fmt: skip


def _scim_client() -> ScimClient:
    """A directory's token; its text is not kept."""
    provider = OidcProvider("corp", "Corp", "https://corp.example.com", (), client_id="c", client_secret="s")
    return clients.issue(provider=provider, name="directory", days=1, by="x")[0]


def _accounts(other: User) -> dict[str, Any]:
    """Another person, with roles, changes that wait for consent, tokens and sessions."""
    return {
        **dict.fromkeys(("workload-rules/<uuid:pk>", "workloads/<uuid:pk>"), _rule().pk),
        "provisioning/<slug:pk>": _scim_client().pk,
        **dict.fromkeys((f"{kind}/<str:pk>" for kind in ("Users", "Groups", "ResourceTypes", "Schemas")), "x"),
        **dict.fromkeys(("users/<int:pk>", "people/<int:pk>"), other.pk),
        "link/<str:secret>": "x" * 43,
        "changes/<uuid:pk>": _change(other).pk,
        "pending-changes/<uuid:pk>": _change(other).pk,
        **policy_addresses(),
        **dict.fromkeys(("roles/<int:pk>", "role-bindings/<int:pk>"), RoleBinding.objects.get(user=other).pk),
        "passkeys/<uuid:pk>": uuid.UUID(int=1),  # of no one
        **dict.fromkeys(("login/with/<slug:key>", "login/saml/<slug:key>"), "corp"),  # no provider is set up
        "tokens/<slug:pk>": "nobodys",
        "sessions/<int:pk>": 0,
    }


def _content(revision: Revision) -> dict[str, Any]:
    """Objects of profiles, settings, components and charts."""
    return {
        "profiles/<slug:name>": revision.profile.name,
        "/r<int:number>": revision.number,
        "revisions/<str:pk>": revision.pk,
        "settings/<str:key>": "vm.swappiness",
        "components/<str:name>": "cilium",
        "components/<slug:name>": "cilium",
        "components/site/entries/<slug:name>": "tool",
        "site-entries/<slug:name>": SiteEntryFactory().pk,
        "/values/<slug:name>": "cilium",
        "repositories/<uuid:pk>": RepositoryFactory(
            url="https://127.0.0.1/charts", stands_for=catalog.get("cilium").chart.url
        ).pk,
        "/component-values/<slug:name>": "cilium",
        "<slug:sha256>": archives.store(tiny(), origin="uploaded").pk,
        "/<str:to>": "sysctl.d",
    }


def _notices(world: World) -> dict[str, Any]:
    """An open alert, and a channel with what waits for it."""
    alert = Alert.objects.create(
        cluster=world.cluster,
        rule="drift",
        subject_kind="node",
        subject="x",
        subject_name="n1",
        sentence="vm.swappiness is 30, approved value: 10.",
        severity="warning",
        status="open",
    )
    channel = Channel.objects.create(name="chat", url="https://127.0.0.1/hook", what=["alerts"])
    delivery = Delivery.objects.create(channel=channel, event="alerts", title="x", body={})
    return {
        "alerts/channels/<uuid:pk>": channel.pk,
        "alerts/deliveries/<uuid:pk>": delivery.pk,
        "notice-channels/<uuid:pk>": channel.pk,
        "notice-deliveries/<uuid:pk>": delivery.pk,
        "alerts/<uuid:pk>": alert.pk,
        "alerts/rules/<slug:name>": "drift",
        "alert-rules/<slug:name>": "drift",
    }


def _compliance(world: World, revision: Any) -> dict[str, Any]:
    """Compliance of one node and pool, as the rooms below keep it."""
    node = world.node("n1")
    setting = SettingState.objects.create(node=node, key="vm.swappiness", desired="10")
    standings.renew([node.pk])
    change = SettingChange.objects.create(node=node, key="vm.swappiness", state="drifted")
    usual = {"key": "vm.swappiness", "usual": "10", "usual_nodes": 9, "count": 1, "values": []}
    outlier = Outlier.objects.create(cluster=world.cluster, scope="cluster", **usual)
    assignment = Assignment.objects.create(pool=world.pool, revision=revision, mode=Assignment.Mode.ENFORCE)
    gpu = GpuDevice.objects.create(cluster=world.cluster, node=node, uuid="GPU-1", values={"busy": 0.5})
    pace = NodePace.objects.create(
        node=node, cluster=world.cluster, verdict="slower", in_common="job", work="team/train", hours=20, peers=7,
        signal="sm_clock", gap=-0.2, since=node.changed_at, until=node.changed_at,
        signals=[{"signal": "busy", "value": 0.4, "usual": 0.8, "gap": -0.5, "bound": -0.1, "hours": 9, "peers": 7}],
    )  # fmt: skip
    check_run = CheckRun.objects.create(
        node=node, cluster=world.cluster, check_name="fio-scratch", image="r.example/fio:1", gpus=8, at_once=1
    )
    schedule = CheckSchedule.objects.create(cluster=world.cluster, check_name="fio-scratch", every_days=7, at_once=1)
    named = {"namespace": "a", "kind": "Job", "name": "b", "key": "u-1"}
    job = GpuJob.objects.create(cluster=world.cluster, queued_at=node.changed_at, **named)
    component = ComponentStanding.objects.create(cluster=world.cluster, name="cilium", pool=world.pool)
    return {
        "compliance/components/<int:pk>": component.pk,
        "compliance/settings/<int:pk>": setting.pk,
        "gpus/devices/<int:pk>": gpu.pk,
        "gpus/paces/<int:pk>": pace.pk,
        "gpus/checks/<slug:name>": "fio-scratch",
        "gpus/checks/runs/<uuid:pk>": check_run.pk,
        "gpus/check-runs/<uuid:pk>": check_run.pk,
        **dict.fromkeys(("gpus/checks/schedules/<int:pk>", "gpus/check-schedules/<int:pk>"), schedule.pk),
        "gpus/jobs/<int:pk>": job.pk,
        "gpus/starts/<int:pk>": start(world.cluster, node.changed_at).pk,
        "gpus/waits/<int:pk>": waiting(world.cluster, node.changed_at).pk,
        "jobs/<slug:key>": job.key,
        "compliance/changes/<int:pk>": change.pk,
        "compliance/outliers/<int:pk>": outlier.pk,
        "compliance/assignments/<int:pk>": assignment.pk,
        "(?P<name>nodes|settings|changes|outliers)\\.(?P<form>csv|json)": "settings.csv",
    }


def cookies_of(user: User) -> dict[str, str]:
    client = Client()
    client.force_login(user)
    return {name: morsel.value for name, morsel in client.cookies.items()}
