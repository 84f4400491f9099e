"""Objects of components are ready by their own controllers' word, and what holds data is never removed."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.fleet import NotFound, ObjectRef
from components.policies import policy_kinds, policy_objects
from profiles.policies.components.rows import ROWS
from simfleet.apiserver.callers import person
from tests.components.policies.carrying import carry, wanted
from tests.components.policies.test_policy_nics import definition

ALWAYS = {"Gateway", "DestinationRule", "PeerAuthentication", "AuthorizationPolicy", "VirtualService", "Controller"}
ALWAYS |= {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
"""Kinds of which no controller says anything by default."""
READY = [{"type": "Ready", "status": "True"}]
UNREACHED = {"type": "SlurmReachable", "status": "False", "message": "no ping"}
AT_WORK = {"masterPhase": "Ready", "workerPhase": "Ready", "workerNumberReady": 2}
DOWN = {"health": "HEALTH_ERR", "details": {"OSD_DOWN": {}}}
WELL = {"phase": "Ready", "ceph": {"health": "HEALTH_OK"}}
SET = {"desired": 3, "readyReplicas": 3, "updatedReplicas": 3, "observedGeneration": 2}
BINDING = {"namespace": "monitoring", "name": "main"}


def look(kind: str, status: Any, spec: Any = None, generation: int = 2) -> str:
    live = {"kind": kind, "metadata": {"name": "a", "generation": generation}, "spec": spec or {}}
    return policy_kinds.row(kind).idle(None, live if status is None else {**live, "status": status})


@pytest.mark.parametrize("kind", sorted(row.name for row in ROWS))
def test_a_status_that_never_comes_is_waited_for_in_words(kind):
    for status in (None, {}):
        missing = look(kind, status)
        assert (missing == "") if kind in ALWAYS else missing.endswith("."), kind


@pytest.mark.parametrize(
    ("kind", "spec", "status", "missing"),
    [
        ("Dataset", {}, {"phase": "Bound"}, ""),
        ("Dataset", {}, {"phase": "NotBound"}, "is NotBound to a runtime of its name yet."),
        ("Dataset", {}, {"phase": "Failed"}, "is Failed, not Bound."),
        ("AlluxioRuntime", {"replicas": 2}, {"masterPhase": "NotReady", "masterReason": "no node"},
         "masters NotReady: no node."),
        ("AlluxioRuntime", {"replicas": 2}, {"masterPhase": "Ready"}, "workers not started"),
        ("AlluxioRuntime", {"replicas": 2}, {"masterPhase": "Ready", "workerPhase": "PartialReady"}, "PartialReady"),
        ("AlluxioRuntime", {"replicas": 2}, {**AT_WORK, "workerNumberReady": 1},
         "has 1 of 2 workers ready."),
        ("AlluxioRuntime", {"replicas": 2}, AT_WORK, ""),
        ("JuiceFSRuntime", {"replicas": 2}, {"workerPhase": "Ready", "workerNumberReady": 2}, ""),
        ("DataLoad", {}, {"phase": "Executing"}, "is Executing, not Complete."),
        ("DataLoad", {}, {"phase": "Complete"}, ""),
        ("DataLoad", {"policy": "Cron"}, {"phase": "Executing"}, ""),
        ("DataLoad", {"policy": "Cron"}, {"phase": "Failed", "conditions": [{"message": "no room"}]}, "no room"),
        ("SecretStore", {}, {"conditions": READY}, ""),
        ("SecretStore", {}, {"conditions": [{"type": "Ready", "status": "False", "message": "sealed"}]}, "sealed"),
        ("ExternalSecret", {}, {"conditions": READY, "syncedResourceVersion": "2-abc"}, ""),
        ("ExternalSecret", {}, {"conditions": READY, "syncedResourceVersion": "1-abc"}, "changed since"),
        ("ClusterExternalSecret", {}, {"conditions": READY, "failedNamespaces": [{"namespace": "b", "reason": "x"}]},
         "failed in namespace b: x."),
        ("CephCluster", {}, {"phase": "Progressing", "message": "mons"}, "is Progressing, not Ready: mons."),
        ("CephCluster", {}, {"phase": "Ready"}, "not known yet"),
        ("CephCluster", {}, {"phase": "Ready", "ceph": DOWN}, "OSD_DOWN"),
        ("CephCluster", {}, {"phase": "Ready", "ceph": {"health": "HEALTH_WARN"}}, ""),
        ("CephCluster", {}, {**WELL, "observedGeneration": 1}, "changed since"),
        ("CephBlockPool", {}, {"phase": "Failure"}, "is Failure, not Ready."),
        ("CephObjectStore", {}, {"phase": "Connected"}, ""),
        ("VirtualService", {}, {"validationMessages": [{"level": "WARNING"}]}, ""),
        ("VirtualService", {}, {"validationMessages": [{"level": "ERROR", "type": {"code": "IST0101"}}]}, "IST0101"),
        ("Controller", {}, {"conditions": [UNREACHED]}, "no ping"),
        ("Controller", {}, {"conditions": [{"type": "SlurmReachable", "status": "True"}]}, ""),
        ("NodeSet", {}, SET, ""),
        ("NodeSet", {}, {**SET, "readyReplicas": 1}, "has 1 of 3 nodes ready."),
        ("NodeSet", {}, {**SET, "observedGeneration": 1}, "changed since"),
        ("NodeSet", {}, {**SET, "updatedReplicas": 1}, "has 1 of 3 nodes as they are wanted."),
        ("NodeSet", {"updateStrategy": {"type": "OnDelete"}}, {**SET, "updatedReplicas": 1}, ""),
        ("LoginSet", {"replicas": 2}, {"replicas": 1}, "has 1 of 2 pods."),
        ("ServiceMonitor", {}, {"bindings": [{**BINDING, "conditions": [{"type": "Accepted", "status": "True"}]}]}, ""),
        ("PrometheusRule", {},
         {"bindings": [{**BINDING, "conditions": [{"type": "Accepted", "status": "False", "message": "bad expr"}]}]},
         "is not accepted by monitoring/main: bad expr."),
    ],
)  # fmt: skip
def test_each_kind_is_ready_by_its_own_controllers_word(kind, spec, status, missing):
    reason = look(kind, status, spec)
    assert (missing in reason) if missing else reason == ""


POOL = """
policies:
  - {apiVersion: v1, kind: Namespace, metadata: {name: rook-ceph}}
  - apiVersion: ceph.rook.io/v1
    kind: CephBlockPool
    metadata: {name: volumes, namespace: rook-ceph}
    spec: {replicated: {size: 3}}
"""
REF = ObjectRef("ceph.rook.io/v1", "CephBlockPool", "volumes", "rook-ceph")
PLURAL = "cephblockpools.ceph.rook.io"


@pytest.fixture
def pool(cluster, fleet) -> Any:
    cluster.api.create(
        person("helm"), "customresourcedefinitions", definition("cephblockpools", REF.kind, "ceph.rook.io")
    )
    cluster.run_until(lambda: PLURAL in cluster.store.resources, seconds=30)
    prepared = policy_objects.prepare(fleet, wanted(POOL))
    assert "volume-stays" in [note.code for note in prepared.notes]
    carry(fleet, prepared)
    return prepared


@pytest.mark.parametrize(
    "change", [{"status": {"phase": "Progressing"}}, {"metadata": {"finalizers": ["cephblockpool.ceph.rook.io"]}}]
)
def test_a_pool_that_rook_took_on_stays_with_its_data(cluster, fleet, pool, change):
    cluster.api.patch(person("rook"), PLURAL, "volumes", change, "rook-ceph")

    lines = carry(fleet, pool, "revert")

    assert lines[0].startswith("CephBlockPool rook-ceph/volumes stays:")
    assert "deletionTimestamp" not in fleet.policy(REF)["metadata"]
    assert policy_objects.check_readiness(fleet, pool, direction="revert").is_ready


def test_a_pool_that_nobody_took_on_goes(fleet, pool):
    carry(fleet, pool, "revert")
    with pytest.raises(NotFound):
        fleet.policy(REF)


def test_a_pool_that_rook_takes_on_meanwhile_is_not_removed(cluster, fleet, pool, monkeypatch):
    real = fleet.remove_policy

    def remove(ref, uid, version=""):
        if not fleet.policy(ref).get("status"):
            cluster.api.patch(person("rook"), PLURAL, "volumes", {"status": {"phase": "Progressing"}}, "rook-ceph")
        return real(ref, uid, version)

    monkeypatch.setattr(fleet, "remove_policy", remove)

    assert "stays" in carry(fleet, pool, "revert")[0]
    assert fleet.policy(REF)
