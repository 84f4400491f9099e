"""The overview: the three axes of every cluster side by side, and what needs a person now, in one list.

Each answer costs a fixed number of queries, whatever the size of the fleet.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, F, QuerySet
from django.urls import reverse

from accounts.models import User
from accounts.permissions import Role, may, restrict
from clusters import days
from clusters.models import Cluster, Node
from common.clock import now
from compliance.models import SettingState
from jobs import selectors
from jobs.models import Approval, Plan, Rollout, Step

SHOWN = 10
"""Of each kind of thing that needs a person."""
NAMED_NODES = 3
"""So many drifted nodes of a cluster are named one by one; more are one line with their number."""
EXPIRES_SOON = timedelta(days=7)
GOOD_HEALTH = "healthy"


@dataclass(frozen=True, slots=True)
class Matter:
    """One thing that needs a person: what, why, since when, and where it is dealt with."""

    what: str
    why: str
    icon: str
    tone: str
    url: str
    act: str = "Open"
    at: datetime | None = None
    where: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One cluster: its nodes on each axis, never merged."""

    cluster: Cluster
    nodes: int
    cordoned: int
    health: dict[str, int]
    compliance: dict[str, int]
    rollout: Rollout | None
    waiting: Plan | None
    trend: days.Trend

    @property
    def assigned(self) -> int:
        return sum(self.compliance.values()) - self.compliance.get("unassigned", 0)


def overview(user: User) -> dict[str, Any]:
    clusters = list(restrict(Cluster.objects.all(), user, prefix=""))
    ids = [cluster.pk for cluster in clusters]
    rows = _rows(clusters)
    rollouts = selectors.visible_rollouts(user)
    return {
        "rows": rows,
        "totals": _totals(rows),
        "matters": matters(user, clusters),
        "trend": days.trend(ids, "compliance", "compliant"),
        "live": list(rollouts.filter(status__in=Rollout.LIVE)[:SHOWN]),
        "recent": list(rollouts.exclude(status__in=Rollout.LIVE)[:5]),
        "freezes": list(selectors.standing_freezes(user)),
    }


def _rows(clusters: Sequence[Cluster]) -> list[Row]:
    ids = [cluster.pk for cluster in clusters]
    counts = days.counts_of(clusters)
    nodes = Node.objects.present().filter(cluster__in=ids, is_cordoned=True).order_by()
    cordoned = Counter(dict(nodes.values_list("cluster").annotate(Count("pk"))))
    live = {rollout.cluster_id: rollout for rollout in Rollout.objects.live().filter(cluster__in=ids)}
    review = Plan.objects.filter(cluster__in=ids, status=Plan.Status.REVIEW, expires_at__gt=now())
    waiting = {plan.cluster_id: plan for plan in review.order_by("-requested_at")}
    trends = days.trends(ids, "compliance", "compliant")
    return [
        Row(
            cluster=cluster,
            nodes=sum(counts[cluster.pk]["health"].values()),
            cordoned=cordoned[cluster.pk],
            health=counts[cluster.pk]["health"],
            compliance=counts[cluster.pk].get("compliance", {}),
            rollout=live.get(cluster.pk),
            waiting=waiting.get(cluster.pk),
            trend=trends[cluster.pk],
        )
        for cluster in clusters
    ]


def _totals(rows: Sequence[Row]) -> dict[str, Any]:
    health: Counter[str] = Counter()
    compliance: Counter[str] = Counter()
    for row in rows:
        health.update(row.health)
        compliance.update(row.compliance)
    assigned = sum(compliance.values()) - compliance["unassigned"]
    return {
        "nodes": sum(health.values()),
        "health": dict(health),
        "compliance": dict(compliance),
        "assigned": assigned,
        "known": assigned - compliance["unknown"],
        "silent": sum(row.cluster.reach == Cluster.Reach.UNREACHABLE for row in rows),
        "cordoned": sum(row.cordoned for row in rows),
    }


# ── what needs a person ───────────────────────────────────────────────────────────────────────────────────────────────
def matters(user: User, clusters: Sequence[Cluster]) -> list[Matter]:
    """What waits for this person's verdict, then what is stuck or wrong, then what is about to be."""
    return [
        *_verdicts(user, clusters),
        *_sent_back(user, clusters),
        *_stopped(user, clusters),
        *_held(user, clusters),
        *_silent(clusters),
        *_drifted(clusters),
        *_startable(user, clusters),
        *_undecided(user, clusters),
        *_ending(user, clusters),
        *_agentless(user, clusters),
    ]


def _verdicts(user: User, clusters: Sequence[Cluster]) -> Iterator[Matter]:
    for plan in selectors.to_review(user).filter(cluster__in=clusters).order_by("requested_at")[:SHOWN]:
        yield Matter(
            f"{plan} waits for your approval",
            f"{plan.revision} on {plan.pool}, asked for by {plan.requested_by}.{_reminded(plan)}",
            "eye-check",
            "run",
            reverse("jobs:plan", args=[plan.number]),
            "Review",
            plan.requested_at,
        )


def _reminded(plan: Plan) -> str:
    """What a reminder adds for those who can decide: that it was one, and when the time is up."""
    if not plan.reminded_at:
        return ""
    return f" Reminded {plan.reminded_at:%Y-%m-%d %H:%M} UTC; it expires {plan.expires_at:%Y-%m-%d %H:%M} UTC."


def _sent_back(user: User, clusters: Sequence[Cluster]) -> Iterator[Matter]:
    """Own plans to which changes were requested: answer, or plan again."""
    rows = selectors.mine(user).filter(status=Plan.Status.CHANGES, expires_at__gt=now(), cluster__in=clusters)
    plans = list(rows.order_by("requested_at", "pk")[:SHOWN])
    asked = Approval.objects.filter(plan__in=plans, verdict=Approval.Verdict.CHANGES, round=F("plan__round"))
    newest = {row.plan_id: row for row in asked.select_related("person").order_by("at", "pk")}
    for plan in plans:
        verdict = newest.get(plan.pk)
        why = f"{verdict.person}: “{verdict.comment}”" if verdict else "Answer, or plan again."
        url = reverse("jobs:plan", args=[plan.number])
        at = verdict.at if verdict else None
        yield Matter(
            f"Changes to {plan} were requested", why, "arrow-back-up", "warn", url, "Answer", at, str(plan.pool)
        )


def _undecided(user: User, clusters: Sequence[Cluster]) -> Iterator[Matter]:
    """Own plans that nobody decided although those who can were reminded."""
    rows = selectors.mine(user).filter(status=Plan.Status.REVIEW, expires_at__gt=now(), reminded_at__isnull=False)
    for plan in rows.filter(cluster__in=clusters).order_by("expires_at", "pk")[:SHOWN]:
        url = reverse("jobs:plan", args=[plan.number])
        why = f"{plan.revision} on {plan.pool}.{_reminded(plan)} Ask somebody who may approve it."
        yield Matter(f"Nobody has decided {plan} yet", why, "clock", "unk", url, at=plan.requested_at)


def _stopped(user: User, clusters: Sequence[Cluster]) -> Iterator[Matter]:
    stopped = selectors.visible_rollouts(user).filter(status=Rollout.Status.STOPPED, cluster__in=clusters)
    for rollout in stopped[:SHOWN]:
        why = rollout.waiting_for or "It starts no new node until a person retries, skips or reverts."
        url = reverse("jobs:rollout", args=[rollout.number])
        yield Matter(f"{rollout} stopped at failures", why, "circle-x", "bad", url, at=rollout.waiting_since)


def _held(user: User, clusters: Sequence[Cluster]) -> Iterator[Matter]:
    live = Step.objects.filter(rollout__status__in=Rollout.LIVE, rollout__cluster__in=clusters)
    held = live.filter(status=Step.Status.HELD).select_related("rollout")
    for step in restrict(held, user, prefix="rollout__cluster__").order_by("entered_at")[:SHOWN]:
        url = reverse("jobs:rollout", args=[step.rollout.number])
        yield Matter(
            f"{step.node_name} is held in {step.rollout}", step.error, "hand-stop", "warn", url, at=step.entered_at
        )


def _silent(clusters: Sequence[Cluster]) -> Iterator[Matter]:
    for cluster in clusters:
        if cluster.reach == Cluster.Reach.UNREACHABLE:
            because = _sentence(cluster.reach_reason) or "It does not answer."
            why = f"{because} Its nodes count as unreachable, their values as unknown."
            yield Matter(
                f"{cluster} cannot be reached", why, "plug-connected-x", "bad", _page(cluster), at=cluster.reach_since
            )


def _drifted(clusters: Sequence[Cluster]) -> Iterator[Matter]:
    """Nodes of clusters that are seen now: one line a node while they are few, else one a cluster."""
    current = {cluster.pk: cluster for cluster in clusters if cluster.is_current}
    rows: QuerySet[SettingState] = SettingState.objects.filter(
        state=SettingState.State.DRIFTED, node__gone_at=None, node__cluster__in=list(current)
    )
    per_cluster: Any = rows.order_by().values("node__cluster").annotate(nodes=Count("node", distinct=True))
    counts: dict[Any, int] = dict(per_cluster.values_list("node__cluster", "nodes"))
    few = [pk for pk, number in counts.items() if number <= NAMED_NODES]
    named: dict[Any, dict[int, list[SettingState]]] = defaultdict(lambda: defaultdict(list))
    for state in rows.filter(node__cluster__in=few).select_related("node").order_by("since", "key")[:200]:
        named[state.node.cluster_id][state.node_id].append(state)
    common = _commonest(rows.exclude(node__cluster__in=few))
    for pk, number in sorted(counts.items(), key=lambda item: -item[1])[:SHOWN]:
        if pk in named:
            for states in named[pk].values():
                yield _drifted_node(current[pk], states)
        else:
            query = urlencode({"cluster": current[pk].name, "compliance": "drifted"})
            url = f"{reverse('clusters:nodes')}?{query}"
            yield Matter(
                f"{number:,} nodes drifted in {current[pk]}", common.get(pk, ""), "arrows-diff", "warn", url, "List"
            )


def _drifted_node(cluster: Cluster, states: Sequence[SettingState]) -> Matter:
    first = states[0]
    effective = "absent" if first.effective is None else first.effective
    said = f"{first.key} is {effective}, approved was {first.operator} {first.desired}."
    if len(states) > 1:
        said += f" {len(states) - 1} more setting{'s differ' if len(states) > 2 else ' differs'}."
    said = f"{said} {_sentence(first.reason)}".strip()
    url = reverse("clusters:node", args=[first.node_id])
    return Matter(f"{first.node.name} drifted", said, "arrows-diff", "warn", url, at=first.since, where=str(cluster))


def _commonest(rows: QuerySet[SettingState]) -> dict[Any, str]:
    """By cluster, the setting that most nodes differ in."""
    grouped: Any = rows.order_by().values("node__cluster", "key").annotate(nodes=Count("node", distinct=True))
    out: dict[Any, str] = {}
    for pk, key, number in grouped.order_by("-nodes", "key").values_list("node__cluster", "key", "nodes")[:200]:
        out.setdefault(pk, f"Most often in {key}, on {number:,} node{'' if number == 1 else 's'}.")
    return out


def _startable(user: User, clusters: Sequence[Cluster]) -> Iterator[Matter]:
    """Approved and not started: for those who may start it."""
    rows = selectors.visible_plans(user).filter(status=Plan.Status.APPROVED, expires_at__gt=now())
    for plan in rows.filter(cluster__in=clusters).order_by("expires_at")[:SHOWN]:
        if may(user, Role.OPERATOR, plan.cluster.scopes):
            why = f"{plan.revision} on {plan.pool}. The approval ends {plan.expires_at:%Y-%m-%d %H:%M} UTC."
            url = reverse("jobs:plan", args=[plan.number])
            yield Matter(f"{plan} is approved and not started", why, "player-play", "run", url)


def _ending(user: User, clusters: Sequence[Cluster]) -> Iterator[Matter]:
    for cluster in clusters:
        ends = cluster.credential_expires_at
        if ends and ends < now() + EXPIRES_SOON and may(user, Role.ADMIN, cluster.scopes):
            said = "has expired" if ends < now() else "expires soon"
            why = f"Since {ends:%Y-%m-%d %H:%M} UTC" if ends < now() else f"On {ends:%Y-%m-%d at %H:%M} UTC"
            url = reverse("clusters:rotate", args=[cluster.pk])
            yield Matter(
                f"The credential of {cluster} {said}",
                f"{why}; then nothing is seen of it.",
                "key",
                "warn",
                url,
                "Rotate",
            )


def _agentless(user: User, clusters: Sequence[Cluster]) -> Iterator[Matter]:
    """Clusters in which some node has no NodeTuning, so that nothing is known of its kernel."""
    seen = {cluster.pk: cluster for cluster in clusters if cluster.is_current}
    missing = Node.objects.present().filter(cluster__in=list(seen), tuning=None).order_by()
    grouped: Any = missing.values("cluster").annotate(nodes=Count("pk"), why=F("cluster__enrolment_error"))
    for pk, number, why in grouped.values_list("cluster", "nodes", "why")[:SHOWN]:
        cluster = seen[pk]
        if may(user, Role.ADMIN, cluster.scopes) or may(user, Role.OPERATOR, cluster.scopes):
            nodes = f"{number:,} node{'' if number == 1 else 's'}"
            yield Matter(
                f"Nothing is known of the kernels of {nodes} in {cluster}",
                why or "No agent has an object there yet.",
                "help-circle",
                "unk",
                _page(cluster),
            )


def _sentence(text: str) -> str:
    """A reason as it came, as a sentence of its own."""
    text = text.strip()
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def _page(cluster: Cluster) -> str:
    return reverse("clusters:cluster", args=[cluster.pk])
