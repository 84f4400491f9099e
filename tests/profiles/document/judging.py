"""Texts of profiles judged: their content, problems and warnings; and texts of one object."""

from __future__ import annotations

import json

import pytest

from profiles.content.content import Content
from profiles.document import schema
from profiles.document.document import ProfileNote
from profiles.document.schema import InvalidProfile

VOLCANO = "scheduling.volcano.sh/v1beta1"
KUEUE = "kueue.x-k8s.io/v1beta2"


def flat(text: str, parent: Content | None = None, origin: str = "draft") -> Content:
    return schema.flatten(schema.parse(text), parent, origin=origin).content


def problems(text: str, parent: Content | None = None) -> list[ProfileNote]:
    with pytest.raises(InvalidProfile) as caught:
        schema.flatten(schema.parse(text), parent, origin="draft")
    return list(caught.value.problems)


def warnings(text: str, parent: Content | None = None) -> list[tuple[str, str, int]]:
    notes = schema.flatten(schema.parse(text), parent, origin="draft").warnings
    return [(note.code, note.path, note.line) for note in notes]


def manifest(kind: str, version: str, name: str = "a", namespace: str = "", **body: object) -> str:
    """A document that wants just this object."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return json.dumps({"policies": [{"apiVersion": version, "kind": kind, "metadata": metadata, **body}]})


def queue(**spec: object) -> str:
    return manifest("Queue", VOLCANO, spec=spec)


def cluster_queue(**spec: object) -> str:
    return manifest("ClusterQueue", KUEUE, spec={"namespaceSelector": {}, **spec})


def group(**quota: object) -> list[dict[str, object]]:
    resources = [{"name": "nvidia.com/gpu", **quota}]
    return [{"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "h100", "resources": resources}]}]
