"""Policy objects through the port: applied, read back by what is owned, forced at one version only, removed by UID."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

import pytest

from clusters.fleet import Conflict, FleetRefused, NotFound, ObjectRef
from clusters.kube import managed_fields
from clusters.kube.policy_objects import RESOURCES
from components.plans.prepared import ReadinessResult
from components.policies import policy_objects, takeover
from profiles.content.content import WantedObject
from profiles.policies import kinds

GPU = "requests.nvidia.com/gpu"


@pytest.fixture
def fleet(world):
    """Return a fleet with an administrator's rights: deploy/ decides what Setpoint may do to policy objects."""
    return world.ruler()


@pytest.fixture
def made(fleet):
    """Removes what a test applied."""
    refs: list[ObjectRef] = []
    yield refs
    for ref in refs:
        try:
            fleet.remove_policy(ref, fleet.policy(ref)["metadata"]["uid"])
        except NotFound:
            continue


def quota(name, namespace="default", **hard):
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hard": {key.replace("gpu", GPU): value for key, value in hard.items()}},
    }


def applied(fleet, made, manifest, **how):
    made.append(ObjectRef.of(manifest))
    return fleet.apply_policy(manifest, **how)


def test_what_is_applied_is_read_back_as_ours(world, fleet, made):
    manifest = quota(world.name("quota"), gpu="8", pods="100")
    ref = ObjectRef.of(manifest)
    with pytest.raises(NotFound):
        fleet.policy(ref)

    would_be = applied(fleet, made, manifest, dry_run=True)
    assert would_be["spec"] == manifest["spec"]
    with pytest.raises(NotFound):
        fleet.policy(ref)

    seen = fleet.apply_policy(manifest)
    assert (seen["kind"], seen["apiVersion"], seen["spec"]) == ("ResourceQuota", "v1", manifest["spec"])
    assert managed_fields.fields(fleet.policy(ref)) == {"spec": manifest["spec"]}


def test_what_we_want_no_more_goes_and_what_others_added_stays(world, fleet, made):
    name = world.name("quota")
    applied(fleet, made, quota(name, gpu="8", pods="100"))
    world.edit(
        "resourcequotas",
        name,
        {"metadata": {"labels": {"theirs": "1"}}, "spec": {"hard": {"services": "5"}}},
        "default",
    )

    seen = fleet.apply_policy(quota(name, gpu="8"))

    assert seen["spec"]["hard"] == {GPU: "8", "services": "5"}
    assert seen["metadata"]["labels"] == {"theirs": "1"}
    assert managed_fields.fields(seen) == {"spec": {"hard": {GPU: "8"}}}


def test_a_field_that_somebody_changed_is_a_conflict_that_names_it_and_is_never_forced(world, fleet, made):
    name = world.name("quota")
    manifest = quota(name, gpu="8", pods="100")
    applied(fleet, made, manifest)
    world.edit("resourcequotas", name, {"spec": {"hard": {"pods": "200"}}}, "default")

    for how in ({"dry_run": True}, {}):
        with pytest.raises(Conflict, match=r"\.spec\.hard\.pods") as refusal:
            fleet.apply_policy(manifest, **how)
    [owner] = managed_fields.holders(fleet.policy(ObjectRef.of(manifest)), ("spec", "hard", "pods"))
    assert owner in str(refusal.value)
    live = fleet.policy(ObjectRef.of(manifest))
    assert live["spec"]["hard"]["pods"] == "200"
    assert managed_fields.fields(live) == {"spec": {"hard": {GPU: "8"}}}, "drift shows: it is not ours any more"


def test_fields_are_taken_of_exactly_the_version_that_was_looked_at(world, fleet, made):
    name = world.name("quota")
    manifest = quota(name, gpu="8", pods="100")
    ref = ObjectRef.of(manifest)
    applied(fleet, made, manifest)
    world.edit("resourcequotas", name, {"spec": {"hard": {"pods": "200", "services": "5"}}}, "default")
    old = fleet.policy(ref)["metadata"]["resourceVersion"]
    world.edit("resourcequotas", name, {"spec": {"hard": {"pods": "300"}}}, "default")

    for how in ({"dry_run": True}, {}):
        with pytest.raises(Conflict, match="modified"):
            fleet.apply_policy(manifest, force_at=old, **how)
    live = fleet.policy(ref)
    assert live["spec"]["hard"]["pods"] == "300"

    would_be = eventually_taken(fleet, manifest, dry_run=True)
    [take] = takeover.fields_to_take(fleet.policy(ref), would_be)
    assert (take.field, take.there, take.wanted) == ("spec.hard.pods", "300", "100")
    assert take.manager in managed_fields.holders(live, ("spec", "hard", "pods"))
    assert fleet.policy(ref)["spec"]["hard"]["pods"] == "300"

    seen = eventually_taken(fleet, manifest)
    assert seen["spec"]["hard"] == {GPU: "8", "pods": "100", "services": "5"}
    assert managed_fields.holders(seen, ("spec", "hard", "pods")) == ["setpoint"]
    assert managed_fields.holders(seen, ("spec", "hard", "services")) == [take.manager]
    assert "resourceVersion" not in managed_fields.fields(seen).get("metadata", {})


def eventually_taken(fleet, manifest, **how):
    """Take over an object at its present version: a quota's controller may write its status at any time."""
    for _ in range(20):
        version = fleet.policy(ObjectRef.of(manifest))["metadata"]["resourceVersion"]
        with suppress(Conflict):
            return fleet.apply_policy(manifest, force_at=version, **how)
    raise AssertionError("its version never stood still")


def test_a_dry_run_over_what_is_there_says_what_would_be_and_changes_nothing(world, fleet, made):
    name = world.name("quota")
    applied(fleet, made, quota(name, gpu="8"))
    would_be = fleet.apply_policy(quota(name, gpu="16"), dry_run=True)

    assert managed_fields.fields(would_be) == {"spec": {"hard": {GPU: "16"}}}
    live = fleet.policy(ObjectRef.of(quota(name)))  # its status is its controller's, and comes when it comes
    assert (live["spec"]["hard"], managed_fields.fields(live)) == ({GPU: "8"}, {"spec": {"hard": {GPU: "8"}}})


def test_an_object_of_the_whole_cluster(world, fleet, made):
    name = world.name("training")
    manifest = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "labels": {"team": "ml"}},
        "value": 10000,
        "preemptionPolicy": "Never",
    }

    first = applied(fleet, made, manifest)

    mine = managed_fields.fields(fleet.policy(ObjectRef.of(manifest)))
    assert mine == {"metadata": {"labels": {"team": "ml"}}, "value": 10000, "preemptionPolicy": "Never"}

    again = fleet.apply_policy(manifest)  # no controller writes to one, as they do to a quota whenever they like
    live = fleet.policy(ObjectRef.of(manifest))
    versions = {seen["metadata"]["resourceVersion"] for seen in (first, again, live)}
    assert len(versions) == 1, "what is as it should be is not written again"


def test_a_namespace_has_of_ours_what_was_applied_and_no_default_of_the_server(world, fleet, made):
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.name("team"), "labels": {"a": "b"}}}

    would_be = fleet.apply_policy(manifest, dry_run=True)
    first = applied(fleet, made, manifest)
    again = fleet.apply_policy(manifest)

    for seen in (would_be, first, again):
        assert managed_fields.fields(seen) == {"metadata": {"labels": {"a": "b"}}}
        assert seen["metadata"]["labels"]["kubernetes.io/metadata.name"] == manifest["metadata"]["name"]


def test_where_there_is_no_namespace_or_no_such_kind_it_is_said(world, fleet):
    with pytest.raises(NotFound, match="nowhere"):
        fleet.apply_policy(quota(world.name("quota"), "nowhere", pods="1"))
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "a"}, "spec": {}}
    with pytest.raises(NotFound, match="does not know Queue"):
        fleet.apply_policy(queue, dry_run=True)
    with pytest.raises(NotFound, match="does not know Queue"):
        fleet.policy(ObjectRef.of(queue))


def test_only_the_object_of_the_uid_is_removed_and_gone_is_gone(world, fleet, made):
    manifest = quota(world.name("quota"), pods="1")
    ref = ObjectRef.of(manifest)
    uid = applied(fleet, made, manifest)["metadata"]["uid"]

    with pytest.raises(Conflict):
        fleet.remove_policy(ref, "11111111-2222-4333-8444-555555555555")
    assert fleet.policy(ref)["metadata"]["uid"] == uid
    fleet.remove_policy(ref, uid)
    fleet.remove_policy(ref, uid)
    with pytest.raises(NotFound):
        fleet.policy(ref)


def test_a_profiles_objects_are_prepared_carried_out_and_put_back(world, fleet, made):
    team, training = world.name("team"), world.name("training")
    wanted = [
        WantedObject("v1", "ResourceQuota", "gpus", team, {"spec": {"hard": {GPU: 8, "pods": "1k"}}}),
        WantedObject("v1", "Namespace", team, "", {"metadata": {"labels": {"a": "b"}}}),
        WantedObject("scheduling.k8s.io/v1", "PriorityClass", training, "", {"value": 10}),
    ]
    ends = {"deadline": time.monotonic() + 60, "stop": lambda: False, "tell": lambda _: None}
    prepared = policy_objects.prepare(fleet, wanted)
    made += [policy.ref for policy in prepared.objects]
    assert [policy.change for policy in prepared.objects] == ["created", "created", "unvalidated"]

    for _ in range(2):
        policy_objects.carry_out(fleet, prepared, direction="forward", **ends)
    assert policy_objects.check_readiness(fleet, prepared, direction="forward") == ReadinessResult(True)
    assert policy_objects.prepare(fleet, wanted).changes == 0, "1k and 8 are what the server makes of them"

    changed = [replace(wanted[0], body={"spec": {"hard": {GPU: 16}}}), *wanted[1:]]
    second = policy_objects.prepare(fleet, changed)
    assert [policy.title for policy in second.objects if policy.change == "changed"] == [f"ResourceQuota {team}/gpus"]
    policy_objects.carry_out(fleet, second, direction="forward", **ends)
    policy_objects.carry_out(fleet, second, direction="revert", **ends)
    assert policy_objects.check_readiness(fleet, second, direction="revert") == ReadinessResult(True)
    assert policy_objects.check_readiness(fleet, prepared, direction="forward") == ReadinessResult(True)

    policy_objects.carry_out(fleet, prepared, direction="revert", **ends)
    assert policy_objects.check_readiness(fleet, prepared, direction="revert") == ReadinessResult(True)
    assert fleet.policy(ObjectRef("v1", "Namespace", team))["metadata"]["labels"]["a"] == "b"


@pytest.mark.parametrize("name", ["../nodes", "a/b", "", "a?b"])
def test_a_name_addresses_nothing_else(fleet, name):
    with pytest.raises(FleetRefused):
        fleet.policy(ObjectRef("v1", "ResourceQuota", name, "default"))
    with pytest.raises(FleetRefused):
        fleet.policy(ObjectRef("v1", "ResourceQuota", "a", name))


def test_every_kind_that_a_profile_may_want_can_be_written():
    wanted = {(version, kind.name): kind.is_namespaced for kind in kinds.KINDS.values() for version in kind.versions}

    assert {key: resource.is_namespaced for key, resource in RESOURCES.items()} == wanted
