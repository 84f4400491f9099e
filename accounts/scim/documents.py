"""Bodies of requests, read strictly: the attributes of people and groups, and the operations of a PATCH.

Names are compared without their case, as the standard says. What the product does not keep is ignored if the standard
knows it, because directories send it unasked; a name that it does not know is refused, and so is what would give power.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from accounts.scim.filters import bare
from accounts.scim.refusals import ScimRefused, invalid

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
MOST_OPERATIONS = 1000
DEEPEST = 10

READ_ONLY = frozenset({"id", "meta", "groups", "schemas"})
IGNORED = frozenset({
    "nickname", "profileurl", "title", "usertype", "preferredlanguage", "locale", "timezone", "password",
    "phonenumbers", "ims", "photos", "addresses",
})  # fmt: skip
REFUSED = frozenset({"roles", "entitlements", "x509certificates"})
"""They would be believed to give something: roles come from groups, by the operator's mapping alone."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def parse(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body. Raises ScimRefused."""
    try:
        document = json.loads(body, parse_constant=_no_number, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        raise ScimRefused(400, "The body is no JSON object.", "invalidSyntax") from None
    if not isinstance(document, dict):
        raise ScimRefused(400, "The body is no JSON object.", "invalidSyntax")
    _check(document, 0)
    return document


def members_of(document: Mapping[str, Any], schema: str) -> dict[str, Any]:
    """Return the attributes by their names in lower case. Raises ScimRefused unless the schema is declared."""
    schemas = document.get("schemas")
    if not isinstance(schemas, list) or schema.lower() not in {str(each).lower() for each in schemas}:
        raise ScimRefused(400, f"schemas: must list {schema}.", "invalidSyntax")
    return lowered(document)


def lowered(document: Mapping[str, Any]) -> dict[str, Any]:
    matches: dict[str, Any] = {}
    for name, value in document.items():
        if bare(name) in matches:
            raise ScimRefused(400, f"{name[:60]}: is there twice.", "invalidSyntax")
        matches[bare(name)] = value
    return matches


def operations(document: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """Return (add, replace or remove; path, empty for none; value) of each operation. Raises ScimRefused."""
    rows = members_of(document, PATCH).get("operations")
    if not isinstance(rows, list) or not 1 <= len(rows) <= MOST_OPERATIONS:
        raise ScimRefused(400, f"Operations: a list of 1 to {MOST_OPERATIONS:,} is read.", "invalidSyntax")
    return [_operation(f"Operations[{index}]", row) for index, row in enumerate(rows)]


def _operation(where: str, row: Any) -> tuple[str, str, Any]:
    fields = lowered(row) if isinstance(row, dict) else {}
    verb = str(fields.get("op", "")).lower()
    if verb not in ("add", "replace", "remove"):
        raise ScimRefused(400, f"{where}.op: must be add, replace or remove.", "invalidSyntax")
    path = fields.get("path")
    if path is not None and not isinstance(path, str):
        raise ScimRefused(400, f"{where}.path: must be text.", "invalidPath")
    if verb == "remove" and not path:
        raise ScimRefused(400, f"{where}.path: a removal names what it removes.", "noTarget")
    if not path and not isinstance(fields.get("value"), dict):
        raise ScimRefused(400, f"{where}.value: without a path it must be an object.", "invalidValue")
    if path and verb != "remove" and "value" not in fields:
        raise ScimRefused(400, f"{where}.value: is missing.", "invalidValue")
    return verb, path or "", fields.get("value")


def text(name: str, value: Any, *, most: int = 254, is_required: bool = False) -> str:
    """Return the text of an attribute; null is none. Raises ScimRefused."""
    if not isinstance(value, str | None):
        raise invalid(name, "must be text.")
    written = (value or "").strip()
    if len(written) > most:
        raise invalid(name, f"at most {most} characters.")
    if _CONTROL.search(written):
        raise invalid(name, "contains a control character.")
    if is_required and not written:
        raise invalid(name, "is required.")
    return written


def truth(name: str, value: Any) -> bool:
    """Return a boolean. Entra ID sends "True" and "False" as texts. Raises ScimRefused."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise invalid(name, "must be true or false.")
    return value


def _check(value: Any, depth: int) -> None:
    if depth > DEEPEST:
        raise ScimRefused(400, f"The body is nested deeper than {DEEPEST} levels.", "invalidSyntax")
    if isinstance(value, dict):
        for name, inner in value.items():
            _check(name, depth)
            _check(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, depth + 1)
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeError:
            raise ScimRefused(400, "The body contains a lone surrogate.", "invalidSyntax") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a name is there twice")
    return made


def _no_number(text: str) -> Any:
    raise ValueError(text)
