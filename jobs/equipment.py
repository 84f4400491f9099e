"""The cluster-scoped part of a plan: each component that the revision wants, prepared, or why nothing is done for it.

A component has one owning assignment in its cluster: where another pool wants the very same, nothing is to be done;
where it wants something else, the plan is blocked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from clusters.fleet import FleetError
from clusters.models import Cluster, Pool
from common.errors import Refusal
from compliance.models import Assignment
from components import work
from components.helm_errors import HelmError
from jobs.engine import order
from jobs.findings import Finding
from jobs.models import Plan, PlanComponent
from profiles.models import Revision
from profiles.wanted import WantedComponent

AS_WANTED = "It is as wanted already."
SEVERITIES = {"block": "block", "warn": "warn", "info": "note"}


@dataclass(slots=True)
class Equipment:
    """What a plan will store of it."""

    rows: list[PlanComponent] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def to_do(self) -> int:
        return sum(not row.left_out for row in self.rows)


def wanted_for(cluster: Cluster, pool: Pool, revision: Revision) -> Equipment:
    """Asks the cluster and chart repositories for each component: hold no transaction."""
    wanted = revision.flat.components
    out = Equipment(findings=_dropped(pool, wanted))
    if not wanted:
        return out
    others = _of_other_pools(cluster, pool)
    requires: dict[str, tuple[str, ...]] = {}
    after: dict[str, tuple[str, ...]] = {}
    rows: dict[str, PlanComponent] = {}
    for component in wanted:
        owner = others.get(component.name)
        if owner and owner[1].meaning != component.meaning:
            out.findings.append(_contended(component, *owner))
        elif owner:
            reason = f"{owner[0]} wants the very same, and brings it."
            rows[component.name] = PlanComponent(component=component.name, prepared={}, left_out=reason[:300])
            requires[component.name] = after[component.name] = ()
        elif prepared := _prepared(cluster, component, out.findings):
            rows[component.name] = _row(prepared)
            requires[component.name], after[component.name] = prepared.requires, prepared.after
    out.findings += _lacking(requires, {c.name for c in wanted} | set(others))
    out.rows = [rows[name] for name in _arranged(requires, after, out.findings)]
    for position, row in enumerate(out.rows, 1):
        row.position = position
    return out


def store(plan: Plan, equipment: Equipment) -> None:
    for row in equipment.rows:
        row.plan = plan
    PlanComponent.objects.bulk_create(equipment.rows)


def _prepared(cluster: Cluster, wanted: WantedComponent, found: list[Finding]) -> work.Prepared | None:
    """None: it cannot be prepared, and a finding blocks the plan with the reason."""
    try:
        prepared = work.prepare(cluster, wanted)
    except (Refusal, FleetError, HelmError) as error:
        detail = str(error) or type(error).__name__
        found.append(Finding("block", "component", f"{wanted.name} cannot be prepared", detail))
        return None
    found += [
        Finding(SEVERITIES.get(note.severity, "block"), note.code, f"{wanted.name}: {note.title}", note.detail)
        for note in prepared.notes
    ]
    return prepared


def _row(prepared: work.Prepared) -> PlanComponent:
    return PlanComponent(
        component=prepared.component,
        namespace=prepared.namespace,
        release=prepared.release,
        version=prepared.version,
        action=prepared.action,
        prepared=prepared.to_json(),
        digest=prepared.digest,
        requires=list(prepared.requires),
        after=list(prepared.after),
        left_out=AS_WANTED if prepared.action == "none" else "",
    )


def _of_other_pools(cluster: Cluster, pool: Pool) -> dict[str, tuple[Pool, WantedComponent]]:
    """What assignments of other pools of this cluster want, by component."""
    out: dict[str, tuple[Pool, WantedComponent]] = {}
    rows = Assignment.objects.filter(pool__cluster=cluster).exclude(pool=pool).select_related("pool", "revision")
    for row in rows.order_by("set_at", "pk"):
        for component in row.revision.flat.components:
            out.setdefault(component.name, (row.pool, component))
    return out


def _contended(component: WantedComponent, pool: Pool, theirs: WantedComponent) -> Finding:
    return Finding(
        "block",
        "component-owner",
        f"{pool} wants {component.name} otherwise",
        f"A cluster has one {component.name}, and {pool} has it as {_told(theirs)}; this revision wants "
        f"{_told(component)}. Let both want the same, or take it out of one of them.",
    )


def _told(wanted: WantedComponent) -> str:
    presets = f" with {', '.join(wanted.presets)}" if wanted.presets else ""
    values = " and values of its own" if wanted.values else ""
    return f"{wanted.version or 'the newest tested version'}{presets}{values}"


def _dropped(pool: Pool, wanted: Sequence[WantedComponent]) -> list[Finding]:
    """Components that the pool's present revision wants and the new one does not: they stay."""
    now = Assignment.objects.filter(pool=pool).select_related("revision").first()
    before = now.revision.flat.components if now else ()
    names = {c.name for c in wanted}
    return [
        Finding(
            "note",
            "component-dropped",
            f"{c.name} is not wanted any more, and stays installed",
            "Setpoint removes a component only when a rollout that brought it is put back. Remove it by hand.",
        )
        for c in before
        if c.name not in names
    ]


def _lacking(requires: Mapping[str, Iterable[str]], there: set[str]) -> list[Finding]:
    """What a component requires and nobody here brings."""
    return [
        Finding(
            "warn",
            "component-requires",
            f"{name} requires {other}, which no revision in this cluster brings",
            "It must be there already. If it is not, the component will not get ready.",
        )
        for name, others in requires.items()
        for other in others
        if other not in there and other != order.NODES
    ]


def _arranged(
    requires: Mapping[str, Sequence[str]], after: Mapping[str, Sequence[str]], found: list[Finding]
) -> list[str]:
    try:
        return order.arranged(requires, after)
    except Refusal as error:
        found.append(Finding("block", "component-circle", "The components wait for each other", str(error)))
        return sorted(requires)
