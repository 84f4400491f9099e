"""The demo's history, made by the real engine over the real HTTPS doors. Clusters have as many nodes as it names."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db.models import Max, Min
from django.test import Client

from accounts.models import User
from audit.models import Record
from clusters.inventory import daily_counts
from clusters.models import Cluster, Node
from common.clock import now
from compliance.models import SettingState
from config.demo import fleet
from config.demo.history import BARE, LOST
from gpus.capacity import pending
from gpus.models import StudyEffect
from jobs.approvals import rules_as_policy, verdicts
from jobs.models import BreakGlass, Rollout, Step, StepEvent
from notices.models import Alert
from profiles.models import Revision
from profiles.services.library import names as library_names
from simfleet.fleets import NO_NETWORK
from simfleet.machines import slowing
from simfleet.memory import SimFleet
from tests.demo import glossary
from tests.demo.alert_conditions import TestAlertConditions
from tests.demo.component_plans import TestComponentPlans, plan_in
from tests.demo.fleet_run import TestFleetRun
from tests.demo.glossary import hooks as _hooks
from tests.demo.narrow_readers import TestNarrowReaders
from tests.demo.training_steps import TestTrainingSteps

# Collected here, where the world is made
__all__ = ["TestAlertConditions", "TestComponentPlans", "TestFleetRun", "TestNarrowReaders", "TestTrainingSteps"]
pytestmark = [pytest.mark.django_db, pytest.mark.one_database]
"""Beside `world`, which needs no mark, so that this file's tests find a database when they run alone."""


def rollout_in(pool: str) -> Rollout:
    return Rollout.objects.get(plan__pool__name=pool)


@pytest.mark.usefixtures("world")
class TestHistory:
    def test_all_clusters_answer_but_one_which_says_since_when_and_why_not(self) -> None:
        reach, lost = dict(Cluster.objects.values_list("name", "reach")), Cluster.objects.get(name=LOST)
        assert reach == {
            "atlas-training": "reachable",
            "borealis-inference": "reachable",
            "cirrus-dev": "reachable",
            BARE: "reachable",
            LOST: "unreachable",
        }
        assert timedelta(hours=2) < now() - lost.reach_since < timedelta(hours=4)
        assert "refused" in lost.reach_reason

    def test_a_rollout_of_live_settings_succeeded_and_the_simulated_kernels_have_its_values(
        self, world: dict[str, fleet.ServedCluster]
    ) -> None:
        rollout = Rollout.objects.filter(plan__pool__name="train-rdma").earliest("created_at")

        assert (rollout.status, rollout.steps.count()) == ("succeeded", 40)
        assert world["atlas-training"].sim.kernel("atlas-training-gpu-001").sysctl("vm.swappiness") == "10"

    def test_a_rollout_with_reboots_failed_at_a_machine_that_did_not_come_back(
        self, world: dict[str, fleet.ServedCluster]
    ) -> None:
        rollout = rollout_in("dev")
        failed = rollout.steps.get(status="failed")

        assert (rollout.status, failed.node_name) == ("failed", "cirrus-dev-gpu-005")
        assert "down for its reboot" in failed.error
        assert "iommu=pt" in (world["cirrus-dev"].sim.kernel("cirrus-dev-gpu-001").read("/proc/cmdline") or "")

    def test_a_rollout_stopped_at_a_node_that_gave_fewer_huge_pages_than_were_asked_for(self) -> None:
        rollout = rollout_in("canary")
        failed = rollout.steps.get(status="failed")

        assert (rollout.status, rollout.steps.filter(status="queued").count()) == ("stopped", 5)
        assert "hugepages-2Mi" in failed.error

    def test_a_production_plan_with_reboots_waits_for_the_second_of_two_approvers(self) -> None:
        plan = plan_in("train-rdma", "review")
        standing = verdicts.approval_state(plan)

        assert (plan.cluster.environment, plan.worst_class) == ("production", "reboot")
        assert (standing.rule.approvers, standing.missing) == (2, 1)
        assert not verdicts.reason_not_to_judge(plan, User.objects.get(email="approver@example.com"))
        assert rules_as_policy.policy_from_rules().differing == ()
        assert {"pdb", "empty-dir", "bare-pods", "left-out", "key-missing"} <= {f["code"] for f in plan.findings}

    def test_a_plan_without_drains_waits_for_any_approver(self) -> None:
        plan = plan_in("interactive", "review")

        assert (verdicts.strictest_requirement(plan).approvers, verdicts.approval_state(plan).missing) == (1, 1)

    def test_nodes_that_join_a_large_demo_are_observed_in_a_pool_of_their_own_and_planned_for(self) -> None:
        names = [node.name for node in Node.objects.present().order_by("name") if "pretrain" in node.labels.values()]

        assert names == ["atlas-training-gpu-043", "atlas-training-gpu-044", "atlas-training-gpu-045"]
        assert plan_in("pretrain", "review").summary["nodes"] == 3

    def test_five_nodes_drifted_for_two_days_and_were_repaired_which_each_days_own_count_shows(self) -> None:
        repair = Rollout.objects.filter(plan__pool__name="train-rdma").latest("created_at")
        atlas = Cluster.objects.get(name="atlas-training")
        trend = daily_counts.trend([atlas.pk], "compliance", "drifted")
        drifted = dict(zip(trend.days, trend.counts, strict=True))
        today = now().date()

        assert (repair.status, repair.steps.filter(status="succeeded").count()) == ("succeeded", 5)
        assert sum(count is not None for count in trend.counts) >= 13
        assert [drifted[today - timedelta(days=back)] for back in (10, 7, 3, 0)] == [0, 5, 0, 2]

    def test_nodes_drifted_by_hand_and_by_a_file_which_is_named(self) -> None:
        states = SettingState.objects.filter(state="drifted", node__cluster__name="atlas-training")
        drifted = {state.node.name: state for state in states.select_related("node")}
        assert set(drifted) == {"atlas-training-gpu-007", "atlas-training-gpu-019"}
        assert "/etc/sysctl.d/99-zzz-storage-vendor.conf" in drifted["atlas-training-gpu-019"].reason

    def test_one_node_of_production_is_not_ready_and_a_person_cordoned_another(self) -> None:
        nodes = Node.objects.filter(cluster__name="atlas-training", gone_at=None)

        assert list(nodes.filter(is_ready=False).values_list("name", flat=True)) == ["atlas-training-gpu-023"]
        cordoned = nodes.filter(is_cordoned=True).values_list("name", "cordoned_by")
        assert list(cordoned) == [("atlas-training-gpu-036", "")]

    def test_teams_extend_the_librarys_profile_in_revisions(self) -> None:
        revisions = {
            str(revision): revision for revision in Revision.objects.select_related("profile", "extends__profile")
        }

        library = {f"{name} r1" for name in library_names()}
        assert set(revisions) - library == {
            "training-h100 r1", "training-h100 r2", "inference-l40s r1", "inference-l40s r2", "inference-l40s r3",
            "training-platform r1", "training-platform r2", "development r1", "notebooks r1",
        }  # fmt: skip
        assert library <= set(revisions)
        teams = {str(r.extends) for name, r in revisions.items() if r.extends and name not in library}
        assert teams == {"gpu-baseline r1", "training-h100 r2"}

    def test_a_component_failed_with_object_node_and_reason_and_was_put_back_whole(
        self, world: dict[str, fleet.ServedCluster]
    ) -> None:
        rollout = rollout_in("train")
        story = " ".join(StepEvent.objects.filter(step__component="volcano").values_list("text", flat=True))
        store = world[BARE].sim.store

        assert rollout.status == "reverted"
        assert "Deployment volcano-system/volcano-admission: 0 of 1 pod is new and ready; pod volcano-adm" in story
        assert " on node fjord-bare-" in story
        assert 'ImagePullBackOff, Back-off pulling image "mirror.example/volcanosh/vc-webhook-manager' in story
        kinds = [plural for plural in store.resources if plural != "events"]
        left = [s.key for plural in kinds for s in store.all(plural) if "volcano" in " ".join(s.key)]
        assert left == [("", "volcano-system")], "the namespace stays, and nothing else"

    def test_the_bare_cluster_waits_for_network_gpus_and_scheduler_which_a_revision_wants(
        self, world: dict[str, fleet.ServedCluster]
    ) -> None:
        nodes = [n for n in world[BARE].sim.objects("nodes") if "-gpu-" in n["metadata"]["name"]]
        revision = Revision.objects.get(profile__name="training-platform", number=2)

        assert len(nodes) == 6
        assert not any("nvidia.com/gpu" in node["status"]["allocatable"] for node in nodes)
        assert all(NO_NETWORK["key"] in {t["key"] for t in node["spec"]["taints"]} for node in nodes)
        assert [c.name for c in revision.flat.components] == ["cilium", "gpu-operator", "volcano"]
        assert {policy.title for policy in revision.flat.policies} == {
            "Namespace/pretraining", "ResourceQuota/pretraining/gpus", "LimitRange/pretraining/containers",
            "PriorityClass/pretraining", "Queue/experiments", "Queue/pretraining",
        }  # fmt: skip
        assert revision.flat.settings

    def test_nothing_is_under_way_and_all_of_it_is_past(self) -> None:
        first, last = Record.objects.aggregate(first=Min("at"), last=Max("at")).values()

        assert not Step.objects.filter(status__in=Step.ACTIVE).exists()
        assert timedelta(days=12, hours=23) < now() - first < timedelta(days=13, hours=1)
        assert last <= now()
        assert Record.objects.values("at").distinct().count() == Record.objects.count()

    def test_everything_was_recorded_as_done_by_the_person_who_may(self) -> None:
        by = set(Record.objects.values_list("action", "actor"))

        assert {
            ("cluster.connect", "admin@example.com"),
            ("profile.publish", "operator@example.com"),
            ("plan.approve", "lead@example.com"),
            ("plan.reject", "lead@example.com"),
            ("rollout.start", "operator@example.com"),
        } <= by
        assert [(row.rollout.plan.pool.name, row.missing) for row in BreakGlass.objects.all()] == [("serving", 1)]

    def test_gangs_wait_in_both_schedulers_queues_each_since_its_own_time(
        self, world: dict[str, fleet.ServedCluster]
    ) -> None:
        def since(work: pending.PendingWork) -> dict[str, tuple[str, int]]:
            at = world["atlas-training"].sim.clock.now()
            ages = {gang.name: at - datetime.fromisoformat(gang.since) for gang in work.gangs}
            return {gang.name: (gang.profile, round(ages[gang.name] / timedelta(minutes=5))) for gang in work.gangs}

        volcano = pending.read(SimFleet(world["atlas-training"].sim))
        assert since(volcano) == {"llm-70b": ("", 60), "asr-eval": ("", 14), "grading": ("1g.10gb", 5)}
        assert {queue.name: queue.waiting for queue in volcano.queues} == {"pretraining": 1, "experiments": 2}
        kueue = pending.read(SimFleet(world["borealis-inference"].sim))
        assert since(kueue) == {"job-embed-refresh": ("", 60)}
        (batch,) = kueue.queues
        assert batch.held is not None
        assert batch.limit is not None
        assert batch.held <= batch.limit < batch.held + 12, "what waits does not fit into the quota"

    def test_what_a_rollout_did_to_its_gpus_is_what_its_setting_costs(self) -> None:
        """The nodes swapped as the kernel does by default, and now do not; two of them drifted later."""
        tensor = StudyEffect.objects.get(study__rollout=rollout_in("serving"), measure="tensor")
        before = 1 - slowing.TRANSLATED - slowing.COMPACTED - slowing.SWAPPED
        true = slowing.SWAPPED / before

        assert tensor.verdict == "higher"
        assert tensor.ratio_low is not None
        assert tensor.ratio_high is not None
        assert 0 < true - 0.05 < tensor.ratio_low < tensor.ratio_high < true + 0.02

    def test_what_somebody_changed_by_hand_is_slower_than_its_peers(
        self, world: dict[str, fleet.ServedCluster]
    ) -> None:
        sim = world["atlas-training"].sim
        tensor = {
            number: sum(gpu.tensor for gpu in sim.gpus.truth(f"atlas-training-gpu-{number:03d}")) / 8
            for number in range(5, 11)
        }
        peers = [value for number, value in tensor.items() if number != 7]
        assert tensor[7] < 0.93 * sum(peers) / len(peers)


# ── every page and REST say the same numbers ──────────────────────────────────────────────────────────────────────────
COMPLIANCE = ("compliant", "assigned", "unassigned")
OUT = ("out", "by-setpoint", "before", "by-others")


def compliance_counts(counts: dict[str, int]) -> tuple[int, ...]:
    assigned = sum(counts.values()) - counts["unassigned"]
    return counts["compliant"], assigned, counts["unassigned"]


def test_health_gpus_and_alerts_are_the_same_on_every_page_and_over_rest(world: dict[str, fleet.ServedCluster]) -> None:
    client = Client()
    client.force_login(User.objects.get(email="admin@example.com"))

    def page(path: str) -> str:
        answer = client.get(path)
        assert answer.status_code == 200, path
        return answer.content.decode()

    def rest(path: str) -> Any:
        answer = client.get(f"/api/v1/{path}")
        assert answer.status_code == 200, path
        return answer.json()

    nodes = Node.objects.filter(gone_at=None)
    for cluster in Cluster.objects.all():
        seen = nodes.filter(cluster=cluster).first()
        if seen:  # so that each page has an alert to count
            common = {"rule": "drift", "subject_kind": "node", "sentence": "x", "severity": "warning", "status": "open"}
            Alert.objects.create(cluster=cluster, node=seen, subject=seen.uid, subject_name=seen.name, **common)
    Alert.objects.filter(pk=Alert.objects.order_by("pk").first().pk).update(acknowledged_at=now())

    clusters = rest("clusters?limit=100")["results"]
    waiting_alerts, whole = rest("alerts?status=open&waiting=true&limit=1")["count"], page("/")
    totals: Counter[str] = Counter()
    gpus = set()
    for row in clusters:
        name = row["name"]
        here = page(f"/clusters/{row['id']}/")
        healthy = rest(f"nodes?cluster={name}&health=healthy&limit=1")["count"]
        counted = rest(f"nodes?cluster={name}&limit=1")["count"]
        assert row["node_count"] == counted, name
        assert _hooks(here, "healthy", "nodes") == {(healthy, counted)}, name
        assert _hooks(here, "cordoned") == {(row["cordoned"],)}, name
        assert rest(f"nodes?cluster={name}&cordoned=true&limit=1")["count"] == row["cordoned"], name
        held = (row["gpu_allocated"], row["gpu_count"])
        gpus.add(held)
        assert _hooks(here, "held", "gpus") == {held}, name
        opened = rest(f"alerts?status=open&cluster={name}&limit=1")["count"]
        assert _hooks(here, "open-alerts") == ({(opened,)} if opened else set()), name
        totals.update(
            healthy=healthy, nodes=counted, cordoned=row["cordoned"], held=held[0], gpus=held[1], opened=opened
        )
    assert totals["opened"] > waiting_alerts > 0, "or this tries nothing"
    assert _hooks(whole, "healthy", "nodes") == {(totals["healthy"], totals["nodes"])}
    assert _hooks(whole, "cordoned") == {(totals["cordoned"],)}
    assert _hooks(page("/clusters/"), "held", "gpus") == gpus
    assert _hooks(page("/alerts/"), "open-alerts") == {(totals["opened"],)}
    for path in ("/", "/clusters/", "/nodes/", "/gpus/", "/alerts/", "/approvals/"):
        assert _hooks(page(path), "waiting") == {(waiting_alerts,)}, path

    summary = rest("gpus/summary")
    assert _hooks(page("/gpus/"), "held", "gpus") == {(summary["allocated"], summary["total"])}
    assert (summary["allocated"], summary["total"]) == (totals["held"], totals["gpus"])
    for row in summary["clusters"]:
        same = next(c for c in clusters if c["id"] == row["cluster"])
        assert (row["allocated"], row["total"]) == (same["gpu_allocated"], same["gpu_count"]), same["name"]


def test_every_page_says_the_same_numbers_as_rest(world: dict[str, fleet.ServedCluster]) -> None:
    client = Client()
    client.force_login(User.objects.get(email="admin@example.com"))

    def page(path: str) -> str:
        answer = client.get(path)
        assert answer.status_code == 200, path
        return answer.content.decode()

    def rest(path: str) -> Any:
        answer = client.get(f"/api/v1/{path}")
        assert answer.status_code == 200, path
        return answer.json()

    clusters = list(Cluster.objects.all())
    whole = compliance_counts(rest("compliance/summary")["counts"])
    assert whole[1], "or this tries nothing"
    assert _hooks(page("/"), *COMPLIANCE) == _hooks(page("/compliance/"), *COMPLIANCE) == {whole}
    for cluster in clusters:
        own = {compliance_counts(rest(f"compliance/summary?cluster={cluster.name}")["counts"])}
        assert _hooks(page(f"/clusters/{cluster.pk}/"), *COMPLIANCE) == own, cluster.name
        assert _hooks(page(f"/compliance/?cluster={cluster.name}"), *COMPLIANCE) == own, cluster.name

    rollouts = rest("rollouts?limit=100")["results"]
    moving = [rollout for rollout in rollouts if rollout["state"] in Rollout.CARRIED_OUT]
    for path in ("/", "/rollouts/", "/plans/", "/clusters/", "/nodes/", "/gpus/"):
        assert _hooks(page(path), "under-way") == {(len(moving),)}, path
    for cluster in clusters:
        here = (sum(rollout["cluster"] == str(cluster.pk) for rollout in moving),)
        assert _hooks(page(f"/clusters/{cluster.pk}/"), "under-way") == {here, (len(moving),)}, cluster.name

    out: dict[str, set[tuple[int, ...]]] = {}
    for rollout in rollouts:
        counts = rest(f"rollouts/{rollout['id']}")["out_of_service"]
        counted = (counts["total"], counts["by_setpoint"], counts["before"], counts["by_others"])
        assert _hooks(page(f"/rollouts/R-{rollout['number']}/"), *OUT) == {counted}, rollout["name"]
        out.setdefault(rollout["cluster"], set()).add(counted)
        assert counts["by_setpoint"] <= counts["allowed"], rollout["name"]
    assert out
    assert all(len(numbers) == 1 for numbers in out.values()), "one number for a cluster"


def test_approvals_given_and_needed_and_what_of_a_rollout_is_done_are_the_same_everywhere(
    world: dict[str, fleet.ServedCluster],
) -> None:
    reader = glossary.Reader()
    plans = reader.rest("plans?limit=100")["results"]
    needed = set()
    for plan in plans:
        approval = reader.rest(f"plans/{plan['id']}")["approval"]
        counted = (len(approval["approved_by"]), approval["needed"])
        shown = _hooks(reader.page(f"/plans/P-{plan['number']}/"), "given", "needed")
        assert shown <= {counted}, plan["name"]
        assert shown or plan["status"] in ("draft", "superseded", "expired"), plan["name"]
        needed |= shown
    assert {given for given, _ in needed} > {0}, "or this tries nothing"
    for name in ("approver", "lead", "operator"):
        person = glossary.Reader(f"{name}@example.com")
        count = person.count("plans?to_review=true")
        assert _hooks(person.page("/approvals/"), "to-review") == {(count,)}, name
        text = glossary.text(person.page("/"))
        assert len(set(re.findall(r"(P-\d+) waits for your approval", text))) == count, name

    rollouts = reader.rest("rollouts?limit=100")["results"]
    listed = reader.page("/rollouts/")
    rows = re.findall(r'data-rollout="(\d+)" data-is="([a-z-]+)" data-nodes="(\d+)"', listed)
    assert {(number, state) for number, state, _ in rows} == {(str(r["number"]), r["state"]) for r in rollouts}
    nodes = {int(number): int(count) for number, _, count in rows}
    parts = 0
    for rollout in rollouts:
        done = reader.rest(f"rollouts/{rollout['id']}")["done"]
        page = reader.page(f"/rollouts/R-{rollout['number']}/")
        assert _hooks(page, "done", "of-nodes") == {(done["nodes"], done["of_nodes"])}, rollout["name"]
        assert nodes[rollout["number"]] == done["of_nodes"], rollout["name"]
        assert reader.count(f"rollouts/{rollout['id']}/steps?kind=node") == done["of_nodes"], rollout["name"]
        parts += done["of_parts"]
    assert parts, "or nothing tells nodes and parts apart"
    overview = glossary.text(reader.page("/"))
    for state in ("stopped", "held", "paused"):
        count = sum(rollout["state"] == state for rollout in rollouts)
        assert bool(re.search(rf"\b{count} (rollouts? )?{state}\b", overview)) == bool(count), state


def test_each_state_of_nodes_has_one_number(world: dict[str, fleet.ServedCluster]) -> None:
    reader = glossary.Reader()
    counts = reader.rest("compliance/summary")["counts"]
    assert sum(1 for count in counts.values() if count) > 2, "or this tries nothing"
    for state, count in counts.items():
        assert reader.count(f"nodes?compliance={state}") == count, state
        assert glossary.listed(reader.page(f"/nodes/?compliance={state}"), "nodes?") == count, state
