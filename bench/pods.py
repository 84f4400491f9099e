"""Cost of following a cluster's pods: 30 pods a node, of which one in twenty holds a GPU and some come and go.

The API server is the bench's own (bench/api_server) in a process of its own, whose CPU is shown; the watch is
Setpoint's own process, with nothing changed but when it compares names for the first time.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.measure import Table, load, usage
from bench.pages import ROOT
from bench.pages import _empty as empty
from bench.pages import _run as run

PODS_A_NODE = 30
CHURN = 50
"""Pods a second, each of which is created, scheduled, ready, finished and deleted: five events."""
SETTLING_SECONDS = 35.0
"""After the first list: by then as many pods end as begin."""
REST_SECONDS = 60.0
NEVER, SOON = 1e9, 20.0
"""Seconds until names are compared."""
POLL_SECONDS = 0.01
PATIENCE_SECONDS = 1800.0


def measure(counts: Sequence[int]) -> list[Table]:
    lists = Table(
        "Pods: lists",
        ["pods", "nodes", "database", "what", "seconds", "CPU, s", "peak RSS, MiB", "server's CPU, s", "load"],
        f"{PODS_A_NODE} pods of 9.8 KB a node, one in twenty with a GPU, {CHURN} new ones a second. Seconds until "
        "every kind is listed and its rows are written; a comparison is that of all names and versions of pods, with "
        "what the watch does meanwhile taken off.",
    )
    rest = Table(
        "Pods: following",
        ["pods", "nodes", "database", "events a second", "CPU, % of a core", "RSS, MiB", "PSS, MiB", "changes",
         "lag to the row, median, ms", "95th percentile, ms", "longest, ms", "server's CPU, %", "load"],
        f"Over {REST_SECONDS:.0f} s. Lag: from the API server's sending of a change of a pod that holds a GPU until "
        f"its row has that version, or a later one; rows are read every {POLL_SECONDS * 1000:.0f} ms.",
    )  # fmt: skip
    for count in counts:
        for database in ("SQLite", "PostgreSQL"):
            with empty(database) as environment:
                figures = json.loads(run("bench.pods", "measure", str(count), environment=environment))
            for row in figures["lists"]:
                lists.add(count * PODS_A_NODE, count, database, *row, load())
            rest.add(count * PODS_A_NODE, count, database, *figures["rest"], load())
    return [lists, rest]


# ── in the process that measures ──────────────────────────────────────────────────────────────────────────────────────
@dataclass
class Lags:
    """Versions of the rows of pods that come and go, read all the time; when each was first there."""

    first: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)

    def follow(self) -> None:
        from clusters.models import GpuPod

        rows = GpuPod.every.filter(uid__gte="c0", uid__lt="d").values_list("uid", "resource_version")
        while not self.stop.wait(POLL_SECONDS):
            versions, at = list(rows.all()), time.time()
            for uid, version in versions:
                known = self.first.setdefault(uid, [])
                if not known or known[-1][0] < int(version):
                    known.append((int(version), at))

    def of(self, log: Path, since: float) -> list[float]:
        """Return the seconds of each change that a row shows; none of a pod's end, which has no row."""
        took = []
        for line in log.read_text().splitlines():
            uid, version, _, state, sent = line.split()
            if float(sent) < since or float(sent) > since + REST_SECONDS or state == "finished":
                continue
            shown = [at for there, at in self.first.get(uid, ()) if there >= int(version)]
            took.append(shown[0] - float(sent) if shown else PATIENCE_SECONDS)
        return took


class Watching:
    """One process of Setpoint's watch, and what it used."""

    def __init__(self, compare: float) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", "bench.pods", "watch", str(compare)], cwd=ROOT)

    @property
    def cpu(self) -> float:
        return usage(self.process.pid).cpu

    @property
    def peak(self) -> float:
        """MiB resident at most, so far."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

    def until(self, is_done: Callable[[], bool]) -> float:
        began = time.monotonic()
        while not is_done():
            if self.process.poll() is not None:
                raise RuntimeError(f"the watch ended with {self.process.returncode}")
            if time.monotonic() - began > PATIENCE_SECONDS:
                raise RuntimeError("the watch is not done in time")
            time.sleep(0.1)
        return time.monotonic() - began

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def watching(compare: float) -> Iterator[Watching]:
    process = Watching(compare)
    try:
        yield process
    finally:
        process.end()


@contextmanager
def _server(nodes: int, log: Path) -> Iterator[tuple[int, str, str]]:
    """Start the API server: its process, address and CA."""
    command = [sys.executable, "-m", "bench.api_server.server", f"--pods={nodes * PODS_A_NODE}", f"--nodes={nodes}",
               f"--churn={CHURN}", f"--log={log}"]  # fmt: skip
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())
            yield process.pid, address["url"], address["ca"]
        finally:
            process.terminate()


def _connect(url: str, ca: str) -> Any:
    from bench.api_server.server import UID
    from clusters.connection import registry
    from clusters.models import Cluster
    from clusters.net.credentials import Credentials

    cluster = Cluster.objects.create(name="wide", uid=UID, server=url, credential=b"")
    sealed = registry.sealed(cluster.pk, Credentials(server=url, ca=ca, token="bench"))
    Cluster.objects.filter(pk=cluster.pk).update(credential=sealed.data, credential_key=sealed.key)
    return cluster


def _measure(nodes: int) -> dict[str, Any]:
    import django

    django.setup()
    from django.core.management import call_command

    from clusters.models import Cluster, RowCheck

    call_command("migrate", verbosity=0)
    with ExitStack() as stack:
        log = Path(stack.enter_context(tempfile.TemporaryDirectory()), "changes")
        server, url, ca = stack.enter_context(_server(nodes, log))
        cluster = _connect(url, ca)

        def is_true() -> bool:
            return Cluster.objects.get(pk=cluster.pk).observed_at is not None

        def listed(process: Watching, name: str) -> list[Any]:
            before = usage(server).cpu
            took = process.until(is_true)
            return [name, took, process.cpu, process.peak, usage(server).cpu - before]

        with watching(NEVER) as process:
            lists = [listed(process, "first list")]
            rest = _rest(process, server, log)
        Cluster.objects.filter(pk=cluster.pk).update(observed_at=None, watch_owner="", watch_lease_until=None)
        with watching(SOON) as process:
            lists.append(listed(process, "list after a restart"))
            cpu, of_server = process.cpu, usage(server).cpu
            took = process.until(lambda: RowCheck.objects.filter(kind="pods", checks__gte=1).exists())
            used = process.cpu - cpu - took * rest[1] / 100
            lists.append(["a comparison", took, used, process.peak, usage(server).cpu - of_server])
    return {"lists": lists, "rest": rest}


def _rest(process: Watching, server: int, log: Path) -> list[Any]:
    time.sleep(SETTLING_SECONDS)
    lags = Lags()
    thread = threading.Thread(target=lags.follow)
    thread.start()
    since, before, of_server = time.time(), usage(process.process.pid), usage(server).cpu
    time.sleep(REST_SECONDS)
    after, spent = usage(process.process.pid), time.time() - since
    cpu, of_server = (after.cpu - before.cpu) / spent * 100, (usage(server).cpu - of_server) / spent * 100
    time.sleep(5)
    lags.stop.set()
    thread.join()
    took = lags.of(log, since)
    late = statistics.quantiles(took, n=20)[-1]
    figures = [value * 1000 for value in (statistics.median(took), late, max(took))]
    return [CHURN * 5, cpu, after.rss, after.pss, len(took), *figures, of_server]


def _watch(compare: float) -> None:
    """Watch as `manage.py watch` does."""
    import django

    django.setup()
    from clusters.watch import supervisor
    from common import stopping

    pace = supervisor.WatchTimings(compare=compare)
    supervisor.run(stopping.at_signals(), supervisor.new_owner(), pace)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    if sys.argv[1] == "watch":
        _watch(float(sys.argv[2]))
    else:
        json.dump(_measure(int(sys.argv[2])), sys.stdout)
