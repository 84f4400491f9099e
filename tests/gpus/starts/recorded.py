"""Rows of starts for tests of their figures, pages and REST."""

from __future__ import annotations

import itertools
from datetime import timedelta

from clusters.inventory import start_times
from clusters.models import PodStart

_numbers = itertools.count()


def start(cluster, at, *, queue=5, prepare=60, load=240, node="n1", image="vllm:1", has_probe=True, restarts=0, **more):
    """A start that was over at `at`, as the watch would have written it."""
    number, outcome = next(_numbers), more.get("outcome", "ready")
    ready = at if outcome == "ready" else None
    started = at - timedelta(seconds=load)
    scheduled = started - timedelta(seconds=prepare)
    times = {
        "created_at": scheduled - timedelta(seconds=queue), "scheduled_at": scheduled, "started_at": started,
        "ready_at": ready, "restarts": restarts, "has_probe": has_probe,
    }  # fmt: skip
    named = {"namespace": "serving", "name": f"p{number}", "uid": f"u{number}", "node_name": node, "gpus": 8}
    values = named | {"image": image, "outcome": outcome, "ended_at": at} | start_times.timed(times) | more
    return PodStart.objects.create(cluster=cluster, **values)
