"""Choice of a Prometheus that knows the hosts of a cluster whose GPUs are read from exporters.

The same services are asked as for GPUs, for the node exporter's `node_uname_info`, and the choice is kept for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from common.clock import now
from gpus.models import TelemetrySource
from gpus.telemetry.autodetect import WELL_KNOWN
from gpus.telemetry.expressions import Expressions, Unanswered
from gpus.telemetry.source import Unreadable

KEEP = timedelta(hours=1)
KEEP_NONE = timedelta(minutes=5)
ASK_SECONDS = 4.0
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class _Choice:
    until: datetime
    service: str
    """Empty: there is none."""
    why: str = ""
    """Of none: how the first service failed, as a sentence."""


_kept: dict[UUID, _Choice] = {}


def choose(source: TelemetrySource, served: Callable[[str], Expressions]) -> Expressions:
    """Return the Prometheus that knows the most hosts. Raises Unreadable where none of the services knows any."""
    with _lock:
        kept = _kept.get(source.cluster_id)
    if kept is None or kept.until <= now():
        kept = _best(source, served)
        with _lock:
            _kept[source.cluster_id] = kept
    if not kept.service:
        raise Unreadable(
            "No Prometheus of this cluster was found: none of the services at which one usually is has the node "
            f"exporter's node_uname_info. {kept.why} Name one in the settings of the source."
        )
    return served(kept.service)


def forget(cluster_id: UUID) -> None:
    """Look again at the next page view, as after a change of the source."""
    with _lock:
        _kept.pop(cluster_id, None)


def _best(source: TelemetrySource, served: Callable[[str], Expressions]) -> _Choice:
    query = f"count(node_uname_info{{{source.selector}}})"

    def hosts(service: str) -> float | str:
        try:
            expressions = served(service)
            expressions = replace(expressions, deadline=min(expressions.deadline, time.monotonic() + ASK_SECONDS))
            return next((points[-1][1] for _, points in expressions.at(query, now()) if points), 0.0)
        except Unanswered as error:
            return str(error)

    with ThreadPoolExecutor(max_workers=len(WELL_KNOWN), thread_name_prefix="hosts") as pool:
        answers = dict(zip(WELL_KNOWN, pool.map(hosts, WELL_KNOWN), strict=True))
    counts = {name: answer for name, answer in answers.items() if isinstance(answer, float) and answer}
    if counts:
        return _Choice(now() + KEEP, max(counts, key=lambda name: counts[name]))
    why = next((answer for answer in answers.values() if isinstance(answer, str)), "")
    return _Choice(now() + KEEP_NONE, "", why)
