"""Presentation of a component on pages and in generated documents: sentences and YAML, made from the catalog."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from django.urls import reverse

from common.hooks import ComponentChoice
from components.catalog import catalog
from components.catalog.entry import Component, Hazard, Preset, ReadinessTest
from components.catalog.layering import leaves
from components.values.paths import at, dotted
from profiles.document.document import TextDumper


@dataclass(frozen=True, slots=True)
class ValueLine:
    path: str
    value: str
    """As JSON, but text without quotes; a long text is cut to its first line."""
    is_long: bool = False


def as_yaml(value: Any) -> str:
    """Return YAML in the layout of profiles, with texts of several lines as blocks."""
    return yaml.dump(value, Dumper=_CatalogDumper, sort_keys=False, allow_unicode=True, width=100)


class _CatalogDumper(TextDumper):
    """Keeps a scheduler's configuration readable."""


def _text(dumper: _CatalogDumper, value: str) -> yaml.ScalarNode:
    if "\n" in value:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|")
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if value[:1].isalpha() else "'")


_CatalogDumper.add_representer(str, _text)


LONGEST = 120
"""Characters of a value in a row."""


def one_line(value: Any) -> str:
    """A text as it is; anything else as JSON, which is YAML, too."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def lines(values: Mapping[str, Any]) -> list[ValueLine]:
    out = []
    for path in leaves(values):
        text = one_line(at(values, path))
        first = text.partition("\n")[0]
        out.append(ValueLine(dotted(path), first, is_long=first != text))
    return out


def wish(component: Component, preset: Preset | None = None) -> str:
    """Return the start of a new profile that wants this component."""
    content: dict[str, Any] = {"presets": [preset.name]} if preset else {}
    chosen = {preset.name} if preset else set()
    to_decide = [d for d in component.decisions if d.is_required and (not d.presets or chosen & {*d.presets})]
    text = as_yaml({"components": {component.name: content}})
    if not to_decide:
        return text
    about = "".join(f"# To decide, here under values or for each cluster: {d.path}\n" for d in to_decide)
    return about + text


def test_sentence(test: ReadinessTest) -> str:
    """Describe the condition of a test as one sentence without its full stop."""
    what = test.what
    if test.kind == "workloads":
        kind = what.get("kind", "workload")
        names = what.get("names")
        whose = _joined([str(name) for name in names]) if names else f"those with {what.get('selector')}"
        plural = "s" if not names or len(names) > 1 else ""
        return f"{kind}{plural} {whose} in {what['namespace']}: every pod ready"
    if test.kind == "field":
        where = f" in {what['namespace']}" if what.get("namespace") else ""
        reads = what.get("reads", 1)
        often = f", on {reads} looks in a row" if reads > 1 else ""
        missing = ", where it exists" if test.is_optional else ""
        return f"{what['kind']} {what['name']}{where}: {what['path']} is {what['equals']}{often}{missing}"
    if test.kind == "taint_absent":
        return f"no node has the taint {what['key']}"
    if test.kind == "allocatable":
        return f"nodes with {what['nodes']}: at least {what['at_least']} {what['resource']} to give out"
    return f"established: {_joined([str(name) for name in what['names']])}"


def unless(test: ReadinessTest) -> str:
    return ", or ".join(str(clause) for clause in test.unless)


def _joined(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


@dataclass(frozen=True, slots=True)
class ReadinessView:
    sentence: str
    why: str
    unless: str


def readiness(component: Component) -> list[ReadinessView]:
    """List the readiness tests for a release that has the component's own name."""
    tests = [test.of_release(component.place()) for test in component.readiness]
    return [ReadinessView(test_sentence(test), test.why, unless(test)) for test in tests]


@dataclass(frozen=True, slots=True)
class PresetView:
    preset: Preset
    lines: list[ValueLine]
    yaml: str
    wish: str
    asks: list[str]
    """Paths of what a person must decide with it."""


def presets(component: Component) -> list[PresetView]:
    return [
        PresetView(
            preset,
            lines(preset.values),
            as_yaml(dict(preset.values)),
            wish(component, preset),
            [decision.path for decision in component.decisions if preset.name in decision.presets],
        )
        for preset in component.presets.values()
    ]


@dataclass(frozen=True, slots=True)
class ConflictView:
    title: str
    name: str
    """Of the component; empty: something that the catalog does not install."""
    why: str
    is_block: bool
    settled_by: list[str]
    seen_by: str = ""
    """Workloads by which it is recognized in a cluster."""


def fights(component: Component) -> list[ConflictView]:
    """List its conflicts, whichever of both files declares them."""
    out = []
    for conflict, name in catalog.conflicts_of(component):
        title = catalog.get(name).title if name else conflict.title
        is_own = conflict in component.conflicts
        own, theirs = (conflict.unless, conflict.unless_other) if is_own else (conflict.unless_other, conflict.unless)
        settled = [*map(str, own), *(f"{clause} in {name}" for clause in theirs)]
        seen = str(conflict.workloads) if is_own and conflict.workloads else ""
        out.append(ConflictView(title, name, conflict.why, conflict.is_block, settled, seen))
    return out


def hazards(component: Component) -> list[tuple[str, str, str, tuple[Hazard, ...]]]:
    """(heading, icon, class, what to mind), those that there are."""
    groups = (
        ("Before an upgrade", "arrow-up", "warn", component.upgrade_hazards),
        ("Before a removal", "circle-x", "bad", component.removal_hazards),
        ("While it runs", "info-circle", "unk", component.running_hazards),
    )
    return [group for group in groups if group[3]]


def choices() -> Iterator[ComponentChoice]:
    """Yield the choices for the form of profiles: an answer to `common.hooks.component_choices`."""
    for component in catalog.all():
        presets = [(preset.name, preset.title) for preset in component.presets.values()]
        versions = [tested.version for tested in component.versions]
        href = reverse("components:component", args=[component.name])
        yield ComponentChoice(component.name, component.title, component.summary, versions, presets, href)
