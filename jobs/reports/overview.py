"""The overview: the three axes of every cluster side by side, and what needs attention now, in one list.

Each answer costs a fixed number of queries, for any size of the fleet.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, F, OuterRef, QuerySet, Subquery
from django.urls import reverse

from accounts.models import User
from accounts.permissions import Role, may
from clusters.connection import expiry
from clusters.inventory import daily_counts
from clusters.models import Cluster, Node
from clusters.reports import selectors as fleet
from common import look
from common.clock import now
from common.counting import lists_of
from compliance.models import SettingState
from compliance.reports import component_selectors
from compliance.reports import selectors as standing
from jobs.models import Approval, Plan, Rollout, Step
from jobs.reports import counts, glass, selectors

SHOWN = 10
"""Of each kind of item that needs attention."""
NEWEST = 5
"""Of rollouts and of open plans."""
LATELY = 2
"""Of ended rollouts: the overview is about now."""
NAMED_NODES = 3
"""So many drifted nodes of a cluster are named one by one; more are one line with their number."""
TOLD = {"drifted": "drifted", "foreign": "was changed by another party", "missing": "is not there"}
"""Of a component; else its state's own word."""


@dataclass(frozen=True, slots=True)
class AttentionItem:
    """One item that needs attention: what, why, since when, and where it is dealt with."""

    what: str
    why: str
    icon: str
    tone: str
    url: str
    act: str = "Open"
    at: datetime | None = None
    where: str = ""


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """One cluster: its nodes on each axis, never merged."""

    cluster: Cluster
    nodes: int
    cordoned: int
    health: dict[str, int]
    compliance: dict[str, int]
    rollout: Rollout | None
    waiting: Plan | None
    trend: daily_counts.Trend

    @property
    def assigned(self) -> int:
        return sum(self.compliance.values()) - self.compliance.get("unassigned", 0)


def overview(user: User) -> dict[str, Any]:
    clusters = list(fleet.clusters_with_counts(user))
    work, uses = cluster_work(user, clusters), glass.unreviewed(user)
    rows = _rows(clusters, work)
    return {
        "rows": rows,
        "totals": _totals(rows),
        "matters": [*_glass_reviews(uses), *attention_items(user, clusters, work)],
        "trend": daily_counts.together(row.trend for row in rows),
        "live": work.live[:SHOWN],
        "standing": counts.count_rollouts(work.live),
        "recent": work.ended,
        "freezes": list(selectors.active_freezes(user)),
        "glass": uses,
    }


def _rows(clusters: Sequence[Cluster], work: ClusterWork) -> list[ClusterRow]:
    counted: Sequence[Any] = clusters  # with the counts of clusters.reports.selectors
    compliance = standing.groups_of(clusters)
    live = {rollout.cluster_id: rollout for rollout in reversed(work.live)}
    waiting = {plan.cluster_id: plan for plan in work.plans["waiting"]}
    trends = daily_counts.trends([cluster.pk for cluster in clusters], "compliance", "compliant")
    return [
        ClusterRow(
            cluster=cluster,
            nodes=cluster.node_count,
            cordoned=cluster.cordoned,
            health=_without_zeros(fleet.health_of(cluster)),
            compliance=_without_zeros(standing.counted(compliance[cluster.pk])),
            rollout=live.get(cluster.pk),
            waiting=waiting.get(cluster.pk),
            trend=trends[cluster.pk],
        )
        for cluster in counted
    ]


def _without_zeros(counts: Mapping[str, int]) -> dict[str, int]:
    """Drop zero counts."""
    return {name: number for name, number in counts.items() if number}


def _totals(rows: Sequence[ClusterRow]) -> dict[str, Any]:
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


# ── what is under way ─────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class ClusterWork:
    """Plans and rollouts of some clusters, read once for all that a page says of them."""

    live: list[Rollout]
    """Rollouts that have not ended, the newest first; `counts.count_rollouts` says how many are under way."""
    newest: list[Rollout]
    ended: list[Rollout]
    """The newest few of those that ended."""
    plans: dict[str, list[Plan]]
    """verdict, changes, start, decision: what waits for this person, at most SHOWN each; waiting: of each cluster, the
    plan that has been in review longest; open: the newest few that are not decided."""


def cluster_work(user: User, clusters: Sequence[Cluster]) -> ClusterWork:
    """Two queries."""
    rollouts = selectors.visible_rollouts(user).filter(cluster__in=clusters)
    live, newest = rollouts.filter(status__in=Rollout.LIVE), rollouts.order_by("-number")
    ended = newest.exclude(status__in=Rollout.LIVE)[:LATELY]
    rollouts_by_kind = lists_of(rollouts, {"live": live, "newest": newest[:NEWEST], "ended": ended})
    plans = selectors.visible_plans(user).filter(cluster__in=clusters)
    in_time, own = plans.in_time(), selectors.own_plans(user).filter(cluster__in=clusters)
    review = in_time.filter(status=Plan.Status.REVIEW)
    first = review.filter(cluster=OuterRef("cluster")).order_by("requested_at", "pk").values("pk")[:1]
    parts = {
        "verdict": selectors.to_review(user).filter(cluster__in=clusters).order_by("requested_at", "pk")[:SHOWN],
        "changes": own.in_time().filter(status=Plan.Status.CHANGES).order_by("requested_at", "pk")[:SHOWN],
        "start": in_time.filter(status=Plan.Status.APPROVED).order_by("expires_at", "pk")[:SHOWN],
        "decision": own.waiting().filter(reminded_at__isnull=False).order_by("expires_at", "pk")[:SHOWN],
        "waiting": review.filter(pk=Subquery(first)),
        "open": plans.filter(status__in=Plan.NEXT).order_by("-number")[:NEWEST],
    }
    return ClusterWork(**rollouts_by_kind, plans=lists_of(plans, parts))


# ── what needs attention ──────────────────────────────────────────────────────────────────────────────────────────────
def attention_items(user: User, clusters: Sequence[Cluster], work: ClusterWork) -> list[AttentionItem]:
    """List what waits for this person's verdict, then what is stuck or wrong, then what is imminent.
    `clusters` carry the counts of clusters.reports.selectors.
    """
    return [
        *_verdicts(work),
        *_sent_back(work),
        *_stopped(work),
        *_held(work),
        *_silent(clusters),
        *_drifted(clusters),
        *_components(user, clusters),
        *_startable(user, work),
        *_undecided(work),
        *_ending(user, clusters),
        *_agentless(user, clusters),
        *_poolless(user, clusters),
    ]


def _glass_reviews(uses: Sequence[glass.GlassUse]) -> Iterator[AttentionItem]:
    for row in [use.row for use in uses if use.is_to_review][:SHOWN]:
        url = f"{reverse('jobs:rollout', args=[row.rollout.number])}#glass"
        why = f"{row.person} started it by break-glass: “{row.reason}”"
        yield AttentionItem(f"{row.rollout} waits for your review", why, "eye-check", "run", url, "Review", row.at)


def _verdicts(work: ClusterWork) -> Iterator[AttentionItem]:
    for plan in work.plans["verdict"]:
        yield AttentionItem(
            f"{plan} waits for your approval",
            f"{plan.revision} on {plan.pool}, asked for by {plan.requested_by}.{_reminded(plan)}",
            "eye-check",
            "run",
            reverse("jobs:plan", args=[plan.number]),
            "Review",
            plan.requested_at,
        )


def _reminded(plan: Plan) -> str:
    """Return what a reminder adds for those able to decide: that it was one, and when the time is up."""
    if not plan.reminded_at:
        return ""
    return f" Reminded {plan.reminded_at:%Y-%m-%d %H:%M} UTC; it expires {plan.expires_at:%Y-%m-%d %H:%M} UTC."


def _sent_back(work: ClusterWork) -> Iterator[AttentionItem]:
    """Own plans to which changes were requested: answer, or plan again."""
    plans = work.plans["changes"]
    changes_requested = Approval.objects.filter(
        plan__in=plans, verdict=Approval.Verdict.CHANGES, round=F("plan__round")
    )
    newest = {row.plan_id: row for row in changes_requested.select_related("person").order_by("at", "pk")}
    for plan in plans:
        verdict = newest.get(plan.pk)
        why = f"{verdict.person}: “{verdict.comment}”" if verdict else "Reply, or plan again."
        url = reverse("jobs:plan", args=[plan.number])
        at = verdict.at if verdict else None
        yield AttentionItem(
            f"Changes to {plan} were requested", why, "arrow-back-up", "warn", url, "Answer", at, str(plan.pool)
        )


def _undecided(work: ClusterWork) -> Iterator[AttentionItem]:
    """Yield own plans without a decision although those able to decide were reminded."""
    for plan in work.plans["decision"]:
        url = reverse("jobs:plan", args=[plan.number])
        why = f"{plan.revision} on {plan.pool}.{_reminded(plan)} Ask an approver."
        yield AttentionItem(f"No review of {plan} yet", why, "clock", "unk", url, at=plan.requested_at)


def _stopped(work: ClusterWork) -> Iterator[AttentionItem]:
    for rollout in [rollout for rollout in work.live if rollout.status == Rollout.Status.STOPPED][:SHOWN]:
        why = rollout.waiting_for or "No new node starts until an operator retries, skips or reverts."
        url = reverse("jobs:rollout", args=[rollout.number])
        yield AttentionItem(f"{rollout} stopped at failures", why, "circle-x", "bad", url, at=rollout.waiting_since)


def _held(work: ClusterWork) -> Iterator[AttentionItem]:
    live = {rollout.pk: rollout for rollout in work.live}
    held = Step.objects.filter(rollout__in=list(live), status=Step.Status.HELD)
    for step in held.order_by("entered_at", "pk")[:SHOWN]:
        rollout = live[step.rollout_id]
        url = reverse("jobs:rollout", args=[rollout.number])
        yield AttentionItem(
            f"{step.name} is held in {rollout}", step.error, "hand-stop", "warn", url, at=step.entered_at
        )


def _silent(clusters: Sequence[Cluster]) -> Iterator[AttentionItem]:
    for cluster in clusters:
        if cluster.reach == Cluster.Reach.UNREACHABLE:
            because = _sentence(cluster.reach_reason) or "It does not answer."
            why = f"{because} Its nodes count as unreachable, their values as unknown."
            condition = "refuses Setpoint's credential" if cluster.refused_since else "cannot be reached"
            yield AttentionItem(
                f"{cluster} {condition}", why, "plug-connected-x", "bad", _cluster_url(cluster), at=cluster.reach_since
            )


def _drifted(clusters: Sequence[Cluster]) -> Iterator[AttentionItem]:
    """Nodes of clusters that are seen now: one line a node while they are few, else one a cluster."""
    current = {cluster.pk: cluster for cluster in clusters}
    drifted = {pk: standing.counted(groups)["drifted"] for pk, groups in standing.groups_of(clusters).items()}
    counts = {pk: number for pk, number in drifted.items() if number}
    few = [pk for pk, number in counts.items() if number <= NAMED_NODES]
    many = [pk for pk in counts if pk not in few]
    nodes = Node.objects.present().filter(standing.is_shown("drifted")).order_by()
    rows: QuerySet[SettingState] = SettingState.objects.filter(state=SettingState.State.DRIFTED)
    named: dict[Any, dict[int, list[SettingState]]] = defaultdict(lambda: defaultdict(list))
    here = rows.filter(node__in=nodes.filter(cluster__in=few)).select_related("node")
    for state in here.order_by("since", "key")[:200] if few else ():
        named[state.node.cluster_id][state.node_id].append(state)
    common = _commonest(rows.filter(node__in=nodes.filter(cluster__in=many))) if many else {}
    for pk, number in sorted(counts.items(), key=lambda item: -item[1])[:SHOWN]:
        if pk in named:
            for states in named[pk].values():
                yield _drifted_node(current[pk], states)
        else:
            query = urlencode({"cluster": current[pk].name, "compliance": "drifted"})
            url = f"{reverse('clusters:nodes')}?{query}"
            yield AttentionItem(
                f"{number:,} nodes drifted in {current[pk]}", common.get(pk, ""), "arrows-diff", "warn", url, "List"
            )


def _components(user: User, clusters: Sequence[Cluster]) -> Iterator[AttentionItem]:
    """Components that are not what was approved, the worst first. Beside the nodes' axis, never in it. One query."""
    for row in component_selectors.wrong(user, clusters)[:SHOWN]:
        seen = look.appearance("component", row.state)
        url = reverse("compliance:component", args=[row.cluster_id, row.name])
        part = component_selectors.title(row)
        what = f"{part} {TOLD.get(row.state, 'is ' + seen.word.lower())}"
        yield AttentionItem(what, row.sentence, seen.icon, seen.css, url, at=row.since, where=str(row.cluster))


def _drifted_node(cluster: Cluster, states: Sequence[SettingState]) -> AttentionItem:
    first = states[0]
    effective = "absent" if first.effective is None else first.effective
    approved = f"{look.sign(first.operator)} {first.desired}".removeprefix("= ")
    detail = f"{first.key} is {effective}, approved value: {approved}."
    if len(states) > 1:
        detail += f" {len(states) - 1} more setting{'s differ' if len(states) > 2 else ' differs'}."
    detail = f"{detail} {_sentence(first.reason)}".strip()
    url = reverse("clusters:node", args=[first.node_id])
    return AttentionItem(
        f"{first.node.name} drifted", detail, "arrows-diff", "warn", url, at=first.since, where=str(cluster)
    )


def _commonest(rows: QuerySet[SettingState]) -> dict[Any, str]:
    """Return, by cluster, the setting that most nodes differ in."""
    grouped: Any = rows.order_by().values("node__cluster", "key").annotate(nodes=Count("node", distinct=True))
    out: dict[Any, str] = {}
    for pk, key, number in grouped.order_by("-nodes", "key").values_list("node__cluster", "key", "nodes")[:200]:
        out.setdefault(pk, f"Mostly {key}, on {number:,} node{'' if number == 1 else 's'}.")
    return out


def _startable(user: User, work: ClusterWork) -> Iterator[AttentionItem]:
    """Yield approved plans that are not started, for those permitted to start them."""
    for plan in work.plans["start"]:
        if may(user, Role.OPERATOR, plan.cluster.scopes):
            why = f"{plan.revision} on {plan.pool}. The approval ends {plan.expires_at:%Y-%m-%d %H:%M} UTC."
            url = reverse("jobs:plan", args=[plan.number])
            yield AttentionItem(f"{plan} is approved and not started", why, "player-play", "run", url)


def _ending(user: User, clusters: Sequence[Cluster]) -> Iterator[AttentionItem]:
    mine = [cluster for cluster in clusters if may(user, Role.ADMIN, cluster.scopes)]
    for cluster, endings in expiry.of_clusters(mine).items():
        for ending in endings:
            if ending.is_due():
                condition = "has expired" if ending.at <= now() else "expires soon"
                url = reverse("clusters:rotate", args=[cluster.pk])
                yield AttentionItem(
                    f"A credential of {cluster} {condition}", ending.sentence, "key", "warn", url, "Rotate"
                )


def _agentless(user: User, clusters: Sequence[Cluster]) -> Iterator[AttentionItem]:
    """Clusters in which some node has no NodeTuning, so that nothing is known of its kernel."""
    counted: Sequence[Any] = [cluster for cluster in clusters if cluster.is_current]
    for cluster in [cluster for cluster in counted if cluster.unenrolled][:SHOWN]:
        if may(user, Role.ADMIN, cluster.scopes) or may(user, Role.OPERATOR, cluster.scopes):
            nodes = f"{cluster.unenrolled:,} node{'' if cluster.unenrolled == 1 else 's'}"
            yield AttentionItem(
                f"Nothing is known of the kernels of {nodes} in {cluster}",
                cluster.enrolment_error or "No agent has an object there yet.",
                "help-circle",
                "unk",
                _cluster_url(cluster),
            )


def _poolless(user: User, clusters: Sequence[Cluster]) -> Iterator[AttentionItem]:
    """Clusters that were connected and then left: nothing can be planned there."""
    counted: Sequence[Any] = clusters
    for cluster in [cluster for cluster in counted if not cluster.has_pool][:SHOWN]:
        if may(user, Role.OPERATOR, cluster.scopes):
            yield AttentionItem(
                f"{cluster} has no pool yet",
                "Nothing can be planned there: a pool selects the nodes for a profile.",
                "box",
                "unk",
                reverse("clusters:pool_new", args=[cluster.pk]),
                "Make a pool",
            )


def _sentence(text: str) -> str:
    """A reason as it came, as a sentence of its own."""
    text = text.strip()
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def _cluster_url(cluster: Cluster) -> str:
    return reverse("clusters:cluster", args=[cluster.pk])
