"""Log of a rollout, and the one sentence that its page shows about what it waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from common.clock import now
from jobs.engine.step_counts import StepTally
from jobs.models import Rollout, Step, StepEvent


def clock_time(at: datetime) -> str:
    """A time of today by its clock, another day's with the day: what people read in sentences."""
    at = at.astimezone(UTC)
    return f"{at:%H:%M:%S} UTC" if at.date() == now().astimezone(UTC).date() else f"{at:%b %d, %H:%M} UTC"


def count_sentence(steps: Iterable[Step]) -> str:
    """`3 nodes`, `1 component`, `2 nodes, 1 component and 1 group of policy objects`."""
    return kinds_sentence(Counter(step.kind for step in steps))


_WORDS = (
    (Step.Kind.NODE, "node", "nodes"),
    (Step.Kind.COMPONENT, "component", "components"),
    (Step.Kind.POLICIES, "group of policy objects", "groups of policy objects"),
)


def kinds_sentence(counts: Mapping[str, int]) -> str:
    phrases = [
        f"{count} {singular if count == 1 else many}"
        for kind, singular, many in _WORDS
        if (count := counts.get(kind, 0))
    ]
    return join_names(phrases) or "0 nodes"


def join_names(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def set_waiting_sentence(rollout: Rollout, sentence: str, since: datetime | None = None) -> None:
    """Change what the page says is waited for; nothing is written when it is the same (law 4), or once it has ended:
    a worker that comes late would leave its sentence there for ever. `since`: where it has waited longer than it is
    told.
    """
    sentence = sentence[:500]
    if rollout.waiting_for != sentence:
        rollout.waiting_for, rollout.waiting_since = sentence, since or now()
        Rollout.objects.live().filter(pk=rollout.pk).update(waiting_for=sentence, waiting_since=rollout.waiting_since)


def set_sentence_unless_held(rollout: Rollout, tally: StepTally, sentence: str) -> None:
    """Say it, unless a step is held: that waits for an operator, the rest for time, and `progress.settle` says it."""
    if not tally.holds(rollout):
        set_waiting_sentence(rollout, sentence)


def log(rollout: Rollout, text: str, level: str = "info", step: Step | None = None) -> None:
    StepEvent.objects.create(rollout=rollout, step=step, level=level, text=text[:1000])
