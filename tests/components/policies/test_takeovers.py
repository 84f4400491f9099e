"""Fields that another party holds: when an approved plan takes them back, and when nothing is taken."""

from __future__ import annotations

import json
import re

import pytest

from clusters.fleet import FleetRefused
from clusters.kube import managed_fields
from components.policies import policy_objects
from components.policies.policy_objects import PreparedPolicies
from simfleet.apiserver.callers import person
from tests.components.policies.carrying import PRIORITY, PROFILE, QUOTA, carry, edit, wanted


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
    [quota] = [policy for policy in prepared.objects if policy.change == "changed"]
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

    [*_, line] = carry(fleet, prepared, "revert")[:1]
    assert line == (
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
    ("meanwhile", "who", "message"),
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
def test_what_is_another_or_anothers_by_then_is_not_taken_and_nothing_is_written(
    cluster, fleet, meanwhile, who, message
):
    prepared = taking(cluster, fleet)
    cluster.api.patch(person("alice"), "resourcequotas", "gpus", {"spec": {"hard": meanwhile}}, "team-a", manager=who)
    before = fleet.policy(QUOTA)

    with pytest.raises(FleetRefused, match=re.escape(message)):
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
    line = carry(fleet, prepared, "revert")[0]

    assert "spec.hard.pods stays as kubectl-edit has it." in line
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
    ("manager", "labels", "detail"),
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
def test_nothing_is_taken_from_what_would_write_it_again(cluster, fleet, manager, labels, detail):
    carry(fleet, policy_objects.prepare(fleet, wanted()))
    change = {"metadata": {"labels": labels}, "spec": {"hard": {"pods": "7"}}}
    cluster.api.patch(person("x"), "resourcequotas", "gpus", change, "team-a", manager=manager)

    prepared = policy_objects.prepare(fleet, wanted())

    notes = {note.severity: note for note in prepared.notes}
    assert (list(notes), prepared.fields_taken) == ((["block"], 0) if detail else (["warn"], 1))
    assert detail in notes[next(iter(notes))].detail


def test_the_digest_of_a_plan_that_takes_nothing_is_what_it_was_before_anything_could_be_taken(fleet):
    prepared = policy_objects.prepare(fleet, wanted())
    assert {key for policy in prepared.to_json()["objects"] for key in policy} == {
        "manifest",
        "change",
        "uid",
        "before",
        "diff",
    }
