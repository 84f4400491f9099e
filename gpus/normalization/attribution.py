"""Attribution: tells the exporters' own pods from those that hold GPUs, and on which node each exporter runs.

Prometheus gives every series of a target the target's own `namespace`, `pod` and `container`. With `honorLabels: false`
the workload's become `exported_*`; with true the workload's stay, and a GPU that no pod holds inherits the exporter's.
Either way a plain sum by `namespace` bills idle GPUs to the exporter.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpus.metrics import amd
from gpus.metrics.samples import ExporterPod, Holder, HonorLabels
from gpus.normalization.observations import Claim, Claims

_WELL_KNOWN = ("dcgm-exporter", "metrics-exporter")
"""In the pod's name with NVIDIA's GPU Operator, its chart, and in every installation seen in issues; and with AMD's."""
_NOT_A_NODE = {"localhost", "localhost.localdomain", "127.0.0.1", "::1"}
Pod = tuple[str, str]
"""Namespace and name."""


class Attribution:
    def __init__(self, claims: Claims, pods: Iterable[ExporterPod]) -> None:
        given = sorted(pods, key=lambda pod: (pod.namespace, pod.name))
        self._given: dict[Pod, ExporterPod] = {(pod.namespace, pod.name): pod for pod in given}
        self._by_ip = {pod.ip: (pod.namespace, pod.name) for pod in given if pod.ip}
        everything = [claim for by_origin in claims.by_device.values() for claim in by_origin.values()]
        self._targets = self._find(claims, everything)
        self._own = set(self._given).union(*self._targets.values())
        self._own_names = {name for _namespace, name in self._own}
        self._stems = {(namespace, _stem(name)) for namespace, name in self._own}
        self._judged: dict[Holder, bool] = {}
        self._runs_on = {origin: self._node_of(pods) for origin, pods in self._targets.items()}
        self._modes = {mode for claim in everything if (mode := self._mode(claim)) is not None}

    def _find(self, claims: Claims, everything: list[Claim]) -> dict[str, set[Pod]]:
        """Return by origin the pods that its series may name although they hold nothing."""
        by_origin = {
            origin: {(target.namespace, target.pod) for target in pods} for origin, pods in claims.targets.items()
        }
        for claim in everything:
            targets = by_origin.setdefault(claim.origin, set())
            if claim.direct:
                namespace, _, name = claim.origin.partition("/")
                targets.add((namespace, name))
                continue
            if (by_ip := self._by_ip.get(_host(claim.origin))) is not None:
                targets.add(by_ip)
            for holder, surely in claim.plain.items():
                named = (holder.namespace, holder.pod)
                if surely or named in self._given or _is_well_known(holder.pod, holder.container):
                    targets.add(named)
        return by_origin

    def is_own(self, holder: Holder) -> bool:
        """Return whether a pod is an exporter's: a known one, or one of the same DaemonSet (its series outlive it)."""
        known = self._judged.get(holder)
        if known is None:
            place, stem = (holder.namespace, holder.pod), (holder.namespace, _stem(holder.pod))
            known = self._judged[holder] = place in self._own or _is_well_known(holder.pod) or stem in self._stems
        return known

    def holders(self, claim: Claim) -> tuple[set[Holder], set[Holder]]:
        """Return the device's holders by this claim, and exporters that only appear to hold it for lack of others."""
        claimed = claim.renamed.keys() | claim.plain.keys()
        own = {holder for holder in claimed if self.is_own(holder)}
        return claimed - own, set() if claim.renamed else own

    def node(self, claim: Claim) -> str:
        """The node's name: by the exporter's pod if the API server knows it, else by label; empty when unknown."""
        if known := self._runs_on.get(claim.origin):
            return known
        if claim.hostname and not self.is_misnamed(claim):
            return claim.hostname
        return claim.node_label

    def _node_of(self, pods: Iterable[Pod]) -> str:
        """The one node of these exporters; empty where they are unknown, or on several."""
        known = {pod.node for key in pods if (pod := self._given.get(key)) and pod.node}
        return next(iter(known)) if len(known) == 1 else ""

    def is_misnamed(self, claim: Claim) -> bool:
        """Return whether the host name that the exporter gives is no node's."""
        name = claim.hostname
        if not name:
            return False
        return name.lower() in _NOT_A_NODE or _is_well_known(name) or name in self._own_names

    def versions(self) -> frozenset[str]:
        """Return the exporters' versions.

        NVIDIA's tag `4.5.2-4.8.1-ubuntu22.04` names the library and then the exporter: the second counts. AMD's are
        prefixed with AMD's name.
        """
        images = (pod.image.partition("@")[0].rpartition("/")[2].partition(":") for pod in self._given.values())
        return frozenset(_version(name, tag) for name, _, tag in images if tag)

    def honor_labels(self) -> HonorLabels:
        if len(self._modes) > 1:
            return HonorLabels.MIXED
        return next(iter(self._modes), HonorLabels.UNKNOWN)

    def _mode(self, claim: Claim) -> HonorLabels | None:
        if claim.direct:
            return HonorLabels.DIRECT
        honored = any(not self.is_own(holder) for holder in claim.plain)
        if claim.renamed:
            return HonorLabels.MIXED if honored else HonorLabels.OFF
        return HonorLabels.ON if honored else None


def _is_well_known(*names: str) -> bool:
    return any(part in name for name in names for part in _WELL_KNOWN)


def _version(image: str, tag: str) -> str:
    if amd.IMAGE in image:
        return f"{amd.TITLE} {tag}"
    parts = tag.split("-")
    return parts[1] if len(parts) > 1 and parts[1][:1].isdigit() else parts[0]


def _host(instance: str) -> str:
    """The address in Prometheus' `instance`, without port and brackets."""
    return instance.rpartition(":")[0].strip("[]")


def _stem(pod: str) -> str:
    """Return the name's part that the pods of one DaemonSet have in common."""
    stem, dash, _rest = pod.rpartition("-")
    return stem + dash or pod
