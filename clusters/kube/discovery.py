"""Discovery of an API server: its version, and the path of any object of any kind. Aggregated discovery, two calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from clusters.fleet import FleetRefused, Untrusted
from clusters.kube.apiserver import ApiServer, Call

ACCEPT = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
"""Kubernetes 1.30 and newer, all that is supported, answer with one document for each of the two roots."""
_NAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9_.:-]{0,251}[a-zA-Z0-9])?")


@dataclass(frozen=True, slots=True)
class Resource:
    api_version: str
    kind: str
    plural: str
    is_namespaced: bool

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return the path of one object, of all in a namespace, or of all. Raises FleetRefused for invalid names."""
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        within = f"/namespaces/{segment(namespace)}" if self.is_namespaced and namespace else ""
        return f"{root}{within}/{self.plural}{f'/{segment(name)}' if name else ''}"


@dataclass(frozen=True, slots=True)
class ServedApis:
    version: str
    """gitVersion, such as v1.35.4."""
    resources: Mapping[tuple[str, str], Resource] = field(repr=False)
    """By apiVersion and kind."""

    def find(self, api_version: str, kind: str) -> Resource | None:
        return self.resources.get((api_version, kind))

    @property
    def api_versions(self) -> list[str]:
        """API versions as in helm's `.Capabilities.APIVersions`: each group and version, and each with every kind."""
        groups = {api_version for api_version, _ in self.resources}
        return sorted(groups | {f"{api_version}/{kind}" for api_version, kind in self.resources})


def read(server: ApiServer) -> ServedApis:
    """Raises FleetError."""
    version = server.get(Call("get", "version"), "/version").get("gitVersion")
    if not isinstance(version, str):
        raise Untrusted("the server does not tell its version")
    resources: dict[tuple[str, str], Resource] = {}
    for root in ("/api", "/apis"):
        answer = server.ask(Call("get", "discovery"), "GET", root, accept=ACCEPT).object()
        if answer.get("kind") != "APIGroupDiscoveryList":
            raise Untrusted("the API server does not answer with aggregated discovery: is it Kubernetes 1.30 or newer?")
        resources |= {(resource.api_version, resource.kind): resource for resource in _resources(answer)}
    return ServedApis(version, resources)


def segment(name: str) -> str:
    """A name as one segment of a path; unlike nodes, RBAC's objects have colons in theirs. Raises FleetRefused."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise FleetRefused(f"{name[:80]!r} is not the name of a Kubernetes object")
    return name


def _resources(raw: Mapping[str, Any]) -> Iterator[Resource]:
    for group in _mappings(raw.get("items")):
        name = str((group.get("metadata") or {}).get("name") or "")
        for version in _mappings(group.get("versions")):
            api_version = f"{name}/{version.get('version')}" if name else str(version.get("version"))
            for raw_resource in _mappings(version.get("resources")):
                kind, plural = (raw_resource.get("responseKind") or {}).get("kind"), raw_resource.get("resource")
                if isinstance(kind, str) and isinstance(plural, str) and _NAME.fullmatch(plural):
                    yield Resource(api_version, kind, plural, raw_resource.get("scope") == "Namespaced")


def _mappings(raw: Any) -> Iterator[Mapping[str, Any]]:
    yield from (item for item in raw or () if isinstance(item, dict))
