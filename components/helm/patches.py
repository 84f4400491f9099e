"""Requests that helm sends to the API server to bring one object from a release's old manifest to its new one.

A dry run tells the truth about an upgrade only if it asks what the upgrade will ask. A server-side apply of our own as
field manager `helm` does not: helm v3 never applied, so fields that the new manifest leaves out stay where they are. So
the dry run follows helm's own ways:

* built-in kinds, client side (helm v3, and v4 for releases that v3 made): a strategic merge patch of the new manifest,
  with null for what the old one had and the new one lacks
* custom resources and CRDs, client side: a merge patch from the old manifest to the new; helm does not look at the live
  object, so another party's change of it stays
* server side (helm v4): an apply as `helm`, whose removed fields the API server removes
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.kube.apiserver import MERGE, STRATEGIC

MANAGED_BY = "app.kubernetes.io/managed-by"
RELEASE_NAME, RELEASE_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"

_MERGE_KEYS = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "webhooks": ("name",),
    "secrets": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey",),
    "ports": ("containerPort", "port"),
}
"""Lists of built-in kinds that a strategic merge patch merges item by item; all others are replaced whole."""


def marked(raw: Mapping[str, Any], release: str, namespace: str) -> dict[str, Any]:
    """Return a copy with the label and annotations that helm adds to every object."""
    meta = dict(raw.get("metadata") or {})
    meta["labels"] = {**(meta.get("labels") or {}), MANAGED_BY: "Helm"}
    own = {RELEASE_NAME: release, RELEASE_NAMESPACE: namespace}
    meta["annotations"] = {**(meta.get("annotations") or {}), **own}
    return {**raw, "metadata": meta}


def is_owned(live: Mapping[str, Any], release: str, namespace: str) -> bool:
    """Return whether helm takes this object for one of the release; it refuses to touch any other."""
    meta = live.get("metadata") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    owner = annotations.get(RELEASE_NAME), annotations.get(RELEASE_NAMESPACE)
    return labels.get(MANAGED_BY) == "Helm" and owner == (release, namespace)


def client_side(
    old: Mapping[str, Any] | None,
    new: Mapping[str, Any],
    *,
    is_custom: bool,
    live: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], str]:
    """The patch and its content type; an empty patch changes nothing and is not sent."""
    if is_custom:
        return (dict(new) if old is None else _merge_patch(old, new)), MERGE
    return _with_deletions(old or {}, new, live or {}), STRATEGIC


def _merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := _merge_patch(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch


def _with_deletions(old: Mapping[str, Any], new: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before, there = old.get(key), live.get(key)
        if isinstance(value, Mapping):
            patch[key] = _with_deletions(_mapping(before), value, _mapping(there))
        elif isinstance(value, list) and key in _MERGE_KEYS:
            items = _items_with_deletions(_items(before), value, _items(there), _MERGE_KEYS[key])
            if items is not None:
                patch[key] = items
        else:
            patch[key] = value
    return patch


def _items_with_deletions(old: list[Any], new: list[Any], live: list[Any], keys: tuple[str, ...]) -> list[Any] | None:
    """Return the items to send; None: the list is as wanted, and must not be sent.

    Where two items have one key (a port for TCP and for UDP), an API server merges both into the first that it has.
    helm sends of such a list what differs, so nothing where nothing does; otherwise the list is replaced here.
    """
    if not all(isinstance(item, Mapping) for item in (*old, *new)):
        return new
    key = next((key for key in keys if all(key in item for item in (*old, *new))), "")
    if not key:
        return new
    wanted = {str(item[key]) for item in new}
    if len(wanted) < len(new):
        return None if old in ([], new) and _covers(live, new) else [{"$patch": "replace"}, *new]
    before = {str(item[key]): item for item in old}
    there = {str(item[key]): item for item in live if isinstance(item, Mapping) and key in item}
    named = [(str(item[key]), item) for item in new]
    kept = [_with_deletions(before.get(name, {}), item, there.get(name, {})) for name, item in named]
    return [*kept, *({"$patch": "delete", key: item[key]} for item in old if str(item[key]) not in wanted)]


def _covers(live: Any, wanted: Any) -> bool:
    """Return whether all of what is wanted is there; more may be."""
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(key in live and _covers(live[key], wanted[key]) for key in wanted)
    if not isinstance(wanted, list):
        return bool(live == wanted)
    left = list(_items(live))
    for item in wanted:
        match = next((candidate for candidate in left if _covers(candidate, item)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _mapping(raw: Any) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}


def _items(raw: Any) -> list[Any]:
    return raw if isinstance(raw, list) else []
