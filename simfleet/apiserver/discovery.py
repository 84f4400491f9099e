"""Discovery of the simulated API server, aggregated and unaggregated, and as much of OpenAPI as clients read.

helm and kubectl ask OpenAPI only whether a type's PATCH knows `fieldValidation`; then they leave validating fields to
the server. This one does not validate them: unknown fields of built-in objects are kept, where a real one answers 400.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simfleet.apiserver.resources import Resource

Raw = dict[str, Any]
VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
EMPTY_V2 = b"\n\x032.0"
"""A document that describes nothing: clients ask for it only when version 3 has no such type, and then find out."""
AGGREGATED = "as=APIGroupDiscoveryList"


def answer(path: str, accept: str, resources: Mapping[str, Resource]) -> tuple[Raw, str] | None:
    """A document and its content type; None for a path that is none of these."""
    parts = path.strip("/").split("/")
    types = list(resources.values())
    match parts:
        case ["api"] | ["apis"]:
            ours = [r for r in types if bool(r.group) == (parts == ["apis"])]
            if AGGREGATED in accept:
                version = "v2" if "v=v2;" in accept else "v2beta1"
                kind = f"application/json;g=apidiscovery.k8s.io;v={version};{AGGREGATED}"
                return _aggregated(ours, version), kind
            return (_groups(ours) if parts == ["apis"] else {"kind": "APIVersions", "versions": ["v1"]}), ""
        case ["api", version]:
            return _list(types, "", version)
        case ["apis", group]:
            matching = [g for g in _groups(types)["groups"] if g["name"] == group]
            return ({"kind": "APIGroup", "apiVersion": "v1"} | matching[0], "") if matching else None
        case ["apis", group, version]:
            return _list(types, group, version)
        case ["openapi", "v2"]:
            return {}, OPENAPI_V2
        case ["openapi", "v3"]:
            paths = {_root(g, v): {"serverRelativeURL": f"/openapi/v3/{_root(g, v)}"} for g, v in _all_versions(types)}
            return {"paths": paths}, ""
        case ["openapi", "v3", *rest]:
            return _openapi_v3(types, "/".join(rest))
    return None


def _aggregated(resources: Iterable[Resource], version: str) -> Raw:
    groups: dict[str, dict[str, list[Raw]]] = {}
    for resource in resources:
        for served in resource.served:
            entry: Raw = {
                "resource": resource.plural,
                "responseKind": {"group": resource.group, "version": served, "kind": resource.kind},
                "scope": "Namespaced" if resource.namespaced else "Cluster",
                "singularResource": resource.kind.lower(),
                "verbs": list(VERBS),
            }
            if resource.short:
                entry["shortNames"] = list(resource.short)
            if resource.has_status:
                kind = entry["responseKind"]
                entry["subresources"] = [
                    {"subresource": "status", "responseKind": kind, "verbs": ["get", "patch", "update"]}
                ]
            groups.setdefault(resource.group, {}).setdefault(served, []).append(entry)
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [
                {"version": v, "resources": resources_of_version, "freshness": "Current"}
                for v, resources_of_version in versions.items()
            ],
        }
        for group, versions in groups.items()
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _groups(resources: Iterable[Resource]) -> Raw:
    versions_by_group: dict[str, list[str]] = {}
    for group, version in _all_versions(resources):
        if group:
            versions_by_group.setdefault(group, []).append(version)
    groups = []
    for group, versions in versions_by_group.items():
        listed = [{"groupVersion": f"{group}/{v}", "version": v} for v in versions]
        groups.append({"name": group, "versions": listed, "preferredVersion": listed[0]})
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _list(resources: Iterable[Resource], group: str, version: str) -> tuple[Raw, str] | None:
    ours = [r for r in resources if r.group == group and version in r.served]
    if not ours:
        return None
    entries: list[Raw] = []
    for resource in ours:
        entry: Raw = {
            "name": resource.plural,
            "singularName": resource.kind.lower(),
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(VERBS),
        }
        entries.append(entry | ({"shortNames": list(resource.short)} if resource.short else {}))
        if resource.has_status:
            entries.append(entry | {"name": f"{resource.plural}/status", "verbs": ["get", "patch", "update"]})
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": entries}, ""


def _all_versions(resources: Iterable[Resource]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((r.group, v) for r in resources for v in r.served))


def _root(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _paths(resources: Iterable[Resource], root: str) -> Raw:
    """Each type's PATCH with the queries it takes: what clients look for."""
    out: Raw = {}
    for resource in resources:
        for version in resource.served:
            if _root(resource.group, version) != root:
                continue
            place = "namespaces/{namespace}/" if resource.namespaced else ""
            query = [{"name": n, "in": "query", "schema": {"type": "string"}} for n in ("dryRun", "fieldValidation")]
            kind = {"group": resource.group, "version": version, "kind": resource.kind}
            patch = {"parameters": query, "responses": {}, "x-kubernetes-group-version-kind": kind}
            out[f"/{root}/{place}{resource.plural}/{{name}}"] = {"patch": patch}
    return out


def _openapi_v3(resources: Iterable[Resource], root: str) -> tuple[Raw, str] | None:
    paths = _paths(resources, root)
    if not paths:
        return None
    return {"openapi": "3.0.0", "info": {"title": "simfleet", "version": "v1"}, "paths": paths}, ""
