"""Facts of plans as they are stored, so that past plans are judged like present ones. What is not known is absent."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db.models import Count, Min, Q, TextField
from django.db.models.functions import Cast

from accounts.models import User
from clusters.models import Cluster
from jobs.diffs.changes import Changes, Disruption
from jobs.forecast import rule_facts
from jobs.forecast.strategy import MEASURED
from jobs.models import Plan, PlanComponent, PlanNode
from jobs.policy import live_facts

Rows = Mapping[UUID, Any]
FROM_SUMMARY = ("gpu_jobs", "pods_evicted", "gpus", "formatted_disks")


def facts_of_plans(plans: Sequence[Plan], names: Collection[str] = ()) -> dict[UUID, dict[str, Any]]:
    """Return, by plan, what `plan` means in conditions. As many queries for any number of plans.

    Nodes, classes, settings and components are counted from rows that the digest covers; figures of the forecast
    are those that the plan was stored with. `names`: facts that conditions name, of which those of the cluster as it
    is now are counted.
    """
    live = live_facts.live_facts_of(plans, names)
    counts, settings, components, emails = _counts(plans), _settings(plans), _components(plans), _emails(plans)
    return {
        plan.pk: {
            **_of_row(plan),
            **_of_summary(plan.summary),
            **counts.get(plan.pk, {"nodes": 0, "drains": 0, "reboots": 0}),
            **settings.get(plan.pk, {"settings": [], "weakens_security": False}),
            "components": components.get(plan.pk, []),
            **_of_authors(plan, emails),
            **live[plan.pk],
        }
        for plan in plans
    }


def facts_of_moment(at: datetime, zone: ZoneInfo) -> dict[str, Any]:
    """Return what `judged` means in conditions."""
    local = at.astimezone(zone)
    return {"hour": local.hour, "minute": local.minute, "weekday": local.isoweekday(), "date": f"{local:%Y-%m-%d}"}


def _of_row(plan: Plan) -> dict[str, Any]:
    known: dict[str, Any] = {
        "cluster": plan.cluster.name,
        "cluster_id": str(plan.cluster_id),
        "pool": plan.pool.name,
        "profile": plan.revision.profile.name,
        "revision": str(plan.revision),
        "measured": plan.strategy.get("order") == MEASURED,
        "findings": [{"code": str(f["code"]), "severity": str(f["severity"])} for f in plan.findings],
    }
    known["environments"] = list(Cluster.Environment.values)
    if plan.cluster.is_genuine:
        known["environment"], known["environments"] = plan.cluster.environment, [plan.cluster.environment]
    if plan.worst_class in set(Disruption):
        known["known_risk"] = Disruption(plan.worst_class).rank
        known |= {} if plan.is_uncounted else {"risk": known["known_risk"]}
    return known


def _of_summary(summary: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: summary[name] for name in FROM_SUMMARY if _is_count(summary.get(name))}
    if _is_count(summary.get("gpus_out_at_once")):
        known["gpus_out"] = summary["gpus_out_at_once"]
    if isinstance(summary.get("gpu_hours"), int | float):
        known["gpu_hours"] = float(summary["gpu_hours"])
    if isinstance(namespaces := summary.get("namespaces"), list):
        known["namespaces"] = [str(row["namespace"]) for row in namespaces]
    if isinstance(batches := summary.get("batches"), list):
        known["batches"] = len(batches)
        known["canary_nodes"] = sum(int(row["nodes"]) for row in batches if row.get("is_canary"))
    if isinstance(summary.get("consent"), str):
        known["destroys"] = bool(summary["consent"])
    return known


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _counts(plans: Sequence[Plan]) -> Rows:
    drains = [each.value for each in Disruption if each.drains]
    rows = PlanNode.objects.filter(plan__in=plans, left_out="").order_by().values("plan_id")
    rows = rows.annotate(
        nodes=Count("pk"),
        drains=Count("pk", filter=Q(worst_class__in=drains)),
        reboots=Count("pk", filter=Q(worst_class=Disruption.REBOOT)),
    )
    columns = ("plan_id", "nodes", "drains", "reboots")
    return {plan_id: dict(zip(columns[1:], counts, strict=True)) for plan_id, *counts in rows.values_list(*columns)}


def _settings(plans: Sequence[Plan]) -> Rows:
    """A change set is read once a plan, however many nodes have it."""
    rows = PlanNode.objects.filter(plan__in=plans, left_out="").exclude(change_set=None).order_by()
    content = Min(Cast("change_set__content", TextField()))
    keys: dict[UUID, set[str]] = defaultdict(set)
    weak: dict[UUID, bool] = defaultdict(bool)
    read: dict[str, tuple[set[str], bool]] = {}
    for plan_id, change_set, text in rows.values_list("plan_id", "change_set_id").annotate(content=content):
        if change_set not in read:
            changes = Changes.from_json(json.loads(text))
            read[change_set] = {c.key for c in changes.settings()}, bool(rule_facts.weakened_keys(changes))
        keys[plan_id] |= read[change_set][0]
        weak[plan_id] |= read[change_set][1]
    return {pk: {"settings": sorted(names), "weakens_security": weak[pk]} for pk, names in keys.items()}


def _components(plans: Sequence[Plan]) -> Rows:
    out: dict[UUID, list[dict[str, Any]]] = defaultdict(list)
    rows = PlanComponent.objects.filter(plan__in=plans, left_out="").exclude(action="none").order_by("position")
    columns = ("plan_id", "component", "action", "namespace", "version", "worst_class")
    for plan_id, name, action, namespace, version, worst in rows.values_list(*columns):
        row = {"name": name, "action": action, "namespace": namespace, "version": version}
        out[plan_id].append(row | ({"risk": Disruption(worst).rank} if worst in set(Disruption) else {}))
    return out


def _emails(plans: Sequence[Plan]) -> dict[int, str]:
    ids = {int(pk) for plan in plans for pk in plan.authorship or ()}
    ids |= {pk for plan in plans for pk in (plan.created_by_id, plan.requested_by_id) if pk}
    return dict(User.objects.filter(pk__in=ids).values_list("pk", "email"))


def _of_authors(plan: Plan, emails: Mapping[int, str]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    if isinstance(drafted := plan.summary.get("drafted"), str):
        known["drafted"] = bool(drafted)
    if plan.created_by_id is not None and plan.created_by_id in emails:
        known["author"] = emails[plan.created_by_id]
    elif known.get("drafted"):
        known["author"] = ""
    people = None if plan.authorship is None else {int(pk) for pk in plan.authorship}
    if people is not None and people <= emails.keys():
        known["authors"] = sorted(emails[pk] for pk in people)
    return known
