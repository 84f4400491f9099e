"""Readiness of a component: the catalog's tests, each one look at the cluster, answered with one sentence.

A test may want several equal reads in a row (the GPU Operator says ready for a moment in the middle of an upgrade). One
look is one read: the caller counts the looks, and says with the next one how many found all as wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusters import objects
from clusters.fleet import Forbidden, NotFound
from clusters.kube import paging
from clusters.kube.apiserver import ApiServer, Call
from clusters.kube.discovery import Resource, ServedApis, segment
from clusters.services import label_selectors
from components.catalog.entry import ReadinessTest
from components.plans.prepared import ReadinessResult
from contract import quantities

_WORKLOADS = ("DaemonSet", "Deployment", "StatefulSet")
_BROKEN = frozenset(
    ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CrashLoopBackOff", "CreateContainerError")
)
_PULLS = frozenset(("ImagePullBackOff", "ErrImagePull", "InvalidImageName"))
_CAUSES = {
    "the registry limits how often it is asked": ("toomanyrequests", "too many requests", "pull rate limit"),
    "the registry's certificate is not trusted": ("x509:", "failed to verify certificate", "unknown authority"),
    "the registry's name is not known there": ("no such host", "server misbehaving"),
    "the registry cannot be reached from that node": (
        *("i/o timeout", "connection refused", "no route to host", "network is unreachable", "deadline exceeded"),
        *("connection reset", "tls handshake timeout"),
    ),
    "there is no image for that node's architecture": ("no match for platform", "no matching manifest"),
    "the node has no space left": ("no space left",),
    "the registry wants a pull secret, or has no such image": (
        *(
            "pull access denied",
            "insufficient_scope",
            "authorization failed",
            "unauthorized",
            "401",
            "403",
            "forbidden",
        ),
    ),
    "the registry has no such image or tag": (": not found", "manifest unknown", "name unknown", "404 not found"),
    "that is no image's name": ("invalid reference", "couldn't parse image", "failed to apply default image tag"),
}
"""Of an image that cannot be pulled, by words of containerd, CRI-O and registries; the first that fits. A registry that
hides what it has says `denied` of what is not there, so that cause names both."""
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Readiness:
    """Readiness tests of one release in one cluster."""

    server: ApiServer
    served: ServedApis
    namespace: str

    def look(self, tests: Iterable[ReadinessTest], *, seen: int | None = None) -> ReadinessResult:
        """The first thing that is missing. Raises FleetError.

        `seen`: how many looks just before found nothing missing; None: this look is enough for every test.
        """
        most_reads, again = 1, ""
        for test in tests:
            missing = _TESTS[test.kind](self, test.what, test.is_optional)
            if missing:
                return ReadinessResult(False, missing=missing[:500])
            if (reads := int(test.what.get("reads") or 1)) > most_reads:
                most_reads, again = reads, f"{test.what.get('kind')} {test.what.get('name')}"
        if seen is None or seen + 1 >= most_reads:
            return ReadinessResult(True)
        return ReadinessResult(
            False, missing=f"{again} is as wanted; looked at again, to see that it stays so."[:500], is_steady=True
        )

    # ── workloads ─────────────────────────────────────────────────────────────────────────────────────────────────
    def workloads(self, what: Mapping[str, Any], is_optional: bool) -> str:
        namespace = str(what.get("namespace") or self.namespace)
        kinds = (str(what["kind"]),) if what.get("kind") else _WORKLOADS
        names, selector = [str(name) for name in what.get("names") or ()], what.get("selector")
        workloads: list[tuple[str, dict[str, Any]]] = []
        for kind in kinds:
            raws = self._list("apps/v1", kind, namespace)
            workloads += [(kind, raw) for raw in raws if _is_meant(raw, names, selector)]
        there = {str(objects.meta(raw).get("name")) for _, raw in workloads}
        if absent := [name for name in names if name not in there]:
            return (
                ""
                if is_optional
                else f"{kinds[0] if len(kinds) == 1 else 'Workload'} {namespace}/{absent[0]} is absent."
            )
        if not workloads and not is_optional:
            return f"No workload in {namespace} is there yet."
        for kind, raw in workloads:
            if missing := _not_ready(kind, raw):
                why = self._unmade(kind, namespace, raw) or self._why(namespace, raw)
                return f"{kind} {namespace}/{objects.meta(raw).get('name')}: {missing}{why}."
        return ""

    def _unmade(self, kind: str, namespace: str, raw: Mapping[str, Any]) -> str:
        """Explain why pods are not even made: a quota, a limit range, Pod Security, an unreachable webhook."""
        for condition in (raw.get("status") or {}).get("conditions") or ():
            if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
                return f"; its pods are not made: {_ends(str(condition.get('message') or condition.get('reason')))}"
        if not _lacks_pods(kind, raw):
            return ""
        meta = objects.meta(raw)
        about = {"involvedObject.kind": kind, "involvedObject.name": meta.get("name"), "reason": "FailedCreate"}
        query = {"fieldSelector": ",".join(f"{path}={value}" for path, value in about.items()), "limit": "500"}
        try:
            path = f"/api/v1/namespaces/{segment(namespace)}/events"
            page = self.server.ask(Call("list", "events"), "GET", path, query=query).object()
        except Forbidden:
            return ""
        listed, uid = page.get("items") or (), meta.get("uid")
        events = [event for event in listed if (event.get("involvedObject") or {}).get("uid") == uid]
        if not events:
            return ""
        newest = max(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
        return f"; its pods are not made: {_ends(str(newest.get('message') or newest.get('reason')))}"

    def _why(self, namespace: str, raw: Mapping[str, Any]) -> str:
        """Name the pod that is not ready, its node, and the reason its container waits."""
        selector = (raw.get("spec") or {}).get("selector")
        for pod in self._list("v1", "Pod", namespace):
            if not objects.selects(selector, objects.meta(pod).get("labels") or {}) or _is_pod_ready(pod):
                continue
            spec = pod.get("spec") or {}
            where = f" on node {spec['nodeName']}" if spec.get("nodeName") else ", which has no node yet"
            return f"; pod {objects.meta(pod).get('name')}{where}{_reason(pod)}"
        return ""

    # ── a field, a taint, what nodes offer, kinds ─────────────────────────────────────────────────────────────────
    def field(self, what: Mapping[str, Any], is_optional: bool) -> str:
        kind, name = str(what["kind"]), str(what["name"])
        resource = self.served.find(str(what["apiVersion"]), kind)
        place = str(what.get("namespace") or self.namespace)
        raw = self._get(resource, place, name) if resource else None
        if raw is None:
            return "" if is_optional else f"{kind} {name} is absent."
        have = _at(raw, str(what["path"]))
        if have == what.get("equals"):
            return ""
        shown = "empty" if have in (None, "") else str(have)[:100]
        return f"{kind} {name}: {what['path']} is {shown}, not {what.get('equals')}{self._behind(raw)}."

    def _behind(self, owner: Mapping[str, Any]) -> str:
        """Name the workload that an operator made for this object and that is not ready, and its node.

        Costs one list call, or two. Only workloads that name the object as their owner count: everything else would be
        a guess.
        """
        uid = objects.meta(owner).get("uid")
        if not uid:
            return ""
        for raw in self._list("apps/v1", "DaemonSet", str(objects.meta(owner).get("namespace") or self.namespace)):
            if not any(
                owner_reference.get("uid") == uid for owner_reference in objects.meta(raw).get("ownerReferences") or ()
            ):
                continue
            if missing := _not_ready("DaemonSet", raw):
                place = str(objects.meta(raw).get("namespace") or self.namespace)
                return f"; DaemonSet {place}/{objects.meta(raw).get('name')}: {missing}{self._why(place, raw)}"
        return ""

    def taint_absent(self, what: Mapping[str, Any], is_optional: bool) -> str:
        tainted = [
            str(objects.meta(node).get("name"))
            for node in self._list("v1", "Node")
            if any(taint.get("key") == what["key"] for taint in (node.get("spec") or {}).get("taints") or ())
        ]
        return f"The taint {what['key']} is still on {_some(tainted, 'node')}." if tainted else ""

    def allocatable(self, what: Mapping[str, Any], is_optional: bool) -> str:
        resource, least = str(what["resource"]), int(what.get("at_least") or 1)
        selector = _as_selector(what.get("nodes") or {})
        matched = [
            node
            for node in self._list("v1", "Node")
            if objects.selects(selector, objects.meta(node).get("labels") or {})
        ]
        if not matched:
            return "" if is_optional else f"No node is {label_selectors.text(selector)} yet, so none offers {resource}."
        lacking = [
            str(objects.meta(node).get("name"))
            for node in matched
            if quantities.count(((node.get("status") or {}).get("allocatable") or {}).get(resource, "0")) < least
        ]
        return f"{_some(lacking, 'node')} does not offer {least} {resource} yet." if lacking else ""

    def crds(self, what: Mapping[str, Any], is_optional: bool) -> str:
        resource = self.served.find("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        for name in what["names"]:
            raw = self._get(resource, "", str(name)) if resource else None
            if raw is None:
                return f"CustomResourceDefinition {name} is absent."
            if objects.condition(raw, "Established") != "True":
                return f"CustomResourceDefinition {name} is not established yet."
        return ""

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────
    def _get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None:
        place = namespace if resource.is_namespaced else ""
        try:
            return self.server.get(Call("get", resource.plural, name), resource.path(place, name))
        except NotFound:
            return None

    def _list(self, api_version: str, kind: str, namespace: str = "") -> Sequence[dict[str, Any]]:
        resource = self.served.find(api_version, kind)
        if resource is None:
            return ()
        return paging.listed(self.server, Call("list", resource.plural), resource.path(namespace), limit=500).items


_TESTS = {
    "workloads": Readiness.workloads,
    "field": Readiness.field,
    "taint_absent": Readiness.taint_absent,
    "allocatable": Readiness.allocatable,
    "crds": Readiness.crds,
}


def _is_meant(raw: Mapping[str, Any], names: Sequence[str], selector: Any) -> bool:
    if names:
        return objects.meta(raw).get("name") in names
    return selector is None or objects.selects(_as_selector(selector), objects.meta(raw).get("labels") or {})


def _as_selector(selector: Any) -> Mapping[str, Any]:
    """Return a LabelSelector from `a=b,c in (d,e)` as kubectl takes it, or from plain labels.

    A LabelSelector is returned as it is.
    """
    if isinstance(selector, str):
        return label_selectors.parse(selector)
    known = isinstance(selector, Mapping) and {*selector} <= {"matchLabels", "matchExpressions"}
    return selector if known else {"matchLabels": dict(selector or {})}


def _not_ready(kind: str, raw: Mapping[str, Any]) -> str:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    if int(status.get("observedGeneration") or 0) < int(objects.meta(raw).get("generation") or 0):
        return "its controller has not seen the change yet"
    if kind == "DaemonSet":
        desired, updated = status.get("desiredNumberScheduled"), status.get("updatedNumberScheduled")
        ready = min(int(status.get("numberReady") or 0), int(status.get("numberAvailable") or 0))
        if (spec.get("updateStrategy") or {}).get("type") == "OnDelete":
            updated = desired
    else:
        desired, updated = spec.get("replicas", 1), status.get("updatedReplicas")
        ready = int(status.get("readyReplicas") or 0)
    want, have = int(desired or 0), min(ready, int(updated or 0))
    return "" if have >= want else f"{have} of {want} pod{' is' if want == 1 else 's are'} new and ready"


def _lacks_pods(kind: str, raw: Mapping[str, Any]) -> bool:
    """Return whether fewer pods exist than are wanted; a Deployment says of its own in a condition."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    if kind == "DaemonSet":
        return int(status.get("currentNumberScheduled") or 0) < int(status.get("desiredNumberScheduled") or 0)
    return kind == "StatefulSet" and int(status.get("replicas") or 0) < int(spec.get("replicas", 1))


def _is_pod_ready(pod: Mapping[str, Any]) -> bool:
    return objects.is_finished(pod) or objects.condition(pod, "Ready") == "True"


def _reason(pod: Mapping[str, Any]) -> str:
    status = pod.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            reason, message = str(waiting["reason"]), str(waiting.get("message") or "")
            detail, cause = _ends(message), _pull_cause(message) if reason in _PULLS else ""
            return f": {reason}{f', {detail}' if detail and reason in _BROKEN else ''}{f' ({cause})' if cause else ''}"
    return ""


def _pull_cause(message: str) -> str:
    """The kind of cause, from what the runtime heard of the registry; empty where it says none that is known."""
    words = message.lower()
    return next((cause for cause, marks in _CAUSES.items() if any(mark in words for mark in marks)), "")


def _ends(message: str, limit: int = 200) -> str:
    """Long ones without their middle: a kubelet names the image first and the registry's own reason last."""
    return (
        message
        if len(message) <= limit
        else f"{message[: limit // 2 - 3].rstrip()} … {message[-limit // 2 :].lstrip()}"
    )


def _at(raw: Any, path: str) -> Any:
    """Return the value at a dotted path, which may begin with a dot, as JSON paths do, and have indices in brackets."""
    for part in path.strip("{}").lstrip("$").lstrip(".").replace("[", ".").replace("]", "").split("."):
        if isinstance(raw, Mapping):
            raw = raw.get(part)
        elif isinstance(raw, list) and part.isdigit() and int(part) < len(raw):
            raw = raw[int(part)]
        else:
            return None
    return raw


def _some(names: Sequence[str], word: str) -> str:
    shown = ", ".join(names[:_SHOWN])
    more = len(names) - _SHOWN
    return f"{word if len(names) == 1 else f'{word}s'} {shown}{f' and {more} more' if more > 0 else ''}"
