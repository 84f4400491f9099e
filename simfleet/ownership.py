"""Who owns which label and annotation: as much of server-side apply as decorating a node needs.

Owners are kept where the API server keeps them, in metadata.managedFields. Other fields of an applied object are merged
without conflicts; `spec.taints` and the like are tested against a real control plane only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simfleet.store import ApiError, Raw, merge
from simfleet.strategic import apply_merge

MAPS = ("labels", "annotations")
Field = tuple[str, str]


def claimed(new: Raw, old: Mapping[str, Any] | None, manager: str) -> Raw:
    """`new` after an update by `manager`: it takes every label and annotation it changed from whoever had it."""
    before = _entries((old or {}).get("metadata") or {})
    after = _entries(new["metadata"])
    changed = {f for f in {*before, *after} if before.get(f) != after.get(f)}
    if not changed:
        return new
    owners = {k: v - changed for k, v in _owners(new).items()}
    taken = {f for f in changed if f in after}
    owners[manager, "Update"] = owners.get((manager, "Update"), set()) | taken
    return _with_owners(new, owners)


def applied(
    old: Mapping[str, Any], wanted: Mapping[str, Any], manager: str, *, force: bool, is_custom: bool = True
) -> Raw:
    """`old` with the complete set that `manager` wants. Raises ApiError 409 FieldManagerConflict.

    Lists of built-in types merge by their keys; a custom resource's are replaced.
    """
    have = _entries(old.get("metadata") or {})
    want = _entries(wanted.get("metadata") or {})
    owners = _owners(old)
    me = (manager, "Apply")
    conflicts = [
        (field, who)
        for field, value in sorted(want.items())
        for (who, how), fields in owners.items()
        if (who, how) != me and field in fields and have.get(field) != value
    ]
    if conflicts and not force:
        raise _conflict(conflicts)
    owners = {k: v - {f for f, _ in conflicts} for k, v in owners.items()}
    dropped = owners.get(me, set()) - set(want)
    owners[me] = set(want)
    orphans = {f for f in dropped if not any(f in fields for fields in owners.values())}
    changes: dict[str, dict[str, str | None]] = {}
    for kind, key in orphans:
        changes.setdefault(kind, {})[key] = None
    for (kind, key), value in want.items():
        changes.setdefault(kind, {})[key] = value
    body = {k: v for k, v in wanted.items() if k not in ("metadata", "kind", "apiVersion", "status")}
    metadata = {k: v for k, v in (wanted.get("metadata") or {}).items() if k not in MAPS and k != "managedFields"}
    new: Raw = merge(merge(old, body) if is_custom else apply_merge(old, body), {"metadata": metadata | changes})
    return _with_owners(new, owners)


def _conflict(conflicts: list[tuple[Field, str]]) -> ApiError:
    causes = tuple(
        {
            "reason": "FieldManagerConflict",
            "message": f'conflict with "{who}" using v1',
            "field": f".metadata.{kind}.{key}",
        }
        for (kind, key), who in conflicts
    )
    if len(causes) == 1:
        text = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        listed = "\n".join(f"- {c['field']}: {c['message']}" for c in causes)
        text = f"Apply failed with {len(causes)} conflicts: conflicts:\n{listed}"
    return ApiError(409, "Conflict", text, causes=causes)


def _entries(metadata: Mapping[str, Any]) -> dict[Field, str]:
    return {(kind, key): value for kind in MAPS for key, value in (metadata.get(kind) or {}).items()}


def _owners(raw: Mapping[str, Any]) -> dict[tuple[str, str], set[Field]]:
    out: dict[tuple[str, str], set[Field]] = {}
    for entry in (raw.get("metadata") or {}).get("managedFields") or ():
        inside = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
        out[entry["manager"], entry["operation"]] = {
            (kind, key.removeprefix("f:")) for kind in MAPS for key in inside.get(f"f:{kind}") or {}
        }
    return out


def _with_owners(raw: Raw, owners: Mapping[tuple[str, str], Iterable[Field]]) -> Raw:
    entries = []
    for (manager, operation), fields in owners.items():
        inside: dict[str, dict[str, Any]] = {}
        for kind, key in sorted(fields):
            inside.setdefault(f"f:{kind}", {})[f"f:{key}"] = {}
        if inside:
            entries.append(
                {
                    "manager": manager,
                    "operation": operation,
                    "apiVersion": "v1",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:metadata": inside},
                }
            )
    return raw | {"metadata": raw["metadata"] | {"managedFields": entries}}
