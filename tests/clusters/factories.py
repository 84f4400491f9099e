"""Clusters in the database, and raw Kubernetes objects as an API server gives them."""

from __future__ import annotations

import itertools
from typing import Any

import factory

from clusters.connection import registry
from clusters.models import Cluster, Pool
from clusters.net.credentials import Credentials
from contract import names

_versions = itertools.count(1000)
_uids = itertools.count(1)


class ClusterFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Cluster
        skip_postgeneration_save = True

    uid = factory.Sequence("kube-system-{}".format)
    name = factory.Sequence("cluster-{}".format)
    server = factory.Sequence("https://cluster-{}.example:6443".format)
    credential = b""
    credential_key = ""

    @factory.post_generation
    def with_credential(self, create: bool, extracted: Any, **_: Any) -> None:
        sealed = registry.sealed(self.pk, Credentials(server=self.server, token="t0ken"))
        self.credential, self.credential_key = sealed.data, sealed.key
        self.save(update_fields=["credential", "credential_key"])


def reached_with(cluster: Cluster, credentials: Credentials) -> Cluster:
    """This cluster at the address, and with the credential, of one that answers."""
    sealed = registry.sealed(cluster.pk, credentials)
    cluster.server, cluster.credential, cluster.credential_key = credentials.server, sealed.data, sealed.key
    cluster.save(update_fields=["server", "credential", "credential_key"])
    return cluster


class PoolFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Pool

    cluster = factory.SubFactory(ClusterFactory)
    name = factory.Sequence("pool-{}".format)
    selector = {"matchLabels": {"pool": "train"}}


def version() -> str:
    return str(next(_versions))


def raw_node(name: str = "n1", *, uid: str = "", ready: bool = True, gpus: int = 0, **over: Any) -> dict[str, Any]:
    """`over`: labels, annotations, taints, unschedulable, kernel, resource_version."""
    spec: dict[str, Any] = {}
    if over.get("unschedulable"):
        spec["unschedulable"] = True
    if over.get("taints"):
        spec["taints"] = over["taints"]
    return {
        "metadata": {
            "name": name,
            "uid": uid or f"uid-of-{name}",
            "resourceVersion": over.get("resource_version") or version(),
            "labels": {"kubernetes.io/hostname": name} | over.get("labels", {}),
            "annotations": over.get("annotations", {}),
        },
        "spec": spec,
        "status": {
            "capacity": {"cpu": "64", "nvidia.com/gpu": str(gpus)},
            "allocatable": {"cpu": "63", "nvidia.com/gpu": str(gpus)},
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True" if ready else "False",
                    "reason": "KubeletReady" if ready else "KubeletNotReady",
                    "message": "" if ready else "PLEG is not healthy",
                    "lastTransitionTime": "2026-11-21T08:00:00Z",
                    "lastHeartbeatTime": "2026-11-21T11:59:00Z",
                }
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "osImage": "Ubuntu 24.04 LTS",
                "kernelVersion": over.get("kernel", "6.8.0-85-generic"),
                "kubeletVersion": "v1.35.4",
                "bootID": "boot-1",
            },
        },
    }


def raw_tuning(
    name: str = "n1", *, uid: str = "", status: Any = None, spec: Any = None, generation: int = 1
) -> dict[str, Any]:
    node_uid = uid or f"uid-of-{name}"
    return {
        "metadata": {
            "name": name,
            "uid": f"tuning-of-{node_uid}",
            "resourceVersion": version(),
            "generation": generation,
        },
        "spec": {"nodeUID": node_uid, "mode": "observe", "protocol": 1} | (spec or {}),
    } | ({} if status is None else {"status": status})


def raw_status(name: str = "n1", **over: Any) -> dict[str, Any]:
    return {
        "observedGeneration": 1,
        "nodeUID": f"uid-of-{name}",
        "protocol": 1,
        "agentVersion": "0.1.0",
        "bootID": "boot-1",
        "settings": [],
        "observed": '{"vm.swappiness": "60"}',
        "conditions": [],
    } | over


def raw_pod(
    name: str = "p1", *, node: str = "n1", gpus: int = 8, phase: str = "Running", uid: str = ""
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-of-pod-{name}",
            "resourceVersion": version(),
            "ownerReferences": [{"kind": "Job", "name": "train", "controller": True}],
        },
        "spec": {
            "nodeName": node,
            "containers": [{"resources": {"limits": {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}}}],
        },
        "status": {"phase": phase, "startTime": "2026-11-21T09:00:00Z"},
    }


def raw_lease(node: str = "n1", renewed: str = "2026-11-21T11:59:30.000000Z") -> dict[str, Any]:
    return {
        "metadata": {"name": names.lease_name(node), "namespace": names.NAMESPACE, "uid": f"lease-of-{node}"},
        "spec": {"renewTime": renewed},
    }
