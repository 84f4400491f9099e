"""The fleet port over a real API server: every verb is one or two raw JSON calls, and nothing else knows their paths.

Names reach URLs only through `object_paths.segment`; writes to nodes carry `metadata.uid`, so the API server itself
refuses a node that was replaced under its name (law 9).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
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
    Gone,
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
from clusters.kube import cluster, paging, policy_objects, proxy
from clusters.kube.apiserver import APPLY, MERGE, ApiResponse, ApiServer, Call
from clusters.kube.cluster import CONFLICT_TRIES
from clusters.kube.eviction import interpret
from clusters.kube.object_paths import NAMESPACES, NODES, PATHS, SELECTED, TUNINGS, segment
from clusters.kube.own_pods import OwnPods
from clusters.net.credentials import Credentials
from clusters.net.egress import Policy
from contract import names
from contract.clock import of_header
from contract.nodetuning import Spec

LIMIT = 500
"""Objects a page: kubectl's own; the API server reads that many from etcd at once without trouble."""
ENGINE = f"{names.FIELD_MANAGER}-engine"
"""Field manager of cordons, taints and specs: they are no part of the set that `decorate` applies."""

_HEADS = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class KubeFleet(OwnPods):
    """One cluster. `timeout` in seconds bounds each call but watches, which are given theirs."""

    def __init__(
        self, credentials: Credentials, *, policy: Policy, timeout: float = 10.0, connections: int = 32
    ) -> None:
        self._server = ApiServer(credentials, policy=policy, timeout=timeout, connections=connections)

    def close(self) -> None:
        self._server.close()

    # ── who and what ──────────────────────────────────────────────────────────────────────────────────────────────
    def identify(self) -> Identity:
        return cluster.identify(self._server)

    def clock(self) -> datetime:
        call = Call("get", "version")
        seconds = of_header(self._server.ask(call, "GET", "/version").headers.get("Date"))
        if seconds is None:
            raise Untrusted(f"{call}: the answer has no Date, so the API server's clock is unknown")
        return datetime.fromtimestamp(seconds, UTC)

    def review(self, permissions: Sequence[Permission]) -> builtins.list[Review]:
        return [cluster.review(self._server, permission) for permission in permissions]

    def equipment(self) -> Equipment:
        return cluster.equipment(self._server)

    def installation(self) -> str | None:
        return cluster.holder(self._server)

    def claim(self, installation: str, *, take_over: bool = False) -> str:
        return cluster.claim(self._server, installation, take_over=take_over)

    def release(self, installation: str) -> None:
        cluster.release(self._server, installation)

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────
    def list(self, kind: ObjectKind, *, fresh: bool = False, keep: Keep | None = None) -> Page:
        # `resourceVersion=0` would answer from the cache, but whole: the API server ignores `limit` then, and 5,000
        # nodes are one answer of 130 MB. In pages it took no longer (2,000 nodes: 4.8 s to 5.8 s, Kubernetes 1.35).
        return self._listed(Call("list", kind), PATHS[kind], query=SELECTED.get(kind), keep=_keeping(keep))

    def heads(self, kind: ObjectKind, *, keep: Keep | None = None) -> Page:
        query = SELECTED.get(kind)
        return self._listed(Call("list", kind), PATHS[kind], query=query, accept=_HEADS, keep=_heading(keep))

    def watch(
        self, kind: ObjectKind, resource_version: str, *, timeout: float = 300.0, keep: Keep | None = None
    ) -> Iterator[Event]:
        call = Call("watch", kind)
        query = {
            "watch": "1",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(timeout))),
            **SELECTED.get(kind, {}),
        }
        for raw in self._server.stream(call, PATHS[kind], query, timeout=timeout):
            type_, received = raw.get("type"), raw.get("object")
            if type_ not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR") or not isinstance(received, dict):
                raise Untrusted(f"{call}: an event of no known type")
            if type_ == "ERROR":
                raise watch_error(call, received)
            kept = _trimmed(received) if type_ == "BOOKMARK" else _keeping(keep)(received)
            yield Event(type_, objects.brief_event(received), is_brief=True) if kept is None else Event(type_, kept)

    def node(self, name: str) -> dict[str, Any]:
        return self._server.get(Call("get", "nodes", name), f"{NODES}/{segment(name)}", "Node")

    def tuning(self, name: str) -> dict[str, Any]:
        return self._server.get(Call("get", names.PLURAL, name), f"{TUNINGS}/{segment(name)}", names.KIND)

    def pod(self, namespace: str, name: str) -> dict[str, Any]:
        path = f"{NAMESPACES}/{segment(namespace)}/pods/{segment(name)}"
        return self._server.get(Call("get", "pods", name), path, "Pod")

    def pods_on(self, node: str) -> builtins.list[dict[str, Any]]:
        query = {"fieldSelector": f"spec.nodeName={segment(node)}"}
        return self._listed(Call("list", "pods"), PATHS["pods"], query=query).items

    def pods(self) -> builtins.list[dict[str, Any]]:
        return self._listed(Call("list", "pods"), PATHS["pods"]).items

    def labeled_pods(self, selector: str) -> builtins.list[dict[str, Any]]:
        return self._listed(Call("list", "pods"), PATHS["pods"], query={"labelSelector": selector}).items

    def custom(self, api_version: str, plural: str) -> builtins.list[dict[str, Any]]:
        group, _, version = api_version.partition("/")
        call = Call("list", f"{segment(plural)}.{segment(group)}")
        path = f"/apis/{group}/{segment(version)}/{plural}"
        # A group that is not served is answered in plain words, not by a Status: one object is asked for to tell.
        policy_objects.served(self._server.send(call, "GET", path, query={"limit": "1"}))
        return self._listed(call, path).items

    def through(
        self,
        to: Backend,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        limit: int,
        timeout: float = 0,
    ) -> Reply:
        segment(to.namespace), segment(to.name)
        return proxy.ask(self._server, to, path, query, limit=limit, timeout=timeout)

    def budgets(self) -> builtins.list[dict[str, Any]]:
        return self._budgets("/apis/policy/v1/poddisruptionbudgets")

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def cordon(self, node: str, uid: str, owner: str, *, instead_of: str = "") -> dict[str, Any]:
        def change(current: dict[str, Any]) -> dict[str, Any] | None:
            holder = objects.cordon_owner(current)
            is_ours = holder == owner or (instead_of and holder.startswith(instead_of))
            if objects.is_cordoned(current) and (holder == owner or not is_ours):
                return None
            return {"metadata": {"annotations": {names.CORDONED_BY: owner}}, "spec": {"unschedulable": True}}

        return self._rewrite(node, uid, change)

    def uncordon(self, node: str, uid: str, owner: str) -> dict[str, Any]:
        def change(current: dict[str, Any]) -> dict[str, Any] | None:
            holder = objects.cordon_owner(current)
            if not holder and not objects.is_cordoned(current):
                return None  # done before: delivered twice, nothing happens twice
            if holder != owner:
                raise Conflict(f"node {node} is cordoned by {holder or 'another party'}, not by {owner}")
            marks = {"metadata": {"annotations": {names.CORDONED_BY: None, names.KEEP_CORDONED: None}}}
            is_kept = objects.is_cordoned(current) and objects.is_to_be_kept(current)
            return marks if is_kept else marks | {"spec": {"unschedulable": None}}

        return self._rewrite(node, uid, change)

    def keep_cordoned(self, node: str, uid: str, owner: str) -> dict[str, Any]:
        def change(current: dict[str, Any]) -> dict[str, Any] | None:
            holder = objects.cordon_owner(current)
            if holder != owner or not objects.is_cordoned(current):
                raise Conflict(f"node {node} is cordoned by {holder or 'another party, or no one'}, not by {owner}")
            if objects.is_to_be_kept(current):
                return None
            return {"metadata": {"annotations": {names.KEEP_CORDONED: "true"}}}

        return self._rewrite(node, uid, change)

    def evict(self, pod: PodRef, *, grace_seconds: int | None = None) -> Eviction:
        space, name = segment(pod.namespace), segment(pod.name)
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        call = Call("create", "pods/eviction", f"{pod.namespace}/{pod.name}")
        answer = self._server.send(call, "POST", f"{NAMESPACES}/{space}/pods/{name}/eviction", body=body)
        return interpret(answer, is_there=lambda: self._is_there(pod), blocking=lambda: self._blocking(pod))

    def decorate(
        self, node: str, uid: str, *, labels: Mapping[str, str | None], annotations: Mapping[str, str | None]
    ) -> dict[str, Any]:
        patch = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": node,
                "labels": {key: value for key, value in labels.items() if value is not None},
                "annotations": {key: value for key, value in annotations.items() if value is not None},
            },
        }
        return self._change(node, uid, patch, content_type=APPLY, manager=names.FIELD_MANAGER)

    def relabel(
        self, node: str, uid: str, change: Callable[[Mapping[str, str]], Mapping[str, str | None]]
    ) -> dict[str, Any]:
        def rewrite(current: dict[str, Any]) -> dict[str, Any] | None:
            labels = change(current["metadata"].get("labels") or {})
            return {"metadata": {"labels": dict(labels)}} if labels else None

        return self._rewrite(node, uid, rewrite)

    def taint(
        self, node: str, uid: str, *, add: Iterable[Taint], remove: Iterable[Taint], where: str = ""
    ) -> dict[str, Any]:
        added, removed = builtins.list(add), builtins.list(remove)
        replaced = {(t.key, t.effect) for t in (*added, *removed)}

        def change(current: dict[str, Any]) -> dict[str, Any] | None:
            before = (current.get("spec") or {}).get("taints") or []
            if where and all(t.get("key") != where for t in before):
                return None
            kept = [t for t in before if (t.get("key"), t.get("effect")) not in replaced or _is_among(t, added)]
            new = [
                {"key": t.key, "value": t.value, "effect": t.effect}
                for t in added
                if not any(_is_among(k, [t]) for k in kept)
            ]
            return None if not new and len(kept) == len(before) else {"spec": {"taints": kept + new}}

        return self._rewrite(node, uid, change)

    # ── policy objects ────────────────────────────────────────────────────────────────────────────────────────────
    def policy(self, ref: ObjectRef) -> dict[str, Any]:
        return policy_objects.get(self._server, ref)

    def apply_policy(self, manifest: Mapping[str, Any], *, dry_run: bool = False, force_at: str = "") -> dict[str, Any]:
        return policy_objects.apply(self._server, manifest, dry_run=dry_run, force_at=force_at)

    def remove_policy(self, ref: ObjectRef, uid: str, version: str = "") -> None:
        policy_objects.remove(self._server, ref, uid, version)

    # ── tunings ───────────────────────────────────────────────────────────────────────────────────────────────────
    def observe(self, node: str, uid: str, spec: Spec) -> dict[str, Any]:
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
        tuning = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": segment(node), "ownerReferences": [owner]},
            "spec": {key: value for key, value in spec.to_json().items() if value is not None},
        }
        call = Call("create", names.PLURAL, node)
        query = {"fieldManager": ENGINE}
        try:
            return self._server.ask(call, "POST", TUNINGS, body=tuning, query=query).object(names.KIND)
        except Conflict:
            return self.tuning(node)

    def tune(self, node: str, spec: Spec, *, version: str = "") -> dict[str, Any]:
        path = f"{TUNINGS}/{segment(node)}"
        change: dict[str, Any] = {"spec": spec.to_json()}
        if version:
            change["metadata"] = {"resourceVersion": version}
        return self._patch(Call("patch", names.PLURAL, node), path, change).object(names.KIND)

    # ── underneath ────────────────────────────────────────────────────────────────────────────────────────────────
    def _patch(
        self, call: Call, path: str, body: Mapping[str, Any], *, content_type: str = MERGE, manager: str = ENGINE
    ) -> ApiResponse:
        query = {"fieldManager": manager} | ({"force": "false"} if content_type == APPLY else {})
        return self._server.ask(call, "PATCH", path, body=body, content_type=content_type, query=query)

    def _change(
        self, node: str, uid: str, change: dict[str, Any], *, content_type: str = MERGE, manager: str = ENGINE
    ) -> dict[str, Any]:
        """One patch of a node that must still be `uid`. Raises Replaced, Conflict, NotFound."""
        body = {**change, "metadata": {**change.get("metadata", {}), "uid": uid}}
        call, path = Call("patch", "nodes", node), f"{NODES}/{segment(node)}"
        try:
            return self._patch(call, path, body, content_type=content_type, manager=manager).object("Node")
        except (Forbidden, NotFound):
            raise
        except FleetRefused as error:
            # Another UID is 422 "field is immutable" for a Node, 409 elsewhere. Asked, not parsed: messages are no API.
            if objects.meta(self.node(node)).get("uid") != uid:
                raise Replaced(f"node {node} was replaced: it is no longer {uid}") from error
            raise

    def _rewrite(
        self, node: str, uid: str, change: Callable[[dict[str, Any]], dict[str, Any] | None]
    ) -> dict[str, Any]:
        """Read, change, write at the version that was read; again when another party was faster."""
        for tries_left in reversed(range(CONFLICT_TRIES)):
            current = self.node(node)
            if objects.meta(current).get("uid") != uid:
                raise Replaced(f"node {node} was replaced: it is no longer {uid}")
            patch = change(current)
            if patch is None:
                return current
            version = {"resourceVersion": objects.meta(current).get("resourceVersion")}
            try:
                return self._change(node, uid, {**patch, "metadata": {**patch.get("metadata", {}), **version}})
            except Replaced:
                raise
            except Conflict:
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    def _listed(self, call: Call, path: str, **how: Any) -> Page:
        """List with the query, `accept` and `keep` of `paging.listed`."""
        return paging.listed(self._server, call, path, limit=LIMIT, **({"keep": _trimmed} | how))

    def _budgets(self, path: str) -> builtins.list[dict[str, Any]]:
        return self._listed(Call("list", "poddisruptionbudgets"), path).items

    def _is_there(self, pod: PodRef) -> bool:
        path = f"{NAMESPACES}/{segment(pod.namespace)}/pods/{segment(pod.name)}"
        try:
            current = self._server.get(Call("get", "pods", pod.name), path, "Pod")
        except NotFound:
            return False
        return objects.meta(current).get("uid") == pod.uid

    def _blocking(self, pod: PodRef) -> builtins.list[str]:
        """`namespace/name` of each budget that selects the pod; empty when that cannot be found out."""
        space = segment(pod.namespace)
        try:
            path = f"{NAMESPACES}/{space}/pods/{segment(pod.name)}"
            labels = objects.meta(self._server.get(Call("get", "pods", pod.name), path, "Pod")).get("labels") or {}
            budgets = self._budgets(f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets")
        except (FleetRefused, FleetUnavailable):
            return []  # blocked all the same; only the name is missing
        return sorted(
            f"{pod.namespace}/{objects.meta(b).get('name')}"
            for b in budgets
            if objects.selects((b.get("spec") or {}).get("selector"), labels)
        )


def _trimmed(raw: dict[str, Any]) -> dict[str, Any]:
    """Remove what is never read and makes up most of a node's 25 KB: field ownership and the list of images."""
    if isinstance(meta := raw.get("metadata"), dict):
        meta.pop("managedFields", None)
    if isinstance(status := raw.get("status"), dict):
        status.pop("images", None)
    return raw


def _keeping(keep: Keep | None) -> Keep:
    return (lambda raw: keep(_trimmed(raw))) if keep else _trimmed


def _heading(keep: Keep | None) -> Keep:
    return (lambda raw: keep(objects.brief(raw))) if keep else objects.brief


def watch_error(call: Call, status: Mapping[str, Any]) -> Exception:
    code, message = status.get("code"), str(status.get("message") or "")[:500]
    if code == 410:
        return Gone(f"{call}: {message or 'the resource version is too old'}")
    return FleetUnavailable(f"{call}: {message or code}")


def _is_among(taint: Mapping[str, Any], taints: Iterable[Taint]) -> bool:
    return (taint.get("key"), taint.get("value") or "", taint.get("effect")) in {
        (t.key, t.value, t.effect) for t in taints
    }
