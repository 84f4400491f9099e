"""Virtual functions and networks beside a pod's own: no plugin may write the node's files or run what it is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.profiles.policies.wishes import accepted, refused, warnings_of, wish

MACVLAN = {
    "cniVersion": "0.3.1",
    "type": "macvlan",
    "master": "ens1f0",
    "ipam": {"type": "whereabouts", "range": "10.0.0.0/16", "routes": [{"dst": "0.0.0.0/0"}]},
}
SELECTOR = {"feature.node.kubernetes.io/pci-15b3.present": "true"}
SRIOV = "sriovnetwork.openshift.io/v1"


def attachment(config: Any, namespace: str = "team") -> dict[str, Any]:
    text = config if isinstance(config, str) else json.dumps(config)
    spec = {"config": text}
    return wish("NetworkAttachmentDefinition", "k8s.cni.cncf.io/v1", namespace=namespace, spec=spec)


def functions(name: str = "mlx", **spec: Any) -> dict[str, Any]:
    base = {"resourceName": "mlx_vfs", "nodeSelector": SELECTOR, "nicSelector": {"vendor": "15b3"}, "numVfs": 8}
    return wish("SriovNetworkNodePolicy", SRIOV, name=name, namespace="nvidia-network-operator", spec=base | spec)


def network(**spec: Any) -> dict[str, Any]:
    base = {"resourceName": "mlx_vfs", "networkNamespace": "team", "ipam": json.dumps({"type": "nv-ipam"})}
    return wish("SriovNetwork", SRIOV, namespace="nvidia-network-operator", spec=base | spec)


@pytest.mark.parametrize(
    "good",
    [
        attachment(MACVLAN),
        attachment({"cniVersion": "1.0.0", "name": "a", "plugins": [MACVLAN, {"type": "tuning", "mtu": 9000}]}),
        functions(isRdma=True, deviceType="netdevice", mtu=9000, priority=99),
        network(vlan=100, metaPlugins='{"type": "rdma"}, {"type": "tuning"}', capabilities='{"mac": true}'),
    ],
)
def test_what_a_site_needs_is_accepted(good):
    assert accepted(good).policies


@pytest.mark.parametrize(
    "config",
    [
        {"type": "multus", "delegates": [MACVLAN]},
        {"type": "../../bin/sh"},
        {**MACVLAN, "ipam": {"type": "host-local", "dataDir": "/etc/cron.d"}},
        {**MACVLAN, "ipam": {"type": "host-local", "data_dir": "etc/cron.d"}},
        {**MACVLAN, "ipam": {"type": "whereabouts", "log_file": "etc/profile"}},
        {**MACVLAN, "logFile": "x"},
        {**MACVLAN, "ipam": {"type": "whereabouts", "kubernetes": {"kubeconfig": "x"}}},
        {**MACVLAN, "master": "/proc/1/root"},
        {**MACVLAN, "plugins": [{"type": "tuning", "anything": "a/../../etc"}]},
        "{",
        '"text"',
        "[]",
        {"cniVersion": "1.0.0"},
    ],
)  # fmt: skip
def test_a_plugin_that_reaches_the_nodes_files_is_refused(config):
    assert "spec.config" in refused(attachment(config))


@pytest.mark.parametrize(
    ("wanted", "where"),
    [
        (attachment(MACVLAN, "kube-system"), "metadata.namespace"),
        (wish("NetworkAttachmentDefinition", "k8s.cni.cncf.io/v1", namespace="t", spec={"x": 1}), "spec.config"),
        (functions("default"), "metadata.name"),
        (functions(nodeSelector={}), "spec.nodeSelector"),
        (functions(nicSelector={}), "spec.nicSelector"),
        (functions(numVfs=None), "spec.numVfs"),
        (functions(numVfs=-1), "spec.numVfs"),
        (functions(priority=100), "spec.priority"),
        (functions(resourceName="nvidia.com/vfs"), "spec.resourceName"),
        (functions(isRdma=True, deviceType="vfio-pci"), "spec.deviceType"),
        (functions(maxUnavailable=1), "spec.maxUnavailable"),
        (network(resourceName=None), "spec.resourceName"),
        (network(networkNamespace="kube-system"), "spec.networkNamespace"),
        (network(networkNamespace="setpoint-system"), "spec.networkNamespace"),
        (network(ipam='{"type": "host-local", "dataDir": "/etc"}'), "spec.ipam"),
        (network(metaPlugins='{"type": "multus"}'), "spec.metaPlugins"),
        (network(vlan=5000), "spec.vlan"),
        (network(trust="yes"), "spec.trust"),
    ],
)  # fmt: skip
def test_what_is_not_for_a_profile_is_refused_with_its_place(wanted, where):
    assert where in refused(wanted)


def test_that_the_operator_drains_by_itself_is_told():
    assert "outside of the budget" in warnings_of(functions())["own-drains"]
