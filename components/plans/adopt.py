"""Adoption of a release that was installed by hand: its values stay where no layer sets others, and stay visible.

Values that no layer mentions are taken over into the cluster's own values when the release is upgraded, so that the
next plan still has them and an operator can see and change them. Passwords in plain text are not taken over: a plan is
a row that many may read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from clusters.models import Cluster
from common.clock import now
from components.catalog import values_check
from components.helm.releases import Release
from components.models import ClusterValues
from components.plans.prepared import BLOCK, INFO, PlanNote, Prepared


@dataclass(frozen=True, slots=True)
class Adopted:
    kept: Mapping[str, Any]
    """What the release was given and no layer mentions."""
    notes: tuple[PlanNote, ...]


def adopted(release: Release, layered: Mapping[str, Any]) -> Adopted:
    secret: list[str] = []
    kept = _without(release.values, layered, "", secret)
    title = f"The release {release.namespace}/{release.name} is there already: revision {release.revision}"
    detail = (
        f"Another party installed {release.chart} {release.chart_version}. Its values are kept where nothing overrides "
        f"them, and become this cluster's own values: {', '.join(sorted(_paths(kept))[:20]) or 'nothing'}."
    )
    notes = [PlanNote(INFO, "adopted", title, detail)]
    for path in secret:
        problem = f"{path} of the release is a password in plain text, and is not taken over"
        notes.append(
            PlanNote(BLOCK, "plain-secret", problem, f"Put it into a Secret, and give {path} as a reference to it.")
        )
    return Adopted(kept, tuple(notes))


def keep(cluster: Cluster, prepared: Prepared) -> None:
    """Store the values that were taken over in the cluster's own values, under those set there already.

    Called after the upgrade.
    """
    if not prepared.kept:
        return
    with transaction.atomic():
        row, _ = ClusterValues.objects.select_for_update().get_or_create(cluster=cluster, component=prepared.component)
        merged = values_check.merged(prepared.kept, row.values)
        if merged == row.values:
            return
        row.values, row.version, row.changed_at = merged, row.version + 1, now()
        row.changed_by = f"adopted from revision {prepared.from_revision}"
        row.save(update_fields=["values", "version", "changed_at", "changed_by"])


def _without(given: Mapping[str, Any], layered: Mapping[str, Any], path: str, secret: list[str]) -> dict[str, Any]:
    """Return what is in the first and nowhere in the second; paths of passwords go to `secret` instead."""
    kept: dict[str, Any] = {}
    for key, value in given.items():
        below = f"{path}.{key}" if path else str(key)
        other = layered.get(key)
        if isinstance(value, Mapping) and (key not in layered or isinstance(other, Mapping)):
            if inner := _without(value, other or {}, below, secret):
                kept[key] = inner
        elif key in layered:
            continue
        elif values_check.looks_secret(str(key), value):
            secret.append(below)
        else:
            kept[key] = value
    return kept


def _paths(raw: Mapping[str, Any]) -> Iterator[str]:
    for path in values_check.leaves(raw):
        yield ".".join(path)
