"""Notes of a plan about its policy objects: what is taken, what stays, what is at risk, and why one is refused."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from clusters.fleet import Fleet, FleetRefused, ObjectRef
from components.plans.prepared import INFO, WARN, PlanNote
from components.policies.ownership import live_of
from components.policies.policy_kinds import CEPH, VOLUMES
from components.policies.prepared_objects import PreparedObject
from components.values.clauses import look_up
from contract import names
from profiles.content.cluster import WantedObject
from profiles.policies import references
from profiles.policies.kinds import KINDS
from profiles.policies.storage import is_default

APPLY_RIGHTS = "apply deploy/setpoint-policies.yaml."


def taken(policy: PreparedObject) -> PlanNote:
    count, who = len({take.path for take in policy.takes}), sorted({take.manager for take in policy.takes})
    named = f"{count} field{'' if count == 1 else 's'} of {policy.title}"
    back = "Putting the plan back restores each value; Setpoint, which writes it then, continues to hold it."
    detail = " ".join(take.sentence for take in policy.takes)
    return PlanNote(
        WARN,
        "policy-takes",
        f"{named} {'is' if count == 1 else 'are'} taken from {' and '.join(who)}",
        f"{detail} {back}",
    )


def kept(policy: PreparedObject) -> Iterator[PlanNote]:
    """Yield what a revert leaves there, and what a change puts at risk."""
    if policy.ref.kind == "Namespace" and policy.change == "created":
        yield PlanNote(
            INFO, "namespace-stays", f"{policy.title} stays when the plan is reverted", "What is in it is not ours."
        )
    if policy.ref.kind in VOLUMES and policy.change in ("created", "unvalidated"):
        title = f"{policy.title} stays when the plan is reverted, once a claim and a volume are bound"
        yield PlanNote(INFO, "volume-stays", title, "What is stored there is not ours to delete.")
    if policy.ref.kind in CEPH and policy.change in ("created", "unvalidated"):
        title = f"{policy.title} stays when the plan is reverted, once Rook has taken it on"
        yield PlanNote(INFO, "volume-stays", title, "What is stored there is not ours to delete.")
    if policy.change != "same" and _deletes_data(policy.manifest):
        title = f"With {policy.title}, a claim that is deleted takes its data along"
        yield PlanNote(WARN, "deletes-data", title, "Its reclaim policy is Delete; with Retain the volume stays.")


def _deletes_data(manifest: Mapping[str, Any]) -> bool:
    """Return whether volumes end with their claims: of a class that is Kubernetes' default, of a volume it is not."""
    if manifest["kind"] == "StorageClass":
        return bool(manifest.get("reclaimPolicy", "Delete") == "Delete")
    return (manifest.get("spec") or {}).get("persistentVolumeReclaimPolicy") == "Delete"


def second_default(fleet: Fleet, made: Sequence[PreparedObject]) -> Iterator[PlanNote]:
    """Yield a note of two default classes: no error to Kubernetes, which takes the newer one, meant or not."""
    ours = {policy.ref.name for policy in made if policy.ref.kind == "StorageClass"}
    defaults = [p for p in made if p.ref.kind == "StorageClass" and p.change != "same" and is_default(p.manifest)]
    if not defaults:
        return
    try:
        there = fleet.custom("storage.k8s.io/v1", "storageclasses")
    except FleetRefused as refused:
        title = "It could not be seen whether the cluster has a default StorageClass already"
        yield PlanNote(WARN, "default-class", title, f"{refused}. {APPLY_RIGHTS}")
        return
    others = sorted(str(raw["metadata"]["name"]) for raw in there if is_default(raw))
    others = [name for name in others if name not in ours]
    if others:
        title = f"{defaults[0].title} becomes the default beside {', '.join(others)}"
        detail = "Claims that name no class get the newest default. Take the annotation off the other one first."
        yield PlanNote(WARN, "default-class", title, detail)


def never_changed(fleet: Fleet, policy: WantedObject) -> str:
    """Explain a refusal by the fields that Kubernetes never changes, where the object that is there has others."""
    known, live = KINDS.get(policy.kind), live_of(fleet, ObjectRef.of(policy.manifest))
    if not known or not live:
        return ""
    fields = [path for path in known.fixed if look_up(policy.manifest, path) not in (None, look_up(live, path))]
    if not fields:
        return ""
    named = f"{', '.join(fields[:-1])} and {fields[-1]}" if len(fields) > 1 else fields[0]
    return (
        f"Kubernetes never changes {named} of a {policy.kind} that exists: want one of another name, or remove it "
        "by hand first and plan again."
    )


def may_not(policy: WantedObject) -> str:
    """Explain what to do where the API server says that Setpoint may not."""
    if policy.kind in ("Role", "RoleBinding"):
        who = f"the administrator of the cluster grants to {names.CONTROLLER_SERVICE_ACCOUNT} there, or applies."
        return f"If it may write none: {APPLY_RIGHTS} Setpoint grants only what it holds itself; the rest {who}"
    return f"If Setpoint may not: {APPLY_RIGHTS}"


def later(policy: WantedObject, changed: Collection[str]) -> PlanNote | None:
    """Return the note of a binding that is refused only because its Role has more rights by now than it should.

    Kubernetes judges a binding by the Role as it is. `changed`: titles of what this plan puts right; the binding is
    left as it is by this plan, and the next one judges it again.
    """
    roles = [f"{kind}/{name}" for _, kind, name in references.of(policy) if kind == "Role"]
    if policy.kind != "RoleBinding" or not any(role in changed for role in roles):
        return None
    title = f"{policy.title} is left as it is until {roles[0]} is right again"
    detail = (
        "That Role grants more by now than Setpoint holds, so the binding is refused. Plan again after this rollout."
    )
    return PlanNote(WARN, "policy-later", title, detail)
