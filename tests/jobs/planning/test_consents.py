"""A plan that destroys objects: its approver types how many, and without that it never starts."""

from __future__ import annotations

from typing import Any

import pytest
from django.urls import reverse

from audit.models import Record
from common.errors import Invalid, WrongState
from components.plans.prepared import Destroyed
from jobs.approvals import reviews
from jobs.models import Approval, Plan
from jobs.rollouts import rollout_actions
from tests.jobs.releases import Releases, wanted
from tests.jobs.rest import act, api, problem

PHRASE = "destroy 15 objects in atlas"


@pytest.fixture
def releases(monkeypatch: Any) -> Releases:
    destroyed = (
        Destroyed("queues.x.sh", "Queue", 12),
        Destroyed("jobs.x.sh", "Job", 3),
        Destroyed("h.x.sh", "Host", 0),
    )
    return Releases(destroys={"volcano": destroyed}).install(monkeypatch)


@pytest.fixture
def plan(world: Any, releases: Releases) -> Plan:
    made = world.plan(world.revision({}, components=wanted("volcano")))
    assert not made.is_blocked
    return reviews.request(made, by=world.operator)


@pytest.mark.parametrize("typed", ["", "destroy", "destroy 14 objects in atlas", "Destroy 15 objects in atlas"])
def test_without_the_words_it_is_not_approved(world, plan, typed):
    with pytest.raises(Invalid) as refused:
        reviews.approve(plan, by=world.approver, digest=plan.digest, consent=typed)
    assert PHRASE in refused.value.fields["consent"][0]
    assert not Approval.objects.exists()


def test_with_them_it_starts_and_the_record_keeps_who_typed_what(world, plan, releases):
    approved = reviews.approve(plan, by=world.approver, digest=plan.digest, consent=f" {PHRASE} ")
    assert Approval.objects.get().consent == PHRASE
    kept = Record.objects.get(action="plan.approve")
    assert kept.after["consent"] == PHRASE

    rollout = world.run(rollout_actions.start(approved, by=world.operator))
    assert rollout.status == "succeeded"


def test_a_verdict_whose_consent_was_taken_out_starts_nothing(world, plan):
    approved = reviews.approve(plan, by=world.approver, digest=plan.digest, consent=PHRASE)
    Approval.objects.update(consent="")
    with pytest.raises(WrongState, match="needs 1 more approval"):
        rollout_actions.start(approved, by=world.operator)


def test_a_verdict_that_consents_to_something_else_does_not_count(world, plan):
    """A verdict of a version that asked for no consent is genuine, and knows nothing of what is destroyed."""
    approved = reviews.approve(plan, by=world.approver, digest=plan.digest, consent=PHRASE)
    given = Approval.objects.get()
    Approval.objects.all().delete()
    Approval.objects.create(
        plan=plan, person=given.person, verdict=given.verdict, digest=given.digest, round=given.round, consent=""
    )
    assert Approval.objects.get().is_genuine
    with pytest.raises(WrongState, match="needs 1 more approval"):
        rollout_actions.start(approved, by=world.operator)


def test_a_plan_that_no_longer_tells_what_it_destroys_is_neither_approved_nor_started(world, plan):
    """The phrase on pages is no part of the digest; what is destroyed is, and is read again."""
    approved = reviews.approve(plan, by=world.approver, digest=plan.digest, consent=PHRASE)
    Plan.objects.update(summary=plan.summary | {"consent": ""})
    Approval.objects.update(consent="")
    with pytest.raises(WrongState, match="what it destroys"):
        rollout_actions.start(approved, by=world.operator)
    plan.refresh_from_db()
    with pytest.raises(WrongState, match="what it destroys"):
        reviews.approve(plan, by=world.second, digest=plan.digest)


def test_what_nobody_can_count_is_consented_to_as_a_whole(world, releases):
    releases.destroys["volcano"] = (Destroyed("queues.x.sh", "Queue", -1),)
    made = world.plan(world.revision({}, components=wanted("volcano")))
    assert made.summary["consent"] == "destroy all objects in atlas"


def test_kinds_without_objects_need_no_consent(world, releases):
    releases.destroys["volcano"] = (Destroyed("queues.x.sh", "Queue", 0),)
    rollout = world.run(world.started(world.plan(world.revision({}, components=wanted("volcano")))))
    assert (rollout.status, rollout.plan.summary["consent"]) == ("succeeded", "")


def test_over_rest_the_missing_field_is_named_and_the_plan_tells_the_words(world, plan):
    client, where = api(world.approver), f"/api/v1/plans/{plan.pk}"
    consent = client.get(where).json()["summary"]["consent"]
    refused = problem(act(client, where, "approve", digest=plan.digest), 422)
    assert [error["field"] for error in refused["errors"]] == ["consent"]
    approved = act(client, where, "approve", digest=plan.digest, consent=consent)
    assert approved.json()["status"] == "approved", approved.content
    assert approved.json()["verdicts"][0]["consent"] == PHRASE


def test_the_page_asks_for_the_words_and_keeps_what_was_typed(world, plan, client):
    client.force_login(world.approver)
    page = client.get(reverse("jobs:plan", args=[plan.number])).content.decode()
    assert f"<code>{PHRASE}</code>" in page
    form = {"verdict": "approve", "digest": plan.digest, "consent": "destroy <b>"}
    refused = client.post(reverse("jobs:plan_act", args=[plan.number, "verdict"]), form)
    assert refused.status_code == 422
    assert 'value="destroy &lt;b&gt;"' in refused.content.decode()
    assert "The text does not match." in refused.content.decode()
    client.post(reverse("jobs:plan_act", args=[plan.number, "verdict"]), form | {"consent": PHRASE})
    assert Plan.objects.get().status == "approved"
