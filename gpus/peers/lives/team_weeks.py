"""One team's week: where its pods held GPUs, its jobs, what it cost, and nothing of any other team.

The week is today (UTC) and the six days before. Its page, to which a viewer may be limited, and REST show it alike.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import F, Min, Q, QuerySet, Sum

from accounts.models import User
from accounts.permissions import has_role, restrict, teams_of, visible_scopes
from clusters.models import Cluster, GpuJob, GpuPod, Node
from common.clock import now
from common.errors import Missing
from compliance.reports.selectors import shown_of_node
from gpus.models import GpuUse, JobUse, NodeUse, Team, TeamRules
from gpus.peers.lives.figures import FEWEST_SECONDS, Share, scheduling
from gpus.showback import charges, periods, prices, rules, teams, whose
from gpus.showback.periods import Period
from gpus.showback.prices import PriceBook, midnight
from gpus.showback.rules import RuleList
from gpus.showback.statement import Line

DAYS = 7
MOST_NODES = 500
MOST_JOBS = 200
MOST_READ = 5000
"""Jobs of the team that are counted, those that live first."""
CONTROLLERS = frozenset({"Job", "StatefulSet", "ReplicaSet", "DaemonSet", "ReplicationController"})
"""Kinds of jobs that are the controllers of their pods themselves."""
Rows = TypeVar("Rows", bound=QuerySet[Any])
Place = tuple[UUID, str]
"""Cluster and name of a node, or key of a job."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The part of a team that a person sees."""

    user: User
    is_whole: bool
    """All of it; else what it has in clusters that the person sees."""

    def rows(self, queryset: Rows) -> Rows:
        return queryset if self.is_whole else restrict(queryset, self.user)


@dataclass(slots=True)
class TeamNode:
    """A node on which pods of the team held GPUs this week, or hold some now."""

    cluster_id: UUID
    cluster: str
    name: str
    held_hours: float = 0.0
    """GPU-hours of the team alone, as all that follow."""
    active_hours: float = 0.0
    pods: int = 0
    """Of the team, now."""
    pk: int | None = None
    """None: the node is gone."""
    state: str = ""
    """On the axis of compliance; of now."""
    is_open: bool = False
    """The person may open its page."""


@dataclass(frozen=True, slots=True)
class TeamJob:
    job: GpuJob
    gpu_hours: float | None
    """That its pods held this week; None: `is_shared`."""
    scheduling: Share
    is_shared: bool
    """Pods of it are another team's, or may be: it has as many controllers as are kept."""
    is_open: bool


@dataclass(frozen=True, slots=True)
class TeamWeek:
    team: Team
    at: datetime
    week: Period
    month: Period
    is_whole: bool
    """Else it is of some clusters, and the budget, which is for all, is not held against it."""
    line: Line
    """The week, as a line of the cost page."""
    this_month: Line
    """The month so far, with the budget."""
    nodes: Sequence[TeamNode]
    nodes_count: int
    nodes_since: date | None
    """The day from which on GPU-hours of nodes are counted; None: no node was recorded yet."""
    jobs: Sequence[TeamJob]
    jobs_count: int
    """Those that live, and those that ended this week; MOST_READ at most."""
    jobs_are_cut: bool
    """There are more."""
    scheduling: Share
    """Of all of these jobs, by the GPUs that they requested."""
    currency: str

    @property
    def idle(self) -> Share:
        """Return the share held idle, of the GPU-hours with telemetry that its pods held this week."""
        measured = self.line.active + self.line.held_idle
        if measured * 3600 < FEWEST_SECONDS:
            return Share(None, "No telemetry of its GPUs is stored.")
        return Share(float(self.line.held_idle / measured))

    @property
    def lacks_days(self) -> bool:
        """Return whether nodes are not known for all of the week."""
        return self.nodes_since is None or self.nodes_since > self.week.start

    @property
    def more_nodes(self) -> int:
        return self.nodes_count - len(self.nodes)

    @property
    def more_jobs(self) -> int:
        return self.jobs_count - len(self.jobs)


def visible_teams(user: User) -> QuerySet[Team]:
    """Return all teams to a person with a role; else those to which the person is limited."""
    return Team.objects.all() if has_role(user) else Team.objects.filter(pk__in=teams_of(user))


def reach(user: User, pk: int) -> Reach:
    """Raises Missing, for a team that is not there as for one that is another's."""
    if not visible_teams(user).filter(pk=pk).exists():
        raise Missing("Not found, or outside your permissions.")
    return Reach(user, pk in teams_of(user) or "*" in visible_scopes(user))


def of(user: User, pk: int) -> TeamWeek:
    """Gather it in a fixed number of queries, for any number of nodes, pods and jobs. Raises Missing."""
    seen, team, at, book = reach(user, pk), Team.objects.get(pk=pk), now(), prices.book()
    saved = teams.current()
    rule_list = rules.stored(saved.rules)
    today = periods.today()
    week = Period(today - timedelta(days=DAYS - 1), today + timedelta(days=1))
    month = periods.month_of(today)
    this_month = _line(seen, team, month, book, rule_list)
    this_month.budget = team.budget if seen.is_whole else None
    pods = _pods(seen, pk, rule_list)
    named_since = _named_since(saved) if rule_list.needs_owner else week.start
    # Rows of before without an owner may be of one that rules name only since then.
    uses = NodeUse.objects.filter(day__gte=week.start, day__lt=week.end).exclude(owner="", day__lt=named_since)
    nodes = _nodes(seen, pk, uses, rule_list, pods)
    jobs = _jobs(seen, pk, week, rule_list, pods)
    shown_nodes, shown_jobs = nodes[:MOST_NODES], jobs.rows[:MOST_JOBS]
    opened = _opened(user, {node.cluster_id for node in shown_nodes} | {job.cluster_id for job in shown_jobs})
    _add_state(shown_nodes, opened)
    hours = _hours(shown_jobs, week)
    return TeamWeek(
        team=team,
        at=at,
        week=week,
        month=month,
        is_whole=seen.is_whole,
        line=_line(seen, team, week, book, rule_list),
        this_month=this_month,
        nodes=shown_nodes,
        nodes_count=len(nodes),
        nodes_since=_nodes_since(named_since, week),
        jobs=[
            TeamJob(
                job,
                None if job.pk in jobs.shared else hours.get(job.pk, 0.0),
                scheduling(job, at),
                job.pk in jobs.shared,
                job.cluster_id in opened,
            )
            for job in shown_jobs
        ],
        jobs_count=len(jobs.rows),
        jobs_are_cut=jobs.is_cut,
        scheduling=_scheduling(jobs.rows, at),
        currency=prices.currency(),
    )


def _line(seen: Reach, team: Team, period: Period, book: PriceBook, rule_list: RuleList) -> Line:
    line = Line(charges.TEAM, team.name, team)
    for charge in charges.of_team(seen.rows(GpuUse.objects.all()), team.pk, period, book, rule_list):
        line.add(charge)
    return line


@dataclass(frozen=True, slots=True)
class _Pod:
    cluster_id: UUID
    cluster: str
    node: str
    """Empty: on none yet."""
    job: str
    """Its key; empty: not known."""
    is_own: bool


def _pods(seen: Reach, team: int, rule_list: RuleList) -> list[_Pod]:
    """Return the pods that request GPUs now and may be the team's, and of each whether it is."""
    rows = seen.rows(GpuPod.objects.filter(whose.pods_of(team, rule_list))).order_by("pk")
    columns = ("cluster", "cluster__name", "node_name", "job_key", "namespace", "owner_kind", "owner_name")
    pods = []
    for cluster_id, cluster, node, job, space, kind, name in rows.values_list(*columns):
        is_own = rule_list.team(space, f"{kind}/{name}" if kind else "") == team
        pods.append(_Pod(cluster_id, cluster, node, job, is_own))
    return pods


def _named_since(saved: TeamRules) -> date:
    """Return the first whole day on which the owners that rules name were kept apart on each node."""
    return (saved.owners_changed_at or saved.changed_at).date() + timedelta(days=1)


def _nodes_since(named_since: date, week: Period) -> date | None:
    first = NodeUse.objects.aggregate(first=Min("day"))["first"]
    return max(first, named_since, week.start) if first else None


def _nodes(
    seen: Reach, team: int, uses: QuerySet[NodeUse], rule_list: RuleList, pods: Iterable[_Pod]
) -> list[TeamNode]:
    """Return the nodes with the most GPU-hours of the team first."""
    nodes: dict[Place, TeamNode] = {}
    rows = uses.filter(whose.held_by(team, rule_list))
    columns = ("cluster", "cluster__name", "node_name", "namespace", "owner")
    grouped = seen.rows(rows).order_by().values(*columns).annotate(sum_held=Sum("held"), sum_active=Sum("active"))
    for row in grouped.values_list(*columns, "sum_held", "sum_active").iterator(2000):
        cluster_id, cluster, name, space, owner, held, active = row
        if rule_list.team(space, owner) == team and held > 0:
            node = nodes.setdefault((cluster_id, name), TeamNode(cluster_id, cluster, name))
            node.held_hours += held / 3600
            node.active_hours += active / 3600
    for pod in pods:
        if pod.is_own and pod.node:
            node = nodes.setdefault((pod.cluster_id, pod.node), TeamNode(pod.cluster_id, pod.cluster, pod.node))
            node.pods += 1
    return sorted(nodes.values(), key=lambda node: (-node.held_hours, -node.pods, node.cluster, node.name))


def _opened(user: User, clusters: Iterable[UUID]) -> set[UUID]:
    """Return those of these clusters whose pages the person may open."""
    return set(restrict(Cluster.objects.filter(pk__in=list(clusters)), user, "").values_list("pk", flat=True))


def _add_state(nodes: Sequence[TeamNode], opened: set[UUID]) -> None:
    by_place = {(node.cluster_id, node.name): node for node in nodes}
    names = {node.name for node in nodes}
    rows = Node.objects.present().filter(cluster__in={node.cluster_id for node in nodes}, name__in=names)
    for pk, cluster_id, name, shown in (
        rows.order_by().annotate(shown=shown_of_node()).values_list("pk", "cluster", "name", "shown")
    ):
        if (node := by_place.get((cluster_id, name))) is not None:
            node.pk, node.state, node.is_open = pk, shown, cluster_id in opened


@dataclass(slots=True)
class _Jobs:
    rows: list[GpuJob]
    is_cut: bool
    """There are more than MOST_READ."""
    shared: set[int]


def _jobs(seen: Reach, team: int, week: Period, rule_list: RuleList, pods: Iterable[_Pod]) -> _Jobs:
    """Return the team's jobs: those that live, the latest queued first, then those that ended this week."""
    may_be = whose.jobs_of(team, rule_list)
    if rule_list.needs_owner:
        may_be |= Q(key__in=sorted({pod.job for pod in pods if pod.job and pod.is_own})[:MOST_READ])
    rows = GpuJob.objects.filter(may_be & (Q(ended_at=None) | Q(ended_at__gte=midnight(week.start))))
    rows = seen.rows(rows).order_by(F("ended_at").desc(nulls_first=True), "-queued_at", "-pk")
    living = _living(rows) if rule_list.needs_owner else {}
    jobs = _Jobs([], False, set())
    picked: list[int] = []
    columns = ("pk", "cluster", "key", "namespace", "kind", "name", "controllers")
    for pk, cluster_id, key, space, kind, name, stored in rows.values_list(*columns).iterator(2000):
        owners = {*GpuJob.controllers_of(stored), *living.get((cluster_id, key), ())} if rule_list.needs_owner else {""}
        owned_by = {rule_list.team(space, owner) for owner in owners or _itself(kind, name)}
        if team not in owned_by:
            continue
        if len(picked) == MOST_READ:
            jobs.is_cut = True
            break
        picked.append(pk)
        if len(owned_by) > 1 or len(owners) >= GpuJob.MOST_CONTROLLERS:
            jobs.shared.add(pk)
    # Not in_bulk, which asks once for each 999 on SQLite.
    by_pk = {
        job.pk: job for job in GpuJob.objects.filter(pk__in=picked).select_related("cluster").defer("pods", "roles")
    }
    jobs.rows = [by_pk[pk] for pk in picked if pk in by_pk]
    return jobs


def _living(rows: QuerySet[GpuJob]) -> dict[Place, set[str]]:
    """Return the controllers of pods that live by cluster and key of their job: rows of before have none stored."""
    keys = rows.filter(ended_at=None).order_by().values("key")
    owners: dict[Place, set[str]] = defaultdict(set)
    columns = ("cluster", "job_key", "owner_kind", "owner_name")
    for cluster_id, key, kind, name in (
        GpuPod.objects.filter(job_key__in=keys).order_by().values_list(*columns).distinct().iterator(2000)
    ):
        owners[cluster_id, key].add(f"{kind}/{name}" if kind else "")
    return owners


def _itself(kind: str, name: str) -> Sequence[str]:
    """Return the controller of pods of which none is known: the job itself where it makes its pods."""
    if kind == "Pod":
        return ("",)
    return (f"{kind}/{name}",) if kind in CONTROLLERS else ()


def _hours(jobs: Iterable[GpuJob], week: Period) -> dict[int, float]:
    seconds: Counter[int] = Counter()
    uses = JobUse.objects.filter(job__in=[job.pk for job in jobs], day__gte=week.start, day__lt=week.end)
    sums = {f"sum_{name}": Sum(name) for name in GpuUse.STATES}
    for pk, *amounts in uses.order_by().values("job").annotate(**sums).values_list("job", *sums):
        seconds[pk] += sum(amounts)
    return {pk: total / 3600 for pk, total in seconds.items()}


def _scheduling(jobs: Iterable[GpuJob], at: datetime) -> Share:
    totals: dict[str, float] = defaultdict(float)
    for job in jobs:
        life = (job.until(at) - job.queued_at).total_seconds()
        if life >= FEWEST_SECONDS and job.gpus:
            totals["life"] += job.gpus * life
            totals["ran"] += job.gpus * min(life, job.all_running_seconds(job.until(at)))
    if not totals["life"]:
        return Share(None, "No job of this week lived for a minute.")
    return Share(totals["ran"] / totals["life"])
