"""Field ownership: server-side apply, and the takeover of fields by other writes.

Owners are kept where the API server keeps them, in metadata.managedFields. `fields` says what counts as one field,
which for some lists and maps is coarser than a real schema; writes of status are not recorded; entries of an older
apiVersion are read as if they were of the present one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simfleet.apiserver import fields
from simfleet.apiserver.fields import Path
from simfleet.apiserver.resources import Resource
from simfleet.apiserver.store import ApiError, Raw, merge
from simfleet.apiserver.strategic import apply_merge

Owner = tuple[str, str]
"""Manager and operation: Apply or Update."""
_NOTHING = object()


def claimed(new: Raw, old: Mapping[str, Any] | None, manager: str, of: Resource, at: str) -> Raw:
    """`new` after an update by `manager`: it takes every field it changed from its former managers."""
    before = fields.leaves(old or {}, is_custom=of.custom)
    after = fields.leaves(new, is_custom=of.custom)
    changed = {p for p in {*before, *after} if before.get(p, _NOTHING) != after.get(p, _NOTHING)}
    known = old if old is not None else new
    if not changed:
        return _with_entries(new, _entries(known))
    owners = {who: paths - changed for who, paths in _owners(known).items()}
    taken = {p for p in changed if p in after}
    owners[manager, "Update"] = owners.get((manager, "Update"), set()) | taken
    return _with_owners(new, owners, known, of, at)


def applied(
    old: Mapping[str, Any], wanted: Mapping[str, Any], manager: str, of: Resource, at: str, *, force: bool
) -> Raw:
    """`old` with the complete set that `manager` wants. Raises ApiError 409 FieldManagerConflict."""
    body = {k: v for k, v in wanted.items() if k not in ("kind", "apiVersion", "status")}
    have = fields.leaves(old, is_custom=of.custom)
    want = fields.leaves(body, is_custom=of.custom)
    owners = _owners(old)
    me = (manager, "Apply")
    conflicts = [
        (path, who)
        for path, value in sorted(want.items())
        for (who, how), paths in owners.items()
        if (who, how) != me and path in paths and have.get(path, _NOTHING) != value
    ]
    if conflicts and not force:
        raise _conflict(conflicts, of)
    owners = {who: paths - {p for p, _ in conflicts} for who, paths in owners.items()}
    dropped = owners.get(me, set()) - set(want)
    owners[me] = set(want)
    held = {path for paths in owners.values() for path in paths}
    left = fields.without(old, sorted((p for p in dropped if p not in held), reverse=True))
    metadata = {k: v for k, v in (body.get("metadata") or {}).items() if k != "managedFields"}
    new = merge(left, {"metadata": {k: v for k, v in metadata.items() if k not in fields.METADATA}})
    new = apply_merge(new, {"metadata": {k: v for k, v in metadata.items() if k in fields.METADATA}})
    rest = {k: v for k, v in body.items() if k != "metadata"}
    new = merge(new, rest) if of.custom else apply_merge(new, rest)
    return _with_owners(new, owners, old, of, at)


def _conflict(conflicts: list[tuple[Path, str]], of: Resource) -> ApiError:
    causes = tuple(
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{who}" using {of.api_version}',
            "field": fields.written(path),
        }
        for path, who in conflicts
    )
    if len(causes) == 1:
        text = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        listed = "\n".join(f"- {c['field']}: {c['message']}" for c in causes)
        text = f"Apply failed with {len(causes)} conflicts: conflicts:\n{listed}"
    return ApiError(409, "Conflict", text, causes=causes)


def _entries(raw: Mapping[str, Any]) -> list[Raw]:
    return list((raw.get("metadata") or {}).get("managedFields") or ())


def _owners(raw: Mapping[str, Any]) -> dict[Owner, set[Path]]:
    return {(e["manager"], e["operation"]): fields.decoded(e.get("fieldsV1") or {}) for e in _entries(raw)}


def _with_entries(raw: Raw, entries: list[Raw]) -> Raw:
    if entries == _entries(raw):
        return raw
    return raw | {"metadata": raw["metadata"] | {"managedFields": entries}}


def _with_owners(
    raw: Raw, owners: Mapping[Owner, Iterable[Path]], known: Mapping[str, Any], of: Resource, at: str
) -> Raw:
    """An entry that owns what it owned before keeps its time."""
    before = {(e["manager"], e["operation"]): e for e in _entries(known)}
    entries = []
    for (manager, operation), paths in owners.items():
        inside = fields.encoded(paths)
        entry = {
            "manager": manager,
            "operation": operation,
            "apiVersion": of.api_version,
            "time": at,
            "fieldsType": "FieldsV1",
            "fieldsV1": inside,
        }
        had = before.get((manager, operation))
        if inside:
            entries.append(had if had is not None and had["fieldsV1"] == inside else entry)
    return raw | {"metadata": raw["metadata"] | {"managedFields": entries}}
