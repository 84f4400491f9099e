"""The job that a pod belongs to, as far as the pod itself tells: its labels and its controlling owner. Pure.

Labels as the projects' own sources name them: JobSet's JobSetNameKey and JobSetUIDKey (api/jobset/v1alpha2/
jobset_types.go), the training operator's JobNameLabel, KubeRay's RayClusterLabelKey and RayOriginatedFromCRNameLabelKey
(ray-operator/controllers/ray/utils/constant.go), Volcano's JobNameKey and QueueNameKey, LeaderWorkerSet's
SetNameLabelKey, Kueue's queue name, LocalQueueLabel and pod group name, slurm-bridge's job id. A TrainJob of Kubeflow's
trainer makes a JobSet of its own name, whose labels are all that its pods carry: it is shown as the JobSet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from clusters import objects

Labels = Mapping[str, Any]

JOBSET_NAME, JOBSET_UID = "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/jobset-uid"
TRAINING_NAME = "training.kubeflow.org/job-name"
RAY_CLUSTER = "ray.io/cluster"
RAY_ORIGIN_NAME, RAY_ORIGIN_KIND = "ray.io/originated-from-cr-name", "ray.io/originated-from-crd"
VOLCANO_NAME, VOLCANO_QUEUE = "volcano.sh/job-name", "volcano.sh/queue-name"
POD_GROUP = "scheduling.k8s.io/group-name"
LEADER_WORKER_SET = "leaderworkerset.sigs.k8s.io/name"
KUEUE_GROUP = "kueue.x-k8s.io/pod-group-name"
KUEUE_QUEUES = ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/local-queue-name")
"""Of the pod's own request; and what Kueue writes on the pods of a Job that it admitted (AssignQueueLabelsForPods)."""
SLURM_JOB = "scheduler.slinky.slurm.net/slurm-jobid"
TEMPLATE_HASH = "pod-template-hash"
ELASTIC = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "LeaderWorkerSet", "RayCluster"})
"""Their number of pods changes during their life: fewer than at most are no loss."""


class JobIdentity(NamedTuple):
    kind: str
    name: str
    uid: str = ""
    """Empty: the pod does not tell it, and the same name is the same job."""

    def key(self, namespace: str) -> str:
        """Return 40 hex digits that tell this job from every other of its cluster.

        Of the namespace too: a pod may name any UID, also that of a job in a namespace that is not its own.
        """
        named = "\0".join((namespace, *self)).encode("utf-8", "replace")
        return hashlib.sha256(named).hexdigest()[:40]


def identify(pod: Mapping[str, Any]) -> JobIdentity:
    """Return the outermost job that the pod names."""
    metadata = objects.meta(pod)
    labels, annotations = _texts(metadata.get("labels")), _texts(metadata.get("annotations"))
    owner = _owner(metadata)
    return (
        _by_label(labels, annotations, owner)
        or _by_owner(labels, owner)
        or _of_bare_pod(labels, annotations)
        or JobIdentity("Pod", str(metadata.get("name") or ""), str(metadata.get("uid") or ""))
    )


def queue(pod: Mapping[str, Any]) -> str:
    """Return the queue that the pod names; empty where it names none."""
    metadata = objects.meta(pod)
    labels, annotations = _texts(metadata.get("labels")), _texts(metadata.get("annotations"))
    for key in (*KUEUE_QUEUES, VOLCANO_QUEUE):
        if name := labels.get(key) or annotations.get(key):
            return name
    return ""


def _by_label(labels: Mapping[str, str], annotations: Mapping[str, str], owner: JobIdentity) -> JobIdentity | None:
    if name := labels.get(RAY_CLUSTER):
        if origin := labels.get(RAY_ORIGIN_NAME):
            return JobIdentity(labels.get(RAY_ORIGIN_KIND) or "RayJob", origin)
        return JobIdentity("RayCluster", name, _uid(owner, name))
    if name := labels.get(JOBSET_NAME) or annotations.get(JOBSET_NAME):
        return JobIdentity("JobSet", name, labels.get(JOBSET_UID) or annotations.get(JOBSET_UID) or "")
    if name := labels.get(TRAINING_NAME):
        return owner if owner.name == name and owner.kind != "Job" else JobIdentity("TrainingJob", name)
    if name := labels.get(VOLCANO_NAME) or annotations.get(VOLCANO_NAME):
        return JobIdentity("Volcano Job", name, _uid(owner, name))
    if name := labels.get(LEADER_WORKER_SET):
        return JobIdentity("LeaderWorkerSet", name)
    return None


def _by_owner(labels: Mapping[str, str], owner: JobIdentity) -> JobIdentity | None:
    if not (owner.kind and owner.name):
        return None
    suffix = f"-{labels[TEMPLATE_HASH]}" if labels.get(TEMPLATE_HASH) else ""
    if owner.kind == "ReplicaSet" and suffix and owner.name.endswith(suffix) and owner.name != suffix:
        return JobIdentity("Deployment", owner.name.removesuffix(suffix))
    return owner


def _of_bare_pod(labels: Mapping[str, str], annotations: Mapping[str, str]) -> JobIdentity | None:
    if name := labels.get(KUEUE_GROUP):
        return JobIdentity("Pod group", name)
    if name := annotations.get(POD_GROUP):
        return JobIdentity("PodGroup", name)
    if name := labels.get(SLURM_JOB):
        return JobIdentity("Slurm job", name)
    return None


def _owner(metadata: Mapping[str, Any]) -> JobIdentity:
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return JobIdentity(str(owner.get("kind") or ""), str(owner.get("name") or ""), str(owner.get("uid") or ""))
    return JobIdentity("", "")


def _uid(owner: JobIdentity, name: str) -> str:
    return owner.uid if owner.name == name else ""


def _texts(value: object) -> dict[str, str]:
    return {k: v for k, v in value.items() if isinstance(v, str)} if isinstance(value, Mapping) else {}
