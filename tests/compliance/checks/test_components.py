"""Components held to what is assigned: brought by a real rollout with helm, then changed by hand in the fleet."""

from __future__ import annotations

import html
import re
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from clusters.watch.following import Following
from clusters.watch.streams import WatchTimings
from common.clock import now
from common.hooks import Followed, ObjectChange
from compliance.checks import components, watch
from compliance.models import ComponentChange, ComponentStanding, NodeStanding
from compliance.reports import component_selectors
from compliance.services import assignments
from components.release import conformance
from components.release.conformance import Conformity
from components.release.field_difference import FieldDifference
from simfleet.apiserver.callers import person
from tests.demo.glossary import states
from tests.factories import TokenClient
from tests.jobs.component_steps import plan_of
from tests.jobs.conftest import World
from tests.jobs.engine.components.test_components_with_helm import cluster
from tests.jobs.releases import wanted

__all__ = ["cluster"]
pytestmark = pytest.mark.django_db
DRIFT = FieldDifference("DaemonSet", "agent", "x-system", "apps/v1", "spec.image", "one", "two", "kubectl-edit")


class FixedConformity:
    """Fixed result of every check, without a cluster."""

    def __init__(self, monkeypatch: Any) -> None:
        self.next = Conformity("compliant", installed="1.0.0", number=1, is_ready=True)
        self.looks = 0
        self.during: Callable[[], object] = lambda: None
        monkeypatch.setattr(conformance, "conform", self.conform)

    def conform(self, *_: Any) -> Conformity:
        self.looks += 1
        self.during()
        return self.next


@pytest.fixture
def conformity(monkeypatch: Any) -> FixedConformity:
    return FixedConformity(monkeypatch)


def assigned(world: World, *names: str) -> None:
    revision = world.revision({}, components=wanted(*names))
    assignments.assign(world.pool, revision, enforce=False, rollout_id=world.cluster.pk, by=None)
    components.reconcile()


def row_of(world: World, name: str) -> ComponentStanding:
    rows = component_selectors.components(world.admin)
    return rows.get(cluster=world.cluster, name=name)


def look(world: World, name: str = "volcano") -> ComponentStanding:
    ComponentStanding.objects.update(due_at=now() - timedelta(seconds=1))
    for pk in components.due():
        assert components.check(pk)
    return row_of(world, name)


# ── end to end ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_drift_by_hand_is_heard_seen_named_and_gone_when_it_is_put_back(cluster: World) -> None:
    cluster.run(cluster.started(plan_of(cluster, "base@1.0.0")))
    components.reconcile()
    following = Following(cluster.cluster, WatchTimings(shortest_watch=0.05, backoff=0.05))

    def until(state: str, sentence: str = "") -> ComponentStanding:
        deadline = time.monotonic() + 20
        while True:
            following.turn()
            cluster.tick(3)
            for pk in components.due():
                components.check(pk)
            row = row_of(cluster, "base")
            if row.shown == state and sentence in row.sentence:
                return row
            assert time.monotonic() < deadline, (row, row.sentence)
            time.sleep(0.05)

    mallory = person("mallory")
    try:
        row = until("compliant")
        assert (row.installed, row.assigned, row.number, row.unwatched) == ("1.0.0", "1.0.0", 1, "")
        until("compliant")  # the kinds that the first look found are listed, which is a reason to look once more
        looks = row_of(cluster, "base").checked_at
        for _ in range(3):
            following.turn()
            cluster.tick(3)
        assert looks is not None

        with cluster.sim.lock:
            spec = cluster.sim.store.get("deployments", "base", "base-system").copy()["spec"]
        spec["template"]["spec"]["containers"][0]["image"] = "evil.example.org/main"
        cluster.sim.api.patch(mallory, "deployments", "base", {"spec": spec}, "base-system", manager="kubectl-edit")
        row = until("drifted")
        assert row.sentence == (
            "Deployment base-system/base: spec.template.spec.containers[main].image is evil.example.org/main, set by "
            "kubectl-edit."
        )
        assert (row.total, row.differences[0]["approved"]) == (1, "registry.example.org/main:1.0.0")

        cluster.sim.api.delete(mallory, "configmaps", "base-settings", "base-system")
        until("drifted", "ConfigMap base-system/base-settings is gone")
        assert set(NodeStanding.objects.values_list("state", flat=True)) <= {"compliant", "unassigned"}

        repair = plan_of(cluster, "base@1.0.0")
        (planned,) = repair.components.all()
        assert {difference["name"]: difference["change"] for difference in planned.prepared["objects"]} == {
            "base": "changed",
            "base-settings": "created",
        }
        cluster.run(cluster.started(repair))
        assert until("compliant").total == 0
    finally:
        following.close()
    states = ComponentChange.objects.order_by("pk").values_list("state", flat=True)
    assert [state for state in states if state != "pending"] == ["compliant", "drifted", "drifted", "compliant"]


# ── laws ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_what_cannot_be_seen_is_unknown_and_never_compliant(world: World, conformity: FixedConformity) -> None:
    assigned(world, "volcano")
    assert (row_of(world, "volcano").shown, component_selectors.why(row_of(world, "volcano"))) == (
        "unknown",
        "Not checked yet.",
    )
    assert look(world).shown == "compliant"

    conformity.next = Conformity("unknown", "It could not be checked: no answer")
    row = look(world)
    assert (row.shown, row.installed) == ("unknown", "1.0.0")
    conformity.next = Conformity("compliant", installed="1.0.0", number=1, is_ready=True)
    look(world)
    world.clock.forward(component_selectors.STALE.total_seconds() + 1)
    world.look()
    row = row_of(world, "volcano")
    assert (row.state, row.shown) == ("compliant", "unknown")
    assert "Not checked for 30 minutes" in component_selectors.why(row)
    look(world)
    world.clock.forward(300)
    assert row_of(world, "volcano").shown == "unknown", "its cluster is not heard"


def test_a_heard_event_brings_a_look_and_never_a_finding(world: World, conformity: FixedConformity) -> None:
    assigned(world, "volcano")
    conformity.next = Conformity("drifted", DRIFT.sentence, "volcano", "volcano-system", "1.0.0", number=1, total=1)
    row = look(world)
    assert components.due() == []
    of_ours = {"meta.helm.sh/release-name": "volcano", "meta.helm.sh/release-namespace": "volcano-system"}
    kind = Followed("v1", "configmaps", watch.OF_RELEASES)
    theirs = ObjectChange(kind, "other", "x", {}, of_ours | {"meta.helm.sh/release-namespace": "other"})
    watch.heard(world.cluster.pk, [theirs])
    world.clock.forward(5)
    assert components.due() == []
    watch.heard(world.cluster.pk, [ObjectChange(kind, "volcano-system", "x", {}, of_ours)])
    assert components.due() == [], "gathered first"
    world.clock.forward(5)
    assert components.due() == [row.pk]
    assert row_of(world, "volcano").state == "drifted"

    look(world)
    watch.heard(world.cluster.pk, [ObjectChange(kind, "volcano-system", "x", {}, of_ours, is_status=True)])
    world.clock.forward(5)
    assert components.due() == [], "a status alone may wait"
    world.clock.forward(30)
    assert components.due() == [row.pk]


def test_what_is_heard_during_a_look_brings_another_and_a_lost_claim_writes_nothing(
    world: World, conformity: FixedConformity
) -> None:
    assigned(world, "volcano")
    row = look(world)
    conformity.during = lambda: components.hasten([row.pk], now())
    look(world)
    assert components.due() == [row.pk]

    def lose() -> None:
        ComponentStanding.objects.update(claimed_until=now() + timedelta(hours=1), state="drifted")

    conformity.during = lose
    components.check(row.pk)
    assert row_of(world, "volcano").state == "drifted"
    looks = conformity.looks
    assert not components.check(row.pk)
    assert conformity.looks == looks
    world.clock.forward(3601)
    assert components.due() == [row.pk], "a killed worker costs one claim"


def test_a_rollout_explains_what_it_is_about_to_bring_and_no_drift(
    world: World, conformity: FixedConformity, monkeypatch: Any
) -> None:
    assigned(world, "volcano")
    conformity.next = Conformity("missing", "helm has no release volcano in volcano-system.")
    assert look(world).shown == "missing"
    assert "No rollout brought it yet" in row_of(world, "volcano").sentence
    rollout = world.started(world.plan())
    row = look(world)
    assert (row.shown, row.sentence.partition(".")[0]) == ("pending", f"R-{rollout.number} is at work here")
    conformity.next = Conformity("drifted", "Somebody changed it.", number=1, differences=(DRIFT,), total=1)
    assert look(world).shown == "drifted"
    conformity.next = Conformity("behind", "What is wanted is another by now: color is.", number=1)
    assert look(world).shown == "pending"


def test_rows_follow_the_assignments_and_the_first_one_owns(world: World, conformity: FixedConformity) -> None:
    from clusters.models import Pool

    assigned(world, "volcano", "kueue")
    other = Pool.objects.create(cluster=world.cluster, name="later", selector={"matchLabels": {"pool": "later"}})
    revision = world.revision({}, components=wanted("volcano", "cilium"))
    world.clock.forward(10)
    assignments.assign(other, revision, enforce=False, rollout_id=world.cluster.pk, by=None)
    components.reconcile()
    owners = dict(ComponentStanding.objects.values_list("name", "pool__name"))
    assert owners == {"volcano": "train", "kueue": "train", "cilium": "later"}
    world.pool.assignment.delete()
    components.reconcile()
    assert dict(ComponentStanding.objects.values_list("name", "pool__name")) == {"volcano": "later", "cilium": "later"}


def test_what_is_not_watched_is_said(world: World, conformity: FixedConformity) -> None:
    assigned(world, "volcano")
    conformity.next = Conformity("compliant", number=1, is_ready=True, kinds=(("v1", "configmaps"),))
    look(world)
    followed = sorted(watch.follow(world.cluster.pk))
    assert [(resource.plural, resource.label) for resource in followed] == [
        ("configmaps", watch.OF_RELEASES),
        ("secrets", "owner=helm"),
    ]
    watch.unheard(world.cluster.pk, {followed[0]: "may not watch configmaps"})
    assert row_of(world, "volcano").unwatched == "configmaps: may not watch configmaps"
    watch.unheard(world.cluster.pk, {})
    assert row_of(world, "volcano").unwatched == ""
    watch.relisted(world.cluster.pk, followed[:1])
    world.clock.forward(3)
    assert components.due() == [row_of(world, "volcano").pk], "what happened before a list was not heard"


# ── where people see it ───────────────────────────────────────────────────────────────────────────────────────────────
def test_pages_rest_timeline_and_metrics_tell_the_same(world: World, conformity: FixedConformity, client: Any) -> None:
    assigned(world, "volcano", "kueue")
    drifted = {"release": "volcano", "namespace": "x-system", "installed": "1.0.0", "number": 1, "is_ready": True}
    conformity.next = Conformity("drifted", f"{DRIFT.sentence}.", differences=(DRIFT,), total=61, **drifted)
    look(world)
    conformity.next = Conformity("compliant", installed="2.0.0", number=1, is_ready=True)
    ComponentStanding.objects.filter(name="kueue").update(due_at=now() - timedelta(seconds=1))
    components.check(row_of(world, "kueue").pk)
    client.force_login(world.operator)

    def page(path: str) -> str:
        answer = client.get(path)
        assert answer.status_code == 200
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())).split())

    place = f"/clusters/{world.cluster.pk}/"
    of_cluster, own, overview = page(place), page(f"{place}components/volcano/"), page("/")
    for shown in (of_cluster, own, overview, page("/components/volcano/")):
        assert "DaemonSet x-system/agent: spec.image is two, set by kubectl-edit." in shown
    rows = TokenClient(world.operator).get("/api/v1/compliance/components?cluster=atlas").json()["results"]
    counted = states(client.get(place).content.decode(), "h-components", "component")
    assert counted == Counter(row["state"] for row in rows) == {"drifted": 1, "compliant": 1}
    assert "60 more" in own
    repair = f"/plans/new/?pool={world.pool.pk}&amp;revision={row_of(world, 'volcano').revision_id}"
    assert repair in client.get(f"{place}components/volcano/").content.decode()
    assert "None: every object is as the approved release has it." in page(f"{place}components/kueue/")
    assert "volcano drifted" in page(f"{place}timeline/")
    assert client.get(f"{place}components/cilium/").status_code == 404

    api = TokenClient(world.operator)
    answer = api.get("/api/v1/compliance/components?state=drifted&cluster=atlas").json()
    assert [(row["name"], row["state"], row["total"]) for row in answer["results"]] == [("volcano", "drifted", 61)]
    assert answer["results"][0]["differences"][0]["who"] == "kubectl-edit"
    assert api.get("/api/v1/compliance/components?state=wrong").status_code == 400
    counts = api.get("/api/v1/compliance/summary").json()["counts"]
    assert counts["drifted"] == 0, "a component is no node"
    scraped = client.get("/metrics").content.decode()
    assert 'setpoint_components{cluster="atlas",state="drifted"} 1.0' in scraped


def test_a_cluster_of_fifty_components_costs_as_many_queries_as_one_of_two(
    world: World, conformity: FixedConformity, client: Any, django_assert_max_num_queries: Any
) -> None:
    assigned(world, "volcano")
    look(world)
    row = ComponentStanding.objects.get()
    for number in range(50):
        row.pk, row.name, row.state = None, f"c-{number}", "drifted"
        row.save(force_insert=True)
    client.force_login(world.operator)
    with django_assert_max_num_queries(6):
        assert client.get(f"/clusters/{world.cluster.pk}/equipment/live/").status_code == 200
    with django_assert_max_num_queries(11):
        assert client.get(f"/clusters/{world.cluster.pk}/components/c-1/").status_code == 200
