"""Policy objects carried out on the real control plane with Setpoint's own identity, as a rollout does."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from clusters.fleet import FleetError, NotFound
from clusters.kube.fleet import KubeFleet
from components.policies import policy_objects
from components.policies.policy_objects import PreparedPolicies
from profiles.content.cluster import WantedObject
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.harness.client import eventually
from tests.full.harness.equipping import DEPLOY


@pytest.fixture(scope="module")
def may(deployed: Plane, cluster_admin: Admin) -> Iterator[None]:
    """The role and its fence, as soon as the API server knows both."""
    deployed.kubectl("delete", "configmap", "fence-probe", "-n", "kube-public", "--ignore-not-found")
    deployed.kubectl("apply", "-f", str(DEPLOY / "setpoint-policies.yaml"))
    token = cluster_admin.controller_token()
    with contextlib.closing(Admin(deployed, deployed.credentials(token=token))) as controller:
        eventually(lambda: is_fenced(controller, cluster_admin))
    yield
    deployed.kubectl("delete", "-f", str(DEPLOY / "setpoint-policies.yaml"))


def is_fenced(controller: Admin, cluster_admin: Admin) -> bool:
    try:
        controller.delete("configmaps", "no-such-map", "default")
    except NotFound:
        pass
    except FleetError:
        return False
    try:
        controller.create("configmaps", config_map("fence-probe"), "kube-public")
    except FleetError as refused:
        return "setpoint-policies-fence" in str(refused)
    # Not by the controller: the fence may have come into force since.
    cluster_admin.delete("configmaps", "fence-probe", "kube-public")
    return False


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def prepare(fleet: KubeFleet, objects: tuple[WantedObject, ...]) -> PreparedPolicies:
    return PreparedPolicies.from_json(json.loads(json.dumps(policy_objects.prepare(fleet, objects).to_json())))


def carry_out(fleet: KubeFleet, prepared: PreparedPolicies, direction: str = "forward") -> list[str]:
    lines: list[str] = []
    ends: dict[str, Any] = {"deadline": time.monotonic() + 60, "stop": lambda: False, "tell": lines.append}
    policy_objects.carry_out(fleet, prepared, direction=direction, **ends)
    eventually(
        lambda: policy_objects.check_readiness(fleet, prepared, direction=direction).is_ready,
        lambda: policy_objects.check_readiness(fleet, prepared, direction=direction).missing,
    )
    return lines
