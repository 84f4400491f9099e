"""The nodes and GPU pods of a cluster, as a blast radius is reckoned against them: plain data, from rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from clusters import objects, tolerations
from clusters.models import Cluster, GpuPod, Node
from components.catalog.effects import ALL_NODES, GPU_NODES

_OF_EVERY_DAEMON = "node.kubernetes.io/"
"""Taints that the DaemonSet controller itself has its pods tolerate, all below this prefix."""
GPU_LABEL = "nvidia.com/gpu.present"


@dataclass(frozen=True, slots=True)
class NodeGround:
    """One node."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, Any], ...] = ()
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class GpuPodOwner:
    """The owner of pods that hold GPUs."""

    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class GpuPodHold:
    """One pod that holds GPUs."""

    node: str
    job: GpuPodOwner
    gpus: int


@dataclass(frozen=True)
class Ground:
    nodes: tuple[NodeGround, ...] = ()
    """By name."""
    held: tuple[GpuPodHold, ...] = ()

    @classmethod
    def of(cls, cluster: Cluster) -> Ground:
        rows = Node.objects.present().filter(cluster=cluster).order_by("name")
        nodes = rows.values_list("name", "labels", "taints", "gpu_count")
        pods = GpuPod.objects.filter(cluster=cluster).exclude(node_name="").order_by("namespace", "name")
        return cls(
            tuple(NodeGround(name, labels, tuple(taints), gpus) for name, labels, taints, gpus in nodes.iterator()),
            tuple(
                GpuPodHold(p.node_name, GpuPodOwner(p.namespace, p.owner_kind or "Pod", p.owner_name or p.name), p.gpus)
                for p in pods.iterator()
            ),
        )

    def named(self, which: str) -> tuple[str, ...]:
        """Return the nodes that the catalog's word names: all, gpu, a label selector; empty: none."""
        if which == ALL_NODES:
            return self._those(lambda node: True)
        if which == GPU_NODES:
            return self._those(lambda node: node.gpus > 0 or node.labels.get(GPU_LABEL) == "true")
        key, _, value = which.partition("=")
        return self._those(lambda node: node.labels.get(key) == value) if key else ()

    def running(self, workload: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the nodes where a DaemonSet has its pods, and no fewer than it counts.

        By its selector, affinity and tolerations. All nodes where it counts more than those: something else than these
        rows know decides.
        """
        pod = ((workload.get("spec") or {}).get("template") or {}).get("spec") or {}
        nodes = self._those(lambda node: _is_chosen(pod, node) and _is_tolerated(pod, node))
        counted = int((workload.get("status") or {}).get("desiredNumberScheduled") or 0)
        return nodes if counted <= len(nodes) else self.named(ALL_NODES)

    def gpus(self, names: Iterable[str]) -> int:
        return sum(self._gpus.get(name, 0) for name in names)

    def most_gpus(self, names: Iterable[str], at_once: int) -> int:
        """Count the GPUs of the `at_once` nodes that have the most."""
        return sum(sorted((self._gpus.get(name, 0) for name in names), reverse=True)[: max(0, at_once)])

    def _those(self, fits: Callable[[NodeGround], bool]) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes if fits(node))

    @cached_property
    def _gpus(self) -> Mapping[str, int]:
        return {node.name: node.gpus for node in self.nodes}


def _is_chosen(pod: Mapping[str, Any], node: NodeGround) -> bool:
    if any(node.labels.get(key) != value for key, value in (pod.get("nodeSelector") or {}).items()):
        return False
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or ()
    # What else a term may ask (a field, Gt, Lt) is taken to fit: rather a node too many than one too few.
    return not terms or any(_fits(term, node) for term in terms)


def _fits(term: Mapping[str, Any], node: NodeGround) -> bool:
    known = ("In", "NotIn", "Exists", "DoesNotExist")
    expressions = [
        expression for expression in term.get("matchExpressions") or () if expression.get("operator") in known
    ]
    return objects.selects({"matchExpressions": expressions}, node.labels) if expressions else True


def _is_tolerated(pod: Mapping[str, Any], node: NodeGround) -> bool:
    own = tolerations.of_pod({"spec": pod})
    hard = (t for t in node.taints if t.get("effect") in tolerations.KEEPS_AWAY)
    return all(
        str(t.get("key")).startswith(_OF_EVERY_DAEMON) or any(tolerations.suits(o, t) for o in own) for t in hard
    )
