"""An eviction, and what an API server's refusal of one says about the pod."""

from __future__ import annotations

from clusters import objects
from clusters.fleet import Eviction, PodRef
from simfleet.apiserver.callers import Caller
from simfleet.apiserver.store import ApiError, Raw
from simfleet.core import SimCluster


def evict(cluster: SimCluster, caller: Caller, pod: PodRef, grace_seconds: int | None) -> Eviction:
    """Raises ApiError for what is not about this pod."""
    options: Raw = {"preconditions": {"uid": pod.uid}}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": options,
    }
    try:
        cluster.api.evict(caller, pod.name, pod.namespace, body)
    except ApiError as error:
        return _refused(cluster, caller, pod, error)
    return Eviction("evicted")


def _refused(cluster: SimCluster, caller: Caller, pod: PodRef, error: ApiError) -> Eviction:
    wait = float(error.retry_after or 1)
    if error.code == 404:
        return Eviction("gone", message=error.message)
    if error.code == 409:
        stored = cluster.store.find("pods", pod.name, pod.namespace)
        is_there = stored is not None and stored.raw["metadata"]["uid"] == pod.uid
        return Eviction("throttled" if is_there else "gone", message=error.message)
    if error.code == 429 and any(cause["reason"] == "DisruptionBudget" for cause in error.causes):
        return Eviction("blocked", _budgets_of(cluster, caller, pod), wait, error.message)
    if error.code == 429:
        return Eviction("throttled", retry_after=wait, message=error.message)
    if error.code == 500 and "more than one PodDisruptionBudget" in error.message:
        return Eviction("blocked", _budgets_of(cluster, caller, pod), wait, error.message)
    raise error


def _budgets_of(cluster: SimCluster, caller: Caller, pod: PodRef) -> str:
    labels = cluster.api.get(caller, "pods", pod.name, pod.namespace).raw["metadata"].get("labels") or {}
    page = cluster.api.list(caller, "poddisruptionbudgets", pod.namespace)
    ours = [budget for budget in page.items if objects.selects(budget.raw["spec"].get("selector"), labels)]
    return ", ".join(f"{pod.namespace}/{budget.key[1]}" for budget in ours)
