"""The writer: a failed write loses nothing, and a quiet fleet writes nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

from django.db import OperationalError

from clusters.inventory import store
from clusters.models import Node
from clusters.watch import writer
from tests.clusters.watch.driven import PACE, names


def test_events_that_could_not_be_written_are_listed_again(here, monkeypatch):
    here.step()
    here.sim.add_node("n1")
    real = store.observe_nodes

    def away(*args, **kwargs):
        raise OperationalError("database is locked")

    monkeypatch.setitem(writer._OBSERVE, "nodes", away)
    here.step()
    assert names() == []
    monkeypatch.setitem(writer._OBSERVE, "nodes", real)
    here.step()

    assert names() == ["n1"]


class Away:
    """A database that answers nothing at all, not even whether the cluster is still wanted."""

    def __init__(self, monkeypatch):
        self.patch = monkeypatch

    def __enter__(self):
        def away(*args, **kwargs):
            raise OperationalError("connection refused")

        for kind in writer._OBSERVE:
            self.patch.setitem(writer._OBSERVE, kind, away)
        self.patch.setattr(writer, "Cluster", SimpleNamespace(objects=SimpleNamespace(filter=away)))

    def __exit__(self, *exc_info):
        self.patch.undo()


def test_a_database_that_is_away_does_not_end_the_writer(here, monkeypatch):
    here.step()
    here.sim.add_node("n1")
    with Away(monkeypatch):
        here.step(2)
    here.step(2)

    assert names() == ["n1"]


def test_an_object_that_cannot_be_written_does_not_end_the_writer(here, monkeypatch):
    def choke(*args, **kwargs):
        raise KeyError("name")

    here.step()
    here.sim.add_node("n1")
    with monkeypatch.context() as patch:
        patch.setitem(writer._OBSERVE, "nodes", choke)
        here.step(2)
    here.step(2)

    assert names() == ["n1"]


def test_lists_that_cannot_be_written_are_asked_for_ever_more_seldom(here, monkeypatch):
    stream = here.streams[0]
    stream.pace = replace(PACE, backoff=1.0, longest_backoff=30.0)
    here.step()
    waits = []
    for _ in range(6):
        here.watched.relist.add("nodes")
        waits.append(stream.step())

    assert 0.5 <= waits[0] <= 1
    assert all(15 <= wait <= 30 for wait in waits[5:])


def test_a_quiet_fleet_writes_nothing_but_when_it_was_seen(here, clock, django_assert_num_queries, notifications):
    for number in range(10):
        here.sim.add_node(f"n{number}")
    here.step()
    notifications.clear()
    before = list(Node.objects.order_by("pk").values())
    clock.forward(10)

    for stream in here.streams:
        stream.step()
    with django_assert_num_queries(1):  # bookmarks move observed_at
        here.flush()
    clock.forward(1)
    for stream in here.streams:
        stream.step()
    here.flush()

    assert list(Node.objects.order_by("pk").values()) == before
    assert notifications == []
    assert here.row().observed_at == clock.at - timedelta(seconds=1)


def test_a_burst_is_one_write(here, notifications):
    here.step()
    notifications.clear()
    for number in range(40):
        here.sim.add_node(f"n{number}")

    here.streams[0].step()
    here.flush()

    assert [len(pks) for name, pks in notifications] == [40]
