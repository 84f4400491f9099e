"""fieldSelector and labelSelector query parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from simfleet.apiserver.store import ApiError

Filter = Callable[[Mapping[str, Any]], bool]
_SET = re.compile(r"(?P<key>\S+)\s+(?P<op>in|notin)\s+\((?P<values>[^)]*)\)")


def compile_filter(fields: str, labels: str) -> Filter:
    """Compile a filter for objects that both selectors accept. Raises ApiError 400."""
    tests = [_field_test(term) for term in fields.split(",") if term]
    tests += [_label_test(term.strip()) for term in re.split(r",(?![^(]*\))", labels) if term.strip()]
    return lambda raw: all(test(raw) for test in tests)


def only_node(fields: str) -> str:
    """The node that a pod fieldSelector pins, so that an index can answer; "" if none."""
    for term in fields.split(","):
        if term.startswith("spec.nodeName=") and not term.endswith("="):
            return term.partition("=")[2].lstrip("=")
    return ""


def _field_test(term: str) -> Filter:
    negated = "!=" in term
    path, separator, value = term.replace("!=", "=").replace("==", "=").partition("=")
    if not separator:
        raise ApiError(400, "BadRequest", f"invalid field selector: {term}")

    def test(raw: Mapping[str, Any]) -> bool:
        field_value: Any = raw
        for part in path.split("."):
            field_value = (field_value or {}).get(part)
        return (str("" if field_value is None else field_value) == value) is not negated

    return test


def _label_test(term: str) -> Filter:
    if match := _SET.fullmatch(term):
        values = {v.strip() for v in match["values"].split(",")}
        key, wants_in = match["key"], match["op"] == "in"
        return lambda raw: (_labels(raw).get(key) in values) is wants_in
    if term.startswith("!"):
        return lambda raw: term[1:] not in _labels(raw)
    if "!=" in term:
        key, _, value = term.partition("!=")
        return lambda raw: _labels(raw).get(key) != value
    if "=" in term:
        key, _, value = term.replace("==", "=").partition("=")
        return lambda raw: _labels(raw).get(key) == value
    if " " in term:
        raise ApiError(400, "BadRequest", f"unable to parse requirement: {term}")
    return lambda raw: term in _labels(raw)


def _labels(raw: Mapping[str, Any]) -> Mapping[str, str]:
    return (raw.get("metadata") or {}).get("labels") or {}
