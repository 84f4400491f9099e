"""Every node of a cluster that is ours has a NodeTuning: in mode observe, until an approved plan asks for more."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.conf import settings

from clusters.fleet import Fleet, FleetError
from clusters.inventory import store
from clusters.models import Cluster, Node
from common import hooks
from contract.nodetuning import MAX_OBSERVED, Mode, Spec

log = logging.getLogger(__name__)

AT_ONCE = 1000
"""Nodes enrolled in one call, so that a chore over a large new cluster shows its work as it goes."""


def enrol(cluster: Cluster, fleet: Fleet) -> int:
    """Create what is missing. Returns how many nodes were enrolled; those that failed are tried the next time.

    A predecessor's object still standing under the name is left to Kubernetes' garbage collector, which owns it. When
    not even the first can be created (the resource is not installed, say), the row says why.
    """
    if cluster.ownership != Cluster.Ownership.OURS:
        return 0
    missing = list(
        Node.objects.present().filter(cluster=cluster, tuning=None).order_by("pk").values_list("name", "uid")[:AT_ONCE]
    )
    if not missing:
        return 0
    observe = observed_keys()

    def create(name: str, uid: str) -> Mapping[str, Any]:
        return fleet.observe(name, uid, Spec(node_uid=uid, mode=Mode.OBSERVE, observe=observe))

    def try_to(name: str, uid: str) -> Mapping[str, Any] | None:
        try:
            return create(name, uid)
        except FleetError as error:
            log.warning("node %s of %s is not enrolled yet: %s", name, cluster, error)
            return None

    first, *rest = missing
    try:
        made = [create(*first)]
    except FleetError as error:
        _note(cluster, str(error))
        return 0
    _note(cluster, "")
    if rest:
        with ThreadPoolExecutor(settings.SETPOINT_PARALLEL_CALLS, thread_name_prefix="enrol") as pool:
            made += [raw for raw in pool.map(lambda node: try_to(*node), rest) if raw]
    return len(store.observe_tunings(cluster, made, complete=False).changed)


def _note(cluster: Cluster, reason: str) -> None:
    reason = reason.replace("\0", "")[:500]
    if cluster.enrolment_error != reason:
        Cluster.objects.filter(pk=cluster.pk).update(enrolment_error=reason)
        cluster.enrolment_error = reason


def observed_keys() -> tuple[str, ...]:
    """Return the keys that every agent reports: those of the catalog, from the apps above."""
    return tuple(sorted(set(hooks.observed_keys())))[:MAX_OBSERVED]
