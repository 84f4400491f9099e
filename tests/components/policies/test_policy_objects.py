"""Policy objects of a plan: prepared by dry run, carried out, looked at and put back; nothing of others' is taken."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path

import pytest
import yaml

from clusters.fleet import FleetRefused, FleetUnavailable, ObjectRef
from clusters.kube import managed_fields
from clusters.kube.policy_objects import RESOURCES
from components.policies import policy_objects
from components.policies.policy_objects import PreparedPolicies
from profiles.content.content import WantedObject
from profiles.document import schema
from simfleet.apiserver.callers import person
from simfleet.core import SimCluster
from simfleet.memory import SimFleet

PROFILE = """
policies:
  - apiVersion: v1
    kind: ResourceQuota
    metadata: {name: gpus, namespace: team-a}
    spec: {hard: {requests.nvidia.com/gpu: "8", pods: "100"}}
  - apiVersion: v1
    kind: Namespace
    metadata: {name: team-a}
  - apiVersion: scheduling.k8s.io/v1
    kind: PriorityClass
    metadata: {name: training}
    value: 10000
"""
DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
QUOTA = ObjectRef("v1", "ResourceQuota", "gpus", "team-a")
PRIORITY = ObjectRef("scheduling.k8s.io/v1", "PriorityClass", "training")


def wanted(text: str = PROFILE) -> tuple[WantedObject, ...]:
    return schema.flatten(schema.parse(text), None, origin="a r1").content.policies


@pytest.fixture
def cluster() -> SimCluster:
    return SimCluster(seed=5)


@pytest.fixture
def fleet(cluster) -> SimFleet:
    return SimFleet(cluster)


def carry(fleet, prepared, direction="forward", **how) -> list[str]:
    told: list[str] = []
    ends = {"deadline": time.monotonic() + 60, "stop": lambda: False} | how
    policy_objects.carry_out(fleet, prepared, direction=direction, tell=told.append, **ends)
    return told


def edit(cluster, plural, name, change, namespace="") -> None:
    cluster.api.patch(person("alice"), plural, name, change, namespace)


def test_a_plan_shows_what_would_be_and_writes_nothing(cluster, fleet):
    prepared = policy_objects.prepare(fleet, wanted())

    assert [(one.title, one.change) for one in prepared.objects] == [
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
    assert ([one.change for one in again.objects], again.changes) == (["same"] * 3, 0)

    assert not policy_objects.check_readiness(fleet, prepared, direction="revert").is_ready
    told = carry(fleet, prepared, "revert")
    assert told == [
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
    [quota] = [one for one in prepared.objects if one.change == "changed"]
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


def test_a_field_that_somebody_changed_of_ours_is_taken_as_the_plan_showed_it(cluster, fleet):
    first = policy_objects.prepare(fleet, wanted())
    carry(fleet, first)
    edit(cluster, "resourcequotas", "gpus", {"spec": {"hard": {"pods": "7", "services": "5"}}}, "team-a")
    assert "was changed by another party" in policy_objects.check_readiness(fleet, first, direction="forward").failed

    prepared = policy_objects.prepare(fleet, wanted())
    [note] = prepared.notes
    assert (note.severity, note.code, note.title) == (
        "warn",
        "policy-takes",
        "1 field of ResourceQuota team-a/gpus is taken from kubectl-edit",
    )
    assert note.detail.startswith("spec.hard.pods is 7, held by kubectl-edit since 2026-01-01 00:00 UTC; this plan")
    [quota] = [one for one in prepared.objects if one.change == "changed"]
    assert ("-    pods: '7'" in quota.diff, "+    pods: '100'" in quota.diff) == (True, True)
    assert (prepared.fields_taken, fleet.policy(QUOTA)["spec"]["hard"]["pods"]) == (1, "7")
    assert PreparedPolicies.from_json(json.loads(json.dumps(prepared.to_json()))) == prepared

    assert (
        carry(fleet, prepared)[-1]
        == "ResourceQuota team-a/gpus is applied, and takes spec.hard.pods from kubectl-edit."
    )
    carry(fleet, prepared)
    assert fleet.policy(QUOTA)["spec"]["hard"] == {"requests.nvidia.com/gpu": "8", "pods": "100", "services": "5"}
    assert managed_fields.holders(fleet.policy(QUOTA), ("spec", "hard", "pods")) == ["setpoint"]
    assert managed_fields.holders(fleet.policy(QUOTA), ("spec", "hard", "services")) == ["kubectl-edit"], (
        "nobody asked for it"
    )
    assert policy_objects.check_readiness(fleet, prepared, direction="forward").is_ready
    assert not policy_objects.check_readiness(fleet, prepared, direction="revert").is_ready

    [*_, told] = carry(fleet, prepared, "revert")[:1]
    assert told == (
        "ResourceQuota team-a/gpus is as it was. spec.hard.pods is 7 again, as kubectl-edit had it; Setpoint holds it "
        "from now on."
    )
    assert policy_objects.check_readiness(fleet, prepared, direction="revert").is_ready
    assert fleet.policy(QUOTA)["spec"]["hard"] == {"requests.nvidia.com/gpu": "8", "pods": "7", "services": "5"}
    assert managed_fields.holders(fleet.policy(QUOTA), ("spec", "hard", "pods")) == ["setpoint"]


def taking(cluster, fleet, **edits) -> PreparedPolicies:
    """A plan that takes the quota's pods and GPUs back."""
    carry(fleet, policy_objects.prepare(fleet, wanted()))
    hard = {"pods": "7", "requests.nvidia.com/gpu": "3"} | edits
    edit(cluster, "resourcequotas", "gpus", {"spec": {"hard": hard}}, "team-a")
    return policy_objects.prepare(fleet, wanted(PROFILE.replace("value: 10000", "value: 10000\n    description: Jobs")))


@pytest.mark.parametrize(
    ("meanwhile", "who", "said"),
    [
        (
            {"pods": "9"},
            "alice",
            "spec.hard.pods is 9, held by alice by now, and the plan showed 7, held by kubectl-edit",
        ),
        (
            {"pods": "9"},
            "kubectl-edit",
            "spec.hard.pods is 9, held by kubectl-edit by now, and the plan showed 7, held",
        ),
        ({"pods": "100"}, "kubectl-edit", "spec.hard.pods is 100, held by kubectl-edit by now, and the plan showed 7"),
        (
            {"pods": None},
            "alice",
            "spec.hard.pods is not there, held by no one else by now, and the plan showed 7, held by",
        ),
    ],
)
def test_what_is_another_or_anothers_by_then_is_not_taken_and_nothing_is_written(cluster, fleet, meanwhile, who, said):
    prepared = taking(cluster, fleet)
    cluster.api.patch(person("alice"), "resourcequotas", "gpus", {"spec": {"hard": meanwhile}}, "team-a", manager=who)
    before = fleet.policy(QUOTA)

    with pytest.raises(FleetRefused, match=re.escape(said)):
        carry(fleet, prepared)

    assert fleet.policy(QUOTA) == before
    assert "description" not in fleet.policy(PRIORITY), "which comes first, and was to change"


def test_the_same_value_in_other_hands_is_not_taken(cluster, fleet):
    prepared = taking(cluster, fleet)
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {}, "spec": {"hard": {"pods": "7"}}}
    cluster.api.apply(person("bob"), "resourcequotas", "gpus", body, "team-a", manager="bob")

    with pytest.raises(FleetRefused, match=r"spec\.hard\.pods is 7, held by bob and kubectl-edit by now"):
        carry(fleet, prepared)
    both = policy_objects.prepare(fleet, wanted())
    assert "is taken from" not in both.notes[0].title
    assert both.notes[0].title == "2 fields of ResourceQuota team-a/gpus are taken from bob and kubectl-edit"
    carry(fleet, both)
    assert managed_fields.holders(fleet.policy(QUOTA), ("spec", "hard", "pods")) == ["setpoint"]


def test_what_is_written_between_the_look_and_the_write_is_looked_at_again(cluster, fleet, monkeypatch):
    """The forced write names the version that was looked at, so it never takes anything unseen."""
    prepared = taking(cluster, fleet)
    real, status = fleet.apply_policy, ["1", "2"]

    def apply(manifest, *, dry_run=False, force_at=""):
        if force_at and not dry_run and status:
            cluster.api.patch(
                person("kube-controller-manager"),
                "resourcequotas",
                "gpus",
                {"status": {"used": {"pods": status.pop()}}},
                "team-a",
                subresource="status",
            )
        return real(manifest, dry_run=dry_run, force_at=force_at)

    monkeypatch.setattr(fleet, "apply_policy", apply)
    carry(fleet, prepared)
    assert (fleet.policy(QUOTA)["spec"]["hard"]["pods"], status) == ("100", [])

    edit(cluster, "resourcequotas", "gpus", {"spec": {"hard": {"pods": "7"}}}, "team-a")
    again = policy_objects.prepare(fleet, wanted())

    def raced(manifest, *, dry_run=False, force_at=""):
        if force_at and not dry_run:
            edit(cluster, "resourcequotas", "gpus", {"spec": {"hard": {"pods": "9"}}}, "team-a")
        return real(manifest, dry_run=dry_run, force_at=force_at)

    monkeypatch.setattr(fleet, "apply_policy", raced)
    with pytest.raises(FleetRefused, match=r"spec\.hard\.pods is 9, held by kubectl-edit by now"):
        carry(fleet, again)
    assert fleet.policy(QUOTA)["spec"]["hard"]["pods"] == "9"


def test_a_revert_leaves_what_somebody_took_again_and_what_was_never_taken(cluster, fleet):
    prepared = taking(cluster, fleet)
    held = [
        managed_fields.holders(fleet.policy(QUOTA), ("spec", "hard", name))
        for name in ("pods", "requests.nvidia.com/gpu")
    ]
    carry(fleet, prepared, "revert")
    assert [
        managed_fields.holders(fleet.policy(QUOTA), ("spec", "hard", n)) for n in ("pods", "requests.nvidia.com/gpu")
    ] == held
    assert policy_objects.check_readiness(fleet, prepared, direction="revert").is_ready

    carry(fleet, prepared)
    edit(cluster, "resourcequotas", "gpus", {"spec": {"hard": {"pods": "64"}}}, "team-a")
    told = carry(fleet, prepared, "revert")[0]

    assert "spec.hard.pods stays as kubectl-edit has it." in told
    assert fleet.policy(QUOTA)["spec"]["hard"] == {"pods": "64", "requests.nvidia.com/gpu": "3"}
    assert managed_fields.holders(fleet.policy(QUOTA), ("spec", "hard", "pods")) == ["kubectl-edit"]
    assert policy_objects.check_readiness(fleet, prepared, direction="revert").is_ready


def test_nothing_is_taken_of_an_object_without_our_mark(cluster, fleet):
    cluster.api.create(person("alice"), "priorityclasses", {"metadata": {"name": "training"}, "value": 5})

    notes = [note for note in policy_objects.prepare(fleet, wanted()).notes if note.code.startswith("policy")]

    assert [(note.severity, note.code, ".value" in note.detail) for note in notes] == [
        ("block", "policy-conflict", True)
    ]
    assert notes[0].detail.endswith(
        "Setpoint neither made nor adopted this object, and takes no field of it. Have its manager restore "
        "it, or set the same value in the profile."
    )


@pytest.mark.parametrize(
    ("manager", "labels", "said"),
    [
        ("argocd-controller", {}, "argocd-controller is Argo CD. What is changed beside it, it puts back. Commit"),
        ("kustomize-controller", {}, "kustomize-controller is Flux. What is changed beside it, it puts back. Commit"),
        ("vc-controller-manager", {}, "vc-controller-manager is a controller, which would write its own value again."),
        ("gpu-operator", {}, "gpu-operator is a controller, which would write its own value again. Change its input"),
        ("manager", {}, "manager is a controller"),
        ("kubectl-edit", {"argocd.argoproj.io/instance": "teams"}, "Argo CD's Application teams keeps it."),
        (
            "kubectl-edit",
            {"kustomize.toolkit.fluxcd.io/name": "teams", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"},
            "Flux's Kustomization flux-system/teams keeps it. What is changed beside it",
        ),
        ("alice", {}, ""),
        ("kubectl-client-side-apply", {}, ""),
        ("k9s", {}, ""),
        ("Terraform", {}, ""),
        ("helm", {}, ""),
    ],
)
def test_nothing_is_taken_from_what_would_write_it_again(cluster, fleet, manager, labels, said):
    carry(fleet, policy_objects.prepare(fleet, wanted()))
    change = {"metadata": {"labels": labels}, "spec": {"hard": {"pods": "7"}}}
    cluster.api.patch(person("x"), "resourcequotas", "gpus", change, "team-a", manager=manager)

    prepared = policy_objects.prepare(fleet, wanted())

    notes = {note.severity: note for note in prepared.notes}
    assert (list(notes), prepared.fields_taken) == ((["block"], 0) if said else (["warn"], 1))
    assert said in notes[next(iter(notes))].detail


def test_the_digest_of_a_plan_that_takes_nothing_is_what_it_was_before_anything_could_be_taken(fleet):
    prepared = policy_objects.prepare(fleet, wanted())
    assert {key for one in prepared.to_json()["objects"] for key in one} == {
        "manifest",
        "change",
        "uid",
        "before",
        "diff",
    }


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
    assert [(one.title, one.change) for one in together.objects] == [
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
        (one.api_version.rpartition("/")[0], one.plural): {"get", "create", "patch", "delete"}
        for one in RESOURCES.values()
    }
    needed["", "namespaces"].remove("delete")
    assert granted == needed


def test_a_queue_that_takes_no_work_is_waited_for():
    def idle(kind: str, **status: object) -> str:
        return policy_objects._idle({"kind": kind, "status": status})

    assert idle("Queue", state="Open") == ""
    assert idle("Queue", state="Closing") == "is Closing, not Open."
    assert idle("ClusterQueue") == "is not active yet."
    waiting = {"type": "Active", "status": "False", "message": "FlavorNotFound"}
    assert idle("ClusterQueue", conditions=[waiting]) == "is not active yet: FlavorNotFound."
    assert idle("ClusterQueue", conditions=[{"type": "Active", "status": "True"}]) == ""
    assert idle("ResourceQuota") == ""


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

    assert [one.title for one in prepared.objects] == [f"PriorityClass p{n}" for n in range(policy_objects.AT_ONCE)]
    assert (
        policy_objects.check_readiness(fleet, prepared, direction="forward").missing == "PriorityClass p0 is not there."
    )
