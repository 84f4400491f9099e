"""An API server's URL paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simfleet.apiserver.resources import Resource


@dataclass(frozen=True, slots=True)
class RequestTarget:
    plural: str
    """The type's key."""
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    version: str = ""


def parse(path: str, resources: Mapping[str, Resource]) -> RequestTarget | None:
    """Return the target of a path; None for an unknown group, version or resource, which is not served."""
    match path.strip("/").split("/"):
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    if (group, version) == ("authorization.k8s.io", "v1") and rest in (
        ["selfsubjectaccessreviews"],
        ["subjectaccessreviews"],
    ):
        return RequestTarget(rest[0])
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3:
        return None
    key = key_of(resources, group, rest[0])
    if not key or version not in resources[key].served or (namespace and not resources[key].namespaced):
        return None
    name, subresource = [*rest[1:], "", ""][:2]
    return RequestTarget(key, namespace, name, subresource, version)


@dataclass(frozen=True, slots=True)
class ProxyTarget:
    """A path through the proxy."""

    plural: str
    """pods or services"""
    namespace: str
    name: str
    """`[scheme:]name[:port]`"""
    path: str
    """Behind the proxy, without a leading slash."""


def proxied(path: str) -> ProxyTarget | None:
    match path.strip("/").split("/"):
        case ["api", "v1", "namespaces", namespace, ("pods" | "services") as plural, name, "proxy", *rest]:
            return ProxyTarget(plural, namespace, name, "/".join(rest))
    return None


def key_of(resources: Mapping[str, Resource], group: str, plural: str) -> str:
    """Return the key of a type, "" if it is not served."""
    for key in (plural, f"{plural}.{group}"):
        resource = resources.get(key)
        if resource is not None and (resource.group, resource.plural) == (group, plural):
            return key
    return ""
