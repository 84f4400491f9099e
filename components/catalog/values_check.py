"""Values of a release, judged before helm sees them. Layers are `layering`, secrets `components.values.secrets`.

Helm ignores a key that no template reads, without a word; here it is named. What helm refuses (its schema) and what it
would silently change (huge numbers become floats) is named, too, so that a person reads it in the plan.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from common.errors import Invalid
from common.secret_names import looks_secret
from components.catalog import text_values
from components.catalog.catalog import did_you_mean
from components.catalog.entry import Component
from components.catalog.layering import (
    CATALOG,
    CLUSTER,
    PROFILE,
    Layered,
    coalesced,
    excluded,
    lacking,
    layered,
    leaves,
    merged,
)
from components.catalog.versions import is_within, range_text
from components.values.clauses import look_up
from components.values.paths import Path, dotted
from components.values.schema import violations
from components.values.secrets import MASK, REFERENCE, Secret, masked, masked_text, resolved, secrets

__all__ = [
    "CATALOG",
    "CLUSTER",
    "MASK",
    "PROFILE",
    "REFERENCE",
    "Layered",
    "Secret",
    "ValuesNote",
    "coalesced",
    "excluded",
    "judge",
    "layered",
    "leaves",
    "limits",
    "looks_secret",
    "masked",
    "masked_text",
    "merged",
    "resolved",
    "secrets",
    "unknown_keys",
]

BLOCK, WARN = "block", "warn"
MAX_BYTES = 256 * 1024
MAX_DEPTH = 24
MAX_VALUES = 10_000
EXACT = 2**53
"""Helm carries numbers as floats: a whole number beyond this is another one afterwards."""

_FREE = re.compile(
    r"(labels|annotations|selector|affinity|securitycontext|resources|limits|requests|probe|strategy|matchlabels)$",
    re.IGNORECASE,
)
"""Names whose mappings take any key: Kubernetes' own types, which charts hand on as they are."""


@dataclass(frozen=True, slots=True)
class ValuesNote:
    path: str
    severity: str
    """block or warn"""
    code: str
    message: str


def judge(
    layered: Layered,
    defaults: Mapping[str, Any] | None = None,
    schema: Mapping[str, Any] | None = None,
    *,
    text: str = "",
    subcharts: Collection[str] = (),
) -> list[ValuesNote]:
    """List the problems of these values for this chart. `defaults` or `schema` None: unknown, and not judged.

    `text` is the chart's values.yaml as it is written: keys that appear there in a comment are told apart from unknown
    ones. `subcharts` are the names of its dependencies, whose own keys the chart does not list.
    """
    notes = list(limits(layered.values))
    if notes:
        return notes
    component, values = layered.component, layered.values
    try:
        secrets(values)
    except Invalid as error:
        return [ValuesNote(path, BLOCK, "bad-secret", message) for path, (message, *_) in error.fields.items()]
    notes += _decisions(layered)
    notes += _presets_lack(layered)
    notes += _presets_of_other_versions(layered)
    notes += _broken_texts(layered)
    notes += _plain_secrets(values)
    notes += _without_effect(component, values)
    if defaults is not None:
        notes += unknown_keys(component, values, defaults, text=text, subcharts=subcharts)
    if schema is not None:
        seen = coalesced(values, defaults or {})
        notes += [ValuesNote(path, BLOCK, "schema", message) for path, message in violations(seen, schema)]
    return notes


def _decisions(layered: Layered) -> Iterator[ValuesNote]:
    for decision in layered.component.open_decisions(layered.presets, layered.values):
        example = f" For example {decision.example}." if decision.example else ""
        yield ValuesNote(
            decision.path, BLOCK if decision.is_required else WARN, "decision", f"{decision.question}{example}"
        )


def _presets_lack(layered: Layered) -> Iterator[ValuesNote]:
    for name, other in lacking(layered.component, layered.presets, layered.values):
        title = layered.component.presets[other].title
        message = f"the preset {name} works with the preset {other} only ({title}); take it too, or give its values"
        yield ValuesNote("", BLOCK, "preset-needs", message)


def _presets_of_other_versions(layered: Layered) -> Iterator[ValuesNote]:
    for name in layered.presets:
        preset = layered.component.presets.get(name)
        if preset and not is_within(layered.version, preset.versions):
            works = range_text(preset.versions)
            message = f"the preset {name} works with {layered.component.title} {works}, not with {layered.version}"
            yield ValuesNote("", BLOCK, "preset-version", f"{message}; take such a version, or leave the preset out")


def _broken_texts(layered: Layered) -> Iterator[ValuesNote]:
    for path in layered.component.texts:
        text = look_up(layered.values, path)
        if isinstance(text, str) and text.strip() and text_values.parsed(text) is None:
            yield ValuesNote(
                path, BLOCK, "bad-text", "must be the YAML text of a mapping, or a mapping to merge into it"
            )


def _plain_secrets(values: Any, path: Path = ()) -> Iterator[ValuesNote]:
    for where in leaves(values, path):
        value: Any = values
        for step in where[len(path) :]:
            value = value[step]
        if looks_secret(where[-1], value):
            place = dotted(where)
            yield ValuesNote(
                place,
                WARN,
                "plain-secret",
                "looks like a secret in plain text, readable by everyone with access to the profile:  write"
                f" {{{REFERENCE}: {{name: the-secret, key: its-key}}}}",
            )


def _without_effect(component: Component, values: Mapping[str, Any]) -> Iterator[ValuesNote]:
    for path, why in component.no_effect.items():
        value: Any = values
        for step in path.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        if value is not None:
            yield ValuesNote(path, WARN, "no-effect", why)


# ── Limits ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def limits(values: Any) -> Iterator[ValuesNote]:
    """Check size, depth, count and kinds; walks any depth without recursion."""
    count = 0
    waiting: list[tuple[Any, str, int]] = [(values, "", 0)]
    while waiting:
        value, path, depth = waiting.pop()
        count += 1
        if depth > MAX_DEPTH:
            yield ValuesNote(path, BLOCK, "too-deep", f"is nested deeper than {MAX_DEPTH} levels")
            return
        if count > MAX_VALUES:
            yield ValuesNote("", BLOCK, "too-large", f"has more than {MAX_VALUES:,} values")
            return
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if not isinstance(key, str):
                    yield ValuesNote(path, BLOCK, "bad-key", f"the key {key!r} must be text")
                    return
                waiting.append((inner, f"{path}.{key}" if path else key, depth + 1))
        elif isinstance(value, list | tuple):
            waiting += [(inner, f"{path}[{index}]", depth + 1) for index, inner in enumerate(value)]
        elif reason := _bad_scalar(value):
            yield ValuesNote(path, BLOCK, "bad-value", reason)
            return
    if len(json.dumps(values, ensure_ascii=False).encode("utf-8", "replace")) > MAX_BYTES:
        yield ValuesNote("", BLOCK, "too-large", f"is longer than {MAX_BYTES:,} bytes")


def _bad_scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return ""
    if isinstance(value, int):
        return "" if abs(value) <= EXACT else "is a number that Helm cannot carry exactly; put it in quotes"
    if isinstance(value, float):
        return "" if math.isfinite(value) else "must be a finite number"
    if not isinstance(value, str):
        return f"must be text, a number, true, false or null, not {type(value).__name__}"
    return "has a character that YAML does not permit" if "\0" in value else ""


# ── Keys that the chart does not know ─────────────────────────────────────────────────────────────────────────────────
def unknown_keys(
    component: Component,
    values: Mapping[str, Any],
    defaults: Mapping[str, Any],
    *,
    text: str = "",
    subcharts: Collection[str] = (),
) -> list[ValuesNote]:
    """Keys that Helm would ignore silently. Below an empty default, Kubernetes' own types, subcharts and what the
    catalog says, every key is possible, and none is judged."""
    known = {*component.also_known, *component.no_effect}
    judge = _Unknown({*component.open_paths, *subcharts, "global"}, known, text)
    return list(judge.walk(values, defaults, ()))


@dataclass(frozen=True, slots=True)
class _Unknown:
    open_paths: Collection[str]
    known: Collection[str]
    text: str

    def walk(self, given: Mapping[str, Any], defaults: Mapping[str, Any], path: Path) -> Iterator[ValuesNote]:
        for key, value in given.items():
            here = (*path, key)
            place = dotted(here)
            if place in self.open_paths or place in self.known:
                continue
            if key not in defaults:
                if not any(known.startswith(f"{place}.") for known in self.known):
                    yield self._unknown(key, place, defaults)
                continue
            default = defaults[key]
            is_table = isinstance(value, Mapping) and REFERENCE not in value
            if is_table and isinstance(default, Mapping):
                if default and not _FREE.search(key):
                    yield from self.walk(value, default, here)
            elif default is not None and value is not None and is_table != isinstance(default, Mapping):
                kind = "a mapping" if isinstance(default, Mapping) else "no mapping"
                yield ValuesNote(
                    place, WARN, "wrong-shape", f"the chart has {kind} there, and helm would ignore one of both"
                )

    def _unknown(self, key: str, place: str, defaults: Mapping[str, Any]) -> ValuesNote:
        if re.search(rf"^\s*#[#\s]*(-\s+)?{re.escape(key)}\s*:", self.text, re.MULTILINE):
            message = "is only in a comment of the chart's values; whether a template reads it is not certain"
            return ValuesNote(place, WARN, "commented-key", message)
        near = did_you_mean(key, defaults)
        return ValuesNote(place, WARN, "unknown-key", f"the chart's values have no such key, and helm ignores it{near}")
