"""Wire format of the simulated API server: bodies and queries as read, objects and events as written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from email.message import Message
from typing import Any

from simfleet.apiserver import protobuf
from simfleet.apiserver.paths import RequestTarget
from simfleet.apiserver.resources import Resource
from simfleet.apiserver.store import ApiError, Stored


def body(sent: bytes) -> dict[str, Any]:
    """Raises ApiError 400, 415."""
    if sent.startswith(protobuf.MAGIC):
        return protobuf.decoded(sent)
    try:
        decoded = json.loads(sent)
    except ValueError as error:
        raise ApiError(400, "BadRequest", f"the object provided is unrecognized: {error}") from error
    if not isinstance(decoded, dict):
        raise ApiError(400, "BadRequest", "the object provided is unrecognized")
    return decoded


def placed(body: dict[str, Any], at: RequestTarget) -> dict[str, Any]:
    """A whole object for a path that names it. Raises ApiError 400 where they disagree."""
    metadata = body.get("metadata") or {}
    if metadata.get("name", at.name) != at.name or metadata.get("namespace", at.namespace) != at.namespace:
        raise ApiError(400, "BadRequest", "the name or namespace of the object does not match the URL")
    place = {"name": at.name} | ({"namespace": at.namespace} if at.namespace else {})
    return body | {"metadata": metadata | place}


def options(query: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a DELETE without a body. Raises ApiError 422."""
    out: dict[str, Any] = {"dryRun": ["All"]} if is_dry(query) else {}
    return out | {k: query[k] for k in ("propagationPolicy",) if k in query}


def is_dry(query: Mapping[str, str]) -> bool:
    """Raises ApiError 422."""
    dry_run = query.get("dryRun")
    if dry_run not in (None, "All"):
        raise ApiError(422, "Invalid", f'dryRun: Unsupported value: "{dry_run}": supported values: "All"')
    return dry_run is not None


def is_list_wanted(query: Mapping[str, str]) -> bool:
    """Return whether a watch begins with a list of all objects and a bookmark after them. Raises ApiError 422."""
    if query.get("sendInitialEvents") != "true":
        return False
    if query.get("resourceVersionMatch") != "NotOlderThan":
        raise ApiError(422, "Invalid", "ListOptions.meta.k8s.io is invalid: resourceVersionMatch: Forbidden")
    return True


def whole(values: Mapping[str, str] | Message, name: str) -> int:
    """A number of a query or header, 0 if absent. Raises ApiError 400."""
    text = values.get(name) or "0"
    if not text.isdecimal():
        raise ApiError(400, "BadRequest", f"{name}: invalid value {text[:40]!r}")
    return int(text)


def is_metadata_wanted(accept: str) -> bool:
    """Return whether only metadata is wanted, no spec, status or data: PartialObjectMetadata, or a list of them."""
    return "as=PartialObjectMetadata" in accept


def metadata_only(stored: Stored) -> bytes:
    head = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return json.dumps(head | {"metadata": stored.raw["metadata"]}).encode()


def named(resource: Resource, stored: Stored) -> bytes:
    """The kept encoding with kind and apiVersion put in front."""
    return b'{"kind":"%b","apiVersion":"%b",%b' % (
        resource.kind.encode(),
        resource.api_version.encode(),
        stored.encoded()[1:],
    )


def event(type_: str, encoded: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), encoded)


def bookmark(resource: Resource, rv: int, *, is_initial: bool = False) -> bytes:
    """`is_initial`: everything that was there has been told."""
    metadata: dict[str, Any] = {"resourceVersion": str(rv), "creationTimestamp": None}
    if is_initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return json.dumps({"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}).encode()
