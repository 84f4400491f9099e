"""Pods of active checks on a real API server, with the rights that deploy/setpoint-checks.yaml gives and no others."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clusters.fleet import FleetError, FleetRefused, Forbidden, NotFound, PodRef
from clusters.kube.permissions import CHECK_PERMISSIONS
from contract import names
from gpus.models import CheckRun
from gpus.services.checks import pods
from gpus.services.checks.catalog import CHECKS, RESOURCES
from tests.full.harness.client import eventually

pytestmark = pytest.mark.full
MANIFEST = Path(__file__).resolve().parents[3] / "deploy" / "setpoint-checks.yaml"
CONTAINER = ("spec", "containers", 0)
ESCAPES: list[tuple[tuple[str | int, ...], Any]] = [
    (("spec", "hostPID"), True),
    (("spec", "hostNetwork"), True),
    (("spec", "automountServiceAccountToken"), True),
    (("spec", "nodeName"), "n1"),
    (("spec", "volumes"), [{"name": "host", "hostPath": {"path": "/"}}]),
    (("spec", "priorityClassName"), "system-node-critical"),
    ((*CONTAINER, "securityContext"), {"privileged": True, "capabilities": {"drop": ["ALL"]}}),
    ((*CONTAINER, "securityContext", "allowPrivilegeEscalation"), True),
    ((*CONTAINER, "securityContext", "capabilities"), {"add": ["SYS_ADMIN"]}),
]


def manifest(name: str) -> dict[str, Any]:
    run = CheckRun(pk=uuid.uuid4(), check_name=name, image="registry.example/check:1", gpus=8)
    return pods.manifest(run, CHECKS[name], node="n1", resource=RESOURCES[next(iter(CHECKS[name].vendors), "nvidia")])


def changed(raw: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    at: Any = raw
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return raw


def refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except FleetError as error:
        return str(error)
    return ""


def test_the_optional_manifest_is_what_checks_take_and_nothing_more(deployed, controller_fleet):
    fleet = controller_fleet
    with pytest.raises(FleetRefused):
        fleet.run_pod(manifest("dcgm-quick"))
    deployed.kubectl("apply", "-f", str(MANIFEST))
    # Let the namespace's pods be anything: the policy has to hold by itself. It and the role are known after a moment.
    space = names.CHECKS_NAMESPACE
    deployed.kubectl("label", "namespace", space, "--overwrite", "pod-security.kubernetes.io/enforce=privileged")
    eventually(lambda: all(review.allowed for review in fleet.review(CHECK_PERMISSIONS)))
    escape = changed(manifest("dcgm-quick"), ("spec", "hostPID"), True)
    eventually(lambda: "a check is one container" in refusal(lambda: fleet.run_pod(escape)))
    for path, value in ESCAPES:
        with pytest.raises(Forbidden):
            fleet.run_pod(changed(manifest("dcgm-quick"), path, value))
    as_root = changed(manifest("network"), (*CONTAINER, "securityContext", "runAsNonRoot"), False)
    with pytest.raises(Forbidden, match="does not run as root"):
        fleet.run_pod(as_root)
    for name in CHECKS:
        raw = manifest(name)
        made = fleet.run_pod(raw)
        assert made["spec"]["priority"] < 0
        assert fleet.run_pod(raw)["metadata"]["uid"] == made["metadata"]["uid"], "the same pod, not another"
        of = PodRef(space, raw["metadata"]["name"], made["metadata"]["uid"])
        assert fleet.pod_log(of, limit=100) == b"", "it is on no node yet"
        with pytest.raises(FleetRefused):
            fleet.remove_pod(PodRef(of.namespace, of.name, "another"))
        fleet.remove_pod(of)
        eventually(lambda of=of: "not found" in refusal(lambda: fleet.pod(of.namespace, of.name)))
        fleet.remove_pod(of)
        with pytest.raises(NotFound):
            fleet.pod_log(of, limit=100)
    deployed.kubectl("label", "namespace", space, "--overwrite", "pod-security.kubernetes.io/enforce=baseline")
    raw = manifest("fio-scratch")
    assert fleet.run_pod(raw)["spec"]["volumes"], "baseline lets checks through"
    deployed.kubectl("delete", "pod", "-n", space, raw["metadata"]["name"])
    deployed.kubectl("delete", "-f", str(MANIFEST))
