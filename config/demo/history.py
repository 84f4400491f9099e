"""Two weeks of work on the demo's clusters, done by the product's own services and the real engine.

Nothing is written into tables by hand: people connect, publish, plan, approve and start as a visitor could, and
rollouts are carried out against the simulated nodes, slice by slice, in the journey's time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from accounts.models import User
from clusters.connection import registry
from clusters.fleet import FleetError
from clusters.inventory import daily_counts, enrolment, inspection, reachability
from clusters.models import Cluster, Pool
from clusters.services import lifecycle
from common.clock import now
from config.demo import profiles as texts
from config.demo import queues, telemetry
from config.demo.fleet import EXTRA_POOL, Served
from config.demo.journey import Journey
from gpus.effects import studies
from gpus.peers import job
from jobs.approvals import reviews
from jobs.engine import component_runner, reconcile
from jobs.forecast.strategy import parse
from jobs.models import Plan, Rollout, Step
from jobs.planning import planner
from jobs.rollouts import rollout_actions
from profiles.models import Profile, Revision
from profiles.services import editing, library
from simfleet.controllers.programs import Program
from simfleet.fleets import POOL_LABEL

TICK_SECONDS, LONGEST_TICK_SECONDS = 4.0, 16.0
"""Of the journey's time between two slices of a rollout: longer while nothing moves, as during a reboot."""
PATIENCE_SECONDS = 240.0
"""The longest of such ticks where half an hour is waited for something that never comes."""
LONGEST = timedelta(hours=2)
"""Of one rollout. Beyond it something is wrong with the demo, and it says so instead of going on for ever."""
LOST = "dune-edge"
BARE = "fjord-bare"


class History:
    """`make` does everything, in order; `say` is told what is going on."""

    def __init__(
        self,
        served: Mapping[str, Served],
        people: Mapping[str, User],
        journey: Journey,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.served, self.journey, self.say = served, journey, say
        self.operator, self.approver = people["operator"], people["approver"]
        self.lead, self.admin = people["lead"], people["admin"]
        self.clusters: dict[str, Cluster] = {}

    def make(self) -> None:
        self.connect()
        self.publish_baseline()
        self.baseline_in_training()
        self.repair_in_training()
        self.train_on_development()
        self.begin_the_bare_one()
        self.serve_in_staging()
        self.lose_edge()
        self.huge_pages_in_staging()
        self.trouble_in_training()
        self.ask_for_approval()
        self.fill_the_hall()
        self.look_at_all()

    # ── clusters ──────────────────────────────────────────────────────────────────────────────────────────────────
    def connect(self) -> None:
        """Tested, marked and stored; then what the watch would do: rows, and a NodeTuning for every node."""
        self.say("connecting the clusters")
        for one in self.served.values():
            if one.site.is_connected and not one.site.is_late:
                self.connect_one(one)
        queues.define(self.served)

    def connect_one(self, one: Served) -> None:
        site = one.site
        cluster = lifecycle.connect_cluster(
            name=site.name, environment=site.environment, credential=one.credential, by=self.admin, budget=site.budget
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
        """What the watch would know by now."""
        cluster = self.clusters[name]
        inspection.refresh(cluster, registry.connect(cluster))
        cluster.refresh_from_db()

    def look_at_all(self) -> None:
        """Once more in the present: agents' Leases are minutes old by now, and plans want fresh rows."""
        self.until(timedelta(0))
        self.pass_time(0)
        for name in self.clusters:
            if name != LOST:
                self.look(name)
        daily_counts.count_all()
        for name, cluster in self.clusters.items():
            if name != LOST:
                telemetry.remember(cluster, self.served[name].sim)
        self.study_effects()
        job.reconcile()
        for pk in job.due():
            job.compare(pk)

    def study_effects(self) -> None:
        """What rollouts did to their GPUs, as far as it can be said by now."""
        studies.adopt()
        for pk in studies.due():
            if (study := studies.find(pk)) is not None:
                studies.advance(study)

    def lose_edge(self) -> None:
        """The line to the edge site is cut, which is how its row learns of it."""
        self.until(timedelta(hours=5))
        queues.first(self.served)
        if LOST not in self.served:
            return
        self.until(timedelta(hours=3))
        self.pass_time(0)
        self.look(LOST)
        self.served[LOST].door.stop()
        try:
            self.look(LOST)
        except FleetError as error:
            reachability.lost(self.clusters[LOST], str(error), since=now())

    # ── profiles ──────────────────────────────────────────────────────────────────────────────────────────────────
    def publish_baseline(self) -> None:
        for _ in library.load_all():
            pass
        self.baseline = Revision.objects.get(profile__name="gpu-baseline")

    def publish(self, name: str, source: str, message: str) -> Revision:
        profile = Profile.objects.filter(name=name).first()
        if profile is None:
            profile = editing.create(name=name, source=source, by=self.operator)
        else:
            editing.save_draft(profile, source=source, by=self.operator, version=profile.version)
        self.pass_time(100)
        return editing.publish(profile, message=message, by=self.operator, version=profile.version)

    # ── rollouts that are over ────────────────────────────────────────────────────────────────────────────────────
    def baseline_in_training(self) -> None:
        """Live settings on forty nodes: one approver, a minute."""
        self.say("atlas-training: gpu-baseline on train-rdma")
        self.until(timedelta(days=12))
        plan = self.plan("atlas-training", "train-rdma", self.baseline, "Baseline before the next pre-training run.")
        self.approve(plan, {self.approver: "Live settings only."})
        self.carry_out(plan)

    def repair_in_training(self) -> None:
        """Somebody tried other values by hand on five nodes and left them; two days later a plan puts them right."""
        self.say("atlas-training: five nodes drift and are repaired")
        self.until(timedelta(days=8, hours=5))
        for number in (3, 4, 11, 12, 30):
            self.served["atlas-training"].sim.drift(f"atlas-training-gpu-{number:03d}", "vm.swappiness", "60")
        self.pass_time(2)
        self.look("atlas-training")
        self.until(timedelta(days=5, hours=21))
        plan = self.plan("atlas-training", "train-rdma", self.baseline, "Back to the baseline after the benchmarks.")
        self.approve(plan, {self.approver: "Yes, the benchmarks are over."})
        self.carry_out(plan)
        self.hold_back()

    def train_on_development(self) -> None:
        """Kernel arguments with reboots; one machine does not come back, which the strategy tolerates once."""
        self.publish("training-h100", texts.TRAINING_R1, "Checkpoints to object storage were slow.")
        self.until(timedelta(hours=27))
        self.training = self.publish("training-h100", texts.TRAINING_R2, "IOMMU pass-through for GPUDirect RDMA.")
        self.say("cirrus-dev: training-h100 with reboots")
        machine = self.served["cirrus-dev"].sim.nodes.machine("cirrus-dev-gpu-005")
        assert machine is not None
        machine.dies_at_reboot = True
        plan = self.plan(
            "cirrus-dev",
            "dev",
            self.training,
            "Try the IOMMU argument on development first.",
            max_failures=1,
            batch="50%",
            reboot_deadline_seconds=300,
            drain_timeout_seconds=120,
            **CONSENT,
        )
        self.approve(plan, {self.lead: ""})
        self.carry_out(plan)

    def begin_the_bare_one(self) -> None:
        """A new cluster without network and device plugin. The first try takes images from a mirror that lacks them."""
        if BARE not in self.served:
            return
        self.say(f"{BARE}: the first try to install Volcano")
        self.until(timedelta(hours=25))
        self.connect_one(self.served[BARE])
        revision = self.publish("training-platform", texts.PLATFORM_R1, "The scheduler first, from our mirror.")
        self.served[BARE].sim.programs.add(Program("mirror.example/*", is_missing=True))
        plan = self.plan(BARE, "train", revision, "Volcano for the new cluster.")
        self.approve(plan, {self.approver: "Nothing runs there yet."})
        rollout = self.carry_out(plan, PATIENCE_SECONDS)
        self.pass_time(300)
        self.look(BARE)
        rollout_actions.revert(rollout, by=self.operator)
        self.let_it_rest(rollout)
        self.pass_time(600)
        self.publish("training-platform", texts.PLATFORM_R2, "Network and GPUs as well; images not from the mirror.")

    def serve_in_staging(self) -> None:
        self.say("borealis-inference: inference-l40s on serving")
        self.until(timedelta(hours=6))
        revision = self.publish("inference-l40s", texts.INFERENCE_R1, "First set for the model servers.")
        plan = self.plan("borealis-inference", "serving", revision, "Token streams stall after pauses.")
        self.approve(plan, {self.approver: "Checked with the gateway team."})
        self.carry_out(plan)

    def huge_pages_in_staging(self) -> None:
        """The first canary's memory is too fragmented: the kernel gives fewer pages, and the rollout stops there."""
        self.say("borealis-inference: inference-l40s with huge pages on canary")
        self.until(timedelta(hours=2))
        self.pass_time(0)
        self.look("borealis-inference")
        revision = self.publish("inference-l40s", texts.INFERENCE_R2, "Huge pages for the runtime.")
        for number in range(19, 25):
            self.served["borealis-inference"].sim.kernel(f"borealis-inference-gpu-{number:03d}").fragmentation = 0.99
        plan = self.plan(
            "borealis-inference",
            "canary",
            revision,
            "Huge pages, canary pool first.",
            batch="50%",
            step_deadline_seconds=120,
            **CONSENT,
        )
        self.approve(plan, {self.lead: "Canary only, please."})
        self.carry_out(plan)

    # ── what is wrong, and what waits ─────────────────────────────────────────────────────────────────────────────
    def hold_back(self) -> None:
        """Two nodes of the large job are slow for long: one that drifts later, and one whose settings are right."""
        for number, pace in ((7, 0.7), (2, 0.82)):
            self.served["atlas-training"].sim.gpus.hold_back(f"atlas-training-gpu-{number:03d}", pace)

    def trouble_in_training(self) -> None:
        """Drift by hand and by a file, a node whose kubelet fell silent, and one that a person cordoned.

        What drifted by hand is slower than its peers: simfleet.machines.slowing.
        """
        sim = self.served["atlas-training"].sim
        self.until(timedelta(minutes=95))
        for number in (3, 6):
            self.served["borealis-inference"].sim.drift(f"borealis-inference-gpu-{number:03d}", "vm.swappiness", "60")
        sim.drift("atlas-training-gpu-007", "vm.swappiness", "60")
        sim.drop_file("atlas-training-gpu-019", "/etc/sysctl.d/99-zzz-storage-vendor.conf", "vm.swappiness = 30\n")
        self.pass_time(2)
        self.look("borealis-inference")
        self.until(timedelta(minutes=70))
        queues.later(self.served)
        self.until(timedelta(minutes=50))
        sim.nodes.cordon("atlas-training-gpu-036", by="ines@example.com")
        sim.nodes.set_ready("atlas-training-gpu-023", is_ready=False)
        self.pass_time(2)
        self.look("atlas-training")

    def fill_the_hall(self) -> None:
        """Where the demo is to be large: a hall's worth of machines joins the first cluster, in a pool of their own."""
        served, cluster = self.served["atlas-training"], self.clusters["atlas-training"]
        if not served.site.joins:
            return
        self.say(f"atlas-training: {served.site.joins:,} nodes join")
        self.until(timedelta(minutes=8))  # so late because every reading from now on is of all of them
        served.join()
        self.pass_time(2)
        self.look("atlas-training")
        connection = registry.connect(cluster)
        while enrolment.enrol(cluster, connection):  # a thousand a call
            pass
        self.pass_time(5)
        self.look("atlas-training")
        selector = {"matchLabels": {POOL_LABEL: EXTRA_POOL}}
        lifecycle.create_pool(cluster, name=EXTRA_POOL, selector=selector, by=self.operator)
        large = self.plan("atlas-training", EXTRA_POOL, self.baseline, "The new hall gets the baseline, too.")
        self.pass_time(40)
        reviews.request(large, by=self.operator)

    def ask_for_approval(self) -> None:
        self.say("atlas-training: plans for approval")
        self.until(timedelta(minutes=35))
        self.pass_time(0)
        self.look("atlas-training")
        hasty = self.plan(
            "atlas-training", "train-rdma", self.training, "IOMMU pass-through everywhere.", max_failures=10, **CONSENT
        )
        self.pass_time(80)
        reviews.request(hasty, by=self.operator)
        self.pass_time(260)
        reviews.reject(
            hasty, by=self.lead, digest=hasty.digest, comment="Ten failures before it stops are too many in production."
        )
        self.until(timedelta(minutes=25))
        queues.lately(self.served)
        self.until(timedelta(minutes=20))
        self.pass_time(0)
        self.look("atlas-training")
        careful = self.plan(
            "atlas-training",
            "train-rdma",
            self.training,
            "IOMMU pass-through for GPUDirect RDMA; cirrus-dev gained 40 % in all-reduce.",
            batch="25%",
            soak_seconds=10,
            drain_timeout_seconds=60,
            **CONSENT,
        )
        self.pass_time(180)
        reviews.request(careful, by=self.operator, message="After tonight's checkpoint, please.")
        self.pass_time(240)
        reviews.approve(
            careful, by=self.lead, digest=careful.digest, comment="Checkpoint cadence agreed with team-llm."
        )
        self.pass_time(120)
        self.look("atlas-training")
        small = self.plan("atlas-training", "interactive", self.baseline, "The notebooks' nodes were forgotten.")
        self.pass_time(40)
        reviews.request(small, by=self.operator)

    # ── how ───────────────────────────────────────────────────────────────────────────────────────────────────────
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

    def let_it_rest(self, rollout: Rollout, longest: float = LONGEST_TICK_SECONDS) -> None:
        until, tick = now() + LONGEST, TICK_SECONDS
        stood: dict[UUID, str] = {}
        while now() < until:
            reconcile.run(rollout.pk)
            for step in component_runner.due(rollout.pk):
                component_runner.carry(step)
            rollout.refresh_from_db()
            if _rests(rollout):
                return
            stands = dict(Step.objects.filter(rollout=rollout).values_list("pk", "status"))
            tick = min(tick * 2, longest) if stands == stood else TICK_SECONDS
            stood = stands
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

    def read_gpus(self) -> None:
        for cluster in Cluster.objects.filter(name__in=self.clusters).order_by("name"):
            telemetry.record(cluster, self.served[cluster.name].sim)

    def pass_time(self, seconds: float) -> None:
        """All clusters live in one time: the first tick moves it, the others catch up."""
        for number, one in enumerate(self.served.values()):
            one.sim.tick(0 if number else seconds)


CONSENT = {"delete_empty_dir_data": True, "delete_unmanaged_pods": True}


def _rests(rollout: Rollout) -> bool:
    if rollout.is_live and rollout.status not in (Rollout.Status.PAUSED, Rollout.Status.STOPPED):
        return False
    return not Step.objects.filter(rollout=rollout, status__in=Step.ACTIVE).exists()
