"""The start of a pod, from its own conditions and container states. Pure, and nothing raises: pods are untrusted input.

Times are written in whole seconds, by several clocks: creation and PodScheduled by the API server, everything after by
the node's kubelet. The kubelet keeps a condition's lastTransitionTime while its status is the same (in
pkg/kubelet/status/status_manager.go, updateLastTransitionTime), so Ready False since before a container started means:
never ready yet. Later states tell nothing of the first time a pod was ready: a probe that failed for a moment leaves no
other trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from clusters import objects
from clusters.inventory import rows

LONGEST = timedelta(days=30)
"""A span beyond it is taken for a wrong clock."""
RESOLUTION = timedelta(seconds=1)
"""Of the times in a pod. The kubelet writes startTime and the first conditions together."""
MOST_CONTAINERS = 256
MOST_RESTARTS = 2**31 - 1
MODEL_LABELS = ("serving.kserve.io/inferenceservice", "llm-d.ai/model", "model")
"""Of the model that a pod serves: KServe's, llm-d's, and that of vLLM's production stack."""
SPANS = {
    "queue_seconds": ("created_at", "scheduled_at"),
    "prepare_seconds": ("scheduled_at", "started_at"),
    "load_seconds": ("started_at", "ready_at"),
}
"""Of the stored times, by the column that has the seconds between them."""

Raw = Mapping[str, Any]


class Progress(Enum):
    """Part of its start in which a pod is, as far as this one state of it tells."""

    NOT_READY_YET = "not-ready-yet"
    READY = "ready"
    UNKNOWN = "unknown"
    """Not ready now; whether it was before cannot be told."""


def progress(pod: Raw) -> Progress:
    """Return how far the start of an unfinished pod is."""
    status = _map(pod.get("status"))
    conditions = _conditions(status)
    if _is_true(conditions, "Ready"):
        return Progress.READY
    statuses = _statuses(status)
    if any(_count(entry.get("restartCount")) for entry in statuses):
        return Progress.UNKNOWN
    if any(_map(entry.get("lastState")) for entry in statuses):
        return Progress.UNKNOWN
    began = [at for entry in statuses if (at := _started(entry))]
    since = rows.instant(_map(conditions.get("Ready")).get("lastTransitionTime"))
    if "Ready" not in conditions:
        return Progress.UNKNOWN if began else Progress.NOT_READY_YET
    if since is None:
        return Progress.UNKNOWN
    if start := rows.instant(status.get("startTime")):
        began.append(start)
    is_first = bool(began) and since - max(began) <= RESOLUTION
    return Progress.NOT_READY_YET if is_first else Progress.UNKNOWN


def described(pod: Raw) -> dict[str, Any]:
    """Return what the pod tells of its start: columns of PodStart, without those of the pod's row."""
    metadata, spec, status = (_map(pod.get(name)) for name in ("metadata", "spec", "status"))
    containers, statuses = _own(spec), _statuses(status)
    probed = {_text(container.get("name"), 63) for container in containers if _has_probe(container)}
    names = probed or {_text(container.get("name"), 63) for container in containers}
    conditions = _conditions(status)
    began = [at for entry in statuses if _text(entry.get("name"), 63) in names and (at := _started(entry))]
    labels = _map(metadata.get("labels"))
    return timed(
        {
            "image": _text(containers[0].get("image"), 512) if containers else "",
            "model": next((text for key in MODEL_LABELS if (text := _text(labels.get(key), 63))), ""),
            "has_probe": bool(probed),
            "restarts": min(sum(_count(entry.get("restartCount")) for entry in statuses), MOST_RESTARTS),
            "created_at": rows.instant(metadata.get("creationTimestamp")),
            "scheduled_at": _since(conditions, "PodScheduled"),
            "sandbox_at": _since(conditions, "PodReadyToStartContainers"),
            "initialized_at": _since(conditions, "Initialized"),
            "started_at": min(began, default=None),
            "ready_at": _ready_at(conditions),
        }
    )


def timed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with the seconds of each span, and how many spans were dropped.

    A span that is negative or longer than LONGEST is dropped, never clamped: its two clocks do not agree. A run after
    a restart is no first run, and a pod without a probe is ready as soon as it runs: neither has a load time.
    """
    spans: dict[str, int | None] = {}
    dropped = 0
    for column, (first, last) in SPANS.items():
        begin, end = values[first], values[last]
        spans[column] = None
        if begin is None or end is None or (values["restarts"] and "started_at" in (first, last)):
            continue
        if not timedelta(0) <= end - begin <= LONGEST:
            dropped += 1
        elif column != "load_seconds" or values["has_probe"]:
            spans[column] = int((end - begin).total_seconds())
    return {**values, **spans, "dropped": dropped}


def why_not(pod: Raw) -> str:
    """Return why a pod was not ready, as Kubernetes names it; empty where it does not say."""
    status = _map(pod.get("status"))
    if reason := _text(status.get("reason"), 80):
        return reason
    initial = _maps(status.get("initContainerStatuses"))[:MOST_CONTAINERS]
    for entry in (*_statuses(status), *initial):
        for state in (_map(entry.get("state")), _map(entry.get("lastState"))):
            for name in ("waiting", "terminated"):
                reason = _text(_map(state.get(name)).get("reason"), 80)
                if reason not in ("", "ContainerCreating", "PodInitializing", "Completed"):
                    return reason
    return _text(_map(_conditions(status).get("PodScheduled")).get("reason"), 80)


def _ready_at(conditions: Mapping[str, Raw]) -> datetime | None:
    """Return when all containers were ready: readiness gates of the pod, which Ready waits for too, load nothing."""
    if not _is_true(conditions, "Ready"):
        return None
    ready, containers = _since(conditions, "Ready"), _since(conditions, "ContainersReady")
    return min(ready, containers) if ready and containers else ready


def _own(spec: Raw) -> list[Raw]:
    """Return the containers that request GPUs or use claims; all of them where none does."""
    containers = _maps(spec.get("containers"))[:MOST_CONTAINERS]
    return [container for container in containers if _holds_gpus(container)] or containers


def _holds_gpus(container: Raw) -> bool:
    resources = _map(container.get("resources"))
    wanted = (_map(resources.get(name)) for name in ("limits", "requests"))
    return any(objects.gpu_count(part) > 0 for part in wanted) or bool(_maps(resources.get("claims")))


def _has_probe(container: Raw) -> bool:
    """Return whether readiness waits for the container; a startup probe holds it back as well."""
    return any(_map(container.get(name)) for name in ("readinessProbe", "startupProbe"))


def _started(entry: Raw) -> datetime | None:
    return rows.instant(_map(_map(entry.get("state")).get("running")).get("startedAt"))


def _statuses(status: Raw) -> list[Raw]:
    return _maps(status.get("containerStatuses"))[:MOST_CONTAINERS]


def _conditions(status: Raw) -> dict[str, Raw]:
    named = ((item.get("type"), item) for item in _maps(status.get("conditions"))[:MOST_CONTAINERS])
    return {type_: item for type_, item in named if isinstance(type_, str)}


def _is_true(conditions: Mapping[str, Raw], type_: str) -> bool:
    return _map(conditions.get(type_)).get("status") == "True"


def _since(conditions: Mapping[str, Raw], type_: str) -> datetime | None:
    """Return since when a condition is True; None while it is not."""
    if not _is_true(conditions, type_):
        return None
    return rows.instant(conditions[type_].get("lastTransitionTime"))


def _count(value: object) -> int:
    return max(value, 0) if type(value) is int else 0


def _map(value: object) -> Raw:
    return value if isinstance(value, Mapping) else {}


def _maps(value: object) -> list[Raw]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _text(value: object, limit: int) -> str:
    """Return the text as a column can hold it: without NUL and lone surrogates, which PostgreSQL refuses."""
    if not isinstance(value, str):
        return ""
    return value[: 4 * limit].replace("\0", "").encode("utf-8", "replace").decode()[:limit]
