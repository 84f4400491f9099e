"""Several writers of the same row at once, in threads with connections of their own: the newest version stays.

On SQLite writers queue at BEGIN; it is PostgreSQL that lets both look for a row that neither has inserted yet.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections as databases

from clusters.inventory import store
from clusters.models import Node, NodeTuning
from tests.clusters.factories import ClusterFactory, raw_node, raw_status, raw_tuning

pytestmark = pytest.mark.django_db(transaction=True)

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
ROUNDS = 60
PATIENCE = 60.0


def together(*calls):
    """All calls begin at one moment, each on its own connection."""
    start = threading.Barrier(len(calls), timeout=PATIENCE)

    def run(call):
        try:
            start.wait()
            call()
        finally:
            databases.close_all()

    with ThreadPoolExecutor(len(calls)) as pool:
        for done in [pool.submit(run, call) for call in calls]:
            done.result(PATIENCE)


def versioned(raw, version):
    raw["metadata"]["resourceVersion"] = str(version)
    return raw


def test_the_newest_answer_of_an_agent_stays_whoever_inserts_its_row():
    """Enrolment writes what create returned while the watch writes what the agent answered meanwhile."""
    cluster = ClusterFactory()
    names = [f"n{i}" for i in range(8)]
    store.observe_nodes(cluster, [raw_node(name) for name in names], complete=True, at=AT)
    created = [versioned(raw_tuning(name), 100) for name in names]
    answered = [versioned(raw_tuning(name, status=raw_status(name)), 101) for name in names]

    behind = []
    for _ in range(ROUNDS):
        NodeTuning.objects.all().delete()
        together(
            lambda: store.observe_tunings(cluster, created, complete=False, at=AT),
            lambda: store.observe_tunings(cluster, answered, complete=False, at=AT),
        )
        rows = NodeTuning.objects.values_list("resource_version", "protocol")
        assert len(rows) == len(names)
        behind += [row for row in rows if row[0] != "101" or not row[1]]

    assert behind == []


def test_the_newest_version_of_a_node_stays_whoever_inserts_its_row():
    cluster = ClusterFactory()
    names = [f"n{i}" for i in range(8)]
    older = [versioned(raw_node(name), 99) for name in names]
    newer = [versioned(raw_node(name, unschedulable=True), 100) for name in names]

    behind = []
    for _ in range(ROUNDS):
        Node.objects.all().delete()
        together(
            lambda: store.observe_nodes(cluster, older, complete=False, at=AT),
            lambda: store.observe_nodes(cluster, newer, complete=False, at=AT),
        )
        rows = Node.objects.values_list("resource_version", "is_cordoned")
        assert len(rows) == len(names)
        behind += [row for row in rows if row != ("100", True)]

    assert behind == []


@pytest.mark.parametrize("kind", ["nodes", "tunings"])
def test_a_list_read_before_an_event_does_not_set_its_row_back(kind):
    """A refresh has no watch after its list that would deliver the event again."""
    cluster = ClusterFactory()
    older, newer = versioned(raw_node("n1"), 99), versioned(raw_node("n1", unschedulable=True), 100)
    write, model = store.observe_nodes, Node
    if kind == "tunings":
        store.observe_nodes(cluster, [older], complete=True, at=AT)
        older, newer = versioned(raw_tuning("n1"), 99), versioned(raw_tuning("n1", status=raw_status("n1")), 100)
        write, model = store.observe_tunings, NodeTuning
    write(cluster, [newer], complete=False, at=AT + timedelta(seconds=1))

    write(cluster, [older], complete=True, at=AT)

    assert model.objects.get().resource_version == "100"


@pytest.mark.parametrize("kind", ["nodes", "tunings"])
def test_a_list_read_after_an_etcd_was_restored_sets_rows_back(kind):
    cluster = ClusterFactory()
    older, newer = versioned(raw_node("n1"), 99), versioned(raw_node("n1", unschedulable=True), 100)
    write, model = store.observe_nodes, Node
    if kind == "tunings":
        store.observe_nodes(cluster, [older], complete=True, at=AT)
        older, newer = versioned(raw_tuning("n1"), 99), versioned(raw_tuning("n1", status=raw_status("n1")), 100)
        write, model = store.observe_tunings, NodeTuning
    write(cluster, [newer], complete=False, at=AT)

    write(cluster, [older], complete=True, at=AT + timedelta(seconds=1))

    assert model.objects.get().resource_version == "99"
