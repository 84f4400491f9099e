"""Each body that may be sent and each answer has an example in the schema, which keeps to what the schema says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from config.openapi import examples
from tests.platform.rest.schema import schema as made

INVENTED = {"SearchOut"}
"""Components that are told by their parts."""


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return made()


def strict(node: Any) -> Any:
    """OpenAPI 3.0 as JSON Schema: `nullable` becomes a type."""
    if isinstance(node, list):
        return [strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    out = {name: strict(value) for name, value in node.items() if name not in ("nullable", "example", "discriminator")}
    return {"anyOf": [out, {"type": "null"}]} if node.get("nullable") is True else out


def components_of(node: Any) -> Iterator[str]:
    """Names of what a body or an answer is made of: the schema itself, an array's items, a page's results."""
    if "$ref" in node:
        yield node["$ref"].rpartition("/")[2]
    elif node.get("type") == "array":
        yield from components_of(node["items"])


def spoken(schema: dict[str, Any]) -> set[str]:
    """Every component that an operation takes or gives, a list by its rows."""
    names: set[str] = set()
    for operations in schema["paths"].values():
        for operation in operations.values():
            bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
            for body in bodies:
                for kind, media in body.get("content", {}).items():
                    if kind == "application/json":
                        names.update(components_of(media["schema"]))
    rows = {name: schema["components"]["schemas"][name] for name in names if name.startswith("Paginated")}
    for page in rows.values():
        names.update(components_of(page["properties"]["results"]))
    return names - set(rows)


def test_everything_that_is_sent_or_answered_has_an_example(schema: dict[str, Any]) -> None:
    assert spoken(schema) - set(examples()) - INVENTED == set()


def test_no_example_is_of_something_that_is_gone(schema: dict[str, Any]) -> None:
    assert set(examples()) <= set(schema["components"]["schemas"])


@pytest.mark.parametrize("name", sorted(examples()))
def test_an_example_keeps_to_its_schema(schema: dict[str, Any], name: str) -> None:
    assert schema["components"]["schemas"][name]["example"] == examples()[name]
    whole = {"$ref": f"#/components/schemas/{name}", "components": strict(schema["components"])}
    wrong = [
        f"{list(e.instance_path)}: {e.message}"
        for e in jsonschema_rs.Draft7Validator(whole).iter_errors(examples()[name])
    ]
    assert wrong == []


@pytest.mark.parametrize("name", sorted(name for name in examples() if name.endswith("Request")))
def test_an_example_of_a_body_says_nothing_that_the_schema_does_not_know(schema: dict[str, Any], name: str) -> None:
    known = schema["components"]["schemas"][name]["properties"]

    assert set(examples()[name]) <= set(known)
