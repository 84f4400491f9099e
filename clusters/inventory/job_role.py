"""The part that a pod has in its job, by the labels that controllers write on it. Pure.

Labels as the projects' own sources name them: JobSet's ReplicatedJobNameKey (api/jobset/v1alpha2/jobset_types.go; a
TrainJob of Kubeflow's trainer is a JobSet), the training operator's ReplicaTypeLabel and JobRoleLabel, which the MPI
operator writes alone, KubeRay's RayNodeGroupLabelKey and RayNodeTypeLabelKey, Volcano's TaskSpecKey, LeaderWorkerSet's
WorkerIndexLabelKey, Kueue's PodSetLabel. No controller names a pipeline stage: a job sets Setpoint's own label, or the
annotation of the same name, which a process may write on its pod once it knows its rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters import objects

REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
REPLICA_TYPE, TRAINING_ROLE = "training.kubeflow.org/replica-type", "training.kubeflow.org/job-role"
RAY_GROUP, RAY_NODE_TYPE = "ray.io/group", "ray.io/node-type"
VOLCANO_TASK = "volcano.sh/task-spec"
LWS_WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
KUEUE_POD_SET = "kueue.x-k8s.io/podset"
STAGE = "setpoint.dev/pipeline-stage"
NAMES = (REPLICATED_JOB, REPLICA_TYPE, TRAINING_ROLE, RAY_GROUP, RAY_NODE_TYPE, VOLCANO_TASK)
"""The first that a pod has counts: the outer controller's, which is also the one that names the job."""
LONGEST = 128
_LONGEST_LABEL = 63


def role(pod: Mapping[str, Any]) -> str:
    """Return the pod's role, and its pipeline stage where the job names one; empty where neither is known."""
    metadata = objects.meta(pod)
    labels, annotations = _texts(metadata.get("labels")), _texts(metadata.get("annotations"))
    stage = labels.get(STAGE) or annotations.get(STAGE)
    parts = (_name(labels, annotations), f"stage {stage}" if stage else "")
    return ", ".join(part for part in parts if part)


def has_stage(name: str) -> bool:
    """Return whether a role names a pipeline stage."""
    return name.startswith("stage ") or ", stage " in name


def _name(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    for key in NAMES:
        if value := labels.get(key) or annotations.get(key):
            # the training operator wrote Worker before 1.5, and worker since
            return value.lower() if key in (REPLICA_TYPE, TRAINING_ROLE) else value
    if index := labels.get(LWS_WORKER_INDEX):
        return "leader" if index == "0" else "worker"
    return labels.get(KUEUE_POD_SET, "")


def _texts(value: object) -> dict[str, str]:
    return {k: _plain(v) for k, v in value.items() if isinstance(v, str)} if isinstance(value, Mapping) else {}


def _plain(text: str) -> str:
    """Return the text as one line that is no longer than a label: an annotation may hold anything."""
    words = " ".join(text[: 4 * _LONGEST_LABEL].split())
    return "".join(filter(str.isprintable, words))[:_LONGEST_LABEL]
