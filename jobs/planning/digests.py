"""Digest of what is approved, and the check that a plan still is what its digest says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Max, Q

from clusters.models import Node
from components.release import approved_entry
from jobs.diffs import cluster_scope
from jobs.diffs.changes import digest
from jobs.forecast import blast_radius, schedule
from jobs.forecast.strategy import MEASURED
from jobs.models import Plan, PlanComponent, PlanNode
from profiles.content import content


def plan_digest(plan: Plan) -> str:
    """SHA-256 over everything that is approved. A node's batch counts only while frozen: canary and the batch after
    it.

    Nodes that joined since are covered by the option as such; jobs.engine.newcomers judges their steps one by one.
    """
    newest = newest_key_when_planned(plan)
    known = {} if newest is None or plan.status != Plan.Status.STARTED else {"node__lte": newest}
    option = {} if newest is None else {"newest_node": newest}
    components = _components(plan)
    columns = ("uid", "change_set_id", "worst_class", "batch", "is_unavailable", "left_out", "is_control")
    rows = list(PlanNode.objects.filter(plan=plan, **known).values_list(*columns).order_by())
    # Nodes held back until the others were measured; left out where there are none, so that older digests stay valid.
    control_uids = sorted(uid for uid, *_, is_control in rows if is_control)
    control = {"control": control_uids} if control_uids or plan.strategy.get("order") == MEASURED else {}
    # Which nodes may never be under way together; absent without a domain, so that older digests stay valid.
    domains = {"domains": _domains(plan, known)} if plan.strategy.get("domain") else {}
    return "sha256:" + digest(
        {
            "cluster": plan.cluster.uid,
            "pool": plan.pool.name,
            "selector": plan.selector,
            "revision": plan.revision.digest,
            "strategy": plan.strategy,
            "budget": plan.summary.get("budget"),
            **option,
            "nodes": sorted(
                [uid, change, worst, min(batch, schedule.FROZEN_BATCHES + 1), out, left]
                for uid, change, worst, batch, out, left, _ in rows
            ),
            **components,
            **control,
            **domains,
            **_authors(plan),
            **_owners(plan),
            **({"judgement": plan.judgement} if plan.judgement else {}),
        }
    )


def _domains(plan: Plan, known: Mapping[str, Any]) -> list[list[str]]:
    rows = PlanNode.objects.filter(plan=plan, batch__gt=0, **known)
    return sorted([uid, domain] for uid, domain in rows.values_list("uid", "domain").order_by())


def _authors(plan: Plan) -> dict[str, Any]:
    """Return those barred from approving it; nothing where they were not stored, so that older digests hold."""
    return {} if plan.authorship is None else {"authors": sorted(map(int, plan.authorship))}


def _owners(plan: Plan) -> dict[str, Any]:
    """Return the teams that owned what it touches; nothing without any, so that older digests hold."""
    return {"owners": plan.owners} if plan.owners else {}


def _components(plan: Plan) -> dict[str, Any]:
    """The cluster-scoped part; nothing at all where there is none, so that older digests stand."""
    columns = ("component", "namespace", "release", "digest", "requires", "after", "left_out")
    out: dict[str, Any] = {}
    for kind, *row in PlanComponent.objects.filter(plan=plan).values_list("kind", *columns).order_by("component"):
        name = "policies" if kind == PlanComponent.Kind.POLICIES else "components"
        out.setdefault(name, []).append(row)
    return out


def are_components_intact(plan: Plan) -> bool:
    """Return whether each component still is what its digest in the plan names.
    Reads all of them: not for every slice.
    """
    columns = ("kind", "digest", "prepared", "worst_class", "hit", "places")
    rows = PlanComponent.objects.filter(plan=plan, left_out="").only(*columns)
    return all(_is_part_intact(row) for row in rows.iterator())


def changed_entry(plan: Plan) -> str:
    """Explain which catalog entry is another than the one that the plan was made with; empty where none is."""
    rows = PlanComponent.objects.filter(plan=plan, left_out="", kind=PlanComponent.Kind.RELEASE)
    for row in rows.order_by("position").only("component", "prepared"):
        entry, is_untested = str(row.prepared.get("entry", "")), bool(row.prepared.get("is_untested"))
        if reason := approved_entry.reason_of(row.component, entry, is_untested=is_untested):
            return reason
    return ""


def _is_part_intact(row: PlanComponent) -> bool:
    prepared = cluster_scope.read_prepared(row)
    return prepared.digest == row.digest and blast_radius.columns_agree(row, prepared.blast)


def is_as_approved(plan: Plan) -> bool:
    """Return whether plan, nodes and the revision's content still are what its digest was computed over."""
    if plan_digest(plan) != plan.digest or not is_intact(plan.revision.digest, plan.revision.content):
        return False
    newest = newest_key_when_planned(plan)
    # Those that joined since are in no batch of the plan, and none of them was out of service in an approver's eyes.
    favored = Q(is_unavailable=True) | ~Q(batch=0)
    return newest is None or not PlanNode.objects.filter(favored, plan=plan, node__gt=newest).exists()


def is_intact(name: str, raw: Mapping[str, Any]) -> bool:
    """Return whether this is the content that a revision's digest names."""
    try:
        return content.digest(content.Content.from_json(raw)) == name
    except content.BadContent:
        return False


def newest_node_key() -> int:
    """Return the greatest node key: any node that is not known yet will have a greater one."""
    return Node.objects.aggregate(newest=Max("pk"))["newest"] or 0


def newest_key_when_planned(plan: Plan) -> int | None:
    """Nodes with a greater key were unknown when this plan was made, and its option takes them; None: it has none."""
    newest = plan.summary.get("newest_node")
    return newest if plan.strategy.get("include_joining") and isinstance(newest, int) else None
