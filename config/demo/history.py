"""Two weeks of work on the demo's clusters, done by the product's own services and the real engine.

Nothing is written into tables by hand: people connect, publish, plan, approve and start as a visitor could
(config.demo.operations).
"""

from __future__ import annotations

from datetime import timedelta

from clusters.connection import registry
from clusters.fleet import FleetError
from clusters.inventory import daily_counts, enrolment, reachability
from clusters.models import Pool
from clusters.services import lifecycle
from common.clock import now
from config.demo import by_hand, money, people, queues, telemetry
from config.demo import profiles as texts
from config.demo.fleet import EXTRA_POOL
from config.demo.operations import PATIENCE_SECONDS, Operations
from gpus.peers import job
from gpus.showback import teams
from jobs.approvals import reviews
from jobs.rollouts import fleet_runs, rollout_actions
from jobs.rollouts.fleet_runs import WantedRing
from profiles.models import Revision
from profiles.services import library
from simfleet.controllers import queues as simulated
from simfleet.controllers.programs import Program
from simfleet.fleets import POOL_LABEL

LOST = "dune-edge"
BARE = "fjord-bare"
EQUIPPED, TRIED = "borealis-inference", "cirrus-dev"
"""Where plain helm had installed something before Setpoint came."""
RINGS = (
    ("development", BARE, "train", 60),
    ("staging", EQUIPPED, "canary", 12 * 60),
    ("production", "atlas-training", "interactive", 0),
)
"""Of the fleet run: name, cluster, pool, and for how many minutes it soaks."""
CONSENT = {"delete_empty_dir_data": True, "delete_unmanaged_pods": True}


class DemoHistory(Operations):
    """`make` does everything, in order; `say` receives the progress."""

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
        self.ask_for_components()
        self.line_up_rings()
        self.fill_the_hall()
        self.look_at_all()

    # ── clusters ──────────────────────────────────────────────────────────────────────────────────────────────────
    def connect(self) -> None:
        """Tested, marked and stored; then what the watch would do: rows, and a NodeTuning for every node."""
        self.say("connecting the clusters")
        self.install_by_hand()
        for entry in self.served.values():
            if entry.site.is_connected and not entry.site.is_late:
                self.connect_one(entry)
        queues.define(self.served)
        money.set_up(self.admin)
        people.limit_to_teams({name: pk for pk, name in teams.names().items()})

    def install_by_hand(self) -> None:
        """Install with plain helm, as teams had: an older GPU Operator, and a Volcano that was only tried."""
        operator, volcano = by_hand.earlier_gpu_operator(), by_hand.volcano()
        by_hand.define(self.served[EQUIPPED], operator)
        self.pass_time(2)
        by_hand.install(self.served[EQUIPPED], "gpu-operator", "gpu-operator", operator)
        by_hand.install(self.served[TRIED], "volcano", "volcano-system", volcano)
        self.pass_time(60)
        for name in ("nightly", "sweeps"):
            simulated.volcano_queue(self.served[TRIED].sim, name, namespaces=[])

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
        money.announce(self.admin)
        self.study_effects()
        job.reconcile()
        for pk in job.due():
            job.compare(pk)

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

    # ── rollouts that are over ────────────────────────────────────────────────────────────────────────────────────
    def baseline_in_training(self) -> None:
        """Live settings on forty nodes: one approver, a minute."""
        self.say("atlas-training: gpu-baseline on train-rdma")
        self.until(timedelta(days=12))
        plan = self.plan("atlas-training", "train-rdma", self.baseline, "Baseline before the next pre-training run.")
        self.approve(plan, {self.approver: "Live settings only."})
        self.carry_out(plan)

    def repair_in_training(self) -> None:
        """Drift five nodes by hand, as after benchmarks; two days later a plan repairs them."""
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
        """Started by break-glass at night. One of its two reviews is given since, and one is missing."""
        self.say("borealis-inference: inference-l40s on serving")
        self.until(timedelta(hours=6))
        revision = self.publish("inference-l40s", texts.INFERENCE_R1, "First set for the model servers.")
        plan = self.plan("borealis-inference", "serving", revision, "Token streams stall after pauses.")
        rollout = self.break_glass(plan, "Streams of customers stall, and no approver answers the pager.")
        self.pass_time(1200)
        self.review_glass(rollout, self.lead, "The gateway's graphs show the stalls; these are the runbook's values.")

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
        """Join a hall's worth of machines to the first cluster of a large demo, in a pool of their own."""
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
        notebooks = Pool.objects.get(cluster=self.clusters["atlas-training"], name="interactive")
        lifecycle.update_pool(notebooks, by=self.admin, owner=money.RULES[1]["team"])
        small = self.plan("atlas-training", "interactive", self.baseline, "The notebooks' nodes were forgotten.")
        self.pass_time(40)
        reviews.request(small, by=self.operator)

    def ask_for_components(self) -> None:
        """An upgrade of the GPU Operator where models are served, and a removal of Volcano: both wait."""
        self.say(f"{EQUIPPED}: the GPU Operator is to be upgraded, and Volcano to be removed from {TRIED}")
        revision = self.publish("inference-l40s", texts.INFERENCE_R3, "GPU Operator v26.7; huge pages wait.")
        upgrade = self.plan(EQUIPPED, "serving", revision, "Driver 580 for the new runtime, one node at a time.")
        self.pass_time(40)
        reviews.request(upgrade, by=self.operator, message="After the evening peak, please.")
        revision = self.publish("development", texts.DEVELOPMENT_R1, "Training has its own Volcano.")
        removal = self.plan(TRIED, "dev", revision, "Volcano was only tried here.")
        self.pass_time(40)
        reviews.request(removal, by=self.operator, message="Unused since the trial.")

    def line_up_rings(self) -> None:
        """Make a fleet run that takes a limit from development to production: not started, its plans are drafts."""
        if BARE not in self.served:
            return
        self.say("notebooks: a fleet run over three clusters")
        revision = self.publish("notebooks", texts.NOTEBOOKS_R1, "Notebook servers run out of file watches.")
        rings = []
        for name, cluster, pool, soak in RINGS:
            plan = self.plan(cluster, pool, revision, f"More file watches, ring {name}.")
            rings.append(WantedRing(name, soak, [plan]))
            self.pass_time(40)
        fleet_runs.create(by=self.operator, name="File watches for notebooks", wanted=rings)
