"""Components to be removed: still needed by what is wanted in their cluster, and the order of removals."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from clusters.models import Pool
from compliance.models import Assignment
from components.catalog import catalog
from jobs.forecast.findings import PlanFinding
from profiles.content.content import Content
from profiles.models import Revision
from profiles.policies.kinds import KINDS

_SHOWN = 5


def still_needed_findings(pool: Pool, revision: Revision, gone: Collection[str]) -> list[PlanFinding]:
    """Block components that are still needed by this revision, or by the target of another pool of the cluster."""
    if not gone:
        return []
    others = Assignment.objects.filter(pool__cluster_id=pool.cluster_id).exclude(pool=pool)
    contents = [("this revision", revision.flat)]
    contents += [(row.pool.name, row.revision.flat) for row in others.select_related("pool", "revision").order_by("pk")]
    out = []
    for name in sorted(gone):
        users = [f"{user} ({whose})" for whose, content in contents for user in _users(content, name)]
        if users:
            more = f" and {len(users) - _SHOWN} more" if len(users) > _SHOWN else ""
            title = f"{name} cannot be removed: what is wanted here needs it"
            out.append(PlanFinding("block", "removal-needed", title, f"{', '.join(users[:_SHOWN])}{more}."))
    return out


def _users(content: Content, gone: str) -> Iterator[str]:
    for component in content.components:
        known = next((entry for entry in catalog.all() if entry.name == component.name), None)
        if known and not component.is_gone and gone in known.needs(component.presets):
            yield component.name
    for item in content.policies:
        kind = KINDS.get(item.kind)
        if kind and kind.component == gone:
            yield item.title


def removed_first(name: str, gone: Collection[str]) -> list[str]:
    """Return those of the components removed together that need this one: they go first."""
    return [other for other in sorted(gone) if other != name and name in _all_needs(other)]


def making_room(name: str, gone: Collection[str]) -> list[str]:
    """Return those of the components removed that conflict with this one, which comes when they are gone."""
    return sorted({other for _, other in catalog.conflicts_of(catalog.get(name))} & {*gone}) if gone else []


def _all_needs(name: str) -> tuple[str, ...]:
    """Return its needs with any of its presets: of an installed component the preset is not known."""
    component = catalog.get(name)
    return component.needs(component.presets)
