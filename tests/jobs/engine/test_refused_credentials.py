"""Laws 1, 4 and 14 while an API server refuses the credentials, or is not the one that they are for.

No call was let in, so nothing is known about a node: steps wait as for a server that is away, keep their places,
say why, and continue by themselves once the credentials are accepted.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.conf import settings

from clusters.connection import encryption, helm_credentials, registry
from clusters.fleet import CredentialsRefused, FleetUnavailable, Untrusted, WrongCertificate
from clusters.models import Cluster, HelmCredential
from clusters.net.credentials import Credentials
from common.clock import now
from components.helm.errors import HelmRefused, HelmUnauthorized, HelmUnavailable, translated
from jobs.engine import reconcile
from jobs.engine.deadlines import REFUSED
from jobs.hooks.alert_rules import waiting_for_credentials
from jobs.models import Slot, Step, StepEvent
from jobs.rollouts import rollout_actions
from simfleet.apiserver import answers
from tests.jobs.component_steps import plan_of, step_of
from tests.jobs.conftest import World
from tests.jobs.releases import Releases

REBOOT = {"cmdline.iommu": "pt"}
LONG = 5 * 3600
"""Seconds: longer than any step may take."""


@pytest.fixture
def releases(monkeypatch: pytest.MonkeyPatch) -> Releases:
    return Releases().install(monkeypatch)


def without_watch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch has the same credentials: while they are refused, rows stay as they are and become old."""
    look = world.look
    monkeypatch.setattr(world, "look", lambda: None if world.sim.faults.rules else look())


@pytest.mark.parametrize(
    ("outcome", "stage"),
    [
        ("unauthorized", "cordoning"),
        ("unauthorized", "draining"),
        ("impostor", "draining"),
        ("unauthorized", "applying"),
        ("unauthorized", "restarting"),
    ],
)
def test_refused_credentials_fail_no_step_however_long_they_last(
    make_world: Any, monkeypatch: pytest.MonkeyPatch, outcome: str, stage: str
) -> None:
    world = make_world(nodes=2)
    world.sim.pods.workload("Job", "llm", namespace="team-llm", replicas=2, gpus=8)
    world.tick(5)
    rollout = world.started(world.plan(world.revision(REBOOT), canary=1, order="name"))
    without_watch(world, monkeypatch)
    step = reached(world, rollout, stage)
    places = set(Slot.objects.values_list("node_id", flat=True))
    cordoned = world.node("n1").is_cordoned

    world.sim.faults.add(outcome)
    for seconds in (1, 15, 15, 600, LONG):
        world.tick(seconds)
        world.slice(rollout)
        step.refresh_from_db()
        assert (rollout.status, step.error) == ("running", "")
        assert step.status in Step.ACTIVE
        assert set(Slot.objects.values_list("node_id", flat=True)) == places
    assert "credentials" in rollout.waiting_for
    assert world.node("n1").is_cordoned == cordoned

    world.sim.faults.clear()
    world.tick(1)
    assert world.run(rollout, seconds=1800, step=5).status == "succeeded"
    assert not StepEvent.objects.filter(rollout=rollout, level="bad").exists()
    assert not world.node("n1").is_cordoned
    assert not Slot.objects.exists()


def reached(world: World, rollout: Any, stage: str) -> Step:
    """The first step once it is in this stage, before a slice carries it further."""
    for _ in range(600):
        step = rollout.steps.get(node_name="n1")
        if step.status == stage:
            return step
        if not reconcile.advance(rollout.pk):
            world.tick(1)
        rollout.refresh_from_db()
    raise AssertionError(f"n1 was never {stage}")


def test_only_calls_of_one_step_refused_wait_without_its_time(world: World) -> None:
    """One of several API servers behind a balancer has another authority: rows are fresh, and writes are refused."""
    rollout = world.started(world.plan(canary=1, order="name", step_deadline_seconds=60))
    world.sim.faults.add("unauthorized", verb="patch", resource="nodetunings")
    world.run(rollout, seconds=3600, step=60)
    step = rollout.steps.get(node_name="n1")
    assert (rollout.status, step.status) == ("running", "applying")
    assert "credentials" in step.waiting_for
    assert "credentials" in rollout.waiting_for

    world.sim.faults.clear()
    assert world.run(rollout).status == "succeeded"


def test_an_end_that_must_withdraw_waits_for_credentials_before_it_gives_the_node_back(world: World) -> None:
    rollout = world.started(world.plan(world.revision(REBOOT), canary=1, order="name"))
    world.until(rollout, "restarting")
    world.sim.faults.add("unauthorized", verb="patch")
    rollout_actions.abort(rollout, by=world.operator, in_flight="revert")
    world.run(rollout, seconds=LONG, step=60)
    assert Slot.objects.exists()
    assert world.node("n1").is_cordoned
    assert not rollout.steps.filter(status="failed").exists()

    world.sim.faults.clear()
    world.run(rollout, seconds=3600, step=10)
    assert not rollout.is_live
    assert not world.node("n1").is_cordoned
    assert not Slot.objects.exists()


def test_what_was_not_seen_counts_for_no_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server that is away, too: its agent had half of its time left, and has it afterwards."""
    rollout = world.started(world.plan(canary=1, order="name", step_deadline_seconds=120))
    world.sim.agents.restart("n1", "hanging")
    without_watch(world, monkeypatch)
    step = world.until(rollout, "verifying")
    world.tick(50)
    world.slice(rollout)
    world.sim.faults.add("timeout")
    world.tick(settings.SETPOINT_FRESH_SECONDS + 600)
    world.slice(rollout)
    assert "cannot be read" in rollout.waiting_for
    world.sim.faults.clear()
    world.tick(1)
    world.slice(rollout)
    step.refresh_from_db()
    assert step.status == "verifying"

    world.run(rollout, seconds=240, step=5)
    step.refresh_from_db()
    assert step.status == "failed"
    assert "Gave up" in step.error


@pytest.mark.parametrize("stage", ["cordoning", "draining", "applying"])
def test_a_page_of_a_load_balancer_in_place_of_an_answer_fails_no_step(
    world: World, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """A load balancer's answer says nothing about the node: it is waited for within the step's time."""
    message = "patch nodes n1: 404, but not from an API server"
    monkeypatch.setattr(answers, "refusal", lambda error: Untrusted(message))
    rollout = world.started(world.plan(world.revision(REBOOT), canary=1, order="name"))
    without_watch(world, monkeypatch)  # and for a while rows are fresh, so that it is the step that hears it
    step = reached(world, rollout, stage)
    world.sim.faults.add("error")
    for _ in range(3):
        world.tick(5)
        world.slice(rollout)
        step.refresh_from_db()
        assert (rollout.status, step.status, step.error) == ("running", stage, "")
    assert message in f"{step.waiting_for} {rollout.waiting_for}"

    world.sim.faults.clear()
    assert world.run(rollout, seconds=1800, step=5).status == "succeeded"


def test_it_fails_no_component_either(world: World, releases: Releases) -> None:
    def page(_: object) -> None:
        raise Untrusted("list secrets: the answer is not a JSON object; is this an API server?")

    releases.during["cert-manager"] = page
    rollout = world.started(plan_of(world, "cert-manager"))
    world.run(rollout, seconds=60, step=10)
    step = step_of(rollout, "cert-manager")
    assert (rollout.status, step.status, step.error) == ("running", "applying", "")
    assert "is this an API server?" in step.waiting_for

    releases.during.clear()
    assert world.run(rollout, seconds=600).status == "succeeded"


# ── components ────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    "output",
    [
        "Error: UPGRADE FAILED: the server has asked for the client to provide credentials",
        "Error: query: failed to query with labels: Unauthorized",
        "Error: INSTALLATION FAILED: 2 errors occurred:\n\t* Unauthorized\n\t* Unauthorized\n\n",  # in the middle of it
        "Error: UPGRADE FAILED: Unauthorized\nUnauthorized",
        "Error: Kubernetes cluster unreachable: tls: failed to verify: x509: certificate signed by unknown authority",
        "Error: Kubernetes cluster unreachable: the server has asked for the client to provide credentials",
    ],
)
def test_helm_that_is_not_let_in_is_no_chart_that_is_refused(output: str) -> None:
    error = translated(output, 1)
    assert isinstance(error, HelmUnauthorized)
    assert not error.is_final


def test_a_webhooks_certificate_is_not_the_api_servers() -> None:
    output = (
        'Error: INSTALLATION FAILED: Internal error occurred: failed calling webhook "a.b.c": failed to call webhook: '
        "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    )
    assert type(translated(output, 1)) is HelmUnavailable
    assert isinstance(translated("Error: a chart says Unauthorized is no word", 1), HelmRefused)


def test_helms_credential_of_another_address_is_waited_for_and_told(
    world: World, releases: Releases, settings: Any
) -> None:
    """The cluster's address was changed while a component was on its way: the token is not sent, nothing fails."""
    row = helm_credential(world.cluster, "https://before.example:6443")
    releases.during["cert-manager"] = lambda stop: helm_credentials.for_run(world.cluster, seconds=600)
    rollout = world.started(plan_of(world, "cert-manager"))
    world.run(rollout, seconds=2 * 3600, step=60)

    step = step_of(rollout, "cert-manager")
    assert (rollout.status, step.status, step.error) == ("running", "applying", "")
    assert "another address" in step.waiting_for
    [condition] = waiting_for_credentials(world.cluster.pk, 0).conditions
    assert "another address" in condition.sentence

    row.delete()
    releases.during.clear()
    assert world.run(rollout, seconds=600).status == "succeeded"
    assert not waiting_for_credentials(world.cluster.pk, 0).conditions


def helm_credential(cluster: Cluster, server: str) -> HelmCredential:
    credentials = Credentials(server=server, ca="", token="t")
    sealed = encryption.seal(cluster.pk, HelmCredential.FIELD, json.dumps(credentials.to_json()), ring=encryption.HELM)
    return HelmCredential.objects.create(cluster=cluster, sealed=sealed.data, key=sealed.key, set_at=now())


def test_what_the_cluster_says_itself_is_not_told_twice(world: World) -> None:
    rollout = world.started(world.plan(canary=1, order="name"))
    rollout.steps.filter(node_name="n1").update(status="applying", waiting_for=f"{REFUSED}: 401")
    assert [condition.name for condition in waiting_for_credentials(world.cluster.pk, 0).conditions] == [str(rollout)]
    Cluster.objects.filter(pk=world.cluster.pk).update(refused_since=now())
    assert not waiting_for_credentials(world.cluster.pk, 0).conditions


# ── the kind ──────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("error", [CredentialsRefused, WrongCertificate, registry.CredentialUnreadable])
def test_whatever_waits_for_an_api_server_waits_for_credentials(error: type[Exception]) -> None:
    assert issubclass(error, FleetUnavailable)


def test_a_credential_that_does_not_open_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rollout = world.started(world.plan(canary=1, order="name"))
    registry.uninstall(world.cluster.pk)
    world.slice(rollout)
    assert rollout.status == "running"
    assert "credential" in rollout.waiting_for
    registry.install(world.cluster.pk, world.fleet)
    Cluster.objects.filter(pk=world.cluster.pk).update(credential=b"-")
    assert world.run(rollout).status == "succeeded"
