"""The cluster-scoped part of a plan: each component that the revision wants, prepared, or why nothing is done for it;
and its policy objects (jobs.planning.policy_parts), in one order with them.

Of pools that want the same component one owns it (jobs.planning.component_owners).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clusters.fleet import FleetError
from clusters.models import Cluster, Pool
from common.errors import Refusal
from components.blast.judgment import REMOVE
from components.catalog import site_entries
from components.charts import uploads
from components.helm.errors import HelmError
from components.policies.policy_objects import PreparedPolicies
from components.release import work
from jobs.diffs import dependency_graph
from jobs.forecast import blast_radius
from jobs.forecast.findings import SEVERITIES, PlanFinding
from jobs.models import Plan, PlanComponent, Step
from jobs.planning import component_owners, policy_parts, removals
from profiles.content.cluster import WantedComponent
from profiles.models import Revision

AS_WANTED = "It is already compliant."
_UNSEEN = (Step.Status.FAILED, Step.Status.HELD, Step.Status.SKIPPED)


@dataclass(slots=True)
class PlanParts:
    """Components and policy objects of a plan to be stored."""

    rows: list[PlanComponent] = field(default_factory=list)
    findings: list[PlanFinding] = field(default_factory=list)
    uncounted: list[str] = field(default_factory=list)
    """What could not be prepared, which blocks the plan: what it would do is in none of the figures."""

    @property
    def to_do(self) -> list[PlanComponent]:
        return [row for row in self.rows if not row.left_out]

    @property
    def summary(self) -> dict[str, Any]:
        """Components to bring or remove, objects to apply, fields taken from others; what is left or unknown."""
        releases = [row for row in self.to_do if row.kind == PlanComponent.Kind.RELEASE]
        groups = [row for row in self.to_do if row.kind == PlanComponent.Kind.POLICIES]
        prepared = [PreparedPolicies.from_json(row.prepared) for row in groups]
        removals = sum(row.action == REMOVE for row in releases)
        return {
            "components": len(releases),
            **({"removals": removals} if removals else {}),
            **({"component": _named(releases[0])} if len(releases) == 1 else {}),
            "policies": sum(part.changes for part in prepared),
            "takes": sum(part.fields_taken for part in prepared),
            "components_left_out": len(self.rows) - len(self.to_do),
            "uncounted": self.uncounted,
        }


def _named(row: PlanComponent) -> dict[str, str]:
    """Return what is done with the only component of a plan, for its one sentence."""
    before = str(row.prepared.get("from_version", ""))
    return {"name": row.component, "action": row.action, "version": row.version, "from": before}


def prepare_parts(cluster: Cluster, pool: Pool, revision: Revision) -> PlanParts:
    """Asks the cluster and chart repositories for each component: hold no transaction."""
    wanted = revision.flat.components
    shared = component_owners.component_demands(cluster)
    out = PlanParts(findings=component_owners.dropped_findings(pool, wanted, shared))
    gone = {component.name for component in wanted if component.is_gone}
    out.findings += removals.still_needed_findings(pool, revision, gone)
    peers = [*wanted, *(wish for demand in shared.values() for _, wish in demand.others(pool) if not wish.is_gone)]
    rows: dict[str, PlanComponent] = {}
    for component in wanted:
        there = shared.get(component.name)
        owner = there.owner if there else pool
        if there and owner != pool and there.of_pools[owner].meaning != component.meaning:
            out.findings.append(component_owners.contended_finding(cluster, component, owner, there.of_pools[owner]))
        elif owner != pool:
            reason = f"{owner} has the same configuration and installs it."
            rows[component.name] = PlanComponent(component=component.name, prepared={}, left_out=reason[:300])
        elif (prepared := _prepared(cluster, component, peers, out.findings)) is None:
            out.uncounted.append(component.name)
        else:
            unready = [] if component.is_gone else _unready(cluster, prepared)
            rows[component.name] = _row(prepared, unready, gone)
            out.findings += unready
            out.findings += component_owners.differing_findings(component, there.others(pool)) if there else ()
    elsewhere = {name for name, wishes in shared.items() if any(not wish.is_gone for _, wish in wishes.others(pool))}
    out.findings += _lacking(rows, {c.name for c in wanted} - gone | elsewhere)
    brings = {c.name for c in wanted if not c.is_gone and (c.name not in rows or not rows[c.name].left_out)}
    groups = policy_parts.prepare_groups(cluster, pool, revision, brings=brings, findings=out.findings)
    if any(finding.code == policy_parts.UNPREPARED for finding in out.findings):
        out.uncounted.append("its policy objects")
    policy_parts.connect(groups, rows)
    rows |= groups
    out.rows = [rows[name] for name in _arranged(rows, out.findings)]
    for position, row in enumerate(out.rows, 1):
        row.position = position
    return out


def store_parts(plan: Plan, equipment: PlanParts) -> None:
    """Store them, in the transaction that stores the plan.
    Raises WrongState where an archive of it was deleted, or a catalog entry changed, meanwhile.
    """
    uploads.keep({row.archive: row.component for row in equipment.rows if row.archive})
    releases = (row for row in equipment.rows if row.kind == PlanComponent.Kind.RELEASE)
    site_entries.keep({row.component: str(row.prepared.get("entry", "")) for row in releases})
    for row in equipment.rows:
        row.plan = plan
    PlanComponent.objects.bulk_create(equipment.rows)


def _prepared(
    cluster: Cluster, wanted: WantedComponent, peers: Sequence[WantedComponent], findings: list[PlanFinding]
) -> work.Prepared | None:
    """None: it cannot be prepared, and a finding blocks the plan with the reason."""
    try:
        prepared = work.prepare(cluster, wanted, peers)
    except (Refusal, FleetError, HelmError) as error:
        detail = str(error) or type(error).__name__
        findings.append(PlanFinding("block", "component", f"{wanted.name} cannot be prepared", detail))
        return None
    findings += [
        PlanFinding(SEVERITIES.get(note.severity, "block"), note.code, f"{wanted.name}: {note.title}", note.detail)
        for note in prepared.notes
    ]
    return prepared


def _unready(cluster: Cluster, prepared: work.Prepared) -> list[PlanFinding]:
    """Explain why a component installed as wanted is not done: not ready, or its last step did not see it so.
    The plan then has it checked again, and nothing installed: only so does its pool come to this revision.
    """
    if prepared.action != "none":
        return []
    try:
        look = work.check_readiness(cluster, prepared, direction=Step.Direction.FORWARD)
    except FleetError:
        return []  # what the plan asks of the cluster next says so
    steps = Step.objects.filter(rollout__cluster=cluster, kind=Step.Kind.COMPONENT, component=prepared.component)
    last = steps.order_by("-rollout__number").first()
    title = f"{prepared.component} is already installed as planned: the rollout only waits until it is ready"
    if why := look.failed or look.missing:
        return [PlanFinding("warn", "component-not-ready", title, why)]
    if last and last.direction == Step.Direction.FORWARD and last.status in _UNSEEN:
        detail = f"{last.rollout} ended before it was ready. It is ready now."
        return [PlanFinding("note", "component-was-not-ready", title, detail)]
    return []


def _row(prepared: work.Prepared, unready: list[PlanFinding], gone: set[str]) -> PlanComponent:
    is_removal = prepared.component in gone
    first = removals.removed_first if is_removal else removals.making_room
    return PlanComponent(
        component=prepared.component,
        namespace=prepared.namespace,
        release=prepared.release,
        version=prepared.version,
        action=prepared.action,
        archive=prepared.archive,
        prepared=prepared.to_json(),
        digest=prepared.digest,
        requires=list(prepared.requires),
        after=[*([] if is_removal else prepared.after), *first(prepared.component, gone)],
        left_out=AS_WANTED if prepared.action == "none" and not unready else "",
        **({} if prepared.action == "none" else blast_radius.blast_columns(prepared.blast)),
    )


def _lacking(rows: Mapping[str, PlanComponent], there: set[str]) -> list[PlanFinding]:
    """Warn about requirements of components that no revision in this cluster brings."""
    return [
        PlanFinding(
            "warn",
            "component-requires",
            f"{name} requires {other}, which no revision in this cluster brings",
            "It must be there already. If it is not, the component will not get ready.",
        )
        for name, row in rows.items()
        for other in row.requires
        if other not in there and other != dependency_graph.NODES
    ]


def _arranged(rows: Mapping[str, PlanComponent], findings: list[PlanFinding]) -> list[str]:
    try:
        return dependency_graph.topological_order(
            {name: row.requires for name, row in rows.items()}, {name: row.after for name, row in rows.items()}
        )
    except Refusal as error:
        findings.append(PlanFinding("block", "component-circle", "The components wait for each other", str(error)))
        return sorted(rows)
