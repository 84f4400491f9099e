"""The policy objects of a revision, made ready for a plan, carried out or put back, and looked at.

As `components.release.work` is for Helm releases, over the port: what would differ is the API server's own answer to a
dry run, and only what Setpoint owns of an object is compared. What another party holds is a conflict, told in the plan;
of an object that is Setpoint's own, an approved plan takes it back, field by field (`takeover`). A namespace is never
removed, nor a volume, claim or Ceph object that holds data: what is in it is not ours to delete.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from clusters.fleet import Conflict, Fleet, FleetRefused, FleetUnavailable, Forbidden, NotFound
from clusters.kube import managed_fields
from components.plans.prepared import BLOCK, PlanNote, ReadinessResult
from components.policies import policy_kinds, policy_notes, takeover
from components.policies.ownership import MARK, is_ours, live_of, mark_of, marked, owner, uid_of
from components.policies.prepared_objects import PreparedObject, PreparedPolicies
from profiles.content.cluster import WantedObject
from profiles.document.document import dump
from profiles.policies import references
from profiles.policies.kinds import KINDS

__all__ = [
    "AT_ONCE", "FORWARD", "MARK", "PreparedObject", "PreparedPolicies", "carry_out", "check_readiness", "mark_of",
    "owner", "prepare",
]  # fmt: skip

FORWARD = "forward"
AT_ONCE = 8
"""Calls at a time. A look at 200 objects asks 400 times, and has to end well within a lease."""


# ── Planning ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def prepare(
    fleet: Fleet, wanted: Sequence[WantedObject], *, brings: Collection[str] = (), owner: str = "applied"
) -> PreparedPolicies:
    """Prepare policy objects for a plan; nothing is written.

    `brings`: components that the same plan installs; `owner`: the value of our label. Raises FleetUnavailable.
    """
    come = {policy.title for policy in wanted}
    ordered = _ordered(wanted)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="policies") as pool:
        judged = list(pool.map(lambda policy: _judged(fleet, policy, brings, come, owner), ordered))
    made = [policy for policy in judged if isinstance(policy, PreparedObject)]
    changed = {
        wish.title
        for wish, policy in zip(ordered, judged, strict=True)
        if isinstance(policy, PreparedObject) and policy.change == "changed"
    }
    notes = [
        policy_notes.later(wish, changed) or note
        for wish, note in zip(ordered, judged, strict=True)
        if isinstance(note, PlanNote)
    ]
    notes += [policy_notes.taken(policy) for policy in made if policy.takes]
    notes += [note for policy in made for note in policy_notes.kept(policy)]
    notes += policy_notes.second_default(fleet, made)
    return PreparedPolicies(tuple(made), tuple(notes))


def _judged(
    fleet: Fleet, policy: WantedObject, brings: Collection[str], come: Collection[str], owner: str
) -> PreparedObject | PlanNote:
    """Return what would become of the object, or why nothing can. Raises FleetUnavailable.

    `come`: titles of all that the plan brings.
    """
    try:
        return _prepared(fleet, policy, owner)
    except NotFound as missing:
        providers = KINDS[policy.kind].components if policy.kind in KINDS else ()
        if not set(brings).isdisjoint(providers) or _is_to_come(policy, come):
            manifest = marked(policy.manifest, owner)
            return PreparedObject(manifest, "unvalidated", diff=_diff({}, manifest))
        return PlanNote(BLOCK, "policy-missing", f"{policy.title} has no place in this cluster", str(missing))
    except Conflict as conflict:
        return PlanNote(BLOCK, "policy-conflict", f"{policy.title} has fields that another party owns", str(conflict))
    except Forbidden as refused:
        detail = f"{refused}. {policy_notes.may_not(policy)}"
        return PlanNote(BLOCK, "policy-refused", f"{policy.title} would be refused", detail)
    except FleetRefused as refused:
        detail = " ".join(filter(None, (f"{refused}", policy_notes.never_changed(fleet, policy))))
        return PlanNote(BLOCK, "policy-refused", f"{policy.title} would be refused", detail)


def _is_to_come(policy: WantedObject, come: Collection[str]) -> bool:
    """Return whether the plan brings what was looked for: its namespace, or the Role that a binding names."""
    if f"Namespace/{policy.namespace}" in come:
        return True
    return policy.kind == "RoleBinding" and any(f"{kind}/{name}" in come for _, kind, name in references.of(policy))


def _ordered(wanted: Iterable[WantedObject]) -> list[WantedObject]:
    objects = list(wanted)
    parents = {
        policy.name: name for policy in objects if policy.kind == "Queue" for _, _, name in references.of(policy)
    }

    def depth(name: str, seen: int = 0) -> int:
        return 0 if name not in parents or seen > len(parents) else 1 + depth(parents[name], seen + 1)

    return sorted(
        objects,
        key=lambda policy: (
            policy_kinds.row(policy.kind).rank,
            depth(policy.name),
            policy.kind,
            policy.namespace,
            policy.name,
        ),
    )


def _prepared(fleet: Fleet, wanted: WantedObject, owner: str) -> PreparedObject:
    """Raises FleetError; Conflict, with the words for the plan, where nothing may be taken."""
    manifest = marked(wanted.manifest, owner)
    preview = takeover.ask(fleet, manifest, mark=MARK)
    if preview.refusal:
        raise Conflict(preview.refusal)
    live, takes = preview.live, preview.takes
    if live is None:
        made = fleet.apply_policy(manifest, dry_run=True)
        return PreparedObject(manifest, "created", diff=_diff({}, managed_fields.fields(made)))
    result = managed_fields.fields(preview.would_be)
    before = managed_fields.fields(live)
    theirs = managed_fields.fields(live, more=[take.path for take in takes]) if takes else {}
    change = "same" if before == result else "changed"
    diff = _diff(theirs or before, result) if change == "changed" else ""
    return PreparedObject(manifest, change, uid_of(live), before, diff, takes, theirs)


def _diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    old, new = (dump(dict(side), sort_keys=True).splitlines() if side else [] for side in (before, after))
    if not old:
        return "\n".join(f"+{line}" for line in new)
    return "\n".join(list(difflib.unified_diff(old, new, lineterm=""))[2:])


# ── Carrying out ──────────────────────────────────────────────────────────────────────────────────────────────────────
def carry_out(
    fleet: Fleet,
    prepared: PreparedPolicies,
    *,
    direction: str,
    deadline: float,
    stop: Callable[[], bool],
    tell: Callable[[str], None],
) -> None:
    """Idempotent: what is as it should be is applied again without effect. Raises FleetError.

    Before the first write each object is looked at: what changed since the plan leaves all of them as they are.
    """
    objects = prepared.objects if direction == FORWARD else tuple(reversed(prepared.objects))
    if direction == FORWARD:
        for policy in objects:
            _refuse_moved(fleet, policy)
    for policy in objects:
        if stop() or time.monotonic() >= deadline:
            raise FleetUnavailable(
                f"ended before {policy.title}; what is done stays done, and the next attempt continues"
            )
        tell(_apply(fleet, policy) if direction == FORWARD else _back(fleet, policy))


def _apply(fleet: Fleet, policy: PreparedObject) -> str:
    """Raises FleetError; FleetRefused where what would be taken is not what the plan showed."""
    for _ in range(takeover.TRIES):
        if not (policy.takes and (version := _refuse_moved(fleet, policy))):
            fleet.apply_policy(policy.manifest)
            return f"{policy.title} is applied."
        try:
            fleet.apply_policy(policy.manifest, force_at=version)
        except Conflict:
            continue  # another party wrote it since the look, so nothing was taken: look again
        named = ", ".join(f"{take.field} from {take.manager}" for take in policy.takes)
        return f"{policy.title} is applied, and takes {named}."
    raise takeover.changing(policy.ref)


def _refuse_moved(fleet: Fleet, policy: PreparedObject) -> str:
    """Each must be as the plan saw it, or as approved already. Raises FleetRefused, Conflict.

    Answers with the resourceVersion of which fields are to be taken; empty: none are, or they are taken already.
    """
    preview = takeover.ask(fleet, policy.manifest, mark=MARK) if policy.takes else None
    live = preview.live if preview else live_of(fleet, policy.ref)
    if policy.uid and (live is None or uid_of(live) != policy.uid):
        raise FleetRefused(f"{policy.title} was {'removed' if live is None else 'replaced'} since the plan; plan again")
    if live is None:
        return ""
    ours = managed_fields.fields(live)
    if not policy.uid and not ours:
        raise FleetRefused(f"another party made {policy.title} since the plan; plan again")
    if preview and (preview.takes or preview.refusal or ours == policy.before):
        takeover.refuse_moved(policy.title, policy.takes, preview)
    if policy.uid and ours == policy.before:
        return takeover.version(live) if preview else ""
    if ours != managed_fields.fields(fleet.apply_policy(policy.manifest, dry_run=True)):
        raise FleetRefused(f"{policy.title} was changed since the plan; plan again")
    return ""


def _back(fleet: Fleet, policy: PreparedObject) -> str:
    live = live_of(fleet, policy.ref)
    if live is None or not is_ours(policy, live):
        return f"{policy.title} is not ours any more."
    if policy.uid:
        identity = {"apiVersion": policy.ref.api_version, "kind": policy.ref.kind}
        named = {key: value for key, value in policy.manifest["metadata"].items() if key in ("name", "namespace")}
        before = _before(policy, live)
        metadata = {**(before.get("metadata") or {}), **named}
        sentences = takeover.given_back(policy.takes, live)
        fleet.apply_policy({**before, **identity, "metadata": metadata})
        return " ".join((f"{policy.title} is as it was.", *sentences))
    return _remove(fleet, policy, live)


def _remove(fleet: Fleet, policy: PreparedObject, live: Mapping[str, Any]) -> str:
    """Remove what a rollout made. What holds data stays; a version that was looked at decides a race with a claim."""
    row = policy_kinds.row(policy.ref.kind)
    for _ in range(takeover.TRIES):
        if why := row.stays(live):
            return f"{policy.title} stays: {why}"
        at = takeover.version(live) if policy.ref.kind in policy_kinds.HOLD_DATA else ""
        try:
            fleet.remove_policy(policy.ref, uid_of(live), at)
        except Conflict:
            again = live_of(fleet, policy.ref)
            if not at or again is None or not is_ours(policy, again):
                raise
            live = again
            continue
        return f"{policy.title} is removed."
    raise takeover.changing(policy.ref)


def _before(policy: PreparedObject, live: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return Setpoint's part of the object after a revert.

    As it was before, what was taken included, unless another party holds that now.
    """
    return takeover.restored(policy.with_theirs, policy.takes, live) if policy.takes else policy.before


# ── Looking ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def check_readiness(
    fleet: Fleet, prepared: PreparedPolicies, *, direction: str, seen: int | None = None
) -> ReadinessResult:
    """One look, now: whether each object is as approved, or as before, and at work. Raises FleetUnavailable.

    `seen`: how many looks just before found nothing missing; None: this look is enough for every kind.
    """
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="policies") as pool:
        looks = pool.map(lambda policy: _looked(fleet, policy, direction), prepared.objects)
        if missing := next((look for look in looks if not look.is_ready), None):
            return missing
    slowest = max(prepared.objects, key=lambda policy: policy_kinds.row(policy.ref.kind).reads, default=None)
    if direction != FORWARD or seen is None or not slowest or seen + 1 >= policy_kinds.row(slowest.ref.kind).reads:
        return ReadinessResult(True)
    again = f"{slowest.title} is as wanted; looked at again, to see that it stays so."
    return ReadinessResult(False, missing=again, is_steady=True)


def _looked(fleet: Fleet, policy: PreparedObject, direction: str) -> ReadinessResult:
    live = live_of(fleet, policy.ref)
    if direction != FORWARD:
        left = _left(policy, live) if live is not None else ""
        return ReadinessResult(not left, missing=left)
    if live is None:
        return ReadinessResult(False, missing=f"{policy.title} is not there.")
    try:
        would_be = fleet.apply_policy(policy.manifest, dry_run=True)
    except Conflict as conflict:
        return ReadinessResult(False, failed=f"{policy.title} was changed by another party: {conflict}")
    if managed_fields.fields(would_be) != managed_fields.fields(live):
        return ReadinessResult(False, missing=f"{policy.title} is not as approved.")
    idle = policy_kinds.row(policy.ref.kind).idle(fleet, live)
    return ReadinessResult(not idle, missing=f"{policy.title} {idle}" if idle else "")


def _left(policy: PreparedObject, live: Mapping[str, Any]) -> str:
    """Explain why an object is not as it was before the plan yet.

    Empty when it is, or is not ours any more.
    """
    if not is_ours(policy, live):
        return ""
    if policy.uid:
        return "" if managed_fields.fields(live) == _before(policy, live) else f"{policy.title} is not as it was yet."
    if policy_kinds.row(policy.ref.kind).stays(live):
        return ""
    metadata = live.get("metadata") or {}
    if metadata.get("deletionTimestamp"):
        why = ", ".join(metadata.get("finalizers") or ())
        return f"{policy.title} is being removed{f', and waits for {why}' if why else ''}."
    return f"{policy.title} is still there."
