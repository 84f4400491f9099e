"""Enrolment and several watches write the same rows at once: the newest version of each object is what stays.

On PostgreSQL, where transactions overlap: a lock holds only rows that exist, so an insert is the dangerous moment.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, connections, transaction

from clusters.inventory import store
from clusters.models import Cluster, GpuPod, Node, NodeTuning
from common.clock import now
from tests.clusters.factories import ClusterFactory, raw_node, raw_pod, raw_status, raw_tuning

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE_SECONDS = 60.0
NODES = 40
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def node(number: int, version: int) -> dict[str, Any]:
    raw = raw_node(f"n{number}", uid=f"uid-of-n{number}", labels={"seen": str(version)})
    raw["metadata"]["resourceVersion"] = str(version)
    return raw


def tuning(number: int, version: int) -> dict[str, Any]:
    raw = raw_tuning(f"n{number}", status=raw_status(f"n{number}")) if version > 1 else raw_tuning(f"n{number}")
    raw["metadata"] |= {"resourceVersion": str(version), "generation": version}
    return raw


def pod(number: int, version: int) -> dict[str, Any]:
    raw = raw_pod(f"p{number}", gpus=version)
    raw["metadata"]["resourceVersion"] = str(version)
    return raw


WRITERS: dict[str, tuple[Callable[..., Any], Callable[[int, int], dict[str, Any]], Any]] = {
    "nodes": (store.observe_nodes, node, Node),
    "tunings": (store.observe_tunings, tuning, NodeTuning),
    "pods": (store.observe_pods, pod, GpuPod),
}


@contextmanager
def in_a_thread(work: Callable[[], Any]) -> Iterator[threading.Thread]:
    """Run work in a thread with a database connection of its own; re-raise its exception here at the end."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
        assert failed == []


def is_somebody_waiting_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(WAITING)
        return bool(cursor.fetchone()[0])


@pytest.mark.parametrize("kind", WRITERS)
def test_who_inserts_an_older_version_at_the_same_moment_does_not_win(kind: str) -> None:
    """The newer row is inserted and not committed yet when the older one comes: no lock can be held on it so far."""
    observe, raw, model = WRITERS[kind]
    cluster = ClusterFactory()
    if kind == "tunings":
        store.observe_nodes(cluster, [node(1, 1)], complete=True)
    inserted, go = threading.Event(), threading.Event()

    def newer() -> None:
        with transaction.atomic():
            observe(Cluster.objects.get(), [raw(1, 9)], complete=False)
            inserted.set()
            assert go.wait(PATIENCE_SECONDS)

    with in_a_thread(newer):
        assert inserted.wait(PATIENCE_SECONDS)
        with in_a_thread(lambda: observe(Cluster.objects.get(), [raw(1, 2)], complete=False)) as older:
            until = time.monotonic() + PATIENCE_SECONDS
            while older.is_alive() and not is_somebody_waiting_for_a_lock():
                assert time.monotonic() < until
                time.sleep(0.01)
            go.set()
    assert model.objects.get().resource_version == "9"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", WRITERS)
def test_in_hundreds_of_interleavings_the_newest_version_stays(kind: str, seed: int) -> None:
    observe, raw, model = WRITERS[kind]
    cluster = ClusterFactory()
    if kind == "tunings":
        store.observe_nodes(cluster, [node(number, 1) for number in range(NODES)], complete=True)
    chance = random.Random(seed)
    seen = [(number, chance.randrange(2, 1000)) for number in range(NODES) for _ in range(6)]
    newest = {number: max(version for at, version in seen if at == number) for number in range(NODES)}
    parts: list[list[tuple[int, int]]] = [[] for _ in range(4)]
    for observation in chance.sample(seen, len(seen)):
        chance.choice(parts).append(observation)
    together = threading.Barrier(len(parts))

    def write(part: list[tuple[int, int]]) -> None:
        try:
            together.wait(PATIENCE_SECONDS)
            for start in range(0, len(part), 7):
                last = dict(part[start : start + 7])  # one word on each object, as a writer has it
                observe(cluster, [raw(number, version) for number, version in last.items()], complete=False)
        finally:
            connections.close_all()

    # What is lost within a writer's own chunk is not what this is about.
    for part in parts:
        part.sort(key=lambda observation: observation[1])
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(write, parts))
    column = {"nodes": "name", "tunings": "node__name", "pods": "name"}[kind]
    stored = dict(model.objects.values_list(column, "resource_version"))
    assert {int(name[1:]): int(version) for name, version in stored.items()} == newest


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", WRITERS)
def test_in_hundreds_of_interleavings_what_was_deleted_stays_deleted(kind: str, seed: int) -> None:
    """Every third object ends deleted; late writers tell of it as it was before, even with whole lists."""
    observe, raw, model = WRITERS[kind]
    cluster = ClusterFactory()
    if kind == "tunings":
        store.observe_nodes(cluster, [node(number, 1) for number in range(NODES)], complete=True)
    chance = random.Random(seed)
    deletion = {number: 1000 + number for number in range(0, NODES, 3)}
    seen = [(number, version) for number in range(NODES) for version in chance.sample(range(2, 1000), 6)]
    newest = {number: max(v for n, v in seen if n == number) for number in range(NODES) if number not in deletion}
    parts: list[list[tuple[int, int]]] = [[] for _ in range(4)]
    for observation in chance.sample(seen, len(seen)):
        chance.choice(parts).append(observation)
    dead = chance.sample(sorted(deletion.items()), len(deletion))
    together = threading.Barrier(len(parts) + 1)
    began = now()

    def late(part: list[tuple[int, int]]) -> None:
        try:
            together.wait(PATIENCE_SECONDS)
            for start in range(0, len(part), 7):
                last = dict(sorted(part[start : start + 7], key=lambda observation: observation[1]))
                observe(cluster, [raw(number, version) for number, version in last.items()], complete=False)
        finally:
            connections.close_all()

    def watch() -> None:
        try:
            together.wait(PATIENCE_SECONDS)
            for start in range(0, len(dead), 3):
                observe(cluster, [], complete=False, deleted=[raw(n, v) for n, v in dead[start : start + 3]])
            old = [raw(number, 2) for number in deletion]
            observe(cluster, old, complete=True, at=began, version="2")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(parts) + 1) as pool:
        for done in [pool.submit(watch), *(pool.submit(late, part) for part in parts)]:
            done.result(PATIENCE_SECONDS)
    column = {"nodes": "name", "tunings": "node__name", "pods": "name"}[kind]
    present = model.objects.filter(gone_at=None) if kind == "nodes" else model.objects.all()
    stored = dict(present.values_list(column, "resource_version"))
    assert {int(name[1:]): int(version) for name, version in stored.items()} == newest
