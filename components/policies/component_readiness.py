"""Readiness of the policy objects of components: what their own controllers answer in the status of each kind.

Sources: Fluid 1.0.8, External Secrets 2.9.0, Rook 1.20.6, Istio 1.30.3, slurm-operator 1.2.1, Prometheus Operator of
kube-prometheus-stack 88.5.3: the types and the controllers that write their status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.fleet import Fleet
from components.policies.policy_readiness import lacks, status_of

_SHOWN = 300
UNSEEN = "is not looked at by its controller yet."


def _why(text: Any) -> str:
    return f": {str(text)[:_SHOWN]}" if text else ""


# ── Fluid ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def dataset(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """Bound: a runtime of its name holds it. Without one it stays NotBound for ever."""
    phase = status_of(live).get("phase")
    if phase == "Bound":
        return ""
    if not phase:
        return UNSEEN
    return f"is {phase}{' to a runtime of its name yet' if phase == 'NotBound' else ', not Bound'}."


def alluxio_runtime(fleet: Fleet, live: Mapping[str, Any]) -> str:
    return _runtime(live, ("master", "worker"))


def juicefs_runtime(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """Explain what is missing of its workers: it has no masters."""
    return _runtime(live, ("worker",))


def _runtime(live: Mapping[str, Any], parts: tuple[str, ...]) -> str:
    """All of its masters and workers; pods that mount it come with those that use it, and are not waited for."""
    status = status_of(live)
    if not status:
        return UNSEEN
    for part in parts:
        if (phase := status.get(f"{part}Phase")) != "Ready":
            return f"has its {part}s {phase or 'not started'}{_why(status.get(f'{part}Reason'))}."
    wanted = (live.get("spec") or {}).get("replicas")
    ready = status.get("workerNumberReady") or 0
    if isinstance(wanted, int) and ready != wanted:
        return f"has {ready} of {wanted} workers ready."
    return ""


def data_load(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """Loaded; or, where it repeats or waits for another, taken on by Fluid and not failed."""
    status, policy = status_of(live), (live.get("spec") or {}).get("policy", "Once")
    phase = status.get("phase")
    if phase == "Complete" or (policy != "Once" and phase in ("Pending", "Executing")):
        return ""
    if not phase:
        return UNSEEN
    conditions = status.get("conditions") or ()
    message = conditions[-1].get("message") if conditions else ""
    return f"is {phase}, not Complete{_why(message)}."


# ── External Secrets ──────────────────────────────────────────────────────────────────────────────────────────────────
def external_secrets(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """A store reaches its provider; an ExternalSecret is fetched, one of the cluster in each of its namespaces."""
    if missing := lacks(live, "Ready", "ready"):
        return missing
    # Of an ExternalSecret: the generation that was fetched, and a hash of its metadata.
    seen = str(status_of(live).get("syncedResourceVersion") or "").partition("-")[0]
    if seen.isdecimal() and int(seen) < (live.get("metadata") or {}).get("generation", 0):
        return "was changed since it was last fetched."
    failed = status_of(live).get("failedNamespaces") or ()
    if failed:
        return f"failed in namespace {failed[0].get('namespace')}{_why(failed[0].get('reason'))}."
    return ""


# ── Rook ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
_AT_WORK = ("Ready", "Connected")
"""Connected: a Ceph cluster outside of Kubernetes, or a store of one."""


def ceph_cluster(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """A warning of Ceph's is no reason to wait: a cluster that works has one often."""
    if missing := ceph(fleet, live):
        return missing
    status = status_of(live)
    health = (status.get("ceph") or {}).get("health")
    if health in ("HEALTH_OK", "HEALTH_WARN"):
        return ""
    details = (status.get("ceph") or {}).get("details") or {}
    named = ", ".join(sorted(details)[:3])
    return f"is {status.get('phase')}, and its health is {health or 'not known yet'}{_why(named)}."


def ceph(fleet: Fleet, live: Mapping[str, Any]) -> str:
    status = status_of(live)
    phase, seen = status.get("phase"), status.get("observedGeneration")
    if not phase:
        return UNSEEN
    if isinstance(seen, int) and seen < (live.get("metadata") or {}).get("generation", 0):
        return "was changed since Rook last looked at it."
    return "" if phase in _AT_WORK else f"is {phase}, not Ready{_why(status.get('message'))}."


def holds_ceph(live: Mapping[str, Any]) -> str:
    """Once Rook took it on, it has a finalizer and a phase; before, nothing is stored in it."""
    if not status_of(live).get("phase") and not (live.get("metadata") or {}).get("finalizers"):
        return ""
    return "what is stored in it would go with it, or be out of reach; remove it by hand, where that is meant."


# ── Istio ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def istio(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """Istio judges its rules only where its analysis is turned on; what it then says of an error counts."""
    for message in status_of(live).get("validationMessages") or ():
        if message.get("level") == "ERROR":
            code = (message.get("type") or {}).get("code")
            return f"is called wrong by Istio{_why(code or message.get('documentationUrl'))}."
    return ""


# ── Slinky ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def slurm_controller(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """Releases up to 1.2 say nothing of it; later ones whether Slurm answers."""
    conditions = status_of(live).get("conditions") or ()
    is_reported = any(condition.get("type") == "SlurmReachable" for condition in conditions)
    return lacks(live, "SlurmReachable", "reachable") if is_reported else ""


def node_set(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """Every pod that it wants, up to date and ready; of what it scales itself, as many as Slinky says."""
    status, spec = status_of(live), live.get("spec") or {}
    if not status:
        return UNSEEN
    if status.get("observedGeneration", 0) < (live.get("metadata") or {}).get("generation", 0):
        return "was changed since Slinky last looked at it."
    wanted = status.get("desired", spec.get("replicas", 1))
    ready = status.get("readyReplicas") or 0
    if ready < wanted:
        return f"has {ready} of {wanted} nodes ready."
    updated = status.get("updatedReplicas") or 0
    by_itself = (spec.get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate"
    return f"has {updated} of {wanted} nodes as they are wanted." if by_itself and updated < wanted else ""


def login_set(fleet: Fleet, live: Mapping[str, Any]) -> str:
    status, wanted = status_of(live), (live.get("spec") or {}).get("replicas", 1)
    if not status:
        return UNSEEN
    made = status.get("replicas") or 0
    return f"has {made} of {wanted} pods." if made < wanted else ""


# ── Prometheus Operator ───────────────────────────────────────────────────────────────────────────────────────────────
def monitored(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """The operator says of it only behind a feature gate; what it then refuses counts."""
    for binding in status_of(live).get("bindings") or ():
        for condition in binding.get("conditions") or ():
            if condition.get("type") == "Accepted" and condition.get("status") == "False":
                who = f"{binding.get('namespace')}/{binding.get('name')}"
                return f"is not accepted by {who}{_why(condition.get('message') or condition.get('reason'))}."
    return ""
