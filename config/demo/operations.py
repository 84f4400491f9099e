"""Operations of the demo's people in the journey's time, each through the product's own services.

Rollouts are carried out against the simulated nodes, slice by slice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from accounts.models import User
from clusters.connection import registry
from clusters.inventory import daily_counts, enrolment, inspection, reachability
from clusters.models import Cluster, Pool
from clusters.services import lifecycle
from common.clock import now
from config.demo import queues, starts, telemetry
from config.demo.fleet import ServedCluster
from config.demo.journey import Journey
from gpus.capacity import pending
from gpus.effects import studies
from gpus.models import Waiting
from jobs.approvals import glass_reviews, reviews
from jobs.engine import component_runner, reconcile
from jobs.forecast.strategy import parse
from jobs.models import GlassReview, Plan, Rollout, Step
from jobs.planning import planner
from jobs.rollouts import glass_start, rollout_actions
from profiles.models import Profile, Revision
from profiles.services import editing
from simfleet.fleets import POOL_LABEL

TICK_SECONDS, LONGEST_TICK_SECONDS = 4.0, 16.0
"""Of the journey's time between two slices of a rollout: longer while nothing moves, as during a reboot."""
PATIENCE_SECONDS = 240.0
"""The longest of such ticks where half an hour is waited for something that never comes."""
LONGEST = timedelta(hours=2)
"""Of one rollout. Beyond it something is wrong with the demo, and it says so and stops."""


class Operations:
    """Operations on the demo's clusters; each takes its share of the journey's time."""

    def __init__(
        self,
        served: Mapping[str, ServedCluster],
        people: Mapping[str, User],
        journey: Journey,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.served, self.journey, self.say = served, journey, say
        self.operator, self.approver = people["operator"], people["approver"]
        self.lead, self.admin = people["lead"], people["admin"]
        self.clusters: dict[str, Cluster] = {}

    def connect_one(self, entry: ServedCluster) -> None:
        site = entry.site
        cluster = lifecycle.connect_cluster(
            name=site.name, environment=site.environment, credential=entry.credential, by=self.admin, budget=site.budget
        )
        self.clusters[site.name] = cluster
        fleet = registry.connect(cluster)
        inspection.refresh(cluster, fleet)
        inspection.inspect(cluster, fleet)
        enrolment.enrol(cluster, fleet)
        self.pass_time(5)
        self.look(site.name)
        for pool in site.pools:
            lifecycle.create_pool(cluster, name=pool, selector={"matchLabels": {POOL_LABEL: pool}}, by=self.operator)

    def look(self, name: str) -> None:
        """Refresh the cluster's rows to the state that the watch would know by now."""
        cluster = self.clusters[name]
        inspection.refresh(cluster, registry.connect(cluster))
        cluster.refresh_from_db()

    def study_effects(self) -> None:
        """Study the effects of rollouts on their GPUs, as far as they can be measured by now."""
        studies.adopt()
        for pk in studies.due():
            if (study := studies.find(pk)) is not None:
                studies.advance(study)

    def publish(self, name: str, source: str, message: str) -> Revision:
        profile = Profile.objects.filter(name=name).first()
        if profile is None:
            profile = editing.create(name=name, source=source, by=self.operator)
        else:
            editing.save_draft(profile, source=source, by=self.operator, version=profile.version)
        self.pass_time(100)
        return editing.publish(profile, message=message, by=self.operator, version=profile.version)

    def plan(self, cluster: str, pool: str, revision: Revision, message: str, **strategy: Any) -> Plan:
        self.pass_time(0)
        self.look(cluster)
        row = Pool.objects.select_related("cluster").get(cluster=self.clusters[cluster], name=pool)
        return planner.make(pool=row, revision=revision, strategy=parse(strategy), by=self.operator, message=message)

    def approve(self, plan: Plan, by: Mapping[User, str]) -> None:
        self.pass_time(70)
        reviews.request(plan, by=self.operator)
        for person, comment in by.items():
            self.pass_time(90)
            reviews.approve(plan, by=person, digest=plan.digest, comment=comment)

    def carry_out(self, plan: Plan, longest: float = LONGEST_TICK_SECONDS) -> Rollout:
        """Start it and let engine and fleet take turns until it rests. Raises RuntimeError when it does not."""
        plan.refresh_from_db()
        self.pass_time(30)
        self.look(plan.cluster.name)
        rollout = rollout_actions.start(plan, by=self.operator)
        self.let_it_rest(rollout, longest)
        return rollout

    def break_glass(self, plan: Plan, reason: str) -> Rollout:
        """Start it without approval, as the operator does on the plan's page, and let it rest."""
        self.pass_time(70)
        reviews.request(plan, by=self.operator)
        self.pass_time(240)
        self.look(plan.cluster.name)
        rollout = glass_start.start(
            plan, by=self.operator, digest=plan.digest, reason=reason, confirmation=str(plan), proved_at=now()
        )
        self.let_it_rest(rollout)
        return rollout

    def review_glass(self, rollout: Rollout, by: User, text: str) -> None:
        rollout = Rollout.objects.get(pk=rollout.pk)
        glass_reviews.review(rollout, by=by, verdict=GlassReview.Verdict.OK, text=text, proved_at=now())

    def let_it_rest(self, rollout: Rollout, longest: float = LONGEST_TICK_SECONDS) -> None:
        until, tick = now() + LONGEST, TICK_SECONDS
        stood: dict[UUID, str] = {}
        while now() < until:
            reconcile.run(rollout.pk)
            for step in component_runner.due_steps(rollout.pk):
                component_runner.carry_out(step)
            rollout.refresh_from_db()
            if _rests(rollout):
                return
            statuses = dict(Step.objects.filter(rollout=rollout).values_list("pk", "status"))
            tick = min(tick * 2, longest) if statuses == stood else TICK_SECONDS
            stood = statuses
            self.pass_time(tick)
            self.look(rollout.cluster.name)
        raise RuntimeError(f"{rollout} did not come to rest: {rollout.waiting_for}")

    def until(self, ago: timedelta) -> None:
        """Be at so long before the present. Each day on the way ends with the product's own count of its nodes."""
        while (evening := now().replace(hour=23, minute=50, second=0)) < self.journey.present() - ago:
            if evening > now():
                self.travel(self.journey.present() - evening)
                self.pass_time(0)
                for cluster in Cluster.objects.exclude(reach=Cluster.Reach.UNREACHABLE):
                    inspection.hear(cluster, registry.connect(cluster))
                    reachability.seen_at(cluster, now())  # as a watch does that hears of no change
                daily_counts.count_all()
            next_day = self.journey.present() - evening - timedelta(minutes=20)
            if next_day < ago:  # it begins after the moment to be at
                break
            self.travel(next_day)
        self.travel(ago)

    def travel(self, ago: timedelta) -> None:
        """Be at so long before the present. On the way through the last day, GPUs are read."""
        left = min(self.journey.present() - now(), max(ago, telemetry.REMEMBERED))
        self.journey.jump_to(left)
        while left > ago:
            left = max(ago, left - telemetry.EVERY)
            self.journey.jump_to(left)
            self.read_gpus()
            self.read_queues(left)
            starts.pass_by(left)

    def read_gpus(self) -> None:
        for cluster in Cluster.objects.filter(name__in=self.clusters).order_by("name"):
            telemetry.record(cluster, self.served[cluster.name].sim)

    def read_queues(self, left: timedelta) -> None:
        """Let time pass in the queues, and read them as the background processes do."""
        queues.pass_by(self.served, left)
        pending.reconcile()
        for pk in Waiting.objects.filter(cluster__name__in=(queues.VOLCANO, queues.KUEUE)).values_list("pk", flat=True):
            pending.refresh(pk, reach=telemetry.EVERY.total_seconds() + 60)

    def pass_time(self, seconds: float) -> None:
        """All clusters live in one time: the first tick moves it, the others catch up."""
        for number, entry in enumerate(self.served.values()):
            entry.sim.tick(0 if number else seconds)


def _rests(rollout: Rollout) -> bool:
    if rollout.is_live and rollout.status not in (Rollout.Status.PAUSED, Rollout.Status.STOPPED):
        return False
    return not Step.objects.filter(rollout=rollout, status__in=Step.ACTIVE).exists()
