"""The fleet port in memory: the same API semantics as the HTTP door, without a socket, a thread or a wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from clusters import fleet, objects
from clusters.fleet import (
    Conflict,
    Equipment,
    Event,
    Eviction,
    FleetRefused,
    FleetUnavailable,
    Forbidden,
    Gone,
    Identity,
    Kind,
    NotFound,
    Page,
    Permission,
    PodRef,
    Replaced,
    Review,
    Taint,
    Throttled,
)
from contract import names
from contract.nodetuning import Mode, Spec
from simfleet.api import SETPOINT, Caller
from simfleet.core import SimCluster
from simfleet.faults import Outage
from simfleet.store import RESOURCES, ApiError, Change, Raw, Stored

CONFLICT_TRIES = 4
NAMESPACES = {"leases": names.NAMESPACE}
Items = list[dict[str, Any]]


@contextmanager
def translated() -> Iterator[None]:
    """Turn the simulated API server's answers into the port's errors."""
    try:
        yield
    except Outage as error:
        raise FleetUnavailable(str(error)) from error
    except ApiError as error:
        raise _error(error) from error


def _error(error: ApiError) -> fleet.FleetError:
    if error.code == 429:
        return Throttled(error.message, float(error.retry_after or 1))
    if error.code >= 500:
        return FleetUnavailable(error.message)
    if error.code == 409 and "uid" in error.message.lower():
        return Replaced(error.message)
    refusals: dict[int, type[FleetRefused]] = {401: Forbidden, 403: Forbidden, 404: NotFound, 409: Conflict, 410: Gone}
    return refusals.get(error.code, FleetRefused)(error.message)


class SimFleet:
    """`clusters.fleet.Fleet` on a SimCluster, acting as Setpoint.

    Whatever faults are on apply; a latency of `timeout` seconds or more is a timeout, a shorter one is not waited for.
    """

    def __init__(self, cluster: SimCluster, *, caller: Caller = SETPOINT, timeout: float = 10.0) -> None:
        self.cluster, self._caller, self._timeout = cluster, caller, timeout
        self._api = cluster.api

    @property
    def calls(self) -> Mapping[tuple[str, str], int]:
        """(verb, resource or resource/subresource) to calls made so far, of all doors of this cluster."""
        return self.cluster.audit.calls

    @contextmanager
    def _talk(self) -> Iterator[None]:
        with translated():
            if self.cluster.faults.latency >= self._timeout:
                raise Outage(f"no answer within {self._timeout:.0f} s")
            yield

    # ── who and what ──────────────────────────────────────────────────────────────────────────────────────────────
    def identify(self) -> Identity:
        with self._talk():
            namespace = self._api.get(self._caller, "namespaces", "kube-system")
        return Identity(namespace.raw["metadata"]["uid"], self.cluster.version)

    def review(self, wanted: Sequence[Permission]) -> list[Review]:
        answers = []
        with self._talk():
            for permission in wanted:
                is_allowed = self._api.review(self._caller, permission.verb, permission.resource)
                answers.append(Review(permission, is_allowed, "" if is_allowed else "simulated RBAC"))
        return answers

    def equipment(self) -> Equipment:
        with self._talk():
            crd = self._exists("customresourcedefinitions", f"{names.PLURAL}.{names.GROUP}")
            policies = {
                name: self._exists("validatingadmissionpolicies", name)
                and self._exists("validatingadmissionpolicybindings", name)
                for name in (names.AGENT_POLICY, names.SPEC_POLICY)
            }
            try:
                found = self._api.get(self._caller, "daemonsets", names.AGENT_DAEMONSET, names.NAMESPACE)
                self.cluster.settle()
                daemons = self.cluster.store.get("daemonsets", *reversed(found.key)).raw.get("status") or {}
            except ApiError as error:
                if error.code != 404:
                    raise
                daemons = None
        missing = [f"CustomResourceDefinition {names.PLURAL}.{names.GROUP}"] if not crd else []
        missing += [f"ValidatingAdmissionPolicy {name}" for name, is_there in policies.items() if not is_there]
        missing += [f"DaemonSet {names.NAMESPACE}/{names.AGENT_DAEMONSET}"] if daemons is None else []
        daemons = daemons or {}
        return Equipment(
            crd,
            policies[names.AGENT_POLICY],
            policies[names.SPEC_POLICY],
            daemons.get("desiredNumberScheduled", 0),
            daemons.get("numberReady", 0),
            tuple(missing),
        )

    def _exists(self, plural: str, name: str) -> bool:
        try:
            self._api.get(self._caller, plural, name)
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    def installation(self) -> str | None:
        with self._talk():
            try:
                mark = self._api.get(self._caller, "configmaps", names.INSTALLATION_CONFIGMAP, names.NAMESPACE)
            except ApiError as error:
                if error.code == 404:
                    return None
                raise
            return str((mark.raw.get("data") or {}).get("installation", "")) or None

    def claim(self, installation: str, *, take_over: bool = False) -> str:
        body = {"metadata": {"name": names.INSTALLATION_CONFIGMAP}, "data": {"installation": installation}}
        standing = self.installation()
        if standing is None:
            with self._talk():
                try:
                    self._api.create(self._caller, "configmaps", body, names.NAMESPACE)
                except ApiError as error:
                    if error.code != 409:
                        raise
            return self.installation() or installation
        if standing == installation or not take_over:
            return standing
        with self._talk():
            self._api.patch(
                self._caller, "configmaps", names.INSTALLATION_CONFIGMAP, {"data": body["data"]}, names.NAMESPACE
            )
        return installation

    def release(self, installation: str) -> None:
        if self.installation() == installation:
            with self._talk():
                self._api.delete(self._caller, "configmaps", names.INSTALLATION_CONFIGMAP, names.NAMESPACE)

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────
    def list(self, kind: Kind, *, fresh: bool = False) -> Page:
        items: Items = []
        token, rv = "", 0
        with self._talk():
            while True:
                page = self._api.list(self._caller, kind, NAMESPACES.get(kind), limit=500, token=token)
                items += [_listed(kind, stored) for stored in page.items]
                token, rv = page.next, page.rv
                if not token:
                    return Page(items, str(rv))

    def watch(self, kind: Kind, resource_version: str, *, timeout: float = 300.0) -> Iterator[Event]:
        """With `live` off it ends, after a bookmark, when nothing is left to say."""
        with self._talk():
            for event in self._api.watch(
                self._caller, kind, int(resource_version or 0), NAMESPACES.get(kind), timeout=timeout
            ):
                if isinstance(event, Change):
                    yield Event(event.type, named(kind, event.now))
                else:
                    kind_ = RESOURCES[kind]
                    metadata = {"resourceVersion": str(event), "creationTimestamp": None}
                    yield Event("BOOKMARK", {"kind": kind_.kind, "apiVersion": kind_.api_version, "metadata": metadata})

    def node(self, name: str) -> Raw:
        with self._talk():
            return named("nodes", self._api.get(self._caller, "nodes", name))

    def tuning(self, name: str) -> Raw:
        with self._talk():
            return named("nodetunings", self._api.get(self._caller, "nodetunings", name))

    def pods_on(self, node: str) -> Items:
        with self._talk():
            page = self._api.list(self._caller, "pods", fields=f"spec.nodeName={node}")
            return [_listed("pods", stored) for stored in page.items]

    def pods(self) -> Items:
        return self.list("pods").items

    def budgets(self) -> Items:
        with self._talk():
            return [s.copy() for s in self._api.list(self._caller, "poddisruptionbudgets").items]

    def namespace_owner(self, namespace: str, kind: str, name: str) -> tuple[str, str]:
        plural = {"ReplicaSet": "replicasets", "Job": "jobs"}.get(kind)
        if plural is None:
            return kind, name
        with self._talk():
            try:
                found = self._api.get(self._caller, plural, name, namespace)
            except ApiError as error:
                if error.code == 404:
                    return kind, name
                raise
        owners = found.raw["metadata"].get("ownerReferences") or ()
        return next(((o["kind"], o["name"]) for o in owners if o.get("controller")), (kind, name))

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def cordon(self, node: str, uid: str, owner: str) -> Raw:
        metadata = {"uid": uid, "annotations": {names.CORDONED_BY: owner}}
        with self._talk():
            patch = {"metadata": metadata, "spec": {"unschedulable": True}}
            return named("nodes", self._api.patch(self._caller, "nodes", node, patch))

    def uncordon(self, node: str, uid: str, owner: str) -> Raw:
        current = self.node(node)
        have = current["metadata"]
        if have["uid"] != uid:
            raise Replaced(f"node {node} has UID {have['uid']} now, not {uid}")
        standing = (have.get("annotations") or {}).get(names.CORDONED_BY)
        if standing != owner:
            raise Conflict(f"node {node} is cordoned by {standing or 'nobody'}, not by {owner}")
        metadata = {
            "uid": uid,
            "resourceVersion": have["resourceVersion"],
            "annotations": {names.CORDONED_BY: None},
        }
        with self._talk():
            patch = {"metadata": metadata, "spec": {"unschedulable": None}}
            return named("nodes", self._api.patch(self._caller, "nodes", node, patch))

    def evict(self, pod: PodRef, *, grace_seconds: int | None = None) -> Eviction:
        options: Raw = {"preconditions": {"uid": pod.uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        with self._talk():
            try:
                self._api.evict(self._caller, pod.name, pod.namespace, body)
            except ApiError as error:
                return self._not_evicted(pod, error)
        return Eviction("evicted")

    def _not_evicted(self, pod: PodRef, error: ApiError) -> Eviction:
        """Raises ApiError for what is not about this pod."""
        if error.code in (404, 409):  # not there, or another pod has its name
            return Eviction("gone", message=error.message)
        if error.code == 429 and any(cause["reason"] == "DisruptionBudget" for cause in error.causes):
            return Eviction("blocked", self._budgets_of(pod), float(error.retry_after or 1), error.causes[0]["message"])
        if error.code == 429:
            return Eviction("throttled", retry_after=float(error.retry_after or 1), message=error.message)
        if error.code == 500 and "PodDisruptionBudget" in error.message:
            return Eviction("blocked", self._budgets_of(pod), message=error.message)
        raise error

    def _budgets_of(self, pod: PodRef) -> str:
        found = self._api.get(self._caller, "pods", pod.name, pod.namespace).raw["metadata"]
        labels = found.get("labels") or {}
        page = self._api.list(self._caller, "poddisruptionbudgets", pod.namespace)
        return ",".join(
            f"{pod.namespace}/{b.key[1]}" for b in page.items if objects.selects(b.raw["spec"].get("selector"), labels)
        )

    def decorate(
        self, node: str, uid: str, *, labels: Mapping[str, str | None], annotations: Mapping[str, str | None]
    ) -> Raw:
        metadata = {
            "name": node,
            "uid": uid,
            "labels": {k: v for k, v in labels.items() if v is not None},
            "annotations": {k: v for k, v in annotations.items() if v is not None},
        }
        wanted = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        with self._talk():
            stored = self._api.apply(self._caller, "nodes", node, wanted, manager=names.FIELD_MANAGER)
            return named("nodes", stored)

    def taint(self, node: str, uid: str, *, add: Iterable[Taint], remove: Iterable[Taint]) -> Raw:
        adding, removing = list(add), {(t.key, t.effect) for t in remove}
        for last in (*[False] * (CONFLICT_TRIES - 1), True):
            current = self.node(node)
            if current["metadata"]["uid"] != uid:
                raise Replaced(f"node {node} has UID {current['metadata']['uid']} now, not {uid}")
            taken = removing | {(t.key, t.effect) for t in adding}
            have = current["spec"].get("taints") or []
            taints = [t for t in have if (t["key"], t["effect"]) not in taken]
            taints += [{"key": t.key, "effect": t.effect} | ({"value": t.value} if t.value else {}) for t in adding]
            if taints == have:
                return current
            metadata = {"uid": uid, "resourceVersion": current["metadata"]["resourceVersion"]}
            try:
                with self._talk():
                    patch = {"metadata": metadata, "spec": {"taints": taints or None}}
                    return named("nodes", self._api.patch(self._caller, "nodes", node, patch))
            except Conflict:
                if last:
                    raise
        raise AssertionError("unreachable")

    # ── tunings ───────────────────────────────────────────────────────────────────────────────────────────────────
    def observe(self, node: str, uid: str, spec: Spec) -> Raw:
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {
                "name": node,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}],
            },
            "spec": spec.to_json() | {"mode": str(Mode.OBSERVE)},
        }
        with self._talk():
            try:
                return named("nodetunings", self._api.create(self._caller, "nodetunings", body))
            except ApiError as error:
                if error.code != 409:
                    raise
        return self.tuning(node)

    def tune(self, node: str, spec: Spec) -> Raw:
        with self._talk():
            stored = self._api.patch(self._caller, "nodetunings", node, {"spec": spec.to_json()})
            return named("nodetunings", stored)

    def close(self) -> None:
        """Nothing is open."""


def named(plural: str, stored: Stored) -> Raw:
    """An object as a single GET shows it: with kind and apiVersion."""
    return {"kind": RESOURCES[plural].kind, "apiVersion": RESOURCES[plural].api_version} | stored.copy()


def _listed(plural: str, stored: Stored) -> Raw:
    """Built-in objects carry no kind inside a list, custom ones do."""
    return named(plural, stored) if RESOURCES[plural].custom else stored.copy()
