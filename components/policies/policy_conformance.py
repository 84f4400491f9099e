"""Check that the policy objects of a revision still are as approved: only fields that it sets are compared."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from clusters.fleet import Fleet, FleetError, FleetRefused
from clusters.kube.policy_objects import RESOURCES
from components.plans import field_managers
from components.policies import policy_objects, takeover
from components.release.conformance import (
    COMPLIANT,
    DELETED,
    DRIFTED,
    MISSING,
    MOST,
    TO_COME,
    UNFINISHED,
    UNKNOWN,
    Conformity,
    first_of,
)
from components.release.field_difference import FieldDifference
from profiles.content.cluster import WantedObject

TAKEN = "A plan of this revision takes it back, once it is approved."
"""Of a field that another party changed, and holds by that."""
HELD = "A plan cannot take it back."
"""Followed by why not, and what to do."""


def conform(fleet: Fleet, wanted: Collection[WantedObject], *, awaited: Collection[str] = ()) -> Conformity:
    """Each policy object of a revision: there, ours, and as it says; only fields that it sets are compared.

    Where some are absent and nothing else is wrong, it is unfinished: a rollout in progress may be about to make them.
    `awaited`: titles of those that one is known to be about to make.
    """
    all_differences: list[FieldDifference] = []
    absent = 0
    try:
        for policy in wanted:
            differences = list(_policy(fleet, policy, is_awaited=policy.title in awaited))
            absent += any(not difference.path for difference in differences)
            all_differences += differences
    except FleetError as error:
        return Conformity(UNKNOWN, f"They could not be checked: {error}"[:500])
    all_differences.sort(
        key=lambda difference: (bool(difference.path), difference.kind, difference.where, difference.path)
    )
    total = f"{len(wanted)} object{'' if len(wanted) == 1 else 's'}"
    kinds = {(policy.api_version, RESOURCES[policy.api_version, policy.kind].plural) for policy in wanted}
    kept: dict[str, Any] = {
        "differences": tuple(all_differences[:MOST]),
        "total": len(all_differences),
        "assigned": total,
    }
    kept["kinds"] = tuple(sorted(kinds))
    if not all_differences:
        return Conformity(COMPLIANT, installed=total, is_ready=True, **kept)
    only_absent = all(not difference.path for difference in all_differences)
    state = MISSING if absent == len(wanted) else UNFINISHED if only_absent else DRIFTED
    return Conformity(state, first_of(all_differences), installed=f"{len(wanted) - absent} of {total}", **kept)


def _policy(fleet: Fleet, wanted: WantedObject, *, is_awaited: bool) -> Iterator[FieldDifference]:
    manifest = wanted.manifest
    about: dict[str, Any] = {
        "kind": wanted.kind,
        "name": wanted.name,
        "namespace": wanted.namespace,
        "api_version": wanted.api_version,
    }
    try:
        preview = takeover.ask(fleet, manifest, mark=policy_objects.MARK)
    except FleetRefused as refused:
        yield FieldDifference(
            **about, path="(refused)", note=f"What was approved would be refused now: {refused}"[:300]
        )
        return
    live = preview.live
    if live is None:
        yield FieldDifference(**about, note=TO_COME if is_awaited else DELETED, is_awaited=is_awaited)
        return
    note = f"{HELD} {preview.refusal}"[:400] if preview.refusal else TAKEN if preview.takes else ""
    for path, want, have in field_managers.within(_named(manifest, preview.would_be), live):
        left, right = field_managers.as_texts(want, have)
        who = field_managers.writer(live, path, but="setpoint") if have is not field_managers.ABSENT else None
        writer, at = (str(who), who.at) if who else ("", "")
        yield FieldDifference(
            **about, path=field_managers.text(path), approved=left, live=right, who=writer, at=at, note=note
        )


def _named(manifest: Any, would_be: Any) -> Any:
    """Return only the fields of the result that the manifest names.

    They are in the API server's own words, such as `2` for `2000m`.
    """
    if isinstance(manifest, Mapping) and isinstance(would_be, Mapping):
        return {key: _named(value, would_be.get(key)) for key, value in manifest.items()}
    return would_be
