"""Releases that a profile's components would be, from the catalog; answers `common.hooks.component_releases`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from common.errors import Refusal
from common.hooks import ComponentRelease
from components.catalog import catalog, layering
from components.values import secrets
from profiles.content.content import Content, WantedComponent


def releases(content: Content) -> Iterator[ComponentRelease]:
    """Yield one for each component that is wanted; values that are a secret are left out, and named by their path."""
    for wanted in content.components:
        if not wanted.is_gone:
            try:
                yield _release(wanted)
            except Refusal as refusal:
                yield ComponentRelease(wanted.name, problem=str(refusal))


def _release(wanted: WantedComponent) -> ComponentRelease:
    component = catalog.get(wanted.name)
    layered = layering.layered(component, wanted.version, wanted.presets, wanted.values)
    decisions = component.open_decisions(layered.presets, layered.values)
    return ComponentRelease(
        name=component.name,
        repository=component.chart.url,
        chart=component.chart.chart,
        version=layered.version,
        namespace=component.place().namespace,
        values=_without_secrets(layered.values),
        secrets=tuple(secret.path for secret in secrets.secrets(layered.values)),
        decisions=tuple(decision.path for decision in decisions if decision.is_required),
        requires=component.needs(layered.presets),
    )


def _without_secrets(values: Any) -> Any:
    """Leave out what refers to a secret; in a list, null keeps the others' places."""
    if isinstance(values, dict):
        return {key: _without_secrets(value) for key, value in values.items() if not _is_secret(value)}
    if isinstance(values, list):
        return [None if _is_secret(value) else _without_secrets(value) for value in values]
    return values


def _is_secret(value: Any) -> bool:
    return isinstance(value, dict) and secrets.REFERENCE in value
