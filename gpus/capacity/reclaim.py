"""Pending gangs that would start if GPUs that are held idle were free. A pure function over a snapshot.

Gangs are tried in order: higher priority first, then the older. One starts if its queue may hold its GPUs (quota, with
what it may borrow from its cohort) and all of its pods find room at once on nodes of one model, each where it fits
tightest. What started keeps its place. In a strict queue the first that cannot start holds up those behind it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gpus.capacity.queue_terms import Terms

Key = tuple[str, str]
"""System and queue."""


@dataclass(frozen=True, slots=True)
class Room:
    """GPUs of one kind on a node: free, with what would be given back."""

    node: str
    model: str
    profile: str
    gpus: int
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pending:
    """A gang that waits."""

    key: Any
    queue: Key
    pods: Sequence[Sequence[int]]
    profile: str
    created_at: datetime
    priority: int = 0
    selector: Mapping[str, str] = field(default_factory=dict)
    is_active: bool = True
    has_quota: bool = False
    """Its queue holds its GPUs already, and it is in the way of no other there."""

    @property
    def gpus(self) -> int:
        return sum(count * each for count, each in self.pods)


@dataclass(frozen=True, slots=True)
class Answer:
    gang: Pending
    starts: bool
    why: str
    """Why it does not; empty where it starts."""
    model: str = ""


MOST_STEPS = 5_000_000
"""Of one answer: comparisons and copies, some seconds of one core at worst. One tenant's selectors may ask for any
number."""
STOPPED = "its queue is stopped"
INACTIVE = "it is switched off"
BEHIND = "one before it in its queue holds it up"
NO_QUOTA = "its queue has no quota for it"
UNKNOWN = "its queue is not known"
NOT_JUDGED = "not judged: too many gangs and kinds of nodes"
QUOTA = "its queue may not hold that many"
COHORT = "its cohort has nothing left to lend"
ROOM = "too few are free on nodes of one model"


def judge(pending: Iterable[Pending], rooms: Iterable[Room], terms: Mapping[Key, Terms]) -> list[Answer]:
    """Answer for each gang, in the order in which they are tried. `terms.used` is without what is given back."""
    ledger, stage = _Ledger(terms), _Stage(rooms)
    blocked: set[Key] = set()
    answers = []
    for gang in sorted(pending, key=lambda gang: (-gang.priority, gang.created_at, str(gang.key))):
        why, model = _why_not(gang, ledger, blocked), ""
        if not why:
            model = stage.place(gang)
            why = "" if model else stage.reason
        if gang.has_quota:
            pass  # counted as used already
        elif not why:
            ledger.take(gang)
        elif why not in (INACTIVE, BEHIND) and ledger.is_strict(gang.queue):
            blocked.add(gang.queue)
        answers.append(Answer(gang, not why, why, model))
    return answers


def _why_not(gang: Pending, ledger: _Ledger, blocked: set[Key]) -> str:
    if not gang.is_active:
        return INACTIVE
    if gang.has_quota:
        return ""
    return BEHIND if gang.queue in blocked else ledger.why_not(gang)


class _Ledger:
    """GPUs that queues and cohorts hold while gangs start."""

    def __init__(self, terms: Mapping[Key, Terms]) -> None:
        self.terms = terms
        self.used = {(key, kind): line.used for key, term in terms.items() for kind, line in term.lines.items()}
        self.nominal: dict[tuple[str, str], int] = defaultdict(int)
        self.of_cohort: dict[tuple[str, str], int] = defaultdict(int)
        for term in terms.values():
            for kind, line in term.lines.items() if term.cohort else ():
                self.nominal[term.cohort, kind] += line.nominal or 0
                self.of_cohort[term.cohort, kind] += line.used

    def is_strict(self, queue: Key) -> bool:
        return queue in self.terms and self.terms[queue].is_strict

    def why_not(self, gang: Pending) -> str:
        term = self.terms.get(gang.queue)
        if term is None:  # of no queue: the scheduler places it where there is room
            return "" if gang.queue[0] == "pods" else UNKNOWN
        if term.is_stopped:
            return STOPPED
        line = term.lines.get(gang.profile)
        if line is None:
            return NO_QUOTA if gang.queue[0] == "kueue" else ""
        holds = self.used[gang.queue, gang.profile] + gang.gpus
        if line.ceiling is not None and holds > line.ceiling:
            return QUOTA
        place = (term.cohort, gang.profile)
        return COHORT if term.cohort and self.of_cohort[place] + gang.gpus > self.nominal[place] else ""

    def take(self, gang: Pending) -> None:
        term = self.terms.get(gang.queue)
        if term is not None and gang.profile in term.lines:
            self.used[gang.queue, gang.profile] += gang.gpus
            if term.cohort:
                self.of_cohort[term.cohort, gang.profile] += gang.gpus


class _Stage:
    """Room on nodes while gangs are placed: by profile, model and labels sorted lists of free GPUs."""

    def __init__(self, rooms: Iterable[Room]) -> None:
        self.free: dict[tuple[str, str, frozenset[tuple[str, str]]], list[int]] = defaultdict(list)
        self.failed: set[Any] = set()
        """What found no room, and will find none: room only gets less."""
        self.left = MOST_STEPS
        self.reason = ROOM
        for room in rooms:
            if room.gpus > 0:
                insort(self.free[room.profile, room.model, frozenset(room.labels.items())], room.gpus)

    def place(self, gang: Pending) -> str:
        """Take room for all pods and return on which model; empty, and nothing taken, where one finds none."""
        wanted = set(gang.selector.items())
        alike = (gang.profile, frozenset(wanted), tuple(map(tuple, gang.pods)))
        self.reason = ROOM
        if alike in self.failed:
            return ""
        if self.left < 0:
            self.reason = NOT_JUDGED
            return ""
        groups = [key for key in self.free if key[0] == gang.profile and wanted <= key[2]]
        self.left -= len(self.free) + len(groups) * sum(count for count, _ in gang.pods)
        for model in sorted({model for _, model, _ in groups}):
            lists = {key: list(self.free[key]) for key in groups if key[1] == model}
            self.left -= sum(map(len, lists.values()))
            if sum(map(sum, lists.values())) >= gang.gpus and _all_placed(gang.pods, lists.values()):
                self.free |= lists
                return model or "unknown model"
        self.failed.add(alike)
        return ""


def _all_placed(pods: Iterable[Sequence[int]], lists: Iterable[list[int]]) -> bool:
    ordered = list(lists)
    return all(
        _one_placed(each, ordered) for count, each in sorted(pods, key=lambda pair: -pair[1]) for _ in range(count)
    )


def _one_placed(size: int, lists: Sequence[list[int]]) -> bool:
    """Take `size` GPUs of the fullest node that still has them."""
    tightest: tuple[int, list[int], int] | None = None
    for free in lists:
        place = bisect_left(free, size)
        if place < len(free) and (tightest is None or free[place] < tightest[0]):
            tightest = (free[place], free, place)
    if tightest is None:
        return False
    _, free, place = tightest
    left = free.pop(place) - size
    if left:
        insort(free, left)
    return True
