"""Known problems of the components that a profile wants, from the catalog; answers `hooks.profile_findings`.

A profile is written for many clusters, so a decision that each cluster must take is only reported here. A plan, which
is for one cluster, is refused while it is open (`components.catalog.values_check.judge`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from common.errors import Refusal
from components.catalog import catalog, values_check
from components.catalog.entry import Component
from components.catalog.values_check import Layered
from components.charts import archives, store
from profiles.content.content import Content, WantedComponent
from profiles.document.document import BLOCK, WARN, ProfileNote


@catalog.held()
def component_findings(content: Content) -> list[ProfileNote]:
    """A fixed number of queries for each component that is wanted: one, and one more where its chart is stored."""
    findings: list[ProfileNote] = []
    layers: dict[str, Layered] = {}
    for component in content.components:
        notes = list(_of_names(component))
        if component.is_gone:  # nothing of it is judged but its name
            findings += notes
            continue
        if not any(note.severity == BLOCK for note in notes):
            layered = values_check.layered(component.name, component.version, component.presets, component.values)
            layers[component.name] = layered
            notes += _of_values(component, layered)
        findings += notes
    gone = frozenset(component.name for component in content.components if component.is_gone)
    return [*findings, *_conflicts(layers), *_missing(layers, gone)]


def _note(component: str, deeper: str, severity: str, code: str, message: str) -> ProfileNote:
    path = f"components.{component}"
    if deeper:
        path += deeper if deeper.startswith("[") else f".{deeper}"
    return ProfileNote(path, 0, code, message, severity)


def _of_names(wanted: WantedComponent) -> Iterator[ProfileNote]:
    try:
        component = catalog.get(wanted.name)
    except catalog.Unknown as error:
        yield _note(wanted.name, "", BLOCK, "unknown-component", str(error))
        return
    if wanted.version and component.tested(wanted.version) is None:
        known = ", ".join(tested.version for tested in component.versions)
        message = f"is not a version that the presets were checked against ({known}); keys may have changed"
        yield _note(wanted.name, "version", WARN, "untested-version", message)
    for index, name in enumerate(wanted.presets):
        if name not in component.presets:
            near = catalog.did_you_mean(name, component.presets)
            message = f"{component.title} has no preset {name!r}{near}"
            yield _note(wanted.name, f"presets[{index}]", BLOCK, "unknown-preset", message)
    if clash := values_check.excluded(component, wanted.presets):
        message = f"{clash[0]} and {clash[1]} exclude each other; take one of them"
        yield _note(wanted.name, "presets", BLOCK, "presets-exclude", message)


def _of_values(wanted: WantedComponent, layered: Layered) -> Iterator[ProfileNote]:
    chart = stored_chart(layered.component, layered.version)
    if chart is None:
        notes = values_check.judge(layered)
    else:
        notes = values_check.judge(
            layered, chart.values, chart.schema, text=chart.values_text, subcharts=chart.subcharts
        )
    for note in notes:
        if note.code == "decision":
            message = f"{note.message} Answer it here, or for each cluster."
            yield _note(wanted.name, _below_values(note.path), WARN, "decision", message)
        elif note.code == "preset-needs":  # a cluster may give the values, so only its plan is refused
            yield _note(wanted.name, "presets", WARN, note.code, note.message)
        elif note.code == "preset-version":
            yield _note(wanted.name, "presets", note.severity, note.code, note.message)
        else:
            yield _note(wanted.name, _below_values(note.path), note.severity, note.code, note.message)


def _below_values(path: str) -> str:
    return f"values{path if path.startswith('[') else '.' + path}" if path else "values"


def stored_chart(component: Component, version: str) -> archives.ChartContent | None:
    """The chart where it was fetched or uploaded before: a profile is judged without the network."""
    archive = store.stored(component.chart, version)
    try:
        return _chart(archive.sha256) if archive else None
    except Refusal:
        return None  # damaged since it was stored: the plan says so, a profile has no part in it


@lru_cache(maxsize=16)
def _chart(sha256: str) -> archives.ChartContent:
    return archives.judge(archives.content(sha256))


# ── Between components ────────────────────────────────────────────────────────────────────────────────────────────────
def _conflicts(layers: Mapping[str, Layered]) -> Iterator[ProfileNote]:
    reported: set[frozenset[str]] = set()  # both files may declare it
    for name, layered in layers.items():
        for conflict in layered.component.conflicts:
            other, pair = layers.get(conflict.other), frozenset((name, conflict.other))
            if other is not None and pair not in reported and conflict.applies(layered.values, other.values):
                reported.add(pair)
                severity = BLOCK if conflict.is_block else WARN
                message = f"fights {other.component.title}, which this profile wants, too. {conflict.why}"
                yield _note(name, "", severity, "conflict", message)


def _missing(layers: Mapping[str, Layered], gone: frozenset[str]) -> Iterator[ProfileNote]:
    """A cluster may have it already, from elsewhere; so only what the profile itself removes is refused."""
    for name, layered in layers.items():
        for needed in layered.component.needs(layered.presets):
            if needed in gone:
                message = f"needs {catalog.get(needed).title}, which this profile removes"
                yield _note(name, "", BLOCK, "needs-removed", message)
            elif needed not in layers:
                title = catalog.get(needed).title
                message = f"needs {title} there first; want it here too, unless every cluster has it already"
                yield _note(name, "", WARN, "needs", message)
