"""Rules for every test: two tiers, a clock that tests move, no network beyond this machine, no silent skip in CI."""

from __future__ import annotations

import contextlib
import gc
import ipaddress
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.apps import AppConfig, apps
from django.conf import settings
from django.db.models.signals import post_migrate
from django.dispatch import receiver
from django.utils import timezone
from kombu.transport import memory

from tests.template_database import django_db_keepdb, django_db_setup
from tests.tiers import FULL_FOLDERS, WORDS, may_be_full

__all__ = ["django_db_keepdb", "django_db_setup"]

pytest_plugins = [
    "tests.controlplane.fixtures",
    "tests.full.harness.server_fixtures",
    "tests.full.harness.site_fixtures",
    "tests.full.harness.charts.table",
]

UNDER_CI = os.environ.get("CI", "").lower() in ("1", "true")
HARDWARE = "needs hardware: "
"""A skip whose reason begins so is allowed in CI: no build machine has it."""
CHARTS = "needs charts: "
"""So is this: third parties' charts are not ours to commit, and a build machine may lack them. Any other skip there is
a failure."""


# ── Tiers ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the full tier's tests too (make test TIER=full)")
    words = "of each parametrized test of the full tier or with a database, N cases; of every_case, all"
    parser.addoption("--cases", type=int, metavar="N", help=words)
    words = "of the tests that ask either database, one of each file: the others run on the other database"
    parser.addoption("--one-of-each-file", action="store_true", help=words)


def wants_full(config: pytest.Config) -> bool:
    return bool(config.getoption("--full")) or os.environ.get("TIER") == "full"


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all is collected, of which nothing becomes garbage: a quarter of the time that it takes
    if wants_full(config) and UNDER_CI and not os.environ.get("SETPOINT_TEST_DATABASE_URL"):
        raise pytest.UsageError(
            "the full tier runs on PostgreSQL: give SETPOINT_TEST_DATABASE_URL (make test TIER=full does)"
        )


def pytest_report_header(config: pytest.Config) -> list[str]:
    engine = settings.DATABASES["default"]["ENGINE"].rpartition(".")[2]
    tier = "fast and full" if wants_full(config) else "fast only; `make test TIER=full` runs the full tier too"
    return [f"tier: {tier}", f"database: {engine}"]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what has no test of this run: the full tier's folders (named, they are read), or all but its files."""
    if collection_path in FULL_FOLDERS and not wants_full(config):
        return True
    is_only_full = config.option.markexpr.partition(" ")[0] == "full" and collection_path.suffix == ".py"
    return True if is_only_full and not may_be_full(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Everything under tests/full is full, and under tests/node is node, marked or not. What is left out is counted by
    pytest as deselected."""
    for item in items:
        for folder in ("full", "node"):
            if item.nodeid.startswith(f"tests/{folder}/"):
                item.add_marker(folder)
        if item.nodeid.startswith("tests/jobs/engine/"):
            item.add_marker("every_case")
        if item.get_closest_marker("full") and not may_be_full(item.path):
            raise pytest.UsageError(f"{item.nodeid} is full, and neither its file nor a conftest.py says {WORDS}")
        if item.get_closest_marker("django_db") or "django_db_setup" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.database)
    left_out = set() if wants_full(config) else {item for item in items if item.get_closest_marker("full")}
    if most := config.getoption("--cases"):
        left_out |= _further_cases(items, most)
    if config.getoption("--one-of-each-file"):
        left_out |= _further_tests(item for item in items if item not in left_out)
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


def _further_cases(items: Iterable[pytest.Item], most: int) -> set[pytest.Item]:
    """Return what goes beyond `most` cases of each test of the full tier or with a database, but of every_case.

    Of the full tier, whose cases are often helm v3 and v4 or the stages of a step, it is each test's name that chooses:
    half of the tests take one helm, and half the other. Of the others it is the first.
    """
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("full") or item.get_closest_marker("database"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    further: set[pytest.Item] = set()
    for name, cases in tests.items():
        if cases[0].get_closest_marker("every_case"):
            continue
        begin = zlib.crc32(name.encode()) % len(cases) if cases[0].get_closest_marker("full") else 0
        further.update([*cases[begin:], *cases[:begin]][most:])
    return further


def _further_tests(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return what asks either database, but for one test of each file, which its name chooses: not a costly one."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("database") and not item.get_closest_marker("one_database"):
            files.setdefault(item.path, []).append(item)

    def rank(item: pytest.Item) -> tuple[bool, int]:
        return item.get_closest_marker("costly") is not None, zlib.crc32(item.nodeid.encode())

    chosen = (min(tests, key=rank) for tests in files.values())
    return {item for tests in files.values() for item in tests}.difference(chosen)


def pytest_collection_finish() -> None:
    """Freeze what was imported and collected: no garbage collection walks a million lasting objects again.

    Garbage is looked for less often than Python does by itself, which took a thirtieth of the fast tier's time.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.lanes import InOrder, Lanes

    return Lanes(config, log) if wants_full(config) else InOrder(config, log)


# ── Generated examples: a shared machine is slow now and then, which is no bug ────────────────────────────────────────
# New examples each time, except under CI, where the same code must give the same answer.
EXAMPLES = 50
"""For tests that name no number: half of hypothesis's own. Each run has others, so many runs see more of them."""
hypothesis.settings.register_profile(
    "setpoint",
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    print_blob=True,
    derandomize=UNDER_CI,
)
hypothesis.settings.load_profile("setpoint")


# ── Under CI a test that cannot run has failed ────────────────────────────────────────────────────────────────────────
def _as_failure(report: Any) -> None:
    if not (UNDER_CI and report.skipped) or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if not reason.startswith((HARDWARE, CHARTS)):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI=true counts as failed: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report = yield
    _as_failure(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    report = yield
    _as_failure(report)
    return report


# ── What migrations seed, a flush after a test with transactions of its own takes away ────────────────────────────────
@receiver(post_migrate, dispatch_uid="seeded again")
def seed_again(sender: AppConfig, **_: object) -> None:
    """Django answers a flush with this signal too. Without it, later tests of the process would run without rules."""
    if sender.label == "jobs" and not sender.get_model("ApprovalRule").objects.exists():
        import_module("jobs.migrations.0002_approval_rules").seed(apps, None)


# ── The site's own catalog entries, which are rows ───────────────────────────────────────────────────────────────────
_without_rows = contextlib.ExitStack()


def pytest_sessionstart() -> None:
    """Tests are collected, and most of them run, without a database: the catalog is then what comes with Setpoint."""
    from components.catalog import site

    _without_rows.enter_context(site.switched_off())


@pytest.fixture(autouse=True)
def site_entries(request: pytest.FixtureRequest) -> Iterator[None]:
    """Read the rows, as the product does, in every test that has a database."""
    from components.catalog import site

    databases = {"db", "transactional_db", "live_server"}
    if not request.node.get_closest_marker("django_db") and databases.isdisjoint(request.fixturenames):
        yield
        return
    with site.switched_on():
        yield


# ── The clock ─────────────────────────────────────────────────────────────────────────────────────────────────────────
class Clock:
    """The instant that `common.clock.now` answers. It is fixed until a test moves it."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return self.at

    def forward(self, seconds: float = 0, **parts: float) -> datetime:
        """Move by `seconds`, or by timedelta's own words: `forward(hours=3)`."""
        self.at += timedelta(seconds=seconds, **parts)
        return self.at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Freeze time at 2026-11-21 12:00 UTC; it moves only by `clock.forward(...)`.

    Only Django's clock, which `common.clock` reads: time.monotonic and sockets' timeouts run, so threads still work.
    """
    frozen = Clock(datetime(2026, 11, 21, 12, tzinfo=UTC))
    monkeypatch.setattr(timezone, "now", frozen)
    return frozen


# ── No network ────────────────────────────────────────────────────────────────────────────────────────────────────────
_outside: list[str] = []


class NetworkForbidden(RuntimeError):
    """A test, or the code it runs, wanted to leave this machine."""


def _is_here(host: str) -> bool:
    if host in ("", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _watch_sockets(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook sees every socket of the process, whichever library opened it."""
    if event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else ""  # a path or bytes: a Unix socket
    elif event == "socket.getaddrinfo":
        host = arguments[0] or ""
    else:
        return
    host = host.decode() if isinstance(host, bytes) else str(host)
    if event == "socket.getaddrinfo" and _is_literal(host):
        return  # nothing is asked of the network
    if not _is_here(host):
        _outside.append(f"{event} {host}")
        raise NetworkForbidden(f"{event} to {host}: tests talk to this machine only")


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


sys.addaudithook(_watch_sockets)


@pytest.fixture(autouse=True)
def no_network() -> Iterator[None]:
    """Fails the test even where the code under test swallowed the refusal."""
    _outside.clear()
    yield
    if _outside:
        pytest.fail(f"left this machine: {', '.join(_outside)}")


# ── The broker ────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(autouse=True)
def empty_broker() -> Iterator[None]:
    """Empty the in-memory broker after a test: no later test's worker may find its messages."""
    yield
    for queue in memory.Channel.queues.values():
        with queue.mutex:
            queue.queue.clear()
