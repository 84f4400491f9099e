"""Findings of checks, and the checks' execution: in parallel, each with its own deadline."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import Empty, Queue
from typing import Literal

from django.db import connections

State = Literal["ok", "warning", "problem"]

AT_ONCE = 32
"""Checks in progress at a time; one whose deadline passed no longer counts."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `advice` says what to do; it is empty where nothing is wrong."""

    area: str
    state: State
    text: str
    advice: str = ""

    def to_json(self) -> dict[str, str]:
        return {"area": self.area, "state": self.state, "text": self.text, "advice": self.advice}


def ok(area: str, text: str) -> Finding:
    return Finding(area, "ok", text)


def warning(area: str, text: str, advice: str) -> Finding:
    return Finding(area, "warning", text, advice)


def problem(area: str, text: str, advice: str) -> Finding:
    return Finding(area, "problem", text, advice)


@dataclass(frozen=True, slots=True)
class Check:
    area: str
    about: str
    """What it looks at, for the sentence that it did not end in time."""
    seconds: float
    findings: Callable[[], Iterable[Finding]]
    """May block, and may raise: both become findings."""


@dataclass(slots=True)
class _Running:
    check: Check
    position: int
    ends_at: float
    findings: list[Finding] = field(default_factory=list)


def run(checks: Sequence[Check], *, at_once: int = AT_ONCE) -> list[Finding]:
    """Return the findings of all checks in the checks' order.

    A check that does not end in time keeps what it had found, and a problem is added. Its thread is a daemon: it
    cannot be ended, and ends with the process.
    """
    waiting = deque(enumerate(checks))
    running: dict[int, _Running] = {}
    ended: Queue[int] = Queue()
    results: dict[int, list[Finding]] = {}
    while waiting or running:
        while waiting and len(running) < at_once:
            position, check = waiting.popleft()
            entry = _Running(check, position, time.monotonic() + check.seconds)
            running[position] = entry
            threading.Thread(target=_carry_out, args=(entry, ended), name=f"doctor-{position}", daemon=True).start()
        next_end = min(entry.ends_at for entry in running.values())
        try:
            position = ended.get(timeout=max(0.0, next_end - time.monotonic()))
        except Empty:
            pass
        else:
            if position in running:
                results[position] = running.pop(position).findings
        for entry in [entry for entry in running.values() if entry.ends_at <= time.monotonic()]:
            del running[entry.position]
            results[entry.position] = [*entry.findings, _out_of_time(entry.check)]
    return [finding for position in sorted(results) for finding in results[position]]


def _out_of_time(check: Check) -> Finding:
    return problem(
        check.area,
        f"The check of {check.about} did not end within {check.seconds:g} s.",
        "See whether it answers at all; a firewall that drops packets looks like this.",
    )


def _carry_out(entry: _Running, ended: Queue[int]) -> None:
    try:
        for finding in guarded(entry.check):
            entry.findings.append(finding)
    finally:
        connections.close_all()  # this thread's own
        ended.put(entry.position)


def guarded(check: Check) -> Iterator[Finding]:
    """Yield the check's findings; an error of the check itself is one, without its text, which could quote a secret."""
    try:
        yield from check.findings()
    except Exception as error:
        yield problem(
            check.area,
            f"The check of {check.about} failed with {type(error).__name__}.",
            "The other checks hold. Report it as a defect of Setpoint if it does not go with what else is named here.",
        )
