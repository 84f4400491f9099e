"""Pods of the bench as an API server writes them: about 9.8 KB each, a third of it field ownership."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, NamedTuple

PENDING, SCHEDULED, RUNNING, FINISHED = "pending", "scheduled", "running", "finished"
HELD_BY_ONE_IN = 20
"""Pods of which one holds GPUs."""
TEAMS = 200
_MARKS = ("@NAMESPACE@", "@NAME@", "@UID@", "@NODE@", "@VERSION@")
_HEAD = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
_CREATED, _SINCE = "2026-11-20T08:00:00Z", "2026-11-20T08:00:07Z"


class Pod(NamedTuple):
    """Ordered as an API server orders a list: by namespace and name."""

    namespace: str
    name: str
    uid: str
    node: str
    state: str
    is_held: bool
    version: int

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def phase(self) -> str:
        return {RUNNING: "Running", FINISHED: "Succeeded"}.get(self.state, "Pending")


def base_pods(number: int, nodes: int) -> list[Pod]:
    """Return pods that run for as long as the server does, in order; 2.1 % are finished, with GPUs and without."""
    return sorted(
        Pod(
            f"team-{index % TEAMS:03d}", f"worker-{index:07d}-0-x7k2p", f"{index:08x}-ba5e-4000-8000-{index:012x}",
            f"node-{index % nodes:05d}", FINISHED if index % 50 == 7 or index % 1000 == 0 else RUNNING,
            index % HELD_BY_ONE_IN == 0, index + 1,
        )
        for index in range(number)
    )  # fmt: skip


def rendered(pod: Pod, *, is_brief: bool = False) -> bytes:
    """Return its JSON; `is_brief`: its metadata alone."""
    values = (pod.namespace, pod.name, pod.uid, pod.node, str(pod.version))
    return "".join(
        part if isinstance(part, str) else values[part] for part in _parts(pod.state, pod.is_held, is_brief)
    ).encode()


@cache
def _parts(state: str, is_held: bool, is_brief: bool) -> list[str | int]:
    raw = _object(state, is_held)
    text = json.dumps({**_HEAD, "metadata": raw["metadata"]} if is_brief else raw, separators=(",", ":"))
    parts: list[str | int] = [text]
    for number, mark in enumerate(_MARKS):
        cut: list[str | int] = []
        for part in parts:
            pieces: list[str | int] = [*part.split(mark)] if isinstance(part, str) else [part]
            for index, piece in enumerate(pieces):
                cut += [number, piece] if index else [piece]
        parts = cut
    return parts


def _object(state: str, is_held: bool) -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "@NAME@-job", "uid": "@UID@", "controller": True,
             "blockOwnerDeletion": True}  # fmt: skip
    return {
        "metadata": {
            "name": "@NAME@", "generateName": "worker-", "namespace": "@NAMESPACE@", "uid": "@UID@",
            "resourceVersion": "@VERSION@", "creationTimestamp": _CREATED,
            "labels": {
                "app.kubernetes.io/name": "worker", "app.kubernetes.io/instance": "@NAME@",
                "app.kubernetes.io/managed-by": "Helm", "batch.kubernetes.io/job-name": "@NAME@-job",
                "batch.kubernetes.io/controller-uid": "@UID@", "kueue.x-k8s.io/queue-name": "team-queue",
            },
            "annotations": {
                "batch.kubernetes.io/job-completion-index": "0",
                "k8s.v1.cni.cncf.io/network-status": '[{"name":"cilium","interface":"eth0","ips":["10.0.0.1"]}]',
                "prometheus.io/scrape": "true", "prometheus.io/port": "9090",
                "checksum/config": "3f9a8d1c" * 8,
            },
            "ownerReferences": [owner],
            "managedFields": [_ownership(manager, part) for manager, part in _MANAGERS],
        },
        "spec": _spec(state, is_held),
        "status": _status(state),
    }  # fmt: skip


_MANAGERS = (("kube-controller-manager", 20), ("kube-scheduler", 2), ("kubelet", 14))


def _ownership(manager: str, fields: int) -> dict[str, Any]:
    below: dict[str, Any] = {
        f'k:{{"name":"field-{index:02d}"}}': {".": {}, "f:name": {}, "f:value": {}, "f:type": {}}
        for index in range(fields)
    }
    return {
        "manager": manager, "operation": "Update", "apiVersion": "v1", "time": _SINCE, "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": below},
    }  # fmt: skip


def _spec(state: str, is_held: bool) -> dict[str, Any]:
    gpus = {"nvidia.com/gpu": "1"} if is_held else {}
    main: dict[str, Any] = {
        "name": "worker", "image": "registry.example/team/worker:2026.11.3@sha256:" + "ab" * 32,
        "command": ["/usr/bin/worker", "--config=/etc/worker/config.yaml", "--log-level=info"],
        "env": [{"name": f"WORKER_SETTING_{index:02d}", "value": f"value-of-{index:02d}"} for index in range(22)],
        "resources": {"limits": {"cpu": "8", "memory": "64Gi", **gpus}, "requests": {"cpu": "4", "memory": "32Gi",
                                                                                     **gpus}},
        "volumeMounts": [{"name": f"volume-{index}", "mountPath": f"/mnt/volume-{index}"} for index in range(6)],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10},
        "terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "IfNotPresent",
    }  # fmt: skip
    sidecar = {**main, "name": "metrics", "env": main["env"][:8], "resources": {"limits": {"cpu": "1"}}}
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    return {
        "volumes": [{"name": f"volume-{index}", "configMap": {"name": f"config-{index}", "defaultMode": 420}}
                    for index in range(6)],
        "containers": [main, sidecar], "restartPolicy": "Never", "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst", "serviceAccountName": "worker", "securityContext": {}, "priority": 0,
        "schedulerName": "default-scheduler", "tolerations": tolerations, "enableServiceLinks": True,
        **({} if state == PENDING else {"nodeName": "@NODE@"}),
    }  # fmt: skip


def _status(state: str) -> dict[str, Any]:
    if state == PENDING:
        return {"phase": "Pending", "qosClass": "Burstable"}
    begun = {"running": {"startedAt": _SINCE}}
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": _SINCE, "finishedAt": _SINCE}}
    state_now = ended if state == FINISHED else begun
    is_ready = state == RUNNING
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions = [
        {"type": type_, "status": "True" if is_ready or type_ == "PodScheduled" else "False",
         "lastProbeTime": None, "lastTransitionTime": _SINCE}
        for type_ in types
    ]  # fmt: skip
    containers = [
        {"name": name, "ready": is_ready, "started": is_ready, "restartCount": 0, "state": state_now, "lastState": {},
         "image": "registry.example/team/worker:2026.11.3", "imageID": "registry.example/team/worker@sha256:"
         + "ab" * 32, "containerID": "containerd://" + "cd" * 32}
        for name in ("worker", "metrics")
    ]  # fmt: skip
    phase = {RUNNING: "Running", FINISHED: "Succeeded"}.get(state, "Pending")
    return {
        "phase": phase, "conditions": conditions, "hostIP": "10.1.2.3", "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}], "startTime": _SINCE, "qosClass": "Burstable",
        **({} if state == SCHEDULED else {"containerStatuses": containers}),
    }  # fmt: skip
