"""The fleet port in memory: the same API semantics as the HTTP door, without a socket, a thread or a wait."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from clusters import objects
from clusters.fleet import (
    Backend,
    Conflict,
    Equipment,
    Event,
    Eviction,
    FleetRefused,
    FleetUnavailable,
    Forbidden,
    Identity,
    Keep,
    NotFound,
    ObjectKind,
    ObjectRef,
    Page,
    Permission,
    PodRef,
    Replaced,
    Reply,
    Review,
    Taint,
    Untrusted,
)
from contract import names
from contract.nodetuning import Spec
from simfleet import enrolled, evictions
from simfleet.apiserver.answers import listed, named, translated, trimmed
from simfleet.apiserver.callers import SETPOINT, Caller
from simfleet.apiserver.faults import Outage
from simfleet.apiserver.paths import ProxyTarget
from simfleet.apiserver.proxies import UNREACHED
from simfleet.apiserver.resources import RESOURCES
from simfleet.apiserver.store import ApiError, Change, Raw, Stored
from simfleet.core import SimCluster

CONFLICT_TRIES = 5
ENGINE = f"{names.FIELD_MANAGER}-engine"
"""Field manager of cordons, taints and specs: they are no part of the set that `decorate` applies."""
NAMESPACES = {"leases": names.NAMESPACE}
Items = builtins.list[dict[str, Any]]


class SimFleet:
    """`clusters.fleet.Fleet` on a SimCluster, acting as Setpoint.

    All faults that are on apply; a latency of `timeout` seconds or more is a timeout, a shorter one is not waited for.
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

    def clock(self) -> datetime:
        with self._talk():
            return self.cluster.clock.now()

    def review(self, permissions: Sequence[Permission]) -> builtins.list[Review]:
        answers = []
        with self._talk():
            for permission in permissions:
                is_allowed = self._api.review(self._caller, permission.verb, permission.resource)
                answers.append(Review(permission, is_allowed, "" if is_allowed else "simulated RBAC"))
        return answers

    def equipment(self) -> Equipment:
        with self._talk():
            return enrolled.equipment(self._api, self._caller)

    def installation(self) -> str | None:
        with self._talk():
            return enrolled.holder(self._api, self._caller)

    def claim(self, installation: str, *, take_over: bool = False) -> str:
        with self._talk():
            return enrolled.claim(self._api, self._caller, installation, take_over=take_over)

    def release(self, installation: str) -> None:
        with self._talk():
            enrolled.release(self._api, self._caller, installation)

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────
    def list(self, kind: ObjectKind, *, fresh: bool = False, keep: Keep | None = None) -> Page:
        items: Items = []
        token, rv = "", 0
        with self._talk():
            while True:
                page = self._api.list(self._caller, kind, NAMESPACES.get(kind), limit=500, token=token)
                items += [listed(kind, stored) for stored in page.items]
                token, rv = page.next, page.rv
                if not token:
                    break
        kept = [(objects.uid(raw), keep(raw) if keep else raw) for raw in items]
        left_out = frozenset(uid for uid, raw in kept if raw is None)
        return Page([raw for _, raw in kept if raw is not None], str(rv), left_out)

    def heads(self, kind: ObjectKind, *, keep: Keep | None = None) -> Page:
        return self.list(kind, keep=lambda raw: keep(objects.brief(raw)) if keep else objects.brief(raw))

    def watch(
        self, kind: ObjectKind, resource_version: str, *, timeout: float = 300.0, keep: Keep | None = None
    ) -> Iterator[Event]:
        """Watch one kind. With `live` off it ends, after a bookmark, once all changes were sent."""
        with self._talk():
            for event in self._api.watch(
                self._caller, kind, int(resource_version or 0), NAMESPACES.get(kind), timeout=timeout
            ):
                if isinstance(event, Change):
                    raw = trimmed(named(kind, event.now))
                    kept = keep(raw) if keep else raw
                    yield Event(event.type, objects.brief_event(raw) if kept is None else kept, kept is None)
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

    def pod(self, namespace: str, name: str) -> Raw:
        with self._talk():
            return named("pods", self._api.get(self._caller, "pods", name, namespace))

    def pods_on(self, node: str) -> Items:
        with self._talk():
            page = self._api.list(self._caller, "pods", fields=f"spec.nodeName={node}")
            return [listed("pods", stored) for stored in page.items]

    def pods(self) -> Items:
        return self.list("pods").items

    def labeled_pods(self, selector: str) -> Items:
        with self._talk():
            return [listed("pods", s) for s in self._api.list(self._caller, "pods", labels=selector).items]

    def custom(self, api_version: str, plural: str) -> Items:
        group, _, version = api_version.partition("/")
        with self._talk():
            for key, resource in self.cluster.store.resources.items():
                if (resource.plural, resource.group) == (plural, group) and version in resource.served:
                    return [stored.copy() for stored in self._api.list(self._caller, key).items]
            raise ApiError(404, "NotFound", f"the cluster does not know {plural} of {api_version}")

    def through(
        self,
        to: Backend,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        limit: int,
        timeout: float = 0,
    ) -> Reply:
        name = f"{to.scheme}:{to.name}:{to.port}" if to.scheme else f"{to.name}:{to.port}"
        with self._talk():
            try:
                way = ProxyTarget(to.kind, to.namespace, name, path.lstrip("/"))
                status, body = self.cluster.proxies.get(self._caller, way, query or {})
            except ApiError as error:
                if error.code == 400:
                    raise FleetUnavailable(error.message) from error
                raise
        if status == 503 and body.startswith(UNREACHED.encode()):
            raise FleetUnavailable(body.decode())
        if len(body) > limit:
            raise Untrusted(f"get {to.kind}/proxy {to}: the answer is longer than {limit:,} bytes")
        return Reply(status, body)

    def budgets(self) -> Items:
        with self._talk():
            return [s.copy() for s in self._api.list(self._caller, "poddisruptionbudgets").items]

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def cordon(self, node: str, uid: str, owner: str, *, instead_of: str = "") -> Raw:
        def change(current: Raw) -> Raw | None:
            holder = objects.cordon_owner(current)
            is_ours = holder == owner or (instead_of and holder.startswith(instead_of))
            if objects.is_cordoned(current) and (holder == owner or not is_ours):
                return None
            return {"metadata": {"annotations": {names.CORDONED_BY: owner}}, "spec": {"unschedulable": True}}

        return self._rewrite(node, uid, change)

    def uncordon(self, node: str, uid: str, owner: str) -> Raw:
        def change(current: Raw) -> Raw | None:
            holder = objects.cordon_owner(current)
            if not holder and not objects.is_cordoned(current):
                return None
            if holder != owner:
                raise Conflict(f"node {node} is cordoned by {holder or 'another party'}, not by {owner}")
            marks = {"metadata": {"annotations": {names.CORDONED_BY: None, names.KEEP_CORDONED: None}}}
            is_kept = objects.is_cordoned(current) and objects.is_to_be_kept(current)
            return marks if is_kept else marks | {"spec": {"unschedulable": None}}

        return self._rewrite(node, uid, change)

    def keep_cordoned(self, node: str, uid: str, owner: str) -> Raw:
        def change(current: Raw) -> Raw | None:
            holder = objects.cordon_owner(current)
            if holder != owner or not objects.is_cordoned(current):
                raise Conflict(f"node {node} is cordoned by {holder or 'another party, or no one'}, not by {owner}")
            if objects.is_to_be_kept(current):
                return None
            return {"metadata": {"annotations": {names.KEEP_CORDONED: "true"}}}

        return self._rewrite(node, uid, change)

    def decorate(
        self, node: str, uid: str, *, labels: Mapping[str, str | None], annotations: Mapping[str, str | None]
    ) -> Raw:
        metadata = {
            "name": node,
            "labels": {k: v for k, v in labels.items() if v is not None},
            "annotations": {k: v for k, v in annotations.items() if v is not None},
        }
        return self._change(node, uid, {"apiVersion": "v1", "kind": "Node", "metadata": metadata}, is_apply=True)

    def relabel(self, node: str, uid: str, change: Callable[[Mapping[str, str]], Mapping[str, str | None]]) -> Raw:
        def rewrite(current: Raw) -> Raw | None:
            wanted = change(current["metadata"].get("labels") or {})
            return {"metadata": {"labels": dict(wanted)}} if wanted else None

        return self._rewrite(node, uid, rewrite)

    def taint(self, node: str, uid: str, *, add: Iterable[Taint], remove: Iterable[Taint], where: str = "") -> Raw:
        added, removed = builtins.list(add), builtins.list(remove)
        replaced = {(t.key, t.effect) for t in (*added, *removed)}
        wanted = {(t.key, t.value, t.effect) for t in added}

        def change(current: Raw) -> Raw | None:
            before = current["spec"].get("taints") or []
            if where and all(t["key"] != where for t in before):
                return None
            kept = [t for t in before if (t["key"], t["effect"]) not in replaced or _triple(t) in wanted]
            have = {_triple(t) for t in kept}
            new = [{"key": k, "value": v, "effect": e} for k, v, e in sorted(wanted - have)]
            return None if not new and len(kept) == len(before) else {"spec": {"taints": kept + new}}

        return self._rewrite(node, uid, change)

    def _change(self, node: str, uid: str, change: Raw, *, is_apply: bool = False) -> Raw:
        """One patch of a node that must still be `uid`. Raises Replaced, Conflict, NotFound."""
        body = change | {"metadata": change.get("metadata", {}) | {"uid": uid}}
        try:
            with self._talk():
                if is_apply:
                    stored = self._api.apply(self._caller, "nodes", node, body, manager=names.FIELD_MANAGER)
                else:
                    stored = self._api.patch(self._caller, "nodes", node, body, manager=ENGINE)
                return named("nodes", stored)
        except (Forbidden, NotFound):
            raise
        except FleetRefused as error:
            if self.node(node)["metadata"]["uid"] != uid:
                raise Replaced(f"node {node} was replaced: it is no longer {uid}") from error
            raise

    def _rewrite(self, node: str, uid: str, change: Callable[[Raw], Raw | None]) -> Raw:
        """Read, change, write at the version that was read; again when another party was faster."""
        for tries_left in reversed(range(CONFLICT_TRIES)):
            current = self.node(node)
            if current["metadata"]["uid"] != uid:
                raise Replaced(f"node {node} was replaced: it is no longer {uid}")
            wanted = change(current)
            if wanted is None:
                return current
            version = {"resourceVersion": current["metadata"]["resourceVersion"]}
            try:
                return self._change(node, uid, wanted | {"metadata": wanted.get("metadata", {}) | version})
            except Conflict:
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    # ── pods ──────────────────────────────────────────────────────────────────────────────────────────────────────
    def evict(self, pod: PodRef, *, grace_seconds: int | None = None) -> Eviction:
        with self._talk():
            return evictions.evict(self.cluster, self._caller, pod, grace_seconds)

    def run_pod(self, manifest: Mapping[str, Any]) -> Raw:
        ref = ObjectRef.of(manifest)
        with self._talk():
            try:
                return named("pods", self._api.create(self._caller, "pods", dict(manifest), ref.namespace))
            except ApiError as error:
                if error.code != 409:
                    raise
        return self.pod(ref.namespace, ref.name)

    def pod_log(self, pod: PodRef, *, limit: int) -> bytes:
        with self._talk():
            return self._api.log(self._caller, pod.name, pod.namespace)[:limit]

    def remove_pod(self, pod: PodRef) -> None:
        with suppress(NotFound), self._talk():
            self._api.delete(self._caller, "pods", pod.name, pod.namespace, uid=pod.uid)

    # ── policy objects ────────────────────────────────────────────────────────────────────────────────────────────
    def policy(self, ref: ObjectRef) -> Raw:
        with self._talk():
            return self._seen(ref, self._api.get(self._caller, self._key(ref), ref.name, ref.namespace))

    def apply_policy(self, manifest: Mapping[str, Any], *, dry_run: bool = False, force_at: str = "") -> Raw:
        ref = ObjectRef.of(manifest)
        if force_at:
            manifest = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": force_at}}
        with self._talk():
            stored = self._api.apply(
                self._caller,
                self._key(ref),
                ref.name,
                dict(manifest),
                ref.namespace,
                manager=names.FIELD_MANAGER,
                force=bool(force_at),
                dry_run=dry_run,
            )
            return self._seen(ref, stored)

    def remove_policy(self, ref: ObjectRef, uid: str, version: str = "") -> None:
        with suppress(NotFound), self._talk():
            self._api.delete(self._caller, self._key(ref), ref.name, ref.namespace, uid=uid, version=version)

    def _key(self, ref: ObjectRef) -> str:
        group, _, version = ref.api_version.rpartition("/")
        for key, resource in self.cluster.store.resources.items():
            if (resource.kind, resource.group) == (ref.kind, group) and version in resource.served:
                return key
        raise ApiError(404, "NotFound", f"the cluster does not know {ref.kind} of {ref.api_version}")

    @staticmethod
    def _seen(ref: ObjectRef, stored: Stored) -> Raw:
        return {"kind": ref.kind, "apiVersion": ref.api_version} | stored.copy()

    # ── tunings ───────────────────────────────────────────────────────────────────────────────────────────────────
    def observe(self, node: str, uid: str, spec: Spec) -> Raw:
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {
                "name": node,
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}],
            },
            "spec": spec.to_json(),
        }
        with self._talk():
            try:
                return named("nodetunings", self._api.create(self._caller, "nodetunings", body))
            except ApiError as error:
                if error.code != 409:
                    raise
        return self.tuning(node)

    def tune(self, node: str, spec: Spec, *, version: str = "") -> Raw:
        change: dict[str, Any] = {"spec": spec.to_json()}
        if version:
            change["metadata"] = {"resourceVersion": version}
        with self._talk():
            stored = self._api.patch(self._caller, "nodetunings", node, change, manager=ENGINE)
            return named("nodetunings", stored)

    def close(self) -> None:
        """Do nothing: no connection is open."""


def _triple(taint: Mapping[str, str]) -> tuple[str, str, str]:
    return taint["key"], taint.get("value") or "", taint["effect"]
