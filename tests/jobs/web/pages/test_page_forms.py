"""Forms of plans, approvals, rollouts and freezes."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from clusters.models import Cluster, Pool
from jobs.approvals import reviews
from jobs.models import Freeze, Plan, Rollout
from jobs.rollouts import freezes
from tests.jobs.pages import FORM, browser, page, text_of


def test_a_plan_is_made_from_the_form_and_says_where(world):
    answer = browser(world.operator).post(
        "/plans/new/",
        FORM
        | {"pool": world.pool.pk, "revision": world.revision().pk, "message": "Why", "reboot_deadline_seconds": "60"},
    )
    assert (answer.status_code, answer["Location"]) == (302, "/plans/P-1/")
    plan = Plan.objects.get()
    assert (plan.message, plan.strategy["reboot_deadline_seconds"]) == ("Why", 60)


def test_every_field_of_a_strategy_can_be_given_on_the_page(world):
    import dataclasses

    from jobs.forecast.strategy import Strategy
    from jobs.web.forms import PlanForm

    html = page(world.operator, "/plans/new/")
    for field in dataclasses.fields(Strategy):
        assert field.name in PlanForm(user=world.operator).fields
        assert f'name="{field.name}"' in html


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"canary": "-1"}, "canary"),
        ({"canary": "9" * 40}, "canary"),
        ({"batch": "101%"}, "batch"),
        ({"batch": ""}, "batch"),
        ({"order": "x"}, "order"),
        ({"reboot_deadline_seconds": "5"}, "reboot_deadline_seconds"),
        ({"pool": "0"}, "pool"),
        ({"pool": "9" * 40}, "pool"),
        ({"revision": "x"}, "revision"),
        ({"message": "x" * 501}, "message"),
    ],
)
def test_an_error_stands_beside_its_field_and_nothing_typed_is_lost(world, wrong, field):
    typed = {
        "pool": str(world.pool.pk),
        "revision": str(world.revision().pk),
        "message": "Because",
        "budget": "7",
        "batch": "3",
    }
    answer = browser(world.operator).post("/plans/new/", FORM | typed | {"delete_empty_dir_data": "on"} | wrong)
    html = answer.content.decode()
    assert answer.status_code == 422
    assert f'id="id_{field}-error"' in html
    assert 'value="7"' in html
    assert re.search(r'name="delete_empty_dir_data"[^>]*checked', html)
    if field != "message":
        assert 'value="Because"' in html
    assert not Plan.objects.exists()


def test_a_refusal_of_the_planner_is_on_the_form_too(world):
    typed = FORM | {"pool": str(world.pool.pk), "revision": str(world.revision().pk), "message": "Because"}
    Pool.objects.update(selector={"matchLabels": {"pool": "none"}})
    at_field = browser(world.operator).post("/plans/new/", typed)
    assert (at_field.status_code, at_field.context["form"].errors.keys()) == (422, {"pool"})
    Cluster.objects.update(reach="unreachable", reach_reason="no route to host")
    html = browser(world.operator).post("/plans/new/", typed).content.decode()
    assert "no route to host" in text_of(html)
    assert 'value="Because"' in html


def test_a_refused_verdict_stays_where_it_was_typed(world):
    plan = reviews.request(world.plan(), by=world.operator)
    approver = browser(world.approver)

    answer = approver.post("/plans/P-1/verdict/", {"verdict": "reject", "digest": plan.digest, "comment": " "})
    html = answer.content.decode()
    assert answer.status_code == 422
    assert "Give the reason" in html[html.index('id="verdict-comment"') :]
    assert re.search(r'value="reject"[^>]*checked', html)

    answer = approver.post("/plans/P-1/verdict/", {"verdict": "approve", "digest": "sha256:x", "comment": "I like it"})
    assert answer.status_code == 409
    assert "I like it</textarea>" in answer.content.decode()
    assert "not what you saw" in text_of(answer.content.decode())
    assert Plan.objects.get().status == "review"


def test_a_refused_start_or_request_keeps_what_was_typed(world):
    world.plan()
    answer = browser(world.operator).post("/plans/P-1/request/", {"comment": "y" * 501})
    html = answer.content.decode()
    assert answer.status_code == 422
    assert "y" * 501 + "</textarea>" in html
    assert "At most 500" in html

    world.approved(Plan.objects.get())
    for wrong in ("soon", "2020-01-01T00:00", "9999-12-31T23:59", "9999-12-31T23:59-12:00"):
        answer = browser(world.operator).post("/plans/P-1/start/", {"at": wrong})
        html = answer.content.decode()
        assert answer.status_code == 422, wrong
        assert f'value="{wrong}"' in html
        assert 'id="at-error"' in html
    assert not Rollout.objects.exists()


def test_the_verbs_of_a_plan_work_from_the_page(world):
    operator, approver = browser(world.operator), browser(world.approver)
    plan = world.plan()
    assert operator.post("/plans/P-1/request/", {"comment": "Please"})["Location"] == "/plans/P-1/"
    approve = {"verdict": "approve", "digest": plan.digest, "comment": "Fine"}
    assert approver.post("/plans/P-1/verdict/", approve)["Location"] == "/plans/P-1/"
    assert approver.post("/plans/P-1/retract/")["Location"] == "/plans/P-1/"
    assert Plan.objects.get().status == "review"
    approver.post("/plans/P-1/approve/", {"digest": plan.digest})
    started = operator.post("/plans/P-1/start/", {"at": "2026-11-22T08:00"})
    assert started["Location"] == "/rollouts/R-1/"
    assert Rollout.objects.get().start_at == datetime(2026, 11, 22, 8, tzinfo=UTC)


def test_the_verbs_of_a_rollout_work_from_the_page_and_refusals_are_told(world):
    rollout = world.run(world.started())
    operator = browser(world.operator)
    response = operator.post("/rollouts/R-1/pause/", follow=True)
    assert response.redirect_chain == [("/rollouts/R-1/", 302)]
    assert "Not possible: it is not running." in text_of(response.content.decode())
    response = operator.post("/rollouts/R-1/skip/", {"step": "x"}, follow=True)
    assert "Must be a step" in response.content.decode()
    operator.post("/rollouts/R-1/revert/", {"confirmed": "yes"})
    rollout.refresh_from_db()
    assert rollout.status == "reverting"


def test_a_verb_that_is_only_looked_at_leads_back_to_its_page(world):
    """The browser asks for the verb's own address after a log-in that interrupted it."""
    world.started()
    row = freezes.freeze(cluster=world.cluster, reason="x", by=world.operator)
    client = browser(world.operator)
    for path, back in (
        ("/plans/P-1/verdict/", "/plans/P-1/"),
        ("/rollouts/R-1/abort/", "/rollouts/R-1/"),
        (f"/freezes/{row.pk}/lift/", "/freezes/"),
    ):
        answer = client.get(path)
        assert (answer.status_code, answer["Location"]) == (302, back)
    assert Rollout.objects.get().status == "queued"
    assert Freeze.standing(world.cluster.pk).exists()


@pytest.mark.parametrize("until", ["soon", "2020-01-01T00:00", "9999-12-31T23:59-12:00"])
def test_a_freeze_that_cannot_be_is_refused_beside_its_field(world, until):
    answer = browser(world.operator).post(
        "/freezes/", {"cluster": str(world.cluster.pk), "reason": "Holiday", "until": until}
    )
    html = answer.content.decode()
    assert answer.status_code == 422
    assert 'id="id_until-error"' in html
    assert 'value="Holiday"' in html
    assert f'value="{until}"' in html
    assert not Freeze.objects.exists()


def test_a_freeze_is_set_and_lifted_from_the_page(world):
    client = browser(world.operator)
    assert client.post("/freezes/", {"cluster": str(world.cluster.pk), "reason": "Holiday"}).status_code == 302
    assert client.post(f"/freezes/{Freeze.objects.get().pk}/lift/").status_code == 302
    assert not Freeze.standing(world.cluster.pk).exists()
    refused = client.post("/freezes/", {"reason": "everywhere"})
    assert refused.status_code == 422
    assert "admin" in text_of(refused.content.decode())


@pytest.mark.parametrize(
    "query", ["status=review", "status=nope", "cluster=atlas", "cluster=nowhere", "page=2", "page=x", "page=-1"]
)
@pytest.mark.parametrize("path", ["/plans/", "/rollouts/"])
def test_a_list_takes_any_filter_and_never_fails(world, path, query):
    world.started()
    text = text_of(page(world.operator, f"{path}?{query}"))
    is_empty = query == "cluster=nowhere" or (query == "status=review" and path == "/plans/")
    assert ("matches" in text) is is_empty


@pytest.mark.parametrize("query", ["pool=²&revision=²", "pool=999999999999999999999999&revision=x"])
def test_a_new_plan_takes_any_start(world, query):
    page(world.operator, f"/plans/new/?{query}")
