"""values.schema.json, asked before helm is. Nothing is fetched, and no message holds a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from components.values.secrets import REFERENCE

MOST = 20
"""Violations told of one chart."""

_KINDS = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
_NAMES = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "null": "null",
}


def violations(values: Mapping[str, Any], schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(dotted path, one sentence) for each rule of the chart's schema that these values break, at most twenty.

    Patterns are left to helm: a chart's author may write one that takes Python's engine, unlike Go's, for ever.
    """
    try:
        problems = list(_errors(values, schema))
    except (SchemaError, Unresolvable, RecursionError, ValueError, TypeError, KeyError, AttributeError) as error:
        return [("", f"The chart's values.schema.json cannot be used ({type(error).__name__}); helm would say more.")]
    return problems[:MOST]


def _errors(values: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    base = validator_for(schema, default=jsonschema.Draft7Validator)
    cls = extend(base, {"pattern": _left_to_helm, "patternProperties": _left_to_helm})
    validator = cls(schema, registry=Registry())
    for error in sorted(
        validator.iter_errors(_with_placeholders(values)), key=lambda error: [str(p) for p in error.absolute_path]
    ):
        yield _place(error), _sentence(error)


def _left_to_helm(*_: Any) -> Iterator[ValidationError]:
    return iter(())


def _with_placeholders(values: Any) -> Any:
    """References as the text that they will be."""
    if isinstance(values, Mapping):
        return "text" if REFERENCE in values else {key: _with_placeholders(value) for key, value in values.items()}
    return [_with_placeholders(value) for value in values] if isinstance(values, list | tuple) else values


def _place(error: ValidationError) -> str:
    out = ""
    for part in error.absolute_path:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else str(part)
    return out


def _sentence(error: ValidationError) -> str:
    rule, limit = str(error.validator), error.validator_value
    if rule == "type":
        kinds = [limit] if isinstance(limit, str) else list(limit)
        named = " or ".join(_NAMES.get(kind, str(kind)) for kind in kinds)
        return f"must be {named}, not {_KINDS.get(type(error.instance), 'null')}"
    if rule == "enum":
        return f"must be one of {', '.join(str(choice) for choice in limit)[:300]}"
    if rule == "required":
        missing = [name for name in limit if name not in error.instance]
        return f"lacks {', '.join(missing)[:300]}"
    if rule == "additionalProperties":
        known = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
        extra = sorted(name for name in error.instance if name not in known)
        return f"has keys that the chart does not permit: {', '.join(extra)[:300]}"
    return f"breaks the chart's rule {rule}: {str(limit)[:200]}"
