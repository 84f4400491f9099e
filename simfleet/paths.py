"""An API server's URL paths."""

from __future__ import annotations

from dataclasses import dataclass

from simfleet.resources import RESOURCES


@dataclass(frozen=True, slots=True)
class Target:
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse(path: str) -> Target | None:
    """What a path addresses; None for what is not served: an unknown group, version or resource."""
    match path.strip("/").split("/"):
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    if (group, version, rest) == ("authorization.k8s.io", "v1", ["selfsubjectaccessreviews"]):
        return Target("selfsubjectaccessreviews")
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3 or (resource := RESOURCES.get(rest[0])) is None:
        return None
    if (resource.group, resource.version) != (group, version) or (namespace and not resource.namespaced):
        return None
    return Target(rest[0], namespace, *rest[1:])
