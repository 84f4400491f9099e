"""Fields of a policy object that an approved plan takes back, reverting changes to them by hand.

Only of objects that carry Setpoint's mark, and never from what would write its value again: Argo CD, Flux, a
controller. What is taken is the API server's own answer to a forced dry run: all fields that others no longer hold in
it. Each field is in the plan's digest with its manager and its value; a write of anything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from django.utils.dateparse import parse_datetime

from clusters import objects
from clusters.fleet import Conflict, Fleet, FleetRefused, FleetUnavailable, NotFound, ObjectRef
from clusters.kube import managed_fields
from components.plans import field_managers, gitops

TRIES = 5
"""Looks at an object that is written between the look and the answer: its status, mostly."""
_AGREE = "Have its manager restore it, or set the same value in the profile."
UNMARKED = f"Setpoint neither made nor adopted this object, and takes no field of it. {_AGREE}"
"""Of an object without our mark."""
KEPT = "What is changed beside it, it puts back. Commit the value there, or set the same in the profile."
"""After who: Argo CD or Flux."""
CONTROLLED = (
    "is a controller, which would write its own value again. Change its input, or set the same value in the profile."
)
"""After its name."""
_KEEPERS: Mapping[str, str] = {
    r"argo-?cd": "Argo CD",
    r"kustomize-controller|helm-controller|\bflux": "Flux",
    r"config-?sync|configmanagement": "Config Sync",
    r"fleet-?agent|fleetcontroller": "Rancher Fleet",
}
"""Field managers of what keeps a cluster as a repository says, by a pattern."""
_CONTROLLER = re.compile(
    r"(?:^|[-_./: ])(?:controllers?|operator|manager|scheduler|autoscaler|reconciler|webhooks?|admission|kueue|volcano"
    r"|kyverno|gatekeeper|crossplane|karpenter|rancher)(?:$|[-_./: ])",
    re.IGNORECASE,
)
"""Field managers that write again what is changed. Of a name that says nothing, a person is assumed: where that is
wrong, the step sees the field taken again, and fails in words."""


@dataclass(frozen=True, slots=True)
class Take:
    """One field, and one manager that holds it; of what two hold there are two."""

    path: managed_fields.Path
    manager: str
    since: str
    """When the manager last wrote anything of the object: 2026-11-22T02:10:00Z."""
    there: Any
    """Its value when the plan was made, as JSON."""
    wanted: Any

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Take:
        return cls(**{**raw, "path": tuple(raw["path"])})

    @property
    def field(self) -> str:
        return _written(self.path)

    @property
    def sentence(self) -> str:
        """`spec.hard.pods is 7, held by kubectl-edit since 2026-11-22 02:10 UTC; this plan makes it 100.`"""
        at = parse_datetime(self.since) if self.since else None
        since = f" since {at.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if at else ""
        holding = _held(self.there, [self.manager])
        return f"{self.field} is {holding}{since}; this plan makes it {_value_text(self.wanted)}."


@dataclass(frozen=True, slots=True)
class ApplyPreview:
    """The live object, and the result of an apply."""

    live: Mapping[str, Any] | None
    would_be: Mapping[str, Any]
    """With all that is wanted of it, in the API server's own words where it was asked; empty: it is not there."""
    takes: tuple[Take, ...] = ()
    refusal: str = ""
    """Why no plan may take them, and what to do; empty: one may, or there is nothing to take."""


def ask(fleet: Fleet, manifest: Mapping[str, Any], *, mark: str) -> ApplyPreview:
    """Ask what an apply would do; nothing is written.

    `mark`: the label that an object of ours has from us. Raises FleetError.
    """
    ref = ObjectRef.of(manifest)
    for _ in range(TRIES):
        try:
            live = fleet.policy(ref)
        except NotFound:
            return ApplyPreview(None, {})
        try:
            return ApplyPreview(live, fleet.apply_policy(manifest, dry_run=True))
        except Conflict as conflict:
            try:
                return _judged(fleet, manifest, live, conflict, mark)
            except Conflict:
                continue  # another party wrote it since the look
    raise changing(ref)


def changing(ref: ObjectRef) -> FleetUnavailable:
    return FleetUnavailable(f"{ref.kind} {ref} changes faster than it can be read")


def _judged(
    fleet: Fleet, manifest: Mapping[str, Any], live: Mapping[str, Any], conflict: Conflict, mark: str
) -> ApplyPreview:
    """Raises Conflict where the object is not as it was looked at any more."""
    if mark not in (objects.meta(managed_fields.fields(live)).get("labels") or {}):
        return ApplyPreview(live, manifest, refusal=f"{conflict}. {UNMARKED}")
    would_be = fleet.apply_policy(manifest, dry_run=True, force_at=version(live))
    takes = fields_to_take(live, would_be)
    if not takes:  # the conflict is about something that cannot be shown
        return ApplyPreview(live, manifest, refusal=f"{conflict}. {_AGREE}")
    why = _keeper(live, takes)
    return ApplyPreview(live, would_be, takes, f"{conflict}. {why}" if why else "")


def fields_to_take(live: Mapping[str, Any], would_be: Mapping[str, Any]) -> tuple[Take, ...]:
    """List the fields that others hold in the live object and no longer in the result."""
    kept = {(field.path, field.manager, field.subresource) for field in managed_fields.others(would_be)}
    lost = [
        field for field in managed_fields.others(live) if (field.path, field.manager, field.subresource) not in kept
    ]
    return tuple(
        Take(field.path, field.manager, field.at, _value(live, field.path), _value(would_be, field.path))
        for field in sorted(lost, key=lambda field: (field.path, field.manager, field.at))
    )


def refuse_moved(title: str, planned: Sequence[Take], preview: ApplyPreview) -> None:
    """Raises FleetRefused where what would be taken now is not, field by field, what the plan showed."""
    if preview.refusal:
        raise FleetRefused(f"{title} may not be taken any more: {preview.refusal}")
    before, after = ({(take.path, take.manager): take for take in many} for many in (planned, preview.takes))
    for key in sorted({*before, *after}):
        was, is_now = before.get(key), after.get(key)
        if was and is_now and (was.there, was.wanted) == (is_now.there, is_now.wanted):
            continue
        path, live = key[0], preview.live or {}
        there = _held(
            _value(live, path), (field.manager for field in managed_fields.others(live) if field.path == path)
        )
        of_path = [take for take in planned if take.path == path]
        shown = _held(of_path[0].there, (take.manager for take in of_path)) if of_path else "it as Setpoint's own"
        raise FleetRefused(f"{title}: {_written(path)} is {there} by now, and the plan showed {shown}; plan again")


def _held(value: Any, by: Iterable[str]) -> str:
    who = " and ".join(sorted(set(by))) or "no one else"
    return f"{_value_text(value)}, held by {who}"


def _value_text(value: Any) -> str:
    return "not there" if value is None else str(field_managers.as_text(value, 120))


def restored(before: Mapping[str, Any], takes: Iterable[Take], live: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a revert applies: the fields from before, without those that another party holds by now."""
    held_paths = {field.path for field in managed_fields.others(live)}
    return managed_fields.without(before, [take.path for take in takes if take.path in held_paths])


def given_back(takes: Iterable[Take], live: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each field on what a revert does with it."""
    holders = {field.path: field.manager for field in managed_fields.others(live)}
    for path in dict.fromkeys(take.path for take in takes):
        of_path = [take for take in takes if take.path == path]
        if path in holders:
            yield f"{_written(path)} stays as {holders[path]} has it."
            continue
        there, who = of_path[0].there, " and ".join(take.manager for take in of_path)
        yield f"{_written(path)} is {_value_text(there)} again, as {who} had it; Setpoint holds it from now on."


def _keeper(live: Mapping[str, Any], takes: Iterable[Take]) -> str:
    """Name the controller that would take the fields again, and what to do; empty: none would."""
    if who := gitops.of_object(live):
        return f"{who.owner} keeps it. {KEPT}"
    for take in takes:
        for pattern, name in _KEEPERS.items():
            if re.search(pattern, take.manager, re.IGNORECASE):
                return f"{take.manager} is {name}. {KEPT}"
        if _CONTROLLER.search(take.manager) or _is_written_through(live, take):
            return f"{take.manager} {CONTROLLED}"
    return ""


def _is_written_through(live: Mapping[str, Any], take: Take) -> bool:
    """Return whether it was written through a subresource, which is no person's way."""
    return any((h.path, h.manager) == (take.path, take.manager) and h.subresource for h in managed_fields.others(live))


def _value(raw: Mapping[str, Any], path: managed_fields.Path) -> Any:
    try:
        return managed_fields.value(raw, path)
    except LookupError:
        return None


def version(live: Mapping[str, Any]) -> str:
    return str(objects.meta(live).get("resourceVersion") or "")


def _written(path: managed_fields.Path) -> str:
    return field_managers.text(field_managers.of_record(path))
