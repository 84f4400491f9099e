"""Cost of each page and list to the server: queries and time, at fleets of several sizes, on both databases.

No network and no control plane: Django's test client asks, in a process of its own that does nothing else.
"""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.measure import Table, load, median, usage
from tests.full.harness.processes import Installation
from tests.full.harness.servers import Postgres

ROOT = Path(__file__).resolve().parent.parent
WARM_UPS = 2
REQUESTS = 10
MOST_MS = 150
MOST_QUERIES = 15
WORST = 15

Row = dict[str, Any]
"""Of one page: page, status, queries, kb, wall (ms of each request), cpu (ms of each)."""


def measure(counts: Sequence[int]) -> list[Table]:
    sizes = [f"{count:,} nodes, p50 / p95, ms" for count in counts]
    most = max(counts)
    columns = ["page", "database", "queries", "KB", *sizes, "CPU p50 / p95, ms"]
    note = (
        f"In-process, through Django's test client: {REQUESTS} requests after {WARM_UPS} that do not count, as an "
        f"admin who sees everything. The 95th percentile of {REQUESTS} is the slowest of them. Queries, KB of the "
        f"answer and CPU are those at {most:,} nodes. CPU is the web process': what a request takes when nothing else "
        "runs, SQLite with it, and PostgreSQL not. The order is by CPU, because the load of a machine moves the rest."
    )
    every = Table("Every page and list", columns, note)
    worst = Table(
        f"The {WORST} that cost most, and all others over {MOST_MS} ms of CPU or {MOST_QUERIES} queries",
        columns,
        note,
    )
    memory = Table(
        "The web process after that",
        ["database", "nodes", "RSS, MiB", "garbage collections of all, in the requests", "one, ms",
         "one if nothing were frozen, ms", "load"],
        "A collection of all objects stops every thread of the process. It walks what came after the process was "
        "loaded; what was loaded is frozen (config/memory.py).",
    )  # fmt: skip
    rows: dict[tuple[str, str], dict[int, Row]] = defaultdict(dict)
    for database in ("SQLite", "PostgreSQL"):
        for count in counts:
            answers = _measured(database, count)
            once, never = answers["collection"]["settled"], answers["collection"]["unsettled"]
            memory.add(database, count, answers["rss"], answers["collections"], once, never, load())
            for row in answers["pages"]:
                rows[bare(row["page"]), database][count] = row
    slowest = sorted(rows, key=lambda key: -median(rows[key][most]["cpu"]))
    for place, key in enumerate(slowest):
        last = rows[key][most]
        times = [_times(rows[key].get(count)) for count in counts]
        cells = (*key, last["queries"], last["kb"], *times, _times(last, "cpu"))
        every.add(*cells)
        if place < WORST or max(last["cpu"]) > MOST_MS or last["queries"] > MOST_QUERIES:
            worst.add(*cells)
    return [every, worst, memory]


def _times(row: Row | None, clock: str = "wall") -> str:
    return f"{median(row[clock]):.0f} / {max(row[clock]):.0f}" if row else "–"


def bare(page: str) -> str:
    """Mask the ids that differ from one database to the next."""
    path, mark, query = page.partition("?")
    path = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "…", path)
    return re.sub(r"(?<=/)(P-|R-)?[0-9]+(?=/|$)", r"\1…", path) + mark + query


def _measured(database: str, count: int) -> dict[str, Any]:
    """Fill an empty database, and ask for every page: each in a process of its own."""
    with filled(database, count) as (environment, crowd):
        answer = json.loads(_run("bench.pages", environment=environment, text=crowd))
    assert isinstance(answer, dict)
    return answer


@contextmanager
def filled(database: str, count: int) -> Iterator[tuple[dict[str, str], str]]:
    """The environment of an installation with so many nodes, and what bench.crowd says of it."""
    with _empty(database) as environment:
        began = time.perf_counter()
        crowd = _run("bench.crowd", str(count), environment=environment)
        sys.stderr.write(f"{database}: {count} nodes made in {time.perf_counter() - began:.0f} s\n")
        yield environment, crowd


@contextmanager
def _empty(database: str) -> Iterator[dict[str, str]]:
    """The environment of an installation on a database with nothing in it."""
    if database == "PostgreSQL":
        with Postgres() as server, Installation(server.url, "memory://localhost/") as installation:
            yield _environment(installation)
    else:
        folder = tempfile.mkdtemp(prefix="setpoint-bench-")
        try:
            with Installation(f"sqlite:///{folder}/db.sqlite3", "memory://localhost/") as installation:
                yield _environment(installation)
        finally:
            shutil.rmtree(folder)


def _environment(installation: Installation) -> dict[str, str]:
    return {
        **installation.environment,
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "SETPOINT_HOSTS": "testserver,127.0.0.1",
        "SETPOINT_LOG_LEVEL": "ERROR",
    }


def _run(*module: str, environment: dict[str, str], text: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", *module],
        cwd=ROOT,
        env=environment,
        input=text,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


# ── in the process that serves ────────────────────────────────────────────────────────────────────────────────────────
def serve() -> None:
    from django.test import Client

    import_module("config.wsgi")  # loads all and settles, as the real process does
    crowd = json.load(sys.stdin)
    browser, program = Client(), Client(headers={"Authorization": crowd["token"]})
    browser.cookies.load(crowd["cookies"])
    before = gc.get_stats()[2]["collections"]
    pages = [_ask(program if page.startswith("/api/") else browser, page) for page in crowd["pages"]]
    collections = gc.get_stats()[2]["collections"] - before
    rss = usage(os.getpid()).rss
    json.dump({"pages": pages, "rss": rss, "collections": collections, "collection": _collection()}, sys.stdout)


def _collection() -> dict[str, float]:
    """Return the duration of a full garbage collection, ms of CPU: as this process is, and if it had never settled."""
    gc.collect()
    settled = _collected()
    gc.unfreeze()
    return {"settled": settled, "unsettled": _collected()}


def _collected() -> float:
    took = []
    for _ in range(5):
        used = time.process_time()
        gc.collect()
        took.append(1000 * (time.process_time() - used))
    return median(took)


def _ask(client: Any, page: str) -> Row:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    for _ in range(WARM_UPS):
        client.get(page)
    with CaptureQueriesContext(connection) as seen:
        answer = client.get(page)
        queries = len(seen)  # the next request forgets them
    if answer.status_code != 200:
        raise RuntimeError(f"{page} answers {answer.status_code}")
    wall, cpu = [], []
    for _ in range(REQUESTS):
        began, used = time.perf_counter(), time.process_time()
        client.get(page)
        wall.append(1000 * (time.perf_counter() - began))
        cpu.append(1000 * (time.process_time() - used))
    size = len(answer.content) / 1000
    return {"page": page, "queries": queries, "kb": size, "wall": wall, "cpu": cpu}


if __name__ == "__main__":
    serve()
