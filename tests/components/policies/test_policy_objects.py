"""Policy objects of a plan: prepared by dry run, carried out, looked at and put back; nothing of others' is taken."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import yaml

from clusters.fleet import FleetRefused, FleetUnavailable
from clusters.kube import managed_fields
from clusters.kube.policy_objects import RESOURCES
from components.policies import policy_kinds, policy_objects
from components.policies.policy_objects import PreparedPolicies
from profiles.policies.kinds import KINDS
from simfleet.apiserver.callers import person
from tests.components.policies.carrying import PRIORITY, PROFILE, QUOTA, carry, edit, wanted

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


def test_a_plan_shows_what_would_be_and_writes_nothing(cluster, fleet):
    prepared = policy_objects.prepare(fleet, wanted())

    assert [(policy.title, policy.change) for policy in prepared.objects] == [
        ("Namespace team-a", "created"),
        ("PriorityClass training", "created"),
        ("ResourceQuota team-a/gpus", "unvalidated"),
    ]
    assert "+    pods: '100'" in prepared.objects[2].diff
    assert [note.code for note in prepared.notes] == ["namespace-stays"]
    assert cluster.store.find("namespaces", "team-a", "") is None
    assert PreparedPolicies.from_json(json.loads(json.dumps(prepared.to_json()))) == prepared


def test_it_is_carried_out_in_order_twice_without_effect_and_put_back(fleet):
    prepared = policy_objects.prepare(fleet, wanted())
    assert not policy_objects.check_readiness(fleet, prepared, direction="forward").is_ready

    carry(fleet, prepared)
    version = fleet.policy(QUOTA)["metadata"]["resourceVersion"]
    carry(fleet, prepared)
    assert fleet.policy(QUOTA)["metadata"]["resourceVersion"] == version
    assert policy_objects.check_readiness(fleet, prepared, direction="forward").is_ready
    again = policy_objects.prepare(fleet, wanted())
    assert ([policy.change for policy in again.objects], again.changes) == (["same"] * 3, 0)

    assert not policy_objects.check_readiness(fleet, prepared, direction="revert").is_ready
    lines = carry(fleet, prepared, "revert")
    assert lines == [
        "ResourceQuota team-a/gpus is removed.",
        "PriorityClass training is removed.",
        "Namespace team-a stays: what is in it is not ours to delete.",
    ]
    assert policy_objects.check_readiness(fleet, prepared, direction="revert").is_ready
    assert carry(fleet, prepared, "revert")[0] == "ResourceQuota team-a/gpus is not ours any more."


def test_a_revert_of_a_change_goes_back_to_what_we_had_and_leaves_what_others_added(cluster, fleet):
    carry(fleet, policy_objects.prepare(fleet, wanted()))
    edit(cluster, "resourcequotas", "gpus", {"spec": {"hard": {"services": "5"}}}, "team-a")
    prepared = policy_objects.prepare(fleet, wanted(PROFILE.replace('"8", pods: "100"', '"16"')))
    [quota] = [policy for policy in prepared.objects if policy.change == "changed"]
    assert "-    requests.nvidia.com/gpu: '8'" in quota.diff

    carry(fleet, prepared)
    assert fleet.policy(QUOTA)["spec"]["hard"] == {"requests.nvidia.com/gpu": "16", "services": "5"}
    carry(fleet, prepared, "revert")

    hard = {"requests.nvidia.com/gpu": "8", "pods": "100"}
    assert fleet.policy(QUOTA)["spec"]["hard"] == {**hard, "services": "5"}
    assert managed_fields.fields(fleet.policy(QUOTA)) == {
        "metadata": {"labels": {policy_objects.MARK: "applied"}},
        "spec": {"hard": hard},
    }
    assert policy_objects.check_readiness(fleet, prepared, direction="revert").is_ready


def test_what_is_approved_is_what_runs(cluster, fleet):
    prepared = policy_objects.prepare(fleet, wanted())
    manifest = {"metadata": {"name": "training"}, "value": 10000}
    cluster.api.create(person("alice"), "priorityclasses", manifest)
    with pytest.raises(FleetRefused, match="another party made PriorityClass training"):
        carry(fleet, prepared)

    theirs = policy_objects.prepare(fleet, wanted())
    cluster.api.delete(person("alice"), "priorityclasses", "training")
    with pytest.raises(FleetRefused, match="PriorityClass training was removed since the plan"):
        carry(fleet, theirs)
    cluster.api.create(person("alice"), "priorityclasses", manifest)
    with pytest.raises(FleetRefused, match="PriorityClass training was replaced since the plan"):
        carry(fleet, theirs)


def test_what_changed_since_the_plan_ends_it_before_the_first_write(cluster, fleet):
    carry(fleet, policy_objects.prepare(fleet, wanted()))
    ours = policy_objects.prepare(fleet, wanted(PROFILE.replace('"100"', '"50"') + "    description: For jobs.\n"))
    theirs = policy_objects.prepare(fleet, wanted(PROFILE.replace('"100"', '"70"')))
    carry(fleet, theirs)

    with pytest.raises(FleetRefused, match="ResourceQuota team-a/gpus was changed since the plan"):
        carry(fleet, ours)

    assert "description" not in fleet.policy(PRIORITY)
    carry(fleet, theirs)


def test_a_removal_that_waits_for_a_finalizer_says_so(cluster, fleet):
    prepared = policy_objects.prepare(fleet, wanted())
    carry(fleet, prepared)
    edit(cluster, "priorityclasses", "training", {"metadata": {"finalizers": ["example.org/in-use"]}})
    carry(fleet, prepared, "revert")

    missing = policy_objects.check_readiness(fleet, prepared, direction="revert").missing
    assert missing == "PriorityClass training is being removed, and waits for example.org/in-use."


def test_what_somebody_else_put_in_its_place_is_not_waited_for(cluster, fleet):
    prepared = policy_objects.prepare(fleet, wanted())
    carry(fleet, prepared)
    cluster.api.delete(person("alice"), "priorityclasses", "training")
    cluster.api.create(person("alice"), "priorityclasses", {"metadata": {"name": "training"}, "value": 1})

    carry(fleet, prepared, "revert")

    assert policy_objects.check_readiness(fleet, prepared, direction="revert").is_ready
    assert fleet.policy(PRIORITY)["value"] == 1


def test_an_object_that_was_there_before_us_is_never_removed(cluster, fleet):
    cluster.api.create(person("alice"), "priorityclasses", {"metadata": {"name": "training"}, "value": 10000})
    prepared = policy_objects.prepare(fleet, wanted())
    carry(fleet, prepared)

    carry(fleet, prepared, "revert")

    assert fleet.policy(PRIORITY)["value"] == 10000
    assert managed_fields.fields(fleet.policy(PRIORITY)) == {}
    assert policy_objects.check_readiness(fleet, prepared, direction="revert").is_ready


@pytest.mark.parametrize(("how", "done"), [({"stop": lambda: True}, 0), ({"deadline": 0.0}, 0)])
def test_it_ends_when_told_or_in_time(fleet, how, done):
    prepared = policy_objects.prepare(fleet, wanted())

    with pytest.raises(FleetUnavailable, match="before Namespace team-a"):
        carry(fleet, prepared, **how)
    carry(fleet, prepared)
    assert policy_objects.check_readiness(fleet, prepared, direction="forward").is_ready


def test_a_kind_or_namespace_that_nothing_brings_blocks_the_plan(fleet):
    text = """
policies:
  - {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: b}, spec: {parent: a}}
  - {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: a}, spec: {weight: 2}}
  - apiVersion: v1
    kind: LimitRange
    metadata: {name: l, namespace: nowhere}
    spec: {limits: [{type: Pod, max: {cpu: 1}}]}
"""
    alone = policy_objects.prepare(fleet, wanted(text))
    assert [note.code for note in alone.notes] == ["policy-missing"] * 3

    together = policy_objects.prepare(fleet, wanted(text), brings={"volcano"})
    assert [(policy.title, policy.change) for policy in together.objects] == [
        ("Queue a", "unvalidated"),
        ("Queue b", "unvalidated"),
    ]
    assert ["LimitRange/nowhere/l" in note.title for note in together.notes] == [True]


def test_the_optional_role_is_what_these_kinds_need_and_nothing_else():
    role = next(yaml.safe_load_all((DEPLOY / "setpoint-policies.yaml").read_text()))
    granted = {
        (group, plural): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for plural in rule["resources"]
    }
    needed = {
        (resource.api_version.rpartition("/")[0], resource.plural): {"get", "create", "patch", "delete"}
        for resource in RESOURCES.values()
    }
    needed["", "namespaces"].remove("delete")
    needed["storage.k8s.io", "storageclasses"].add("list")
    needed["policies.setpoint.dev", "objects"] = {"apply"}
    needed["sriovnetwork.openshift.io", "sriovnetworknodestates"] = {"list"}
    assert granted == needed


def test_where_components_are_installed_the_controller_may_still_write_each_of_these_kinds():
    """The policy for components lets the controller write for real what it names, and nothing else."""
    documents = list(yaml.safe_load_all((DEPLOY / "setpoint-components.yaml").read_text()))
    [fence] = [
        document
        for document in documents
        if document["metadata"]["name"] == "setpoint-controller-tries"
        and "spec" in document
        and "validations" in document["spec"]
    ]
    text = fence["spec"]["validations"][0]["expression"]
    missing = [
        f"{group}/{resource.plural}"
        for resource in RESOURCES.values()
        if (group := resource.api_version.rpartition("/")[0]) is not None and f"'{group}/{resource.plural}'" not in text
    ]
    assert missing == []


def test_the_table_of_kinds_has_a_row_for_each_that_a_profile_may_want():
    assert policy_kinds.ROWS.keys() == KINDS.keys()


def test_a_queue_that_takes_no_work_is_waited_for(fleet):
    def idle(kind: str, **status: object) -> str:
        return policy_kinds.row(kind).idle(fleet, {"kind": kind, "status": status})

    assert idle("Queue", state="Open") == ""
    assert idle("Queue", state="Closing") == "is Closing, not Open."
    assert idle("ClusterQueue") == "is not active yet."
    waiting = {"type": "Active", "status": "False", "message": "FlavorNotFound"}
    assert idle("ClusterQueue", conditions=[waiting]) == "is not active yet: FlavorNotFound."
    assert idle("ClusterQueue", conditions=[{"type": "Active", "status": "True"}]) == ""
    assert idle("ResourceQuota") == ""


@pytest.mark.parametrize(
    ("kind", "status", "missing"),
    [
        ("HyperNode", {}, "has no node yet"),
        ("HyperNode", {"nodeCount": 4}, ""),
        ("CiliumNetworkPolicy", {}, ""),
        ("CiliumNetworkPolicy", {"conditions": [{"type": "Valid", "status": "True"}]}, ""),
        (
            "CiliumNetworkPolicy",
            {"conditions": [{"type": "Valid", "status": "False", "message": "bad CIDR"}]},
            "bad CIDR",
        ),
        ("HorizontalPodAutoscaler", {}, "not able to scale its target yet"),
        (
            "HorizontalPodAutoscaler",
            {"conditions": [{"type": "AbleToScale", "status": "False", "message": "llm not found"}]},
            "llm not found",
        ),
        (
            "HorizontalPodAutoscaler",
            {"conditions": [{"type": "AbleToScale", "status": "True"}, {"type": "ScalingActive", "status": "False"}]},
            "",
        ),
        ("VerticalPodAutoscaler", {}, ""),
        (
            "VerticalPodAutoscaler",
            {"conditions": [{"type": "ConfigUnsupported", "status": "True", "message": "no controller"}]},
            "no controller",
        ),
    ],
)
def test_each_kind_is_ready_by_its_own_controllers_word(fleet, kind, status, missing):
    reason = policy_kinds.row(kind).idle(fleet, {"kind": kind, "status": status})
    assert (missing in reason) if missing else reason == ""


def test_many_objects_are_asked_about_at_once(fleet, monkeypatch):
    text = "policies:" + "".join(
        f"\n  - {{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: p{n}}}, value: {n}}}"
        for n in range(policy_objects.AT_ONCE)
    )
    together = threading.Barrier(policy_objects.AT_ONCE, timeout=20)
    real = fleet.policy

    def policy(ref):
        together.wait()
        return real(ref)

    monkeypatch.setattr(fleet, "policy", policy)
    prepared = policy_objects.prepare(fleet, wanted(text))

    assert [policy.title for policy in prepared.objects] == [
        f"PriorityClass p{n}" for n in range(policy_objects.AT_ONCE)
    ]
    assert (
        policy_objects.check_readiness(fleet, prepared, direction="forward").missing == "PriorityClass p0 is not there."
    )
