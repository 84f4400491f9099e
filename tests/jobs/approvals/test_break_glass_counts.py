"""Laws of break-glass's figures: a day's number of starts, and reviews that every page and metric counts alike."""

from __future__ import annotations

import contextlib
import threading
from datetime import timedelta

import pytest
from django.db import transaction
from django.test import Client

from accounts.models import User
from clusters.models import Pool
from common.clock import now
from common.errors import NotAllowed, WrongState
from jobs.approvals import glass_allowance, glass_reviews, reviews
from jobs.hooks import alert_rules, blockers
from jobs.models import BreakGlass, GlassReview, Plan, Rollout
from jobs.rollouts import rollout_actions
from tests.jobs.approvals import test_break_glass as laws
from tests.jobs.approvals.test_approvals_at_once import at_once
from tests.jobs.approvals.test_break_glass import break_by_page, broken, fresh, logged_in, person, reviewed

_on, breaker = laws._on, laws.breaker


# ── a day's number ────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.django_db(transaction=True)
def test_the_last_start_of_a_day_is_used_once_by_two_people_with_two_plans(world, plan, breaker, settings) -> None:
    """The number is of everyone together: the second may be an accomplice, or another account of the first."""
    settings.SETPOINT_BREAK_GLASS_PER_DAY = 1
    world.sim.add_node("n9", gpus=8, labels={"pool": "eval"})
    world.observe()
    world.pool = Pool.objects.create(cluster=world.cluster, name="eval", selector={"matchLabels": {"pool": "eval"}})
    other, second_plan = person("operator", "break-glass"), reviews.request(world.plan(), by=world.operator)
    acts = [
        lambda of=of, by=by: broken(Plan.objects.get(pk=of.pk), fresh(by))
        for of, by in ((plan, breaker), (second_plan, other))
    ]
    refusals = at_once(*acts)
    assert [type(refusal) for refusal in refusals] == [WrongState]
    assert "SETPOINT_BREAK_GLASS_PER_DAY" in str(refusals[0])
    assert Rollout.objects.count() == BreakGlass.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_starts_in_two_clusters_are_judged_one_after_the_other() -> None:
    """Plans of one cluster wait for its row as well; of two clusters, only the day's number is shared."""
    both, met = threading.Barrier(2), []

    def judged() -> None:
        with transaction.atomic(), contextlib.suppress(threading.BrokenBarrierError):
            glass_allowance.lock()
            met.append(both.wait(1))

    assert at_once(judged, judged) == []
    assert met == [], "two were under the lock together"


def test_a_days_number_is_shown_refuses_and_ends_with_the_day(world, plan, breaker, clock, settings) -> None:
    settings.SETPOINT_BREAK_GLASS_PER_DAY = 1
    client = logged_in(breaker)
    assert 'data-glass-used="0"' in client.get(f"/plans/{plan}/").content.decode()
    rollout = broken(plan, breaker)
    rollout_actions.abort(rollout, by=breaker)
    world.tick(60)
    for reviewer in (world.approver, world.second):
        reviewed(rollout, reviewer)  # reviewed or not: it was used
    again = reviews.request(world.plan(), by=world.operator)
    text = client.get(f"/plans/{again}/").content.decode()
    assert 'data-glass-used="1"' in text
    assert 'data-glass="no"' in text
    setup = client.get("/api/v1/break-glass").json()
    assert (setup["used"], setup["per_day"], setup["open"]) == (1, 1, 0)
    assert "setpoint_break_glass_starts_24h 1.0" in Client().get("/metrics").content.decode()
    assert break_by_page(client, again).status_code == 409
    clock.forward((BreakGlass.objects.get().at + timedelta(days=1) - now()).total_seconds())
    world.look()
    client.force_login(breaker)
    setup = client.get("/api/v1/break-glass").json()
    assert (setup["used"], setup["next_at"], glass_allowance.allowance().reason) == (0, None, "")


def test_neither_a_moved_time_nor_a_disconnected_cluster_gives_a_start_back(world, plan, breaker, clock) -> None:
    rollout = broken(plan, breaker)
    rollout_actions.abort(rollout, by=breaker)
    world.tick(60)
    assert any("lacks reviews" in reason for reason in blockers.of_cluster(world.cluster))
    for reviewer in (world.approver, world.second):
        reviewed(rollout, reviewer)
    assert any("counts until" in reason for reason in blockers.of_cluster(world.cluster))
    at = BreakGlass.objects.get().at
    BreakGlass.objects.update(at=now() - timedelta(days=9))
    assert glass_allowance.allowance().used == 1
    assert "setpoint_break_glass_starts_24h 1.0" in Client().get("/metrics").content.decode()
    BreakGlass.objects.update(at=at)
    clock.forward(timedelta(days=2).total_seconds())
    assert list(blockers.of_cluster(world.cluster)) == []


@pytest.mark.parametrize("forged", ["verdict", "row"])
def test_every_figure_counts_the_same_reviews(world, plan, breaker, clock, settings, forged) -> None:
    """Two rows of reviews are there, of which one is not valid: pages, REST, metrics and alerts still ask for it."""
    rollout = broken(plan, breaker)
    reviewed(rollout, world.approver)
    if forged == "verdict":
        row = reviewed(rollout, world.second, verdict="not-ok")
        GlassReview.objects.filter(pk=row.pk).update(verdict="ok")
    else:
        GlassReview.objects.bulk_create([GlassReview(glass=rollout.glass, person=world.second, text="Fine.")])
        GlassReview.objects.filter(person=world.second).update(mac="")

    def figures() -> set[str]:
        client = Client()
        client.force_login(breaker)
        state = client.get(f"/api/v1/rollouts/{rollout.pk}").json()["break_glass"]["state"]
        counts = client.get("/api/v1/break-glass").json()
        metrics = Client().get("/metrics").content.decode()
        by_metric = {name for name in ("open", "overdue") if f'reviews{{state="{name}"}} 1.0' in metrics}
        by_page = {name for name in ("open", "overdue") if f'data-glass="{name}"' in client.get("/").content.decode()}
        by_rollout = {name for name in ("open", "overdue") if f'data-glass="{name}"' in page_of(client, rollout)}
        by_rest = {name for name in ("open", "overdue") if counts[name] == 1}
        assert by_metric == by_page == by_rest == by_rollout == {state}
        return by_page

    assert figures() == {"open"}
    clock.forward(settings.SETPOINT_BREAK_GLASS_REVIEW_HOURS * 3600 + 1)
    world.look()
    assert figures() == {"overdue"}
    assert [each.name for each in alert_rules.unreviewed(world.cluster.pk, 0).conditions] == [str(rollout)]
    assert glass_reviews.report_overdue() == 1


def page_of(client: Client, rollout: Rollout) -> str:
    return client.get(f"/rollouts/{rollout}/").content.decode()


def test_a_deadline_that_was_moved_in_the_table_is_overdue(world, plan, breaker) -> None:
    rollout = broken(plan, breaker)
    BreakGlass.objects.filter(rollout=rollout).update(review_by=now() + timedelta(days=999))
    assert BreakGlass.objects.get().state == "overdue"
    client = logged_in(breaker)
    for path in ("/", f"/rollouts/{rollout}/"):
        assert "the row was changed" in " ".join(client.get(path).content.decode().split()), path
    assert glass_reviews.report_overdue() == 1


def test_a_review_stays_valid_when_its_person_leaves_and_none_is_given_by_one_who_left(world, plan, breaker) -> None:
    rollout = broken(plan, breaker)
    reviewed(rollout, world.approver)
    User.objects.filter(pk__in=(world.approver.pk, world.second.pk)).update(is_active=False)
    with pytest.raises(NotAllowed, match="deactivated"):
        reviewed(rollout, world.second)
    assert (BreakGlass.objects.get().state, BreakGlass.objects.get().missing) == ("open", 1)
