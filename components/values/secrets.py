"""Secrets in values: references that are resolved only when helm runs, and how they are shown elsewhere."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from common.errors import Invalid
from common.secret_names import looks_secret
from components.values.paths import dotted

REFERENCE = "$secret"
"""`{"$secret": {"name": …, "key": …}}` refers to a key of a Kubernetes Secret in the release's namespace."""
MASK = "•••••"
_WORTH_ENCODING, _WORTH_HIDING = 4, 8
"""Characters: of a secret that is looked for in base64, and of one line of several."""


@dataclass(frozen=True, slots=True)
class Secret:
    path: str
    name: str
    key: str

    def __str__(self) -> str:
        return f"(secret {self.name}, key {self.key})"


def secrets(values: Any, path: str = "") -> list[Secret]:
    """Every reference in these values, in their order. Raises Invalid for one that is malformed."""
    if isinstance(values, Mapping):
        if REFERENCE in values:
            return [_reference(values, path)]
        return [secret for key, value in values.items() for secret in secrets(value, _deeper(path, key))]
    if isinstance(values, list | tuple):
        return [secret for index, value in enumerate(values) for secret in secrets(value, f"{path}[{index}]")]
    return []


def _deeper(path: str, key: str) -> str:
    step = dotted((key,))
    return f"{path}{'' if step.startswith('[') or not path else '.'}{step}"


def _reference(raw: Mapping[str, Any], path: str) -> Secret:
    inner = raw[REFERENCE]
    whole = isinstance(inner, Mapping) and {*inner} == {"name", "key"} and len(raw) == 1
    if not whole or not all(isinstance(inner[part], str) and inner[part] for part in ("name", "key")):
        message = f"{path}: write {{{REFERENCE}: {{name: the-secret, key: its-key}}}}, and nothing beside it."
        raise Invalid(message, fields={path: [message]})
    return Secret(path, inner["name"], inner["key"])


def resolved(values: Any, look: Callable[[str, str], str]) -> Any:
    """The same values with each reference replaced by what `look(name, key)` answers: for helm's standard input only,
    never for a row, a page, a log or an audit record."""
    if isinstance(values, Mapping):
        if REFERENCE in values:
            secret = _reference(values, "")
            return look(secret.name, secret.key)
        return {key: resolved(value, look) for key, value in values.items()}
    return [resolved(value, look) for value in values] if isinstance(values, list | tuple) else values


def masked(values: Any) -> Any:
    """Return values for diffs, logs, pages and audit records, without plain secrets.

    References become words, and a text that looks like a secret becomes a mask.
    """
    if isinstance(values, Mapping):
        if REFERENCE in values:
            inner = values[REFERENCE]
            name, key = (inner.get("name"), inner.get("key")) if isinstance(inner, Mapping) else ("?", "?")
            return str(Secret("", str(name), str(key)))
        return {key: MASK if looks_secret(str(key), value) else masked(value) for key, value in values.items()}
    return [masked(value) for value in values] if isinstance(values, list | tuple) else values


def masked_text(text: str, hidden: Iterable[str], mask: str = MASK) -> str:
    """Output of a program, or a text of an object, with each of these secrets covered, however it is written there."""
    for written in spellings(hidden):
        text = text.replace(written, mask)
    return text


def spellings(hidden: Iterable[str]) -> list[str]:
    """List the spellings of these secrets in a text, the longest first.

    Each as it is, in base64, as JSON writes it, and each line of several, since charts indent them. Short lines would
    blacken every text and give nothing away.
    """
    spelled: set[str] = set()
    for secret in filter(None, hidden):
        whole = secret.strip() or secret
        spelled |= {secret, whole, json.dumps(whole)[1:-1], json.dumps(whole, ensure_ascii=False)[1:-1]}
        if len(whole) >= _WORTH_ENCODING:
            spelled |= {base64.b64encode(text.encode()).decode() for text in (secret, whole)}
        if "\n" in whole:
            spelled |= {line for each in whole.splitlines() if len(line := each.strip()) >= _WORTH_HIDING}
    return sorted(spelled, key=len, reverse=True)


def without(value: Any, written: Collection[str], mask: str) -> Any:
    """An object with `mask` in place of each of these spellings, in keys, too."""
    if isinstance(value, Mapping):
        return {without(key, written, mask): without(inner, written, mask) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without(inner, written, mask) for inner in value]
    if not isinstance(value, str):
        return mask if str(value) in written else value
    for each in written:
        value = value.replace(each, mask)
    return value
