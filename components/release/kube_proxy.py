"""kube-proxy, where a component does its work: found for a plan, and what keeps it from being removed.

kubeadm installs a DaemonSet and a ConfigMap. Both go: `kubeadm upgrade` installs kube-proxy again where the ConfigMap
is there, and leaves it out where it is not. What a cloud or a distribution keeps comes back, so it is refused, with
what to do there. Nothing is written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clusters import objects
from clusters.fleet import NotFound
from clusters.kube import paging
from clusters.kube.apiserver import ApiServer, Call
from clusters.models import Cluster, Node
from components.catalog import layering
from components.catalog.entry import Component
from components.catalog.replacements import Replacement
from components.helm.releases import Release
from components.helm.rendering import Manifest
from components.plans import gitops
from components.plans.authority import Right
from components.plans.diff import Compared, cleaned
from components.plans.prepared import BLOCK, INFO, WARN, PlanNote, ReplacedObject
from components.release.field_difference import FieldDifference
from components.values.clauses import look_up

CODE = "kube-proxy"
SPACE, NAME = "kube-system", "kube-proxy"
DAEMONSET = ("apps/v1", "DaemonSet", "daemonsets")
CONFIG = ("v1", "ConfigMap", "configmaps")
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_LABELS = ("k8s-app=kube-proxy", "component=kube-proxy")
"""Of its pods: kubeadm and most clouds, then those that run static pods."""
_CREDENTIAL = re.compile(r"^\s*(token|password|client-key-data):\s*\S", re.MULTILINE)
_ANEW = "`kubeadm init phase addon kube-proxy` installs it where kubeadm made the cluster."
_RULES = (
    "Its rules stay in the packet filter of each node until that restarts, or until `iptables-save | grep -v KUBE | "
    "iptables-restore` ran there."
)
_KEEPERS = (
    ("eks.amazonaws.com/", "EKS", "Remove the add-on there: `aws eks delete-addon --addon-name kube-proxy`."),
    (
        "kubernetes.azure.com/",
        "AKS",
        'Switch it off there: `az aks update --kube-proxy-config`, with `{"enabled": false}` in the file.',
    ),
    (
        "addonmanager.kubernetes.io/",
        "the cluster's add-on manager",
        "Switch it off where the cluster is configured: by its add-on's manifest; on GKE with Dataplane V2.",
    ),
)
"""Beginning of a label or an annotation, what keeps kube-proxy there, what to do."""
_WITHIN = {
    "+k3s": ("k3s", "Start every server with `--disable-kube-proxy`."),
    "+rke2": ("RKE2", "Set `disable-kube-proxy: true` in the configuration of every server."),
}
"""By a part of the kubelet's version: distributions that run kube-proxy within a process of their own."""


@dataclass(slots=True)
class FoundProxy:
    """Objects of kube-proxy that a plan removes, and what it says of them."""

    objects: list[ReplacedObject] = field(default_factory=list)
    compared: list[Compared] = field(default_factory=list)
    """The same for differences and blast radius."""
    notes: list[PlanNote] = field(default_factory=list)

    def notes_of(self, *, is_kept: bool) -> list[PlanNote]:
        """`is_kept`: the component runs as it is wanted, so nothing else of the plan is refused for it."""
        if not is_kept:
            return self.notes
        return [replace(note, severity=WARN) for note in self.notes if note.severity != INFO]

    @property
    def rights(self) -> tuple[Right, ...]:
        """Return the rights to delete each, and to make it again in a revert."""
        out = []
        for each in self.objects:
            group = each.api_version.rpartition("/")[0]
            rule = {"apiGroups": [group], "resources": [each.plural]}
            named = {**rule, "resourceNames": [each.name], "verbs": ["get", "delete"]}
            out.append(Right.of(named, each.namespace, why=f"{each}, whose work it does", use="replaced"))
            again = {**rule, "verbs": ["create"]}
            out.append(Right.of(again, each.namespace, why=f"{each}, put back by a revert", use="replaced"))
        return tuple(out)


@dataclass(frozen=True, slots=True)
class ProxySearch:
    """Search of one cluster for the kube-proxy whose work a component does."""

    server: ApiServer
    cluster: Cluster
    component: Component
    presets: Sequence[str]

    def find(self, given: Mapping[str, Any], defaults: Mapping[str, Any], current: Release | None) -> FoundProxy:
        """`current`: the release in force. Raises FleetError."""
        values, out = layering.coalesced(given, defaults), FoundProxy()
        before = layering.coalesced(current.values, current.defaults) if current else {}
        for replacement in self.component.replaces:
            is_done, is_asked = replacement.is_done(values), replacement.preset in self.presets
            if not (is_done or is_asked or replacement.is_done(before)):
                continue
            daemonset = live(self.server, *DAEMONSET)
            if is_asked:
                out.notes += _unfit(self.server, self.component, replacement, values)
                _take(self.server, self.cluster, daemonset, out)
            elif is_done and daemonset is not None:
                title = f"kube-proxy runs beside {self.component.title}, which does its work"
                detail = f"{replacement.why} The preset {replacement.preset} has a plan remove it."
                out.notes.append(PlanNote(WARN, CODE, title, detail))
            elif not is_done and daemonset is None:
                out.notes += self._without_both()
        return out

    def _without_both(self) -> Iterator[PlanNote]:
        """Refuse to end a component's work that nothing else is seen to do."""
        if _pods(self.server):
            return
        title = f"{self.component.title} would no longer do kube-proxy's work, and no kube-proxy is seen"
        if within := next(_within(self.cluster), None):
            detail = f"{within[0]} may run it within its own process: then its servers have to be started with it."
            yield PlanNote(WARN, CODE, title, detail)
        else:
            detail = f"No Service would be reachable. Bring kube-proxy back first: {_ANEW}"
            yield PlanNote(BLOCK, CODE, title, detail)


def live(server: ApiServer, api_version: str, kind: str, plural: str) -> dict[str, Any] | None:
    """Return kube-proxy's object of this kind; None where there is none. Raises FleetError."""
    try:
        return server.get(Call("get", plural, NAME), f"{folder(api_version, plural, SPACE)}/{NAME}", kind)
    except NotFound:
        return None


def folder(api_version: str, plural: str, namespace: str) -> str:
    """Return the address of the objects of one kind in one namespace."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    return f"{root}/namespaces/{namespace}/{plural}"


def kept(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object as it is made again: without what the API server keeps for itself."""
    out = cleaned(raw)
    if applied := (objects.meta(raw).get("annotations") or {}).get(_APPLIED):
        out["metadata"].setdefault("annotations", {})[_APPLIED] = applied
    if not out["metadata"].get("annotations"):
        out["metadata"].pop("annotations", None)
    return out


def come_back(
    server: ApiServer, component: Component, presets: Sequence[str], values: Mapping[str, Any]
) -> Iterator[FieldDifference]:
    """Yield what a plan was to remove, and is there again. Raises FleetError."""
    for replacement in component.replaces:
        if replacement.preset not in presets or not replacement.is_done(values):
            continue
        if (raw := live(server, *DAEMONSET)) is None:
            continue
        meta = objects.meta(raw)
        writers = [entry for entry in meta.get("managedFields") or () if entry.get("subresource") != "status"]
        first: Mapping[str, Any] = min(writers, key=lambda entry: str(entry.get("time") or ""), default={})
        who, at = str(first.get("manager") or ""), str(meta.get("creationTimestamp") or "")
        note = "kubeadm's upgrade installs it where its ConfigMap is there. A plan removes both again."
        yield FieldDifference("DaemonSet", NAME, SPACE, "apps/v1", live="there", who=who, at=at, note=note)


def _take(server: ApiServer, cluster: Cluster, daemonset: dict[str, Any] | None, out: FoundProxy) -> None:
    """Add what is removed, or why nothing is."""
    if daemonset is None and (note := _elsewhere(server, cluster)):
        out.notes.append(note)
        return
    config = live(server, *CONFIG)
    there = [(known, raw) for known, raw in ((DAEMONSET, daemonset), (CONFIG, config)) if raw is not None]
    if refusals := list(_refusals([raw for _, raw in there])):
        out.notes += refusals
        return
    for (api_version, kind, plural), raw in there:
        uid = str(objects.meta(raw).get("uid") or "")
        out.objects.append(ReplacedObject(api_version, kind, plural, SPACE, NAME, uid, kept(raw)))
        typed = {**raw, "apiVersion": api_version, "kind": kind}
        out.compared.append(Compared(Manifest(typed), "deleted", SPACE, live=typed))
    if daemonset is not None:
        title = "kube-proxy is removed once the component is ready; a revert puts it back first"
        out.notes.append(PlanNote(WARN, CODE, title, _RULES))
    elif not there:
        out.notes.append(PlanNote(INFO, CODE, "No kube-proxy is there, so none is removed"))


def _unfit(
    server: ApiServer, component: Component, replacement: Replacement, values: Mapping[str, Any]
) -> Iterator[PlanNote]:
    """Yield what of the values forbids that kube-proxy goes."""
    if not replacement.is_done(values):
        title = f"kube-proxy cannot go: {component.title} does not do its work with these values"
        yield PlanNote(BLOCK, CODE, title, f"Set {' or '.join(map(str, replacement.when))}.")
    for path, why in replacement.lacking(values).items():
        yield PlanNote(BLOCK, CODE, f"kube-proxy cannot go: {path} is not set", why)
    host = str(look_up(values, "k8sServiceHost") or "")
    if host and host in _service_addresses(server):
        title = f"kube-proxy cannot go: k8sServiceHost {host} is the Service that kube-proxy makes"
        yield PlanNote(BLOCK, CODE, title, "Give an address that reaches the API server without any Service.")


def _service_addresses(server: ApiServer) -> set[str]:
    """Return the names and addresses of the Service `kubernetes`."""
    names = {"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
    try:
        raw = server.get(Call("get", "services", "kubernetes"), "/api/v1/namespaces/default/services/kubernetes")
    except NotFound:
        return names
    spec = raw.get("spec") or {}
    return {*names, str(spec.get("clusterIP") or ""), *map(str, spec.get("clusterIPs") or ())} - {""}


def _refusals(there: Sequence[Mapping[str, Any]]) -> Iterator[PlanNote]:
    """Yield why Setpoint leaves these objects alone."""
    for raw in there:
        meta = objects.meta(raw)
        marks = [*(meta.get("labels") or {}), *(meta.get("annotations") or {})]
        writers = {str(entry.get("manager")) for entry in meta.get("managedFields") or ()}
        for begins, who, what in _KEEPERS:
            if any(mark.startswith(begins) for mark in marks) or (who == "EKS" and "eks" in writers):
                yield PlanNote(BLOCK, CODE, f"kube-proxy is kept by {who}, which would bring it back", what)
                return
        if who_keeps := gitops.manager([raw]):
            title = f"kube-proxy is kept by {who_keeps.owner}, which would bring it back"
            yield PlanNote(BLOCK, CODE, title, "Remove it there.")
            return
        data = raw.get("data") or {}
        if any(_CREDENTIAL.search(str(text)) for text in data.values()):
            title = f"ConfigMap {SPACE}/{NAME} holds a credential in plain text, which a plan does not store"
            yield PlanNote(BLOCK, CODE, title, "Remove kube-proxy by hand, or take the credential out of it first.")
            return


def _elsewhere(server: ApiServer, cluster: Cluster) -> PlanNote | None:
    """Explain where kube-proxy runs without a DaemonSet; None: it was not found."""
    nodes = {str((pod.get("spec") or {}).get("nodeName")) for pod in _pods(server)}
    if nodes:
        title = f"kube-proxy runs as a static pod on {len(nodes):,} node{'' if len(nodes) == 1 else 's'}"
        detail = (
            "Setpoint writes no static pods. Switch it off where they are made: `disable-kube-proxy: true` (RKE2), "
            "`kubeProxy.enabled: false` (kOps), Dataplane V2 (GKE), else /etc/kubernetes/manifests of each node."
        )
        return PlanNote(BLOCK, CODE, title, detail)
    if within := next(_within(cluster), None):
        title = f"{within[0]} runs kube-proxy within its own process, where it cannot be seen"
        return PlanNote(WARN, CODE, title, within[1])
    return None


def _pods(server: ApiServer) -> list[dict[str, Any]]:
    """List the pods that carry one of its labels. Raises FleetError."""
    path = folder("v1", "pods", SPACE)
    pages = (
        paging.listed(server, Call("list", "pods"), path, limit=500, query={"labelSelector": label})
        for label in _LABELS
    )
    return [pod for page in pages for pod in page.items if not objects.is_finished(pod)]


def _within(cluster: Cluster) -> Iterator[tuple[str, str]]:
    versions = set(Node.objects.present().filter(cluster=cluster).values_list("kubelet", flat=True))
    for part, known in _WITHIN.items():
        if any(part in version for version in versions):
            yield known
