"""Every component of the catalog × what is done with it × where: its class, and how many must approve.

The table is a judgment, written from what each operator documents, not from the code. What changes is a small example
of each: the objects that such a change really touches, as the charts have them.
"""

from __future__ import annotations

from typing import Any

import pytest

from components.blast import judgment
from components.blast.ground import GpuPodHold, GpuPodOwner, Ground, NodeGround
from components.blast.judgment import Scene
from components.catalog import catalog
from components.catalog.effects import CLASSES
from components.helm.rendering import Manifest
from components.plans.diff import Compared
from components.plans.hits import Blast
from jobs.approvals import rulebook, rules
from jobs.diffs.changes import Disruption
from jobs.models import ApprovalRule
from tests.jobs.forecast import accelerator_rows

GPU = {"nvidia.com/gpu.present": "true", "feature.node.kubernetes.io/pci-15b3.present": "true"}
GROUND = Ground(
    (NodeGround("g1", GPU, gpus=8), NodeGround("g2", GPU, gpus=8), NodeGround("p1", {})),
    (GpuPodHold("g1", GpuPodOwner("team", "Job", "train"), 8),),
)
ACTIONS = ("install", "upgrade", "values", "remove")
# What is done:        install     upgrade     values      remove
TABLE: dict[str, tuple[str, str, str, str]] = {
    "argo-cd": ("new-pods", "live", "new-pods", "live"),
    "cert-manager": ("live", "live", "live", "new-pods"),
    "cilium": ("network", "network", "network", "network"),
    "cluster-autoscaler": ("drain", "drain", "drain", "new-pods"),
    "csi-driver-nfs": ("live", "new-pods", "new-pods", "new-pods"),
    "external-secrets": ("live", "live", "new-pods", "live"),
    "fluent-bit": ("live", "live", "live", "live"),
    "fluid": ("new-pods", "new-pods", "new-pods", "gpu-pods"),
    "gpu-operator": ("gpu-pods", "gpu-pods", "drain", "gpu-pods"),
    "istio-base": ("live", "live", "live", "live"),
    "istiod": ("new-pods", "new-pods", "network", "network"),
    "keda": ("live", "new-pods", "new-pods", "gpu-pods"),
    "kube-prometheus-stack": ("live", "live", "live", "live"),
    "kueue": ("new-pods", "new-pods", "gpu-pods", "gpu-pods"),
    "kyverno": ("new-pods", "new-pods", "new-pods", "new-pods"),
    "local-static-provisioner": ("live", "new-pods", "new-pods", "new-pods"),
    "loki": ("live", "live", "live", "live"),
    "metrics-server": ("live", "live", "live", "new-pods"),
    "network-operator": ("network", "network", "gpu-pods", "network"),
    "node-feature-discovery": ("new-pods", "gpu-pods", "gpu-pods", "gpu-pods"),
    "node-problem-detector": ("live", "live", "live", "live"),
    "opencost": ("live", "live", "live", "live"),
    "prometheus-adapter": ("live", "live", "new-pods", "new-pods"),
    "rook-ceph": ("live", "network", "network", "network"),
    "spegel": ("new-pods", "new-pods", "new-pods", "new-pods"),
    "trivy-operator": ("live", "live", "live", "live"),
    "velero": ("live", "live", "live", "live"),
    "vertical-pod-autoscaler": ("gpu-pods", "gpu-pods", "gpu-pods", "new-pods"),
    "volcano": ("new-pods", "new-pods", "gpu-pods", "gpu-pods"),
}
TABLE |= accelerator_rows.TABLE
APPROVERS = {"live": 1, "new-pods": 1, "network": 2, "gpu-pods": 2, "drain": 2, "reboot": 2}
"""In production; one anywhere else, for every class."""


def workload(kind: str, name: str, container: str, image: str) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": container, "image": image}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "there"},
        "spec": {"template": template},
    }


def settings(kind: str, name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}} | content


def changed(kind: str, name: str, field: str, before: Any, after: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return settings(kind, name, **{field: before}), settings(kind, name, **{field: after})


def arguments(kind: str, name: str, flag: str, container: str = "main") -> tuple[dict[str, Any], dict[str, Any]]:
    """Another value of one flag, as most charts pass their settings on."""
    specs = ({"containers": [{"name": container, "args": [flag.format(value)]}]} for value in ("1", "2"))
    before, after = ({"template": {"spec": spec}} for spec in specs)
    return settings(kind, name, spec=before), settings(kind, name, spec=after)


def policy(version: str, **more: Any) -> dict[str, Any]:
    upgrade = {"autoUpgrade": True, "maxParallelUpgrades": 1, "drain": {"enable": True}} | more
    return {"driver": {"enabled": True, "version": version, "upgradePolicy": upgrade}, "toolkit": {"enabled": True}}


def nics(version: str) -> dict[str, Any]:
    return {"ofedDriver": {"version": version, "upgradePolicy": {"autoUpgrade": True, "maxParallelUpgrades": 1}}}


UPGRADES = {  # the workload that an upgrade of the chart always changes
    "argo-cd": ("StatefulSet", "argo-cd-argocd-application-controller", "application-controller"),
    "cert-manager": ("Deployment", "cert-manager-webhook", "webhook"),
    "cilium": ("DaemonSet", "cilium", "cilium-agent"),
    "cluster-autoscaler": ("Deployment", "cluster-autoscaler-aws-cluster-autoscaler", "aws-cluster-autoscaler"),
    "csi-driver-nfs": ("DaemonSet", "csi-nfs-node", "nfs"),
    "external-secrets": ("Deployment", "external-secrets", "external-secrets"),
    "fluent-bit": ("DaemonSet", "fluent-bit", "fluent-bit"),
    "fluid": ("DaemonSet", "csi-nodeplugin-fluid", "plugins"),
    "gpu-operator": ("Deployment", "gpu-operator", "gpu-operator"),
    "istio-base": ("ValidatingWebhookConfiguration", "istiod-default-validator", "none"),
    "istiod": ("Deployment", "istiod", "discovery"),
    "keda": ("Deployment", "keda-operator", "keda-operator"),
    "kube-prometheus-stack": ("DaemonSet", "kube-prometheus-stack-prometheus-node-exporter", "node-exporter"),
    "kueue": ("Deployment", "kueue-controller-manager", "manager"),
    "kyverno": ("Deployment", "kyverno-admission-controller", "kyverno"),
    "local-static-provisioner": ("DaemonSet", "local-static-provisioner", "provisioner"),
    "loki": ("StatefulSet", "loki", "loki"),
    "metrics-server": ("Deployment", "metrics-server", "metrics-server"),
    "network-operator": ("Deployment", "network-operator", "network-operator"),
    "node-feature-discovery": ("DaemonSet", "node-feature-discovery-worker", "worker"),
    "node-problem-detector": ("DaemonSet", "node-problem-detector", "node-problem-detector"),
    "opencost": ("Deployment", "opencost", "opencost"),
    "prometheus-adapter": ("Deployment", "prometheus-adapter", "prometheus-adapter"),
    "rook-ceph": ("Deployment", "rook-ceph-operator", "rook-ceph-operator"),
    "spegel": ("DaemonSet", "spegel", "registry"),
    "trivy-operator": ("Deployment", "trivy-operator", "trivy-operator"),
    "velero": ("DaemonSet", "node-agent", "node-agent"),
    "vertical-pod-autoscaler": ("Deployment", "vertical-pod-autoscaler-updater", "updater"),
    "volcano": ("Deployment", "volcano-scheduler", "volcano-scheduler"),
}
UPGRADES |= accelerator_rows.UPGRADES
VALUES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # the most disruptive that people do set
    "argo-cd": changed(
        "ConfigMap", "argocd-cm", "data", {"timeout.reconciliation": "120s"}, {"timeout.reconciliation": "60s"}
    ),
    "cert-manager": (
        settings("Deployment", "cert-manager", spec={"template": {"spec": {"priorityClassName": "a"}}}),
        settings("Deployment", "cert-manager", spec={"template": {"spec": {"priorityClassName": "b"}}}),
    ),
    "cilium": (
        settings("ConfigMap", "cilium-config", data={"kube-proxy-replacement": "false"}),
        settings("ConfigMap", "cilium-config", data={"kube-proxy-replacement": "true"}),
    ),
    "cluster-autoscaler": arguments(
        "Deployment", "cluster-autoscaler-aws-cluster-autoscaler", "--scale-down-enabled={}"
    ),
    "csi-driver-nfs": changed("StorageClass", "nfs-csi", "mountOptions", ["nfsvers=4.1"], ["nfsvers=3"]),
    "external-secrets": changed("ClusterSecretStore", "vault", "spec", {"provider": "a"}, {"provider": "b"}),
    "fluent-bit": changed("ConfigMap", "fluent-bit", "data", {"fluent-bit.conf": "a"}, {"fluent-bit.conf": "b"}),
    "fluid": arguments("Deployment", "fluid-webhook", "--runtime-workers={}"),
    "gpu-operator": (
        settings("ClusterPolicy", "cluster-policy", spec=policy("580.95.05")),
        settings("ClusterPolicy", "cluster-policy", spec=policy("590.48.01")),
    ),
    "istio-base": changed(
        "ValidatingWebhookConfiguration", "istiod-default-validator", "webhooks", [], [{"name": "a"}]
    ),
    "istiod": changed("ConfigMap", "istio", "data", {"mesh": "a"}, {"mesh": "b"}),
    "keda": arguments("Deployment", "keda-operator", "--zap-log-level={}"),
    "kube-prometheus-stack": (
        settings("Prometheus", "kube-prometheus-stack-prometheus", spec={"retention": "10d"}),
        settings("Prometheus", "kube-prometheus-stack-prometheus", spec={"retention": "30d"}),
    ),
    "kueue": (
        settings("ConfigMap", "kueue-manager-config", data={"controller_manager_config.yaml": "a"}),
        settings("ConfigMap", "kueue-manager-config", data={"controller_manager_config.yaml": "b"}),
    ),
    "kyverno": changed("ConfigMap", "kyverno", "data", {"resourceFilters": "a"}, {"resourceFilters": "b"}),
    "local-static-provisioner": (
        settings("ConfigMap", "local-static-provisioner-config", data={"storageClassMap": "a"}),
        settings("ConfigMap", "local-static-provisioner-config", data={"storageClassMap": "b"}),
    ),
    "loki": changed("ConfigMap", "loki", "data", {"config.yaml": "a"}, {"config.yaml": "b"}),
    "metrics-server": arguments("Deployment", "metrics-server", "--metric-resolution={}s"),
    "network-operator": (
        settings("NicClusterPolicy", "nic-cluster-policy", spec=nics("doca3.0")),
        settings("NicClusterPolicy", "nic-cluster-policy", spec=nics("doca3.1")),
    ),
    "node-feature-discovery": (
        settings("ConfigMap", "node-feature-discovery-worker-conf", data={"nfd-worker.conf": "vendor"}),
        settings("ConfigMap", "node-feature-discovery-worker-conf", data={"nfd-worker.conf": "class"}),
    ),
    "node-problem-detector": changed("ConfigMap", "node-problem-detector-custom-config", "data", {}, {"x.json": "b"}),
    "opencost": arguments("Deployment", "opencost", "--log-level={}"),
    "prometheus-adapter": changed(
        "ConfigMap", "prometheus-adapter", "data", {"config.yaml": "a"}, {"config.yaml": "b"}
    ),
    "rook-ceph": changed(
        "ConfigMap", "rook-ceph-operator-config", "data", {"ROOK_LOG_LEVEL": "INFO"}, {"ROOK_LOG_LEVEL": "DEBUG"}
    ),
    "spegel": arguments("DaemonSet", "spegel", "--mirror-resolve-retries={}"),
    "trivy-operator": changed(
        "ConfigMap",
        "trivy-operator-config",
        "data",
        {"OPERATOR_SCAN_JOB_TIMEOUT": "5m"},
        {"OPERATOR_SCAN_JOB_TIMEOUT": "9m"},
    ),
    "velero": changed("BackupStorageLocation", "default", "spec", {"provider": "aws"}, {"provider": "gcp"}),
    "vertical-pod-autoscaler": arguments(
        "Deployment", "vertical-pod-autoscaler-updater", "--eviction-tolerance={}", "updater"
    ),
    "volcano": (
        settings("ConfigMap", "volcano-scheduler-configmap", data={"volcano-scheduler.conf": "allocate"}),
        settings("ConfigMap", "volcano-scheduler-configmap", data={"volcano-scheduler.conf": "reclaim"}),
    ),
}

VALUES |= {name: changed(*row) for name, row in accelerator_rows.VALUES.items()}


def compared(change: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> Compared:
    raw = after or before or {}
    return Compared(Manifest(raw), change, raw["metadata"].get("namespace", ""), before, after)


def done(name: str, action: str) -> Blast:
    kind, workload_name, container = UPGRADES[name]
    old, new = (workload(kind, workload_name, container, f"image:{n}") for n in (1, 2))
    change = {
        "install": [compared("created", None, new)],
        "upgrade": [compared("changed", old, new)],
        "values": [compared("changed", *VALUES[name])],
        "remove": [compared("deleted", new, None)],
    }[action]
    own = {
        (difference.wanted.kind, difference.wanted.name): difference.result
        for difference in change
        if difference.result
    }
    return judgment.blast_of(
        Scene(catalog.get(name).effects, GROUND, name, own=own),
        change,
        action="upgrade" if action == "values" else action,
    )


def test_the_table_has_every_component_of_the_catalog():
    assert set(TABLE) == {component.name for component in catalog.all()}


def test_the_words_of_both_rooms_are_the_same_and_rise_the_same_way():
    assert sorted(CLASSES, key=lambda word: Disruption(word).rank) == list(CLASSES)


@pytest.mark.parametrize("environment", ["production", "staging", "development"])
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", TABLE)
def test_each_has_the_class_and_the_approvers_that_the_table_says(name, action, environment):
    blast = done(name, action)
    expected = TABLE[name][ACTIONS.index(action)]
    facts = rules.PlanFacts(environment, None, Disruption(blast.worst))  # type: ignore[arg-type]
    built_in = [ApprovalRule(**fields) for fields in rulebook.BUILT_IN]

    assert blast.worst == expected
    assert blast.why
    assert rules.fitting_requirements(built_in, facts)[0].approvers == (
        APPROVERS[expected] if environment == "production" else 1
    )


@pytest.mark.parametrize("name", TABLE)
def test_a_difference_in_labels_alone_touches_nothing(name):
    kind, workload_name, container = UPGRADES[name]
    old, new = (workload(kind, workload_name, container, "image:1") for _ in "ab")
    new = {**new, "metadata": {**new["metadata"], "labels": {"helm.sh/chart": "another"}}}
    blast = judgment.blast_of(
        Scene(catalog.get(name).effects, GROUND, name), [compared("changed", old, new)], action="upgrade"
    )
    assert (blast.worst, blast.hits, blast.places) == ("live", (), 0)


@pytest.mark.parametrize("name", TABLE)
def test_a_daemonset_that_nobody_classified_is_never_live(name):
    old, new = (workload("DaemonSet", "newcomer", "c", f"image:{n}") for n in (1, 2))
    blast = judgment.blast_of(
        Scene(catalog.get(name).effects, GROUND, name), [compared("changed", old, new)], action="upgrade"
    )
    effects = catalog.get(name).effects
    assert Disruption(blast.worst).rank >= Disruption.NEW_PODS.rank
    assert blast.worst in (effects.unknown, *(e.worst for e in effects.changes if e.kind == "DaemonSet"))


def test_a_chart_without_a_word_in_the_catalog_is_the_strictest_that_is_plausible():
    from components.catalog.effects import UNCLASSIFIED

    for action in ("install", "upgrade", "remove"):
        difference = compared("changed" if action == "upgrade" else "created", workload("Deployment", "x", "c", "1"),
                       workload("Deployment", "x", "c", "2"))  # fmt: skip
        blast = judgment.blast_of(Scene(UNCLASSIFIED, GROUND, "x"), [difference], action=action)
        assert (blast.worst, set(blast.nodes)) == ("drain", {"g1", "g2", "p1"})


def test_the_same_difference_is_the_same_blast_and_survives_its_json():
    for name in TABLE:
        for action in ACTIONS:
            blast = done(name, action)
            assert blast == done(name, action) == Blast.from_json(blast.to_json())


def test_two_daemonsets_that_go_on_each_node_count_each_node_once():
    both = [
        compared("changed", *(workload("DaemonSet", name, "c", image) for image in ("1", "2")))
        for name in ("cilium", "cilium-envoy")
    ]
    blast = judgment.blast_of(Scene(catalog.get("cilium").effects, GROUND, "cilium"), both, action="upgrade")
    assert (blast.nodes, blast.gpus, blast.gpus_at_once) == (("g1", "g2", "p1"), 16, 8)
