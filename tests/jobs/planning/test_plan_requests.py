"""Plans of many nodes are made by a worker: at most one a request, also where workers end and nodes change."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, connections

from accounts.access import tokens
from accounts.models import ApiToken, RoleBinding
from audit.models import Record
from clusters.models import Node
from common.errors import LostRace, WrongState
from jobs import tasks
from jobs.forecast.strategy import parse
from jobs.models import Plan, PlanRequest
from jobs.planning import digests, node_rows, plan_requests, planner
from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import person
from tests.jobs.pages import FORM, browser

MANY = {"within": 0}


def queued(world: Any, **fields: Any) -> PlanRequest:
    given = {"key": "k", "pool": world.pool, "strategy": parse({}), "message": "", "by": world.operator} | MANY
    if "revision" not in fields:
        fields["revision"] = world.revision()
    answer = plan_requests.submit(**(given | fields))
    assert isinstance(answer, plan_requests.PendingPlan)
    return answer.request


def abandon(row: PlanRequest, clock: Any, settings: Any) -> None:
    """Let the lease of the worker that died run out."""
    clock.forward(settings.SETPOINT_LEASE_SECONDS + 1)


@pytest.mark.parametrize("phase", node_rows.PHASES)
def test_a_worker_killed_in_any_phase_leaves_no_plan_and_the_next_makes_one(world, clock, settings, monkeypatch, phase):
    row = queued(world)
    note = plan_requests._NotedProgress.note

    def killed(self: Any, reached: str, done: int, total: int) -> None:
        note(self, reached, done, total)
        if reached == phase:
            raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(plan_requests._NotedProgress, "note", killed)
        with pytest.raises(SystemExit):
            plan_requests.carry_out(row.pk)
    row.refresh_from_db()
    assert (row.status, row.phase, Plan.objects.count()) == ("running", phase, 0)
    assert plan_requests.due_requests() == [], "its lease is not over"
    assert plan_requests.carry_out(row.pk) is None

    abandon(row, clock, settings)
    world.look()
    assert plan_requests.due_requests() == [row.pk]
    tasks.make_plan(str(row.pk))
    row.refresh_from_db()
    assert (row.status, row.attempts, row.plan) == ("done", 2, Plan.objects.get())
    assert Record.objects.filter(action="plan.make").count() == 1
    assert digests.is_as_approved(row.plan)
    assert plan_requests.carry_out(row.pk) is None, "done is final"


@pytest.mark.parametrize("column", ["requested_by", "message", "token"])
def test_a_request_that_was_changed_in_the_table_makes_no_plan(world, column):
    """Otherwise its writer could approve a plan that is another person's by name alone."""
    row = queued(world)
    token, _ = tokens.issue(user=world.author, name="x", scopes=["plan"], days=1, by=world.author)
    values = {"requested_by": world.approver, "message": "other", "token": token}
    PlanRequest.objects.filter(pk=row.pk).update(**{column: values[column]})
    plan_requests.carry_out(row.pk)
    row.refresh_from_db()
    assert (row.status, Plan.objects.count()) == ("failed", 0)
    assert "changed in the database" in row.error["detail"]


def test_a_worker_killed_after_the_plan_was_stored_but_not_committed_leaves_nothing(world, monkeypatch):
    row = queued(world)

    def killed(row: PlanRequest, plan: Plan) -> None:
        raise SystemExit

    monkeypatch.setattr(plan_requests, "_done", killed)
    with pytest.raises(SystemExit):
        plan_requests.carry_out(row.pk)
    assert (Plan.objects.count(), Record.objects.filter(action="plan.make").count()) == (0, 0)


def test_a_worker_that_lost_its_lease_stores_no_plan(world, clock, settings, monkeypatch):
    """A slow worker, not a dead one: another took over, and made the plan, just before the first stores its own."""
    row, make = queued(world, key=""), planner.make

    def slow(**fields: Any) -> Plan:
        monkeypatch.setattr(planner, "make", make)
        abandon(row, clock, settings)
        world.look()
        assert plan_requests.carry_out(row.pk)
        return make(**(fields | {"progress": node_rows.unnoted}))

    monkeypatch.setattr(planner, "make", slow)
    assert plan_requests.carry_out(row.pk) is None
    row.refresh_from_db()
    assert (row.status, row.attempts, row.plan) == ("done", 2, Plan.objects.get())


def test_progress_of_a_lost_claim_ends_the_planning(world, clock, settings):
    row = queued(world)
    first = PlanRequest.objects.get(pk=row.pk)
    first.move("running", claim="first")
    PlanRequest.objects.get(pk=row.pk).move("running", claim="second")
    with pytest.raises(LostRace):
        plan_requests._NotedProgress(first).note(node_rows.COMPARING, 0, 1)


def test_what_ends_every_worker_is_given_up(world, clock, settings, monkeypatch):
    row = queued(world)

    def poison(**fields: Any) -> Plan:
        raise MemoryError

    monkeypatch.setattr(planner, "make", poison)
    for _ in range(plan_requests.MOST_ATTEMPTS):
        with pytest.raises(MemoryError):
            plan_requests.carry_out(row.pk)
        abandon(row, clock, settings)
    assert plan_requests.carry_out(row.pk)
    row.refresh_from_db()
    assert (row.status, row.error["status"], plan_requests.due_requests()) == ("failed", 500, [])


def test_the_same_content_is_one_request_while_it_is_made_and_its_key_leads_to_the_plan_after(world):
    first = queued(world)
    assert queued(world, key="other", revision=first.revision) == first, "the same content"
    assert queued(world, strategy=parse({"canary": 2}), revision=first.revision) != first
    other = plan_requests.submit(
        key="k", pool=world.pool, revision=first.revision, strategy=parse({}), message="",
        by=person("other", "operator"), **MANY,
    )  # fmt: skip
    assert other.request != first
    plan_requests.carry_out(first.pk)
    again = plan_requests.submit(
        key="k", pool=world.pool, revision=first.revision, strategy=parse({}), message="", by=world.operator, **MANY
    )
    assert (again.plan, again.is_repeated) == (Plan.objects.get(), True)


@pytest.mark.parametrize("loses", ["role", "account", "token"])
def test_who_lost_the_right_before_the_worker_began_is_refused(world, loses):
    if loses == "token":
        client = TokenClient(world.operator)
        body = {"pool": world.pool.pk, "revision": world.revision().digest}
        client.post("/api/v1/plans", body, headers={"Prefer": "respond-async"})
        ApiToken.objects.update(revoked_at=world.cluster.observed_at)
    else:
        queued(world)
    if loses == "role":
        RoleBinding.objects.filter(user=world.operator).delete()
    if loses == "account":
        type(world.operator).objects.filter(pk=world.operator.pk).update(is_active=False)
    tasks.make_plan(str(PlanRequest.objects.get().pk))
    row = PlanRequest.objects.get()
    assert (row.status, row.error["code"], Plan.objects.count()) == ("failed", "not-allowed", 0)


def test_a_token_has_no_more_rights_than_its_scopes_and_the_record_names_it(world):
    client = TokenClient(world.operator)
    body = {"pool": world.pool.pk, "revision": world.revision().digest}
    assert client.post("/api/v1/plans", body, headers={"Prefer": "respond-async"}).status_code == 202
    tasks.make_plan(str(PlanRequest.objects.get().pk))
    assert Plan.objects.get().created_by == world.operator
    assert f"sp_{ApiToken.objects.get().pk}" in Record.objects.get(action="plan.make").actor


@pytest.mark.parametrize("goes", ["cluster", "pool"])
def test_a_request_goes_with_its_cluster_and_its_pool_also_while_it_is_made(world, monkeypatch, goes):
    row = queued(world)
    note = plan_requests._NotedProgress.note

    def deleted(self: Any, phase: str, done: int, total: int) -> None:
        if phase == node_rows.STORING:
            (row.cluster if goes == "cluster" else row.pool).delete()
        note(self, phase, done, total)

    monkeypatch.setattr(plan_requests._NotedProgress, "note", deleted)
    assert plan_requests.carry_out(row.pk) is None
    assert (PlanRequest.objects.count(), Plan.objects.count()) == (0, 0)


def test_nodes_that_change_meanwhile_leave_the_plan_true_to_what_was_compared(world, monkeypatch):
    row, note = queued(world), plan_requests._NotedProgress.note

    def changed(self: Any, phase: str, done: int, total: int) -> None:
        note(self, phase, done, total)
        if phase == node_rows.CIRCUMSTANCES:
            Node.objects.update(is_cordoned=True, labels={})

    monkeypatch.setattr(plan_requests._NotedProgress, "note", changed)
    plan_requests.carry_out(row.pk)
    plan = Plan.objects.get()
    assert digests.is_as_approved(plan)
    assert plan.nodes.filter(left_out="", is_unavailable=False).count() == Node.objects.count()


def test_what_only_the_comparison_can_tell_names_its_field_on_the_page_and_over_rest(world):
    row = queued(world, strategy=parse({"domain": "no/such"}), message="Kept.")
    plan_requests.carry_out(row.pk)
    client, api = browser(world.operator), TokenClient(world.operator)
    page = client.get(f"/plans/requests/{row.pk}/").content.decode()
    assert "strategy.domain" in page
    assert "hx-get" not in page.partition('id="plan-request"')[2].partition(">")[0], "it has ended"
    form = client.get(f"/plans/new/?request={row.pk}").content.decode()
    assert 'value="no/such"' in form
    assert "Kept." in form
    answer = api.get(f"/api/v1/plan-requests/{row.pk}").json()
    assert (answer["status"], answer["plan"]) == ("failed", None)
    assert [error["field"] for error in answer["error"]["errors"]] == ["strategy.domain"]


def test_what_can_be_refused_at_once_is(world):
    type(world.cluster).objects.update(observed_at=None)
    world.pool.cluster.refresh_from_db()
    with pytest.raises(WrongState):
        queued(world)
    assert not PlanRequest.objects.exists()


def test_the_page_follows_its_request_to_the_plan(world, monkeypatch, django_assert_max_num_queries):
    monkeypatch.setattr(plan_requests, "WITHIN_REQUEST", 0)
    client = browser(world.operator)
    form = FORM | {"pool": world.pool.pk, "revision": world.revision().pk, "form_key": "f"}
    answers = [client.post("/plans/new/", form) for _ in range(2)]
    row = PlanRequest.objects.get()
    assert [(a.status_code, a["Location"]) for a in answers] == [(302, f"/plans/requests/{row.pk}/")] * 2
    with django_assert_max_num_queries(12):
        page = client.get(f"/plans/requests/{row.pk}/")
    assert (page.status_code, b'http-equiv="refresh"' in page.content) == (200, True)
    live = f"/plans/requests/{row.pk}/live/"
    assert (client.get(live).get("HX-Redirect"), live.encode() in page.content) == (None, True)
    assert browser(UserFactory(roles=["operator@env:production"])).get(live).status_code == 404
    tasks.make_plan(str(row.pk))
    assert client.get(live)["HX-Redirect"] == client.get(f"/plans/requests/{row.pk}/")["Location"] == "/plans/P-1/"
    assert client.post("/plans/new/", form)["Location"] == "/plans/P-1/", "sent once more, after a time-out"


def test_rest_answers_202_with_the_request_where_the_plan_is_not_made_within_it(world, monkeypatch):
    api, body = TokenClient(world.operator), {"pool": world.pool.pk, "revision": world.revision().digest}
    key = {"Idempotency-Key": "k"}
    first = api.post("/api/v1/plans", body, headers=key | {"Prefer": "wait=5, Respond-Async"})
    assert (first.status_code, first["Preference-Applied"]) == (202, "respond-async")
    again = api.post("/api/v1/plans", body, headers=key)
    assert (again.status_code, again["Location"]) == (202, first["Location"])
    assert api.post("/api/v1/plans", body)["Location"] == first["Location"], "the same content, while it is made"
    shown = api.get(first["Location"]).json()
    assert (shown["status"], shown["plan"], shown["nodes"]) == ("queued", None, Node.objects.count())
    tasks.sweep()
    tasks.make_plan(shown["id"])
    shown = api.get(first["Location"]).json()
    assert (shown["status"], shown["plan"]) == ("done", str(Plan.objects.get().pk))
    assert api.post("/api/v1/plans", body).status_code == 201, "without a key, and not under way: another"
    assert Plan.objects.count() == 2


def test_requests_that_ended_are_forgotten_and_others_never(world, clock):
    ended, live = queued(world), queued(world, message="other")
    plan_requests.carry_out(ended.pk)
    clock.forward(plan_requests.KEPT.total_seconds() + 1)
    assert plan_requests.forget() == 1
    assert list(PlanRequest.objects.all()) == [live]


def test_one_person_cannot_fill_the_queue(world, monkeypatch):
    monkeypatch.setattr(plan_requests, "MOST_LIVE", 1)
    queued(world)
    with pytest.raises(WrongState):
        queued(world, message="another")
    assert queued(world, by=person("other", "operator"))


@pytest.mark.full
@pytest.mark.django_db(transaction=True)
def test_of_four_workers_at_once_one_makes_the_plan(make_world):
    assert connection.vendor == "postgresql"
    world = make_world(nodes=3)
    barrier, requests, made = threading.Barrier(4), [], []
    revision = world.revision()

    def work() -> None:
        barrier.wait()
        answer = plan_requests.submit(
            key="k", pool=world.pool, revision=revision, strategy=parse({}), message="", by=world.operator, **MANY
        )
        requests.append(answer.request.pk)
        barrier.wait()
        made.append(plan_requests.carry_out(answer.request.pk))
        connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(requests)) == Plan.objects.count() == PlanRequest.objects.filter(status="done").count() == 1
    assert Record.objects.filter(action="plan.make").count() == 1
