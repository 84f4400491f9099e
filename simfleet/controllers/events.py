"""Events that people read to find out why a pod does not start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simfleet.apiserver.store import Raw, Stored
from simfleet.clock import stamp

if TYPE_CHECKING:
    from simfleet.core import SimCluster


def warn(cluster: SimCluster, pod: Stored, reason: str, message: str) -> None:
    """One Event per pod and reason, counted when it comes again."""
    namespace, name = pod.key
    at = stamp(cluster.clock.now())
    known = f"{name}.{reason.lower()}"
    if earlier := cluster.store.find("events", known, namespace):
        again = {"count": earlier.raw["count"] + 1, "lastTimestamp": at, "message": message}
        cluster.store.write("events", earlier.raw | again)
        return
    event: Raw = {
        "metadata": {"name": known, "namespace": namespace},
        "involvedObject": {"kind": "Pod", "namespace": namespace, "name": name, "uid": pod.raw["metadata"]["uid"]},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": "kubelet", "host": pod.raw["spec"].get("nodeName", "")},
        "count": 1,
        "firstTimestamp": at,
        "lastTimestamp": at,
    }
    cluster.store.create("events", event)
