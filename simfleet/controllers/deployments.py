"""Deployments: a new ReplicaSet grows and the old ones shrink, within maxSurge and maxUnavailable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simfleet.apiserver.store import Raw, Stored
from simfleet.clock import stamp
from simfleet.controllers.owned import (
    TEMPLATE_HASH,
    hash_of,
    reference,
    replicas_of,
    revision_of,
    share,
    since,
    status_number,
)

if TYPE_CHECKING:
    from simfleet.core import SimCluster


class Deployments:
    def __init__(self, cluster: SimCluster) -> None:
        self._cluster, self._store = cluster, cluster.store

    def look(self, owner: Stored) -> Raw:
        spec, wanted = owner.raw["spec"], replicas_of(owner)
        current = hash_of(spec["template"])
        sets = self._cluster.garbage.dependants(owner.raw["metadata"]["uid"], "replicasets")
        new = next((s for s in sets if s.raw["metadata"]["labels"].get(TEMPLATE_HASH) == current), None)
        old = [s for s in sets if s is not new and (replicas_of(s) or status_number(s, "replicas"))]
        rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
        surge = share(rolling.get("maxSurge", "25%"), wanted, is_up=True)
        spare = share(rolling.get("maxUnavailable", "25%"), wanted)
        if (spec.get("strategy") or {}).get("type") == "Recreate":
            surge, spare = 0, wanted
        spare = spare or int(surge == 0)  # else nothing could ever move
        if new is None:
            new = self._new_set(owner, current, 1 + max((revision_of(s) for s in sets), default=0))
        room = wanted + surge - sum(replicas_of(s) for s in old) - replicas_of(new)
        new = self._scale(new, min(wanted, replicas_of(new) + max(0, room)))
        self._shrink(old, new, wanted - spare)
        return self._status(owner, new, old, wanted, spare)

    def _shrink(self, old: list[Stored], new: Stored, least: int) -> None:
        """Broken pods of old sets first, then sound ones, as long as `least` stay available."""
        missing = max(0, replicas_of(new) - status_number(new, "availableReplicas"))
        may_go = sum(replicas_of(s) for s in (*old, new)) - least - missing
        # A set that was just told to shrink still counts the pods that it had.
        available = {s.key: min(status_number(s, "availableReplicas"), replicas_of(s)) for s in (*old, new)}
        spare = sum(available.values()) - least
        for replica_set in old:
            broken = max(0, min(replicas_of(replica_set) - available[replica_set.key], may_go))
            sound = max(0, min(available[replica_set.key], may_go - broken, spare))
            may_go, spare = may_go - broken - sound, spare - sound
            self._scale(replica_set, replicas_of(replica_set) - broken - sound)

    def _new_set(self, owner: Stored, current: str, revision: int) -> Stored:
        spec = owner.raw["spec"]
        template = dict(spec["template"])
        metadata = dict(template.get("metadata") or {})
        labels = {**(metadata.get("labels") or {}), TEMPLATE_HASH: current}
        template["metadata"] = metadata | {"labels": labels}
        matching = {**(spec["selector"].get("matchLabels") or {}), TEMPLATE_HASH: current}
        body: Raw = {
            "metadata": {
                "name": f"{owner.key[1]}-{current}",
                "namespace": owner.key[0],
                "labels": labels,
                "annotations": {"deployment.kubernetes.io/revision": str(revision)},
                "ownerReferences": [reference(owner, "Deployment")],
            },
            "spec": {"replicas": 0, "selector": spec["selector"] | {"matchLabels": matching}, "template": template},
        }
        return self._store.create("replicasets", body)

    def _scale(self, replica_set: Stored, count: int) -> Stored:
        if replicas_of(replica_set) == count:
            return replica_set
        spec = replica_set.raw["spec"] | {"replicas": count}
        return self._store.write("replicasets", replica_set.raw | {"spec": spec})

    def _status(self, owner: Stored, new: Stored, old: list[Stored], wanted: int, spare: int) -> Raw:
        updated, ready_new = status_number(new, "replicas"), status_number(new, "readyReplicas")
        total = updated + sum(status_number(s, "replicas") for s in old)
        ready = ready_new + sum(status_number(s, "readyReplicas") for s in old)
        is_available, is_done = ready >= wanted - spare, ready_new >= wanted and total == wanted
        at = stamp(self._cluster.clock.now())
        conditions = [
            {
                "type": "Available",
                "status": "True" if is_available else "False",
                "reason": "MinimumReplicasAvailable" if is_available else "MinimumReplicasUnavailable",
            },
            {
                "type": "Progressing",
                "status": "True",
                "reason": "NewReplicaSetAvailable" if is_done else "ReplicaSetUpdated",
            },
        ]
        return {
            "replicas": total,
            "updatedReplicas": updated,
            "readyReplicas": ready,
            "availableReplicas": ready,
            "unavailableReplicas": max(0, max(wanted, total) - ready),
            "conditions": since(conditions, owner.raw, at),
        }
