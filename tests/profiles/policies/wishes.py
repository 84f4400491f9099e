"""One object of a profile: what the parser refuses of it, and where."""

from __future__ import annotations

import json
from typing import Any

import pytest

from profiles.content.content import Content
from profiles.document import schema
from profiles.document.document import InvalidProfile


def wish(kind: str, version: str, *, name: str = "a", namespace: str = "", **body: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **body.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def accepted(*objects: dict[str, Any]) -> Content:
    return schema.flatten(schema.parse(json.dumps({"policies": objects})), None, origin="mine r1").content


def refused(*objects: dict[str, Any]) -> dict[str, str]:
    """The message at each path within the first object."""
    with pytest.raises(InvalidProfile) as caught:
        accepted(*objects)
    return {note.path.removeprefix("policies[0]."): note.message for note in caught.value.problems}


def warnings_of(*objects: dict[str, Any]) -> dict[str, str]:
    """The message of each warning, by its code."""
    text = json.dumps({"policies": objects})
    notes = schema.flatten(schema.parse(text), None, origin="mine r1").warnings
    return {note.code: note.message for note in notes}
