"""CustomResourceDefinitions: established after a moment, served from then on, their objects gone with them.

Their schemas are not enforced: no field is refused, pruned or defaulted, but nulls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from simfleet.apiserver.paths import key_of
from simfleet.apiserver.resources import RESOURCES, Resource
from simfleet.apiserver.store import Change, Raw
from simfleet.clock import stamp

if TYPE_CHECKING:
    from simfleet.core import SimCluster

ESTABLISH_SECONDS = 0.3
CRDS = "customresourcedefinitions"


class Definitions:
    def __init__(self, cluster: SimCluster) -> None:
        self._cluster, self._store = cluster, cluster.store
        cluster.store.listeners.append(self._changed)

    def _changed(self, plural: str, change: Change) -> None:
        if plural != CRDS:
            return
        name = change.now.key[1]
        if change.type == "DELETED":
            self._withdraw(change.now.raw)
        elif change.before is None or change.before.raw.get("spec") != change.now.raw.get("spec"):
            self._cluster.after(ESTABLISH_SECONDS, lambda: self._establish(name))

    def _establish(self, name: str) -> None:
        definition = self._store.find(CRDS, name)
        resource = None if definition is None else described(definition.raw["spec"])
        if definition is None or resource is None:
            return
        if not key_of(RESOURCES, resource.group, resource.plural):
            self._store.register(resource.key, resource)
        at = stamp(self._cluster.clock.now())
        conditions = [
            {"type": "NamesAccepted", "reason": "NoConflicts", "message": "no conflicts found"},
            {
                "type": "Established",
                "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
            },
        ]
        status = {
            "conditions": [c | {"status": "True", "lastTransitionTime": at} for c in conditions],
            "acceptedNames": definition.raw["spec"]["names"],
            "storedVersions": [resource.version],
        }
        if "status" not in definition.raw:
            self._store.write(CRDS, definition.raw | {"status": status})

    def _withdraw(self, crd: Raw) -> None:
        resource = described(crd["spec"])
        if resource is None or self._store.resources.get(resource.key) is None:
            return
        for stored in self._store.all(resource.key):
            self._store.delete(resource.key, stored.key[1], stored.key[0])
        self._store.withdraw(resource.key)


def described(spec: Mapping[str, Any]) -> Resource | None:
    """The type that a definition's spec describes, None if it does not say."""
    names, versions = spec.get("names"), [v for v in spec.get("versions") or () if v.get("served")]
    if not names or not versions:
        return None
    stored = next((v for v in versions if v.get("storage")), versions[0])
    return Resource(
        names["plural"],
        names["kind"],
        spec["group"],
        stored["name"],
        namespaced=spec.get("scope") != "Cluster",
        custom=True,
        versions=tuple(v["name"] for v in versions),
        has_status="status" in (stored.get("subresources") or {}),
        short=tuple(names.get("shortNames") or ()),
        key=f"{names['plural']}.{spec['group']}",
    )
