"""Agents that renew their Leases, and those that are silent."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.inventory import store
from clusters.models import Node, NodeTuning
from tests.clusters.factories import ClusterFactory, raw_lease, raw_node, raw_status, raw_tuning
from tests.clusters.inventory.observed import AT, see, tune

pytestmark = pytest.mark.django_db

MUCH_LATER = AT + timedelta(minutes=10)


@pytest.fixture
def three():
    """n0, n1 and n2, whose agents have answered."""
    cluster = ClusterFactory()
    see(cluster, *[raw_node(f"n{i}") for i in range(3)])
    tune(cluster, *[raw_tuning(f"n{i}", status=raw_status(f"n{i}")) for i in range(3)])
    NodeTuning.objects.update(changed_at=AT)
    return cluster


def silent_since():
    return {t.node.name: t.silent_since for t in NodeTuning.objects.select_related("node") if t.silent_since}


def leases(at, *names):
    return [raw_lease(name, f"{at:%Y-%m-%dT%H:%M:%S}Z") for name in names]


def test_a_fleet_that_goes_on_as_before_writes_nothing_but_that_it_was_heard(three):
    store.observe_leases(three, leases(AT, "n0", "n1", "n2"), at=AT)

    with CaptureQueriesContext(connection) as seen:
        written = store.observe_leases(three, leases(MUCH_LATER, "n0", "n1", "n2"), at=MUCH_LATER)

    assert written == 0
    updates = [query["sql"] for query in seen.captured_queries if query["sql"].startswith("UPDATE")]
    assert len(updates) == 1
    assert "leases_at" in updates[0]
    three.refresh_from_db()
    assert three.leases_at == MUCH_LATER


def test_who_renews_no_more_is_silent_since_then_until_heard_again(three):
    store.observe_leases(three, leases(AT, "n0", "n1", "n2"), at=AT)

    assert store.observe_leases(three, leases(AT, "n0") + leases(MUCH_LATER, "n1", "n2"), at=MUCH_LATER) == 1
    assert silent_since() == {"n0": AT}
    assert store.observe_leases(three, leases(AT, "n0") + leases(MUCH_LATER, "n1", "n2"), at=MUCH_LATER) == 0
    assert store.observe_leases(three, leases(MUCH_LATER, "n0", "n1", "n2"), at=MUCH_LATER) == 1
    assert silent_since() == {}


def test_an_agent_whose_new_answer_is_watched_is_heard_before_its_lease_is_listed(three):
    """A node that rebooted for long can be planned at once: Leases are listed once a minute."""
    store.observe_leases(three, leases(AT, "n0", "n1", "n2"), at=AT)
    store.observe_leases(three, leases(AT, "n0", "n1", "n2"), at=MUCH_LATER)
    assert silent_since() == {"n0": AT, "n1": AT, "n2": AT}

    by_others = raw_tuning("n1", generation=9, status=raw_status("n1"))
    answer = raw_status("n0", bootID="boot-2")
    tune(three, raw_tuning("n0", status=answer), by_others, at=MUCH_LATER)

    assert silent_since() == {"n1": AT, "n2": AT}
    answer = raw_status("n2", bootID="boot-2")
    tune(three, raw_tuning("n2", status=answer), at=MUCH_LATER, complete=True)
    assert silent_since()["n2"] == AT, "of an answer in a list it is not known when it came"


def test_who_answered_and_renews_no_lease_was_heard_last_when_it_answered(three):
    store.observe_leases(three, leases(AT, "n1", "n2"), at=AT)
    assert silent_since() == {}, "its Lease may come yet"

    store.observe_leases(three, leases(MUCH_LATER, "n1", "n2"), at=MUCH_LATER)
    assert silent_since() == {"n0": AT}


def test_who_never_answered_is_not_called_silent(three):
    NodeTuning.objects.filter(node__name="n0").update(protocol=0)

    store.observe_leases(three, leases(MUCH_LATER, "n1", "n2"), at=MUCH_LATER)
    assert silent_since() == {}


def test_a_clock_that_is_ahead_a_little_is_believed_and_one_ahead_for_years_is_not(three):
    ahead = [raw_lease("n1", "2031-01-01T00:00:00Z"), raw_lease("n2", "soon")]
    for at in (MUCH_LATER, MUCH_LATER + timedelta(minutes=1)):
        store.observe_leases(three, leases(at + timedelta(minutes=2), "n0") + ahead, at=at)

    assert silent_since() == {"n1": MUCH_LATER, "n2": AT}


def test_nobody_is_heard_while_nobody_listens(three, clock):
    store.observe_leases(three, leases(clock.at, "n0", "n1", "n2"), at=clock.at)
    tuning = NodeTuning.objects.first()
    assert tuning.silence(three) is None
    assert Node.objects.present().heard().count() == 3

    listened = clock.at
    clock.forward(minutes=4)
    assert tuning.silence(three) == listened
    assert not Node.objects.present().heard().exists()
