"""Tenants of GPUs split by MIG: notebooks and models too small for a whole board, some instances left free."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from simfleet.machines.instances import Layout, Slot, slots

if TYPE_CHECKING:
    from simfleet.core import SimCluster

TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}
NOTEBOOK_SERVER = "singleuser-server"
"""The label `component` of the pods that JupyterHub makes for its users; they have no owner."""
PEOPLE = (
    "ada", "ben", "chloe", "dev", "elif", "finn", "grace", "hana", "ivan", "jo", "kofi", "lena", "marc", "nia",
    "omar", "pia", "quinn", "rosa", "sam", "tara", "uma", "vera", "wei", "xenia", "yara", "zoe",
)  # fmt: skip
MODELS = {"1g": "rerank", "2g": "embed", "3g": "chat-small"}
HELD = 0.7
"""Of the instances of each profile."""


def settle(cluster: SimCluster, node: str, layout: Layout) -> None:
    """Pods on a node's instances: a person's notebook each where all are small, else models. Whole GPUs stay free."""
    profiles = Counter(slot.profile for slot in slots(len(layout), layout) if slot.profile)
    if set(profiles) == {"1g.10gb"}:
        for place in range(round(profiles["1g.10gb"] * HELD)):
            _notebook(cluster, node, place)
        return
    for profile, count in sorted(profiles.items()):
        model = MODELS[profile.partition(".")[0]]
        cluster.pods.workload(
            "ReplicaSet",
            f"{model}-{node.rpartition('-')[2]}",
            namespace="team-serving",
            replicas=round(count * HELD),
            nodes=[node],
            labels={"app": model},
            owner=("Deployment", model),
            gpus=1,
            resource=Slot(0, profile=profile).resource,
            tolerations=[TOLERATION],
        )


def _notebook(cluster: SimCluster, node: str, place: int) -> None:
    person, again = PEOPLE[place % len(PEOPLE)], place // len(PEOPLE)
    cluster.add_pod(
        f"jupyter-{person}" + (f"--{again + 1}" if again else ""),
        node=node,
        namespace="notebooks",
        labels={"app": "jupyterhub", "component": NOTEBOOK_SERVER},
        gpus=1,
        resource=Slot(0, profile="1g.10gb").resource,
        tolerations=[TOLERATION],
    )
