"""Policy objects held to what a revision says: there, ours, and in the fields that it sets."""

from __future__ import annotations

from components.policies import policy_objects
from components.policies.policy_conformance import conform
from simfleet.apiserver.callers import person
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.components.policies.carrying import carry, edit, wanted


def test_what_somebody_changes_takes_or_removes_of_a_policy_is_named_and_nothing_else():
    cluster = SimCluster(seed=5)
    fleet = SimFleet(cluster)
    want = wanted()
    missing = conform(fleet, want)
    assert (missing.state, missing.installed, missing.total) == ("missing", "0 of 3 objects", 3)

    carry(fleet, policy_objects.prepare(fleet, want))
    right = conform(fleet, want)
    assert (right.state, right.installed, right.differences) == ("compliant", "3 objects", ())
    assert ("v1", "resourcequotas") in right.kinds

    edit(cluster, "resourcequotas", "gpus", {"metadata": {"labels": {"theirs": "kept"}}}, "team-a")
    assert conform(fleet, want).state == "compliant", "what nobody asked for may be anything"
    edit(cluster, "resourcequotas", "gpus", {"spec": {"hard": {"requests.nvidia.com/gpu": "64"}}}, "team-a")
    off = conform(fleet, want)
    assert off.state == "drifted"
    (difference,) = off.differences
    assert (difference.kind, difference.where, difference.path) == (
        "ResourceQuota",
        "team-a/gpus",
        'spec.hard["requests.nvidia.com/gpu"]',
    )
    assert (difference.approved, difference.live, difference.who) == ("8", "64", "kubectl-edit")
    assert difference.note == "A plan of this revision takes it back, once it is approved."

    cluster.api.delete(person("alice"), "priorityclasses", "training", "")
    gone = conform(fleet, want)
    assert gone.sentence == "PriorityClass training is gone, and 1 more difference."
    assert gone.installed == "2 of 3 objects"


def test_what_no_plan_may_take_back_says_why_and_what_to_do():
    cluster = SimCluster(seed=5)
    fleet = SimFleet(cluster)
    carry(fleet, policy_objects.prepare(fleet, wanted()))
    change = {"spec": {"hard": {"pods": "7"}}}
    cluster.api.patch(person("x"), "resourcequotas", "gpus", change, "team-a", manager="argocd-controller")

    (difference,) = conform(fleet, wanted()).differences

    assert (difference.path, difference.approved, difference.live, difference.who) == (
        "spec.hard.pods",
        "100",
        "7",
        "argocd-controller",
    )
    assert difference.note.startswith("A plan cannot take it back. Apply failed with 1 conflict")
    assert difference.note.endswith("Commit the value there, or set the same in the profile.")


def test_a_policy_that_cannot_be_asked_about_is_unknown():
    fleet = SimFleet(SimCluster(seed=5))
    carry(fleet, policy_objects.prepare(fleet, wanted()))
    fleet.cluster.faults.outage = True
    seen = conform(fleet, wanted())
    assert (seen.state, seen.sentence[:26]) == ("unknown", "They could not be checked:")
