"""Programs of known images: data, by the names that the real charts and the demo's give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simfleet.controllers.programs import Program, Serves

Raw = Mapping[str, Any]
_GPU_NODES = {"nvidia.com/gpu.present": "true"}
_ANYWHERE = [{"operator": "Exists"}]


def _definition(group: str, version: str, plural: str, kind: str) -> Raw:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served = {"name": version, "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [served]},
    }


def _daemons(name: str, image: str) -> Raw:
    labels = {"app": name}
    pod = {"nodeSelector": _GPU_NODES, "tolerations": _ANYWHERE, "containers": [{"name": name, "image": image}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _queue(name: str) -> Raw:
    spec = {"weight": 1, "reclaimable": name != "root"}
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


KNOWN = (
    Program("*/cilium/cilium:*", pull_seconds=6, clears_taint="node.cilium.io/agent-not-ready"),
    Program(
        "*/cilium/operator-generic:*",
        pull_seconds=3,
        makes=tuple(
            _definition("cilium.io", "v2", f"cilium{what}s", f"Cilium{kind}")
            for what, kind in (("node", "Node"), ("endpoint", "Endpoint"))
        ),
    ),
    Program("*/node-feature-discovery:*", pull_seconds=3),
    Program("*/gpu-operator-validator:*", pull_seconds=8),
    Program("*/k8s-device-plugin:*", pull_seconds=5, offers={"nvidia.com/gpu": "gpus"}),
    Program(
        "*/gpu-operator:*",
        pull_seconds=4,
        serves=(
            Serves(
                "nvidia.com/v1",
                "ClusterPolicy",
                "state",
                ready="ready",
                waiting="notReady",
                operands=(
                    _daemons(
                        "nvidia-device-plugin-daemonset",
                        "{devicePlugin.repository}/{devicePlugin.image}:{devicePlugin.version}",
                    ),
                    _daemons(
                        "nvidia-operator-validator",
                        "{validator.repository}/{validator.image}:{validator.version}",
                    ),
                ),
            ),
        ),
    ),
    Program("*/vc-webhook-manager:*", pull_seconds=3),
    Program("*/vc-scheduler:*", pull_seconds=6, makes=(_queue("root"), _queue("default"))),
    Program(
        "*/vc-controller-manager:*",
        pull_seconds=4,
        serves=(Serves("scheduling.volcano.sh/v1beta1", "Queue", "state", ready="Open"),),
    ),
)
