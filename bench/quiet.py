"""Database writes of a fleet at rest: rows and bytes of a day, on the real control plane.

No setting or object changes. Kubelets report their nodes' status every five minutes although nothing is new in it, as
real ones do; nodes and agents renew their Leases; watch, worker and beat do their periodic work.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from bench.measure import Table, load
from bench.rollout import Campaign
from bench.stage import Stage

SETTLING_SECONDS = 75.0
"""After the last change: a round of Leases, and what the last answers lead to."""
HEARTBEAT_SECONDS = 300.0
"""A kubelet's nodeStatusReportFrequency."""
DAY_MINUTES = 24 * 60
MIB = 1024 * 1024

Rows = dict[str, tuple[int, int, int, int]]
"""By table: inserted, updated, of those in place (HOT), deleted."""


def measure(stage: Stage, counts: Sequence[int], minutes: float) -> list[Table]:
    tables = Rest.tables()
    with Campaign(stage) as campaign:
        for count in counts:
            campaign.run(count)
            Rest(campaign, count, minutes).fill(*tables)
    return list(tables)


class Rest:
    """One span of time without any change."""

    def __init__(self, campaign: Campaign, count: int, minutes: float) -> None:
        self.campaign, self.count, self.minutes = campaign, count, minutes

    @staticmethod
    def tables() -> tuple[Table, Table]:
        note = (
            "Ten settings were rolled out over all nodes before. Kubelets report every 5 minutes, agents "
            "renew Leases every minute. A day is the measured span times what makes it a day; what happens once an "
            "hour or a day is in it only as often as it fell into the span. PostgreSQL writes full pages after each "
            "checkpoint (every 5 minutes), as a real one does."
        )
        whole = Table(
            "A quiet day",
            ["nodes", "minutes measured", "rows inserted a day", "updated", "deleted", "WAL, MB a day",
             "growth of the database, MB a day", "load"],
            note,
        )  # fmt: skip
        return whole, Table(
            "A quiet day, table by table",
            ["nodes", "table", "rows inserted a day", "updated", "of these in place (HOT)", "deleted"],
            "Tables that nothing was written to are left out.",
        )

    def fill(self, whole: Table, by_table: Table) -> None:
        time.sleep(SETTLING_SECONDS)
        before, wal, size, began = _rows(), _wal(), _size(), time.monotonic()
        with _heartbeats(self.campaign.stage, self.count):
            time.sleep(60 * self.minutes)
        after, wrote, grew = _rows(), _wal() - wal, _size() - size
        minutes = (time.monotonic() - began) / 60
        days = DAY_MINUTES / minutes
        spent = {
            name: [b - a for a, b in zip(before.get(name, (0,) * 4), row, strict=True)] for name, row in after.items()
        }
        sums = [sum(column) for column in zip(*spent.values(), strict=True)]
        inserted, updated, _, deleted = (round(number * days) for number in sums)
        size_a_day = grew * days / MIB
        whole.add(self.count, minutes, inserted, updated, deleted, wrote * days / MIB, size_a_day, load())
        for name, numbers in sorted(spent.items(), key=lambda item: -sum(item[1])):
            if any(numbers):
                by_table.add(self.count, name, *(round(number * days) for number in numbers))


def _query(sql: str) -> list[tuple[Any, ...]]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def _rows() -> Rows:
    columns = "relname, n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del"
    rows = _query(f"SELECT {columns} FROM pg_stat_user_tables")
    return {name: (inserted, updated, hot, deleted) for name, inserted, updated, hot, deleted in rows}


def _wal() -> int:
    return int(_query("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")[0][0])


def _size() -> int:
    return int(_query("SELECT pg_database_size(current_database())")[0][0])


@contextmanager
def _heartbeats(stage: Stage, count: int) -> Iterator[None]:
    """Report each node's status every five minutes, as its kubelet does, one node after the other."""
    done = threading.Event()

    def beat() -> None:
        began = time.monotonic()
        for number in itertools.count():
            if done.wait(max(0.0, began + number * HEARTBEAT_SECONDS / count - time.monotonic())):
                return
            name, at = f"node-{number % count:05d}", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            conditions = stage.admin.get("nodes", name)["status"]["conditions"]
            heard = [condition | {"lastHeartbeatTime": at} for condition in conditions]
            stage.admin.patch("nodes", name, {"status": {"conditions": heard}}, subresource="status")

    with ThreadPoolExecutor(1) as pool:
        beating = pool.submit(beat)
        try:
            yield
        finally:
            done.set()
        beating.result()  # a fleet whose kubelets fell silent was not measured
