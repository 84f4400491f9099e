"""The exporters' own pods, as the API server knows them: to be read one by one, and never to be taken for a holder.

Prometheus needs them as well as direct reading does: what their labels leave open, whose a GPU is and on which node,
the API server knows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from clusters import objects
from clusters.fleet import Fleet, FleetError
from common.clock import now
from gpus.metrics import amd
from gpus.metrics.samples import ExporterPod
from gpus.telemetry.source import Gathering

SELECTORS = ("app=nvidia-dcgm-exporter", "app.kubernetes.io/name=dcgm-exporter", amd.POD_LABEL)
"""Of NVIDIA's GPU Operator, and of its exporter's own chart; of AMD's operator and chart alike."""
KEEP = timedelta(minutes=5)
"""How long one answer serves readings of Prometheus: 5,000 pods are 25 MB, and they hardly ever move."""
_lock = threading.Lock()
_kept: dict[UUID, tuple[datetime, list[ExporterPod]]] = {}


def listed(fleet: Fleet, namespace: str = "") -> list[dict[str, Any]]:
    """Those that run or start; with `namespace` only those in it. Raises FleetError."""
    pods = {
        str(objects.meta(pod).get("uid")): pod
        for label in SELECTORS
        for pod in fleet.labeled_pods(label)
        if label != amd.POD_LABEL or is_amd(pod)
    }
    return [pod for pod in pods.values() if _is_meant(pod, namespace)]


def is_amd(pod: Mapping[str, Any]) -> bool:
    return amd.IMAGE in _image(pod)


def _is_meant(pod: dict[str, Any], namespace: str) -> bool:
    """Return whether the pod is an exporter: any pod may carry the labels, but one that requests GPUs is a workload."""
    meta = objects.meta(pod)
    if (namespace and meta.get("namespace") != namespace) or objects.pod_gpus(pod):
        return False
    return not objects.is_finished(pod) and not meta.get("deletionTimestamp")


def known(pod: Mapping[str, Any]) -> ExporterPod:
    spec, status, meta = pod.get("spec") or {}, pod.get("status") or {}, objects.meta(pod)
    place = str(meta.get("namespace")), str(meta.get("name"))
    return ExporterPod(*place, str(spec.get("nodeName") or ""), str(status.get("podIP") or ""), _image(pod))


def _image(pod: Mapping[str, Any]) -> str:
    return next(
        (str(container.get("image") or "") for container in (pod.get("spec") or {}).get("containers") or ()), ""
    )


def learn(cluster_id: UUID, connect: Callable[[], Fleet], namespace: str, into: Gathering) -> None:
    """Puts a cluster's exporters into `into`, lately listed ones as they were. Where that fails, says what it costs."""
    at = now()
    with _lock:
        have = _kept.get(cluster_id)
    if have is None or not at - KEEP < have[0] <= at:
        try:
            have = at, [known(pod) for pod in listed(connect())]
        except FleetError as error:
            why = f"could not be listed, so labels alone say whose a GPU is: {error}."
            into.note_reason("The exporters' pods", why)
            return
        with _lock:
            _kept[cluster_id] = have
    into.exporters += [pod for pod in have[1] if not namespace or pod.namespace == namespace]


def forget(cluster_id: UUID) -> None:
    """The next reading lists them again."""
    with _lock:
        _kept.pop(cluster_id, None)
