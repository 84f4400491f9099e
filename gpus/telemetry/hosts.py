"""Choice of a Prometheus that knows the hosts of a cluster whose GPUs are read from exporters.

The same services are asked as for GPUs, for the node exporter's `node_uname_info`, and the choice is kept for a while.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
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
_kept: dict[UUID, tuple[datetime, str]] = {}
"""By cluster: until when, and the service or an empty text for none."""


def choose(source: TelemetrySource, served: Callable[[str], Expressions]) -> Expressions:
    """Return the Prometheus that knows the most hosts. Raises Unreadable where none of the services knows any."""
    with _lock:
        until, service = _kept.get(source.cluster_id, (datetime.min.replace(tzinfo=now().tzinfo), ""))
    if until <= now():
        service = _best(source, served)
        with _lock:
            _kept[source.cluster_id] = now() + (KEEP if service else KEEP_NONE), service
    if not service:
        raise Unreadable(
            "No Prometheus with figures of hosts was found: none of the services at which one usually is has the node "
            "exporter's node_uname_info. Name one in the settings of the source."
        )
    return served(service)


def forget(cluster_id: UUID) -> None:
    """Look again at the next page view, as after a change of the source."""
    with _lock:
        _kept.pop(cluster_id, None)


def _best(source: TelemetrySource, served: Callable[[str], Expressions]) -> str:
    query = f"count(node_uname_info{{{source.selector}}})"

    def hosts(service: str) -> float:
        try:
            expressions = served(service)
            expressions = replace(expressions, deadline=min(expressions.deadline, time.monotonic() + ASK_SECONDS))
            return next((points[-1][1] for _, points in expressions.at(query, now()) if points), 0.0)
        except Unanswered:
            return 0.0

    with ThreadPoolExecutor(max_workers=len(WELL_KNOWN), thread_name_prefix="hosts") as pool:
        counts = dict(zip(WELL_KNOWN, pool.map(hosts, WELL_KNOWN), strict=True))
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] else ""
