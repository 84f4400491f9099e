"""Pods of Setpoint's own in the simulated cluster, by both doors. A real one: tests/full/nodes/test_check_rights.py."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from clusters.fleet import FleetRefused, NotFound, PodRef
from contract import names
from tests.contract.door import DoorWorld
from tests.contract.worlds import SimWorld

SPACE = names.CHECKS_NAMESPACE


@pytest.fixture(params=[SimWorld, DoorWorld])
def fleet(request):
    made = request.param()
    yield made.fleet
    made.clean()


def pod() -> dict[str, Any]:
    metadata = {"name": f"check-{uuid.uuid4()}", "namespace": SPACE, "labels": {"a": "b"}}
    spec = {"restartPolicy": "Never", "containers": [{"name": "check", "image": "registry.example/check:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_made_twice_it_is_one_pod_and_removed_twice_it_is_gone(fleet):
    raw = pod()
    made = fleet.run_pod(raw)
    assert fleet.run_pod(raw)["metadata"]["uid"] == made["metadata"]["uid"]
    ref = PodRef(SPACE, raw["metadata"]["name"], made["metadata"]["uid"])
    assert fleet.pod_log(ref, limit=100) == b""
    with pytest.raises(FleetRefused):
        fleet.remove_pod(PodRef(SPACE, ref.name, "another"))
    fleet.remove_pod(ref)
    fleet.remove_pod(ref)
    with pytest.raises(NotFound):
        fleet.pod_log(PodRef(SPACE, "no-such-pod", ""), limit=100)
