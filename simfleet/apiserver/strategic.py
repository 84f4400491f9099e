"""Strategic merge: lists of built-in objects that merge by a key instead of being replaced.

The API server reads the keys from its types; here they are a table by field name. Server-side apply merges the same
lists by the same keys, except where it calls a list atomic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simfleet.apiserver.store import merge

KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "port"),
    "imagePullSecrets": ("name",),
    "secrets": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey",),
    "ownerReferences": ("uid",),
    "conditions": ("type",),
    "webhooks": ("name",),
    "taints": ("key",),
    "addresses": ("type",),
}
"""Field name to its merge key; of several, the first that the items have."""
SETS = frozenset({"finalizers", "clusterIPs", "externalIPs", "podCIDRs"})
ATOMIC_IN_APPLY = frozenset({"taints", "volumeDevices", "addresses"})
_ORDER, _DELETE_FROM, _RETAIN, _PATCH = "$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys", "$patch"


def strategic(target: Any, patch: Any) -> Any:
    """`target` after a strategic merge patch. Shares what it does not change."""
    if not isinstance(patch, Mapping):
        return patch
    if patch.get(_PATCH) == "replace":
        return {k: v for k, v in patch.items() if k != _PATCH}
    if patch.get(_PATCH) == "delete":
        return None
    out = dict(target) if isinstance(target, Mapping) else {}
    if _RETAIN in patch:
        out = {k: v for k, v in out.items() if k in patch[_RETAIN]}
    for name, value in patch.items():
        if name.startswith(_DELETE_FROM):
            field = name.removeprefix(_DELETE_FROM)
            out[field] = [v for v in out.get(field) or () if v not in value]
        elif name.startswith("$"):
            continue
        elif value is None:
            out.pop(name, None)
        elif isinstance(value, list):
            out[name] = _list(name, out.get(name), value)
        else:
            new = strategic(out.get(name), value)
            out[name] = new
            if new is None:
                del out[name]
    for name, order in patch.items():
        field = name.removeprefix(_ORDER)
        if field != name and isinstance(out.get(field), list):
            out[field] = _ordered(field, out[field], order)
    return out


def apply_merge(target: Any, wanted: Any) -> Any:
    """Server-side apply of built-in types, as far as values go: keyed lists item by item, the rest as a merge patch."""
    if not isinstance(wanted, Mapping):
        return wanted
    out = dict(target) if isinstance(target, Mapping) else {}
    for name, value in wanted.items():
        if value is None:
            continue
        if isinstance(value, list) and name not in ATOMIC_IN_APPLY and (key := key_of(name, value)):
            have = {item[key]: item for item in out.get(name) or () if isinstance(item, Mapping) and key in item}
            out[name] = [apply_merge(have.pop(item[key], None), item) for item in value] + list(have.values())
        elif isinstance(value, Mapping):
            out[name] = apply_merge(out.get(name), value)
        else:
            out[name] = value
    return out


def patched(target: Any, patch: Mapping[str, Any], *, is_strategic: bool) -> Any:
    return strategic(target, patch) if is_strategic else merge(target, patch)


def _list(name: str, have: Any, patch: Sequence[Any]) -> list[Any]:
    if any(isinstance(item, Mapping) and item.get(_PATCH) == "replace" for item in patch):
        return [item for item in patch if not (isinstance(item, Mapping) and set(item) == {_PATCH})]
    old = list(have or ())
    if name in SETS:
        return old + [item for item in patch if item not in old]
    key = key_of(name, patch)
    if key is None:
        return [strategic(None, item) for item in patch]
    for item in patch:
        place = next((i for i, o in enumerate(old) if o.get(key) == item[key]), None)
        if item.get(_PATCH) == "delete":
            old = [o for o in old if o.get(key) != item[key]]
        elif place is None:
            old.append(strategic(None, item))
        else:
            old[place] = strategic(old[place], item)
    return old


def key_of(name: str, items: Sequence[Any]) -> str | None:
    """Return the merge key of a list of that name, None if the list is replaced as one value."""
    for key in KEYS.get(name, ()):
        if items and all(isinstance(item, Mapping) and key in item for item in items):
            return key
    return None


def _ordered(name: str, items: list[Any], order: Sequence[Any]) -> list[Any]:
    """Sort items in the order that the patch gives; items it does not name follow in their old order."""
    key = key_of(name, order)
    place = {(item[key] if key else item): index for index, item in enumerate(order)}
    return sorted(items, key=lambda item: place.get(item.get(key) if key else item, len(place)))
