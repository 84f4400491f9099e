"""Checks of what the SR-IOV Network Operator and Multus act upon: virtual functions, and networks beside a pod's own.

Sources: the definitions of the SR-IOV Network Operator (sriovnetwork.openshift.io/v1) and its admission webhook, the
Network Plumbing Working Group's network attachment definition (v1.3), the plugins of containernetworking (v1.9).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from common import yaml
from contract import names
from profiles.policies.kubernetes import Judge

_RESOURCE = re.compile(r"[A-Za-z0-9_]{1,63}")
_NODE_POLICY = (
    "resourceName", "nodeSelector", "nicSelector", "numVfs", "mtu", "priority", "deviceType", "isRdma", "linkType",
    "eSwitchMode", "eSwitchParams", "bridge", "excludeTopology", "externallyManaged", "needVhostNet", "vdpaType",
)  # fmt: skip
_NICS = ("vendor", "deviceID", "pfNames", "rootDevices", "netFilter")
_NETWORK = (
    "resourceName", "networkNamespace", "ipam", "vlan", "vlanQoS", "vlanProto", "spoofChk", "trust", "linkState",
    "minTxRate", "maxTxRate", "capabilities", "metaPlugins", "logLevel",
)  # fmt: skip
PLUGINS = frozenset({
    "accelerated-bridge", "bandwidth", "bridge", "dhcp", "dummy", "host-device", "host-local", "ib-sriov",
    "ib-sriov-cni", "ipoib", "ipvlan", "loopback", "macvlan", "nv-ipam", "ovs", "portmap", "ptp", "rdma", "sbr",
    "sriov", "static", "tap", "tuning", "vlan", "vrf", "whereabouts",
})  # fmt: skip
"""That a configuration may name. Plugins run as root on the node, and some, as multus, run what they are told."""
_FILES = frozenset((
    "kubeconfig", "datadir", "logfile", "confdir", "bindir", "cnidir", "daemonsocketpath", "readinessindicatorfile",
    "configurationpath", "configpath",
))  # fmt: skip
"""Settings of plugins that name a file of the node, without dashes and underscores."""


def sriov_node_policy(judge: Judge, raw: Mapping[str, Any]) -> None:
    if raw["metadata"].get("name") == "default":
        judge.refuse(("metadata", "name"), "default is the operator's own", code="reserved")
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _NODE_POLICY)
    _resource_name(judge, spec)
    judge.marks(("spec", "nodeSelector"), spec.get("nodeSelector"))
    if spec and not spec.get("nodeSelector"):
        judge.refuse(("spec", "nodeSelector"), "must name labels of nodes: without one every node is drained")
    nics = judge.mapping(("spec", "nicSelector"), spec.get("nicSelector"), required=bool(spec))
    judge.known(("spec", "nicSelector"), nics, _NICS)
    if spec and spec.get("numVfs") is None:
        judge.refuse(("spec", "numVfs"), "must be a whole number: virtual functions of each NIC")
    judge.whole(("spec", "numVfs"), spec.get("numVfs"), 0, 65535)
    judge.whole(("spec", "mtu"), spec.get("mtu"), 1, 65535)
    judge.whole(("spec", "priority"), spec.get("priority"), 0, 99)
    judge.one_of(("spec", "deviceType"), spec.get("deviceType"), ("netdevice", "vfio-pci"))
    judge.one_of(("spec", "eSwitchMode"), spec.get("eSwitchMode"), ("legacy", "switchdev"))
    judge.boolean(("spec", "isRdma"), spec.get("isRdma"))
    if spec.get("isRdma") and spec.get("deviceType") == "vfio-pci":
        judge.refuse(("spec", "deviceType"), "vfio-pci takes the device from the kernel, and RDMA with it")
    message = "the operator drains nodes by itself, and reboots them where firmware asks for it, outside of the budget"
    judge.warn(("spec",), message, "own-drains")


def sriov_network(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _NETWORK)
    _resource_name(judge, spec)
    space = spec.get("networkNamespace")
    if space is not None and (not isinstance(space, str) or not space):
        judge.refuse(("spec", "networkNamespace"), "must be a namespace")
    elif isinstance(space, str) and (space.startswith("kube-") or space == names.NAMESPACE):
        whose = "Setpoint" if space == names.NAMESPACE else "Kubernetes"
        judge.refuse(("spec", "networkNamespace"), f"{space} belongs to {whose}", code="reserved")
    for name in ("spoofChk", "trust"):
        judge.one_of(("spec", name), spec.get(name), ("on", "off"))
    judge.one_of(("spec", "linkState"), spec.get("linkState"), ("auto", "enable", "disable"))
    judge.whole(("spec", "vlan"), spec.get("vlan"), 0, 4094)
    judge.whole(("spec", "vlanQoS"), spec.get("vlanQoS"), 0, 7)
    for name in ("ipam", "capabilities", "metaPlugins"):
        if spec.get(name):
            # The operator puts the chained plugins into a list as they are, with a comma between.
            text = f"[{spec[name]}]" if name == "metaPlugins" else spec[name]
            _configuration(judge, ("spec", name), text)


def network_attachment(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, ("config",))
    if spec and not spec.get("config"):
        judge.refuse(("spec", "config"), "must be the network's configuration: without one a file of the node is taken")
    elif spec:
        parsed = _configuration(judge, ("spec", "config"), spec["config"])
        if parsed is not None and not (isinstance(parsed, dict) and (parsed.get("type") or parsed.get("plugins"))):
            judge.refuse(("spec", "config"), "must have a type, or plugins")


def _resource_name(judge: Judge, spec: Mapping[str, Any]) -> None:
    name = spec.get("resourceName")
    if spec and (not isinstance(name, str) or not _RESOURCE.fullmatch(name)):
        judge.refuse(("spec", "resourceName"), "must be letters, digits and '_', without the part before the /")


def _configuration(judge: Judge, path: yaml.Path, text: Any) -> Any:
    """Read JSON as the plugins get it; None where it is none, or holds what no profile may have a node do."""
    try:
        parsed = json.loads(text) if isinstance(text, str) else None
    except ValueError as error:
        judge.refuse(path, f"is no JSON: {error}")
        return None
    if not isinstance(parsed, dict | list):
        judge.refuse(path, "must be JSON, as text")
        return None
    for reason in dict.fromkeys(_objections(parsed)):
        judge.refuse(path, reason, code="bad-plugin")
    return parsed


def _objections(raw: Any) -> Iterator[str]:
    if isinstance(raw, list):
        for item in raw:
            yield from _objections(item)
    elif isinstance(raw, dict):
        for key, value in raw.items():
            if key.lower().replace("_", "").replace("-", "") in _FILES:
                yield f"{key} names a file of the node, which the plugin writes or trusts as root"
            elif key == "type" and value not in PLUGINS:
                yield f"{str(value)[:60]!a} is no plugin of a profile; there are {', '.join(sorted(PLUGINS))}"
            elif isinstance(value, str) and (value.startswith("/") or ".." in value.split("/")):
                yield f"{key} names a file of the node"
            else:
                yield from _objections(value)
