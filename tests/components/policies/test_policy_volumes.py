"""Volumes and claims: waited for as their class has it, and never removed once they hold data; two default classes."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.fleet import Conflict, FleetRefused, NotFound, ObjectRef
from components.policies import policy_kinds, policy_objects
from simfleet.apiserver.callers import person
from tests.components.policies.carrying import carry, edit, wanted

SPACE = """
policies:
  - {apiVersion: v1, kind: Namespace, metadata: {name: team-a}}
"""
STORAGE = f"""{SPACE}
  - apiVersion: storage.k8s.io/v1
    kind: StorageClass
    metadata: {{name: fast, annotations: {{storageclass.kubernetes.io/is-default-class: "true"}}}}
    provisioner: kubernetes.io/no-provisioner
    reclaimPolicy: Retain
    volumeBindingMode: Immediate
  - apiVersion: v1
    kind: PersistentVolume
    metadata: {{name: models}}
    spec:
      capacity: {{storage: 1Ti}}
      accessModes: [ReadWriteMany]
      persistentVolumeReclaimPolicy: Retain
      nfs: {{server: 10.0.0.9, path: /models}}
  - apiVersion: v1
    kind: PersistentVolumeClaim
    metadata: {{name: models, namespace: team-a}}
    spec: {{accessModes: [ReadWriteMany], storageClassName: fast, resources: {{requests: {{storage: 1Ti}}}}}}
"""
VOLUME = ObjectRef("v1", "PersistentVolume", "models")
CLAIM = ObjectRef("v1", "PersistentVolumeClaim", "models", "team-a")


def phase(cluster: Any, ref: ObjectRef, name: str) -> None:
    plural = {"PersistentVolume": "persistentvolumes", "PersistentVolumeClaim": "persistentvolumeclaims"}[ref.kind]
    where = {"namespace": ref.namespace} if ref.namespace else {}
    cluster.api.patch(person("binder"), plural, ref.name, {"status": {"phase": name}}, subresource="status", **where)


def test_what_others_need_is_applied_first(fleet):
    carry(fleet, policy_objects.prepare(fleet, wanted(SPACE)))
    prepared = policy_objects.prepare(fleet, wanted(STORAGE))
    assert [policy.ref.kind for policy in prepared.objects] == [
        "Namespace", "StorageClass", "PersistentVolume", "PersistentVolumeClaim",
    ]  # fmt: skip


def test_volumes_and_claims_are_waited_for_until_they_are_bound(cluster, fleet):
    prepared = policy_objects.prepare(fleet, wanted(STORAGE))
    carry(fleet, prepared)

    def missing() -> str:
        return policy_objects.check_readiness(fleet, prepared, direction="forward").missing

    assert missing() == "PersistentVolume models is Pending."
    phase(cluster, VOLUME, "Failed")
    assert missing() == "PersistentVolume models is Failed."
    phase(cluster, VOLUME, "Available")
    phase(cluster, CLAIM, "Pending")  # the simulated cluster binds a claim as it is made
    assert missing() == "PersistentVolumeClaim team-a/models is not bound to a volume yet."
    phase(cluster, CLAIM, "Lost")
    assert missing() == "PersistentVolumeClaim team-a/models is Lost: its volume is gone."
    phase(cluster, CLAIM, "Bound")
    assert missing() == ""


def test_a_claim_whose_class_waits_for_a_pod_is_ready_while_it_waits(cluster, fleet):
    text = STORAGE.replace("Immediate", "WaitForFirstConsumer")
    prepared = policy_objects.prepare(fleet, wanted(text))
    carry(fleet, prepared)
    phase(cluster, VOLUME, "Available")
    phase(cluster, CLAIM, "Pending")
    assert policy_objects.check_readiness(fleet, prepared, direction="forward").is_ready

    edit(cluster, "persistentvolumeclaims", "models", {"spec": {"storageClassName": "nowhere"}}, "team-a")
    missing = policy_kinds.row("PersistentVolumeClaim").idle(fleet, fleet.policy(CLAIM))
    assert missing == "is pending: there is no StorageClass nowhere."


@pytest.mark.parametrize(("bound", "claimed"), [("Bound", "Bound"), ("Released", "Lost")])
def test_what_holds_data_stays_when_the_plan_is_put_back(cluster, fleet, bound, claimed):
    prepared = policy_objects.prepare(fleet, wanted(STORAGE))
    assert "volume-stays" in [note.code for note in prepared.notes]
    carry(fleet, prepared)
    phase(cluster, VOLUME, bound)
    phase(cluster, CLAIM, claimed)

    lines = carry(fleet, prepared, "revert")

    assert lines[0].startswith("PersistentVolumeClaim team-a/models stays:")
    assert lines[1].startswith("PersistentVolume models stays:")
    assert "deletionTimestamp" not in fleet.policy(VOLUME)["metadata"]
    assert "deletionTimestamp" not in fleet.policy(CLAIM)["metadata"]
    assert policy_objects.check_readiness(fleet, prepared, direction="revert").is_ready


def test_what_nobody_ever_used_goes(cluster, fleet):
    prepared = policy_objects.prepare(fleet, wanted(STORAGE))
    carry(fleet, prepared)
    phase(cluster, VOLUME, "Available")
    phase(cluster, CLAIM, "Pending")

    carry(fleet, prepared, "revert")

    for ref in (VOLUME, CLAIM):
        with pytest.raises(NotFound):
            fleet.policy(ref)


def test_a_claim_that_is_bound_between_the_look_and_the_removal_stays(cluster, fleet, monkeypatch):
    prepared = policy_objects.prepare(fleet, wanted(STORAGE))
    carry(fleet, prepared)
    phase(cluster, CLAIM, "Pending")
    real, seen = fleet.remove_policy, []

    def raced(ref: ObjectRef, uid: str, version: str = "") -> None:
        if ref == CLAIM and not seen:
            phase(cluster, CLAIM, "Bound")
            seen.append(ref)
        real(ref, uid, version)

    monkeypatch.setattr(fleet, "remove_policy", raced)
    lines = carry(fleet, prepared, "revert")

    assert (seen, lines[0].partition(":")[0]) == ([CLAIM], "PersistentVolumeClaim team-a/models stays")
    assert fleet.policy(CLAIM)


def test_a_version_that_is_not_the_objects_removes_nothing(fleet):
    carry(fleet, policy_objects.prepare(fleet, wanted(STORAGE)))
    uid = fleet.policy(VOLUME)["metadata"]["uid"]
    with pytest.raises(Conflict):
        fleet.remove_policy(VOLUME, uid, "1")
    assert fleet.policy(VOLUME)["metadata"]["uid"] == uid


def test_a_second_default_class_of_the_cluster_is_told_once(cluster, fleet):
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    theirs = {"metadata": {"name": "standard", "annotations": default}, "provisioner": "x"}
    cluster.api.create(person("alice"), "storageclasses", theirs)

    notes = {note.code: note.title for note in policy_objects.prepare(fleet, wanted(STORAGE)).notes}
    assert notes["default-class"] == "StorageClass fast becomes the default beside standard"

    carry(fleet, policy_objects.prepare(fleet, wanted(STORAGE)))
    assert "default-class" not in [note.code for note in policy_objects.prepare(fleet, wanted(STORAGE)).notes]


def test_data_that_would_go_with_its_claim_is_a_warning_of_the_plan(fleet):
    def at_risk(text: str) -> list[str]:
        notes = policy_objects.prepare(fleet, wanted(text)).notes
        return [note.title for note in notes if note.code == "deletes-data"]

    assert at_risk(STORAGE) == []
    assert len(at_risk(STORAGE.replace("reclaimPolicy: Retain", "reclaimPolicy: Delete", 1))) == 1
    assert len(at_risk(STORAGE.replace("    reclaimPolicy: Retain\n", ""))) == 1, "Delete is the default of a class"


def test_a_refusal_says_which_fields_are_never_changed(fleet, monkeypatch):
    carry(fleet, policy_objects.prepare(fleet, wanted(STORAGE)))

    def refusing(manifest: Any, **how: Any) -> Any:
        raise FleetRefused("invalid: updates to parameters are forbidden.")

    monkeypatch.setattr(fleet, "apply_policy", refusing)
    text = STORAGE.replace("volumeBindingMode: Immediate", "parameters: {type: b}")
    [note] = [
        n
        for n in policy_objects.prepare(fleet, wanted(text)).notes
        if "StorageClass fast" in n.title or "StorageClass/fast" in n.title
    ]
    assert note.severity == "block"
    assert "never changes parameters of a StorageClass that exists: want one of another name" in note.detail
