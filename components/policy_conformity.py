"""Whether the policy objects of a revision still are what was approved: only fields that it sets are compared."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from clusters.fleet import Conflict, Fleet, FleetError, FleetRefused, NotFound, ObjectRef
from clusters.kube_policies import RESOURCES
from components import fields
from components.conformity import (
    COMPLIANT,
    DELETED,
    DRIFTED,
    MISSING,
    MOST,
    UNFINISHED,
    UNKNOWN,
    Conformity,
    Difference,
    first_of,
)
from profiles.wanted import WantedObject

HELD = "A plan cannot take it back: Setpoint takes no field from who holds it. Have it put back, or want the same."
"""Of a field that somebody changed, and holds by that; followed by the API server's words."""


def conform(fleet: Fleet, wanted: Collection[WantedObject]) -> Conformity:
    """Each policy object of a revision: there, ours, and as it says; only fields that it sets are compared.

    Where some are not there and nothing else is wrong, it is unfinished: a rollout under way may be about to make them.
    """
    found: list[Difference] = []
    absent = 0
    try:
        for one in wanted:
            differences = list(_policy(fleet, one))
            absent += any(not difference.path for difference in differences)
            found += differences
    except FleetError as error:
        return Conformity(UNKNOWN, f"They could not be checked: {error}"[:500])
    found.sort(key=lambda one: (bool(one.path), one.kind, one.where, one.path))
    total = f"{len(wanted)} object{'' if len(wanted) == 1 else 's'}"
    kinds = {(one.api_version, RESOURCES[one.api_version, one.kind].plural) for one in wanted}
    kept: dict[str, Any] = {"differences": tuple(found[:MOST]), "total": len(found), "assigned": total}
    kept["kinds"] = tuple(sorted(kinds))
    if not found:
        return Conformity(COMPLIANT, installed=total, is_ready=True, **kept)
    only_absent = all(not difference.path for difference in found)
    state = MISSING if absent == len(wanted) else UNFINISHED if only_absent else DRIFTED
    return Conformity(state, first_of(found), installed=f"{len(wanted) - absent} of {total}", **kept)


def _policy(fleet: Fleet, wanted: WantedObject) -> Iterator[Difference]:
    manifest = wanted.manifest
    about = {"kind": wanted.kind, "name": wanted.name, "namespace": wanted.namespace, "api_version": wanted.api_version}
    try:
        live = fleet.policy(ObjectRef.of(manifest))
    except NotFound:
        yield Difference(**about, note=DELETED)
        return
    note = ""
    try:
        would_be: Mapping[str, Any] = fleet.apply_policy(manifest, dry_run=True)
    except Conflict as conflict:
        would_be, note = manifest, f"{HELD} {conflict}"[:400]
    except FleetRefused as refused:
        yield Difference(**about, path="(refused)", note=f"What was approved would be refused now: {refused}"[:300])
        return
    for path, want, have in fields.within(_asked(manifest, would_be), live):
        left, right = fields.as_texts(want, have)
        who = fields.writer(live, path, but="setpoint") if have is not fields.ABSENT else None
        said, at = (str(who), who.at) if who else ("", "")
        yield Difference(**about, path=fields.text(path), approved=left, live=right, who=said, at=at, note=note)


def _asked(manifest: Any, would_be: Any) -> Any:
    """Of what it would be, only what the manifest names: in the API server's own words, such as `2` for `2000m`."""
    if isinstance(manifest, Mapping) and isinstance(would_be, Mapping):
        return {key: _asked(value, would_be.get(key)) for key, value in manifest.items()}
    return would_be
