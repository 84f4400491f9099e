"""Rows of test_blast_table.py for components of GPUs, their networks and their schedulers."""

from __future__ import annotations

from typing import Any

# What is done:        install     upgrade     values      remove
TABLE: dict[str, tuple[str, str, str, str]] = {
    "amd-gpu-operator": ("gpu-pods", "new-pods", "reboot", "gpu-pods"),
    "aws-efa-k8s-device-plugin": ("new-pods", "new-pods", "new-pods", "new-pods"),
    "dcgm-exporter": ("live", "live", "live", "live"),
    "dra-driver-nvidia-gpu": ("new-pods", "new-pods", "new-pods", "gpu-pods"),
    "hami": ("new-pods", "new-pods", "gpu-pods", "new-pods"),
    "intel-device-plugins-gpu": ("new-pods", "new-pods", "new-pods", "new-pods"),
    "intel-device-plugins-operator": ("live", "new-pods", "live", "new-pods"),
    "jobset": ("new-pods", "new-pods", "new-pods", "new-pods"),
    "kai-scheduler": ("new-pods", "new-pods", "gpu-pods", "new-pods"),
    "kserve": ("new-pods", "gpu-pods", "gpu-pods", "new-pods"),
    "kserve-crd": ("live", "new-pods", "live", "gpu-pods"),
    "kubeflow-trainer": ("live", "new-pods", "new-pods", "gpu-pods"),
    "kuberay-operator": ("live", "new-pods", "new-pods", "new-pods"),
    "lws": ("new-pods", "new-pods", "new-pods", "new-pods"),
    "nvidia-device-plugin": ("new-pods", "new-pods", "gpu-pods", "new-pods"),
    "slurm-operator": ("live", "gpu-pods", "gpu-pods", "new-pods"),
    "slurm-operator-crds": ("live", "new-pods", "live", "gpu-pods"),
    "sriov-network-operator": ("network", "network", "reboot", "network"),
    "whereabouts": ("new-pods", "new-pods", "new-pods", "new-pods"),
}
UPGRADES: dict[str, tuple[str, str, str]] = {
    "amd-gpu-operator": ("Deployment", "amd-gpu-operator-gpu-operator-charts-controller-manager", "manager"),
    "aws-efa-k8s-device-plugin": ("DaemonSet", "aws-efa-k8s-device-plugin", "aws-efa-k8s-device-plugin"),
    "dcgm-exporter": ("DaemonSet", "dcgm-exporter", "exporter"),
    "dra-driver-nvidia-gpu": ("DaemonSet", "dra-driver-nvidia-gpu-kubelet-plugin", "gpus"),
    "hami": ("DaemonSet", "hami-device-plugin", "device-plugin"),
    "intel-device-plugins-gpu": ("DaemonSet", "intel-gpu-plugin", "intel-gpu-plugin"),  # the operator makes it
    "intel-device-plugins-operator": ("Deployment", "inteldeviceplugins-controller-manager", "manager"),
    "jobset": ("Deployment", "jobset-controller", "controller"),
    "kai-scheduler": ("Deployment", "kai-operator", "operator"),
    "kserve": ("Deployment", "kserve-controller-manager", "manager"),
    "kserve-crd": ("Deployment", "newcomer", "main"),  # the chart has no workload
    "kubeflow-trainer": ("Deployment", "kubeflow-trainer-controller-manager", "manager"),
    "kuberay-operator": ("Deployment", "kuberay-operator", "kuberay-operator"),
    "lws": ("Deployment", "lws-controller-manager", "manager"),
    "nvidia-device-plugin": ("DaemonSet", "nvidia-device-plugin", "nvidia-device-plugin-ctr"),
    "slurm-operator": ("Deployment", "slurm-operator", "slurm-operator"),
    "slurm-operator-crds": ("Deployment", "newcomer", "main"),  # the chart has no workload
    "sriov-network-operator": ("Deployment", "sriov-network-operator", "sriov-network-operator"),
    "whereabouts": ("DaemonSet", "whereabouts-whereabouts-chart", "whereabouts"),
}
EXEC = {"containers": [{"name": "main", "args": ["--a"]}]}, {"containers": [{"name": "main", "args": ["--b"]}]}
OTHER_ARGUMENTS: tuple[dict[str, Any], dict[str, Any]] = (
    {"template": {"spec": EXEC[0]}},
    {"template": {"spec": EXEC[1]}},
)


def driver(version: str) -> dict[str, Any]:
    upgrade = {"enable": True, "maxParallelUpgrades": 1, "rebootRequired": True}
    return {"driver": {"enable": True, "version": version, "upgradePolicy": upgrade}}


def definition(field: str) -> dict[str, Any]:
    return {"group": "example.org", "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"title": field}}}]}


VALUES: dict[str, tuple[str, str, str, Any, Any]] = {
    "amd-gpu-operator": ("DeviceConfig", "default", "spec", driver("30.20.0"), driver("30.20.1")),
    "aws-efa-k8s-device-plugin": ("DaemonSet", "aws-efa-k8s-device-plugin", "spec", *OTHER_ARGUMENTS),
    "dcgm-exporter": ("ConfigMap", "exporter-metrics-config-map", "data", {"metrics": "a"}, {"metrics": "b"}),
    "dra-driver-nvidia-gpu": ("DaemonSet", "dra-driver-nvidia-gpu-kubelet-plugin", "spec", *OTHER_ARGUMENTS),
    "hami": ("ConfigMap", "hami-device-plugin", "data", {"config.json": "a"}, {"config.json": "b"}),
    "intel-device-plugins-gpu": ("GpuDevicePlugin", "sample", "spec", {"sharedDevNum": 1}, {"sharedDevNum": 4}),
    "intel-device-plugins-operator": ("Deployment", "inteldeviceplugins-controller-manager", "spec", *OTHER_ARGUMENTS),
    "jobset": ("ConfigMap", "jobset-controller-config", "data", {"config.yaml": "a"}, {"config.yaml": "b"}),
    "kai-scheduler": ("SchedulingShard", "default", "spec", {"placementStrategy": {"gpu": "binpack"}}, {}),
    "kserve": ("ConfigMap", "inferenceservice-config", "data", {"deploy": "a"}, {"deploy": "b"}),
    "kserve-crd": ("CustomResourceDefinition", "a.serving.kserve.io", "spec", definition("a"), definition("b")),
    "kubeflow-trainer": ("ConfigMap", "kubeflow-trainer-config", "data", {"config": "a"}, {"config": "b"}),
    "kuberay-operator": ("Deployment", "kuberay-operator", "spec", *OTHER_ARGUMENTS),
    "lws": ("ConfigMap", "lws-manager-config", "data", {"config": "a"}, {"config": "b"}),
    "nvidia-device-plugin": ("ConfigMap", "nvidia-device-plugin-configs", "data", {"default": "a"}, {"default": "b"}),
    "slurm-operator": ("NodeSet", "gpu", "spec", {"replicas": 8}, {"replicas": 4}),
    "slurm-operator-crds": ("CustomResourceDefinition", "a.slinky.slurm.net", "spec", definition("a"), definition("b")),
    "sriov-network-operator": ("SriovNetworkNodePolicy", "rails", "spec", {"numVfs": 4}, {"numVfs": 8}),
    "whereabouts": ("ConfigMap", "whereabouts-config", "data", {"cron-expression": "a"}, {"cron-expression": "b"}),
}
"""Kind, name, field, and what it is before and after: the most disruptive that people do set."""
