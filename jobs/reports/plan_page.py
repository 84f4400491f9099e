"""Page of one plan: what it changes, who has approved it, and what may be done with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.paginator import Paginator

from accounts.models import User
from jobs.approvals import owner_reviews, plan_actions, rings, verdicts
from jobs.approvals.tickets import obstacles, references
from jobs.calendars import targets
from jobs.diffs import staleness
from jobs.forecast import owners
from jobs.forecast.strategy import Strategy
from jobs.models import Plan
from jobs.planning import digests
from jobs.reports import plan_changes, plan_components, plan_disks, window_forecasts

SHOWN_NODES = 20
SHOWN_PLAN_NODES = 50

VERDICTS = ("approve", "request-changes", "reject")


def plan_page(plan: Plan, user: User, params: Mapping[str, str] | None = None) -> dict[str, Any]:
    """`params` is what the address chose: view=node with q, key and page, or show=all."""
    with owners.kept([plan]):
        return _plan_page(plan, user, params)


def _plan_page(plan: Plan, user: User, params: Mapping[str, str] | None) -> dict[str, Any]:
    given = verdicts.stored_verdicts(plan)
    standing = verdicts.approval_state(plan, given)
    can = plan_actions.check_actions(plan, user, given, standing.policy)
    calendar = targets.entries_of(plan.cluster, plan.pool_id)
    freeze = targets.active_freeze(plan.cluster, plan.pool_id, calendar)
    is_to_start = plan.status in plan.NEXT
    return {
        "plan": plan,
        "summary": plan.summary,
        **_changes_context(plan, params or {}),
        **plan_components.parts_of_plan(plan),
        **plan_disks.disks_of_plan(plan),
        "batches": plan_changes.batch_rows(plan),
        "left_out": list(plan.nodes.exclude(left_out="")[:SHOWN_NODES]),
        **_joined_nodes(plan),
        "since": staleness.changes_since_planned(plan),
        "standing": standing,
        "owners": owner_reviews.reviews_of(plan, standing),
        "approvals": given,
        "policy": standing.policy if is_to_start else None,
        "strategy": Strategy.from_json(plan.strategy),
        "rollout": getattr(plan, "rollout", None),
        "freeze": freeze,
        "ticket": _ticket_context(plan, user),
        "ring_reason": rings.hold_reason(plan)
        if _is_live(plan)
        else rings.reason_not_to_start(plan)
        if is_to_start
        else "",
        "fits": window_forecasts.window_forecast(plan, calendar, freeze) if calendar and is_to_start else None,
        "can": {verb.replace("-", "_"): answer for verb, answer in can.items()},
        "may_judge": any(can[verb].is_possible for verb in VERDICTS),
        "has_approved": user.pk in {u.pk for u in standing.approved_by},
        "late": plan.late if plan.status in plan.NEXT or plan.status == Plan.Status.EXPIRED else "",
    }


def _ticket_context(plan: Plan, user: User) -> dict[str, Any]:
    """The change record: its rules, what it forbids now, and whether this person may enter it."""
    rules = obstacles.rules_of(plan.cluster)
    waits = plan.status in plan.NEXT
    return {
        "rules": rules,
        "is_shown": bool(rules or plan.change_record),
        "obstacle": obstacles.obstacle(plan, rules) if waits else obstacles.stop_reason(plan) if _is_live(plan) else "",
        "why_not": references.reason_not_to_enter(plan, user),
        "can_change": not references.reason_of_state(plan),
    }


def _is_live(plan: Plan) -> bool:
    rollout = getattr(plan, "rollout", None)
    return rollout is not None and rollout.status in rollout.LIVE


def _joined_nodes(plan: Plan) -> dict[str, Any]:
    """Nodes that joined while its rollout ran. No query where its option does not take them."""
    newest = digests.newest_key_when_planned(plan)
    if newest is None or plan.status != Plan.Status.STARTED:
        return {}
    rows = plan.nodes.filter(node__gt=newest).order_by("position", "pk")
    return {"joined": list(rows[:SHOWN_NODES]), "joined_count": rows.count()}


def _changes_context(plan: Plan, params: Mapping[str, str]) -> dict[str, Any]:
    """The part of the page that says what changes, as the address asks for it."""
    groups = plan_changes.grouped_changes(plan)
    same = plan_changes.unchanged_keys(plan, groups)
    shown: dict[str, Any] = {
        "groups": plan_changes.folded_groups(groups),
        "changed_keys": len({(c["kind"], c["key"]) for g in groups for c in g["changes"]}),
        "unchanged": same,
        "shows_all": params.get("show") == "all",
        "by_node": params.get("view") == "node",
        "asked": {"q": params.get("q", "")[:253], "key": params.get("key", "")[:128]},
    }
    if shown["by_node"]:
        rows = plan_changes.changes_by_node(plan, name=shown["asked"]["q"], key=shown["asked"]["key"])
        shown["page_obj"] = Paginator(rows, SHOWN_PLAN_NODES).get_page(params.get("page"))
    return shown
