"""A rollout over windows as a model of its own: time passes in ticks, and windows come from dateutil.

Written from docs/laws.md, with nothing of the forecast that it judges: no spans, no events, no spread of durations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from dateutil import rrule

TICK = 15


@dataclass(frozen=True)
class RuleText:
    kind: str
    starts: str
    zone: str
    minutes: int
    rule: str

    def times(self, begin: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
        first = datetime.fromisoformat(self.starts)
        local = rrule.rrulestr(self.rule, dtstart=first).between(
            begin.replace(tzinfo=None) - timedelta(days=3), end.replace(tzinfo=None) + timedelta(days=3), inc=True
        )
        starts = [at.replace(tzinfo=ZoneInfo(self.zone)).astimezone(UTC) for at in local]
        return [(at, at + timedelta(minutes=self.minutes)) for at in starts]


@dataclass
class NodeModel:
    seconds: float
    """That it really takes."""
    needed: float
    takes_slot: bool
    freed: float = 0.0
    """When its work ends, and its slot comes free; 0: it has not begun."""


class RolloutModel:
    def __init__(self, rules: Sequence[RuleText], begins: datetime, *, budget: int, at_once: int, soak: int, gate: int):
        self.begins, self.budget, self.at_once, self.soak, self.gate = begins, budget, at_once, soak, gate
        end = begins + timedelta(days=120)
        every = [(rule.kind, self._seconds(a), self._seconds(b)) for rule in rules for a, b in rule.times(begins, end)]
        self.windows = sorted((a, b) for kind, a, b in every if kind == "window" and b > 0)
        self.freezes = sorted((a, b) for kind, a, b in every if kind == "freeze" and b > 0)
        self.has_windows = any(rule.kind == "window" for rule in rules)

    def _seconds(self, at: datetime) -> float:
        return (at - self.begins).total_seconds()

    def left(self, at: float) -> float:
        """Return for how long it is open yet; 0: it is closed. Time never goes back."""
        for times in (self.windows, self.freezes):
            while times and times[0][1] <= at:
                del times[0]
        if any(a <= at < b for a, b in self.freezes[:3]):
            return 0
        until = max((b for a, b in self.windows[:3] if a <= at < b), default=at) if self.has_windows else 1e12
        return min([until, *(a for a, _ in self.freezes[:3] if a > at)]) - at

    def run(self, batches: Sequence[Sequence[NodeModel]]) -> float:
        """Return the seconds until the last node succeeded."""
        at, succeeded = 0.0, 0.0
        for number, batch in enumerate(batches):
            if number:
                lives = [n.freed + self.soak for b in batches[:number] for n in b if n.freed and not n.takes_slot]
                at = max([at, succeeded + self.gate, *lives])
            waiting = list(batch)
            while waiting or any(self._end(node) > at for node in batch):
                working = sum(n.takes_slot and n.freed > at for n in batch)
                active = sum(self._end(n) > at for n in batch)
                left = self.left(at) if waiting else 0
                for node in list(waiting) if left else ():
                    has_place = active < self.at_once and (not node.takes_slot or working < self.budget)
                    if left >= node.needed and has_place:
                        node.freed = at + node.seconds
                        active, working = active + 1, working + node.takes_slot
                        waiting.remove(node)
                at += 60 if left == 0 and not active else TICK
                assert at < 110 * 86_400, "it never ends"
            succeeded = max([succeeded, *(self._end(node) for node in batch)])
        return succeeded

    def _end(self, node: NodeModel) -> float:
        return node.freed + (self.soak if node.takes_slot and node.freed else 0)
