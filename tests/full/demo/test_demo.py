"""`make demo` as a newcomer runs it: one command, a free port; the values in demo.env work over HTTP."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.full.harness.client import Person, Problem, eventually
from tests.full.harness.demo import READY_SECONDS, Demo

pytestmark = [pytest.mark.full, pytest.mark.skipif(not shutil.which("make"), reason="no make: apt-get install make")]


def holder(values: Mapping[str, str], name: str) -> Person:
    """Client with the token of demo.env."""
    person = Person(values["SETPOINT_URL"], f"{name}@example.com")
    person.token = values[f"SETPOINT_TOKEN_{name.upper()}"]
    return person


def test_its_file_is_its_owners_alone_and_it_listens_on_loopback_only(demo: Demo, values: Mapping[str, str]) -> None:
    assert stat.S_IMODE(demo.file.stat().st_mode) == 0o600
    assert values["SETPOINT_URL"].startswith("http://127.0.0.1:")


@pytest.mark.parametrize("name", ["viewer", "operator", "approver", "lead", "admin"])
def test_everybody_logs_in_with_the_printed_password(demo: Demo, values: Mapping[str, str], name: str) -> None:
    assert values[f"SETPOINT_PASSWORD_{name.upper()}"] in demo.log.read_text()

    Person(values["SETPOINT_URL"], f"{name}@example.com").log_in(values[f"SETPOINT_PASSWORD_{name.upper()}"], ("read",))


def test_with_the_files_tokens_a_plan_is_approved_started_and_put_back(values: Mapping[str, str]) -> None:
    operator, approver = holder(values, "operator"), holder(values, "approver")
    plan = next(p for p in operator.every("plans", status="review") if p["worst_class"] == "live")

    with pytest.raises(Problem) as refused:
        holder(values, "viewer").post(f"plans/{plan['id']}/actions/approve", {"digest": plan["digest"]})
    assert refused.value.status == 403
    approver.post(f"plans/{plan['id']}/actions/approve", {"digest": plan["digest"]})
    rollout = str(operator.post(f"plans/{plan['id']}/actions/start")["id"])
    await_status(operator, rollout, "succeeded")
    operator.post(f"rollouts/{rollout}/actions/revert", {})
    await_status(operator, rollout, "reverted")


def test_the_production_plan_starts_after_the_one_verdict_that_is_missing(values: Mapping[str, str]) -> None:
    """Reboots take about 20 s here; the watch sees them live."""
    operator, approver = holder(values, "operator"), holder(values, "approver")
    plan = next(p for p in operator.every("plans", status="review") if p["worst_class"] == "reboot")
    assert operator.get(f"plans/{plan['id']}")["approval"]["needed"] == 2

    answer = approver.post(f"plans/{plan['id']}/actions/approve", {"digest": plan["digest"]})
    assert answer["status"] == "approved"
    rollout = str(operator.post(f"plans/{plan['id']}/actions/start")["id"])
    eventually(
        lambda: any(s["status"] == "succeeded" for s in operator.every(f"rollouts/{rollout}/steps")),
        lambda: str(operator.get(f"rollouts/{rollout}")),
        seconds=120,
    )
    operator.post(f"rollouts/{rollout}/actions/pause", {})


def test_another_one_at_its_port_says_so_before_it_makes_anything(values: Mapping[str, str], tmp_path: Path) -> None:
    port = int(values["SETPOINT_URL"].rsplit(":", 1)[1])
    other = Demo(tmp_path, port)

    assert other.process.wait(60) != 0
    assert f"Port {port} cannot be used" in other.log.read_text()
    database = tmp_path / "demo" / "setpoint.sqlite3"  # settings make the file, for its owner alone
    assert not database.exists() or not database.stat().st_size


@pytest.mark.long
@pytest.mark.parametrize("moment", ["connecting the clusters", "training-h100 with reboots"])
def test_a_signal_while_it_is_being_made_ends_it(tmp_path: Path, moment: str) -> None:
    other = Demo(tmp_path)
    until = time.monotonic() + READY_SECONDS
    while moment not in other.log.read_text():
        assert other.process.poll() is None, other.log.read_text()
        assert time.monotonic() < until, other.log.read_text()
        time.sleep(0.1)
    other.end(signal.SIGTERM)

    assert "Traceback" not in other.log.read_text()
    assert not other.file.exists()


def test_it_ends_at_a_signal_and_takes_its_file_with_it(demo: Demo, values: Mapping[str, str]) -> None:
    os.killpg(demo.process.pid, signal.SIGTERM)
    demo.end(signal.SIGTERM)  # a person who does not wait asks once more

    assert not demo.file.exists()
    assert "Traceback" not in demo.log.read_text()


def await_status(person: Person, rollout: str, status: str) -> Any:
    return eventually(
        lambda: person.get(f"rollouts/{rollout}")["status"] == status,
        lambda: str(person.get(f"rollouts/{rollout}")),
        seconds=60,
    )
