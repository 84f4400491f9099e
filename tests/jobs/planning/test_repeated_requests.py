"""A request for a plan that is sent twice makes one plan, also when both are worked on at once."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
from django.db import connection, connections

from accounts.models import RepeatableRequest
from audit.models import Record
from jobs.forecast.strategy import parse
from jobs.models import Plan
from jobs.planning import planner, repeated
from tests.factories import TokenClient
from tests.jobs.conftest import person
from tests.jobs.pages import FORM, browser

KEY = {"Idempotency-Key": "k-1"}


def form_of(client: Any, world: Any) -> dict[str, Any]:
    """Return what the page's form sends, with the key that it was shown with."""
    shown = re.search(r'name="form_key" value="([^"]+)"', client.get("/plans/new/").content.decode())
    assert shown
    return FORM | {"pool": world.pool.pk, "revision": world.revision().pk, "form_key": shown[1]}


def test_a_form_sent_twice_leads_to_its_plan_and_a_changed_one_makes_another(world):
    client = browser(world.operator)
    form = form_of(client, world)
    answers = [client.post("/plans/new/", form) for _ in range(2)]
    assert [(a.status_code, a["Location"]) for a in answers] == [(302, "/plans/P-1/")] * 2
    assert Record.objects.filter(action="plan.make").count() == 1

    changed = client.post("/plans/new/", form | {"canary": "2"})
    shown_again = client.post("/plans/new/", form_of(client, world) | {"revision": form["revision"]})
    other = browser(person("other", "operator")).post("/plans/new/", form)
    assert [a["Location"] for a in (changed, shown_again, other)] == ["/plans/P-2/", "/plans/P-3/", "/plans/P-4/"]


def test_a_randomized_plan_is_not_drawn_twice(world):
    client = browser(world.operator)
    form = form_of(client, world) | {"order": "measured", "control": "1", "measure_hours": "1", "settle_minutes": "0"}
    first = client.post("/plans/new/", form)
    assert first.status_code == 302
    assert client.post("/plans/new/", form)["Location"] == first["Location"]
    assert Plan.objects.count() == 1


@pytest.mark.parametrize("status", ["draft", "review", "approved", "started", "rejected", "withdrawn", "expired"])
def test_a_plan_that_came_to_nothing_answers_no_request(world, status):
    given = {"key": "k", "pool": world.pool, "revision": world.revision(), "strategy": parse({}), "message": ""}
    first = repeated.make_once(by=world.operator, **given)
    Plan.objects.update(status=status)
    again = repeated.make_once(by=world.operator, **given)
    is_over = status in ("rejected", "withdrawn", "expired")
    assert again.is_repeated is not is_over
    assert (again.plan.pk == first.plan.pk) is not is_over


def test_a_process_killed_before_its_answer_was_kept_made_the_plan_all_the_same(world):
    api = TokenClient(world.operator)
    body = {"pool": world.pool.pk, "revision": world.revision().digest}
    first = api.post("/api/v1/plans", body, headers=KEY)
    RepeatableRequest.objects.all().delete()  # as after its hold: the answer was not kept
    again = api.post("/api/v1/plans", body, headers=KEY)
    assert (first.status_code, again.status_code) == (201, 201)
    assert (again["Location"], again["ETag"]) == (first["Location"], first["ETag"])
    assert (first.get("Idempotency-Replayed"), again["Idempotency-Replayed"]) == (None, "true")
    assert Plan.objects.count() == 1


def test_a_refused_plan_leaves_its_request_free(world):
    given = {"key": "k", "pool": world.pool, "revision": world.revision(), "message": "", "by": world.operator}
    with pytest.raises(planner.Invalid):
        repeated.make_once(strategy=parse({"domain": "no/such"}), **given)
    assert not repeated.make_once(strategy=parse({}), **given).is_repeated


def test_the_slower_of_two_at_once_is_given_the_plan_of_the_faster(world, monkeypatch):
    """Its look found nothing, and the other's plan came while it compared."""
    given = {"key": "k", "pool": world.pool, "revision": world.revision(), "strategy": parse({}), "message": ""}
    make, made = planner.make, []

    def overtaken(**fields: Any) -> Plan:
        made.append(make(**fields))
        return make(**fields)

    monkeypatch.setattr(planner, "make", overtaken)
    answer = repeated.make_once(by=world.operator, **given)
    assert (answer.is_repeated, [answer.plan]) == (True, made)
    assert Plan.objects.count() == Record.objects.filter(action="plan.make").count() == 1


@pytest.mark.full
@pytest.mark.django_db(transaction=True)
def test_of_four_at_once_all_are_given_one_plan(make_world):
    assert connection.vendor == "postgresql"
    world = make_world(nodes=3)
    given = {"key": "k", "pool": world.pool, "revision": world.revision(), "strategy": parse({}), "message": ""}
    barrier, answers = threading.Barrier(4), []

    def submit() -> None:
        barrier.wait()
        answers.append(repeated.make_once(by=world.operator, **given))
        connections.close_all()

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({a.plan.pk for a in answers}) == Plan.objects.count() == 1
    assert sorted(a.is_repeated for a in answers) == [False, True, True, True]
