"""Checks of Volcano's and Kueue's queues, and of the places that Volcano's HyperNodes describe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common import yaml
from profiles.policies import node_labels
from profiles.policies.kubernetes import Judge, tolerations

ROOT = "root"
"""Volcano's own queue, above all others."""

_QUEUE = (
    "weight", "capability", "deserved", "guarantee", "reclaimable", "parent", "priority", "dequeueStrategy", "affinity",
    "extendClusters", "type",
)  # fmt: skip


def queue(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"))
    judge.known(("spec",), spec, _QUEUE)
    judge.whole(("spec", "weight"), spec.get("weight"), 1, 65535)
    judge.whole(("spec", "priority"), spec.get("priority"), 0, 2**31 - 1)
    judge.boolean(("spec", "reclaimable"), spec.get("reclaimable"))
    judge.one_of(("spec", "dequeueStrategy"), spec.get("dequeueStrategy"), ("fifo", "traverse"))
    name, above = raw["metadata"].get("name"), spec.get("parent")
    if name == ROOT:
        judge.refuse(("metadata", "name"), "root is Volcano's own queue", code="reserved")
    if above is not None and (not isinstance(above, str) or not above):
        judge.refuse(("spec", "parent"), "must be the name of another queue")
    elif above is not None and above == name:
        judge.refuse(("spec", "parent"), "a queue cannot be its own parent")
    guarantee = judge.mapping(("spec", "guarantee"), spec.get("guarantee"))
    judge.known(("spec", "guarantee"), guarantee, ("resource",))
    steps = (
        (
            ("spec", "guarantee", "resource"),
            judge.amounts(("spec", "guarantee", "resource"), guarantee.get("resource")),
        ),
        (("spec", "deserved"), judge.amounts(("spec", "deserved"), spec.get("deserved"))),
        (("spec", "capability"), judge.amounts(("spec", "capability"), spec.get("capability"))),
    )
    for number, (path, amounts) in enumerate(steps):
        for other, limits in steps[number + 1 :]:
            for resource, amount in amounts.items():
                if resource in limits and amount > limits[resource]:
                    judge.refuse((*path, resource), f"is above {yaml.dotted(other)}, which is {limits[resource]:f}")
    if spec.get("deserved"):
        message = (
            "counts only where the scheduler runs the plugin capacity, with reclaim; Volcano's default is proportion"
        )
        judge.warn(("spec", "deserved"), message, "needs-plugin")


_HYPER_NODE = ("tier", "tierName", "members")
_SELECTORS = ("exactMatch", "regexMatch", "labelMatch")
MAX_PATTERN = 256


def hyper_node(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _HYPER_NODE)
    if spec and spec.get("tier") is None:
        judge.refuse(("spec", "tier"), "must be a whole number: members of a lower tier are nearer to each other")
    judge.whole(("spec", "tier"), spec.get("tier"), 0, 2**31 - 1)
    for index, item in enumerate(judge.items(("spec", "members"), spec.get("members"), required=bool(spec))):
        path: yaml.Path = ("spec", "members", index)
        member = judge.mapping(path, item, required=True)
        judge.known(path, member, ("type", "selector"))
        judge.one_of((*path, "type"), member.get("type") or "", ("Node", "HyperNode"))
        selector = judge.mapping((*path, "selector"), member.get("selector"), required=True)
        judge.known((*path, "selector"), selector, _SELECTORS)
        if len(selector) > 1:
            judge.refuse((*path, "selector"), f"must be one of {', '.join(_SELECTORS)}, not several")
        if "labelMatch" in selector and member.get("type") == "HyperNode":
            judge.refuse((*path, "selector", "labelMatch"), "selects nodes only; name the HyperNode by exactMatch")
        _hyper_node_match(judge, (*path, "selector"), selector)


def _hyper_node_match(judge: Judge, path: yaml.Path, selector: Mapping[str, Any]) -> None:
    name = judge.mapping((*path, "exactMatch"), selector.get("exactMatch")).get("name")
    if "exactMatch" in selector and (not isinstance(name, str) or not name):
        judge.refuse((*path, "exactMatch", "name"), "must be a name")
    pattern = judge.mapping((*path, "regexMatch"), selector.get("regexMatch")).get("pattern")
    if "regexMatch" in selector and not (isinstance(pattern, str) and 0 < len(pattern) <= MAX_PATTERN):
        judge.refuse((*path, "regexMatch", "pattern"), f"must be a pattern of at most {MAX_PATTERN} characters")
    label = judge.mapping((*path, "labelMatch"), selector.get("labelMatch"))
    judge.marks((*path, "labelMatch", "matchLabels"), label.get("matchLabels"))


# ── Kueue ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
MAX_LEVELS = 16
HOSTNAME = "kubernetes.io/hostname"
_STOP = ("None", "Hold", "HoldAndDrain")
_CLUSTER_QUEUE = (
    "resourceGroups", "queueingStrategy", "namespaceSelector", "flavorFungibility", "preemption", "admissionChecks",
    "admissionChecksStrategy", "stopPolicy", "fairSharing", "admissionScope", "concurrentAdmissionPolicy",
)  # fmt: skip


def topology(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, ("levels",))
    levels = judge.items(("spec", "levels"), spec.get("levels"), required=bool(spec))
    if len(levels) > MAX_LEVELS:
        judge.refuse(("spec", "levels"), f"has {len(levels)} levels; at most {MAX_LEVELS} are accepted")
    seen: set[str] = set()
    for index, item in enumerate(levels):
        path: yaml.Path = ("spec", "levels", index, "nodeLabel")
        label: Any = judge.mapping(path[:-1], item, required=True).get("nodeLabel")
        if reason := node_labels.bad_key(label):
            judge.refuse(path, reason)
        elif label in seen:
            judge.refuse(path, f"{label} is given twice")
        elif label == HOSTNAME and index < len(levels) - 1:
            judge.refuse(path, f"{HOSTNAME} is the lowest level there can be: put it last")
        else:
            seen.add(label)


def resource_flavor(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"))
    judge.known(("spec",), spec, ("nodeLabels", "nodeTaints", "tolerations", "topologyName"))
    judge.marks(("spec", "nodeLabels"), spec.get("nodeLabels"))
    for index, item in enumerate(judge.items(("spec", "nodeTaints"), spec.get("nodeTaints"))):
        taint = judge.mapping(("spec", "nodeTaints", index), item, required=True)
        if reason := node_labels.bad_key(taint.get("key")):
            judge.refuse(("spec", "nodeTaints", index, "key"), reason)
        judge.one_of(("spec", "nodeTaints", index, "effect"), taint.get("effect") or "", node_labels.EFFECTS)
    tolerations(judge, ("spec", "tolerations"), spec.get("tolerations"))
    if spec.get("topologyName") and not spec.get("nodeLabels"):
        judge.refuse(("spec", "topologyName"), "needs nodeLabels too: Kueue reads the topology from those nodes")


def cluster_queue(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    cohort = "cohortName" if raw.get("apiVersion", "").endswith("/v1beta2") else "cohort"
    other = "cohort" if cohort == "cohortName" else "cohortName"
    if other in spec:
        judge.refuse(("spec", other), f"is called {cohort} in {raw['apiVersion']}")
    judge.known(("spec",), {name: None for name in spec if name != other}, (*_CLUSTER_QUEUE, cohort))
    judge.one_of(("spec", "queueingStrategy"), spec.get("queueingStrategy"), ("BestEffortFIFO", "StrictFIFO"))
    judge.one_of(("spec", "stopPolicy"), spec.get("stopPolicy"), _STOP)
    if spec and "namespaceSelector" not in spec:
        message = "without it no namespace may use this queue; {} permits all of them"
        judge.warn(("spec",), f"namespaceSelector: {message}", "selects-nothing")
    flavors: set[str] = set()
    for index, item in enumerate(judge.items(("spec", "resourceGroups"), spec.get("resourceGroups"))):
        group = judge.mapping(("spec", "resourceGroups", index), item, required=True)
        _group(judge, ("spec", "resourceGroups", index), group, flavors, has_cohort=bool(spec.get(cohort)))


def _group(judge: Judge, path: yaml.Path, group: Mapping[str, Any], flavors: set[str], *, has_cohort: bool) -> None:
    judge.known(path, group, ("coveredResources", "flavors"))
    covered = judge.items((*path, "coveredResources"), group.get("coveredResources"), required=True)
    for index, item in enumerate(judge.items((*path, "flavors"), group.get("flavors"), required=True)):
        at: yaml.Path = (*path, "flavors", index)
        flavor = judge.mapping(at, item, required=True)
        name = flavor.get("name")
        if not isinstance(name, str) or name in flavors:
            judge.refuse((*at, "name"), "must be the name of a ResourceFlavor, once in a queue")
        else:
            flavors.add(name)
        resources = judge.items((*at, "resources"), flavor.get("resources"), required=True)
        names = [entry.get("name") if isinstance(entry, dict) else None for entry in resources]
        if resources and names != covered:
            judge.refuse((*at, "resources"), "must name the coveredResources, each once and in their order")
        for number, entry in enumerate(resources):
            if isinstance(entry, dict):
                _quota(judge, (*at, "resources", number), entry, has_cohort=has_cohort)


def _quota(judge: Judge, path: yaml.Path, entry: Mapping[str, Any], *, has_cohort: bool) -> None:
    judge.known(path, entry, ("name", "nominalQuota", "borrowingLimit", "lendingLimit"))
    whole = "/" in str(entry.get("name"))
    nominal = judge.amount((*path, "nominalQuota"), entry.get("nominalQuota"), whole=whole)
    for name in ("borrowingLimit", "lendingLimit"):
        if entry.get(name) is None:
            continue
        amount = judge.amount((*path, name), entry[name], whole=whole)
        if not has_cohort:
            judge.refuse((*path, name), "needs a cohort: without one nothing is lent or borrowed")
        elif name == "lendingLimit" and amount is not None and nominal is not None and amount > nominal:
            judge.refuse((*path, name), f"is above nominalQuota, which is {nominal:f}")


def local_queue(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, ("clusterQueue", "stopPolicy", "fairSharing"))
    if spec and (not isinstance(spec.get("clusterQueue"), str) or not spec["clusterQueue"]):
        judge.refuse(("spec", "clusterQueue"), "must be the name of a ClusterQueue")
    judge.one_of(("spec", "stopPolicy"), spec.get("stopPolicy"), _STOP)


# ── Together ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def circle(queues: Mapping[str, str]) -> list[str]:
    """Names of queues that are each other's parents, in order, the first again at the end; or nothing."""
    for first in sorted(queues):
        seen = [first]
        while (above := queues.get(seen[-1])) is not None:
            if above in seen:
                return [*seen[seen.index(above) :], above]
            seen.append(above)
    return []
