"""Checks of the Network Operator's NicClusterPolicy; the definition in the cluster has the last word on each part.

Source: the CRD mellanox.com_nicclusterpolicies of the Network Operator 26.1 to 26.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from profiles.policies.kubernetes import Judge

NAME = "nic-cluster-policy"
"""The operator ignores every other one."""

_PARTS = (
    "deploymentNodeAffinity", "deploymentTolerations", "docaTelemetryService", "global", "ibKubernetes",
    "nicConfigurationOperator", "nicFeatureDiscovery", "nodeAffinity", "nvIpam", "ofedDriver", "psp",
    "rdmaSharedDevicePlugin", "secondaryNetwork", "spectrumXOperator", "sriovDevicePlugin", "tolerations",
)  # fmt: skip
_LISTS = ("deploymentTolerations", "tolerations")
_UPGRADE = ("spec", "ofedDriver", "upgradePolicy")


def nic_cluster_policy(judge: Judge, raw: Mapping[str, Any]) -> None:
    if raw["metadata"].get("name") != NAME:
        judge.refuse(("metadata", "name"), f"must be {NAME}: the Network Operator acts upon no other")
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _PARTS)
    for name, part in spec.items():
        if name in _LISTS:
            judge.items(("spec", name), part)
        else:
            judge.mapping(("spec", name), part)
    driver = spec.get("ofedDriver")
    upgrade = judge.mapping(_UPGRADE, driver.get("upgradePolicy") if isinstance(driver, dict) else None)
    judge.boolean((*_UPGRADE, "autoUpgrade"), upgrade.get("autoUpgrade"))
    most = judge.whole((*_UPGRADE, "maxParallelUpgrades"), upgrade.get("maxParallelUpgrades"), 0, 10_000)
    if upgrade.get("autoUpgrade"):
        nodes = "all nodes at once" if most == 0 else f"{1 if most is None else most} at a time"
        message = f"the operator then cordons and drains nodes by itself, {nodes}, outside of Setpoint's budget"
        judge.warn((*_UPGRADE, "autoUpgrade"), message, "own-upgrades")
