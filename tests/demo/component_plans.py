"""Component plans that wait in the demo's history: what an approver of each is shown."""

from __future__ import annotations

import pytest

from components.plans.prepared import Prepared
from config.demo import fleet
from config.demo.history import EQUIPPED
from jobs.models import Plan
from jobs.planning import consents


def plan_in(pool: str, status: str) -> Plan:
    return Plan.objects.get(pool__name=pool, status=status)


@pytest.mark.usefixtures("world")
class TestComponentPlans:
    def test_an_upgrade_of_the_gpu_operator_waits_with_what_it_interrupts_restarts_and_deletes(
        self, world: dict[str, fleet.ServedCluster]
    ) -> None:
        plan = plan_in("serving", "review")
        row = plan.components.get()
        prepared = Prepared.from_json(row.prepared)

        assert (plan.cluster.environment, plan.worst_class, row.action) == ("staging", "gpu-pods", "adopt")
        assert (prepared.from_version, row.version) == ("v26.3.3", "v26.7.0")
        assert (plan.summary["gpus_out_at_once"], row.places) == (4, 1), "one node at a time"
        assert plan.summary["gpu_jobs"] > 5
        assert {note.code for note in prepared.notes} >= {"adopted", "crd-stale", "restart", "hooks"}
        assert not [note.title for note in prepared.notes if note.severity == "block"]
        assert ("deleted", "ConfigMap") in {(difference.change, difference.kind) for difference in prepared.objects}
        assert prepared.blast
        assert any("nvidia-driver-daemonset" in hit.restarts for hit in prepared.blast.hits)

    def test_the_older_operator_runs_and_offers_every_gpu_of_its_cluster(
        self, world: dict[str, fleet.ServedCluster]
    ) -> None:
        sim = world[EQUIPPED].sim
        gpu_nodes = [node for node in sim.objects("nodes") if "-gpu-" in node["metadata"]["name"]]
        plugins = [
            p for p in sim.objects("pods") if p["metadata"]["name"].startswith("nvidia-device-plugin-daemonset-")
        ]

        assert {node["status"]["allocatable"]["nvidia.com/gpu"] for node in gpu_nodes} == {"4"}
        assert len({p["spec"]["nodeName"] for p in plugins}) == len(plugins) == len(gpu_nodes)
        assert {p["spec"]["containers"][0]["image"].rpartition(":")[2] for p in plugins} == {"v0.18.2"}

    def test_a_removal_waits_for_an_approver_who_types_what_it_destroys(self) -> None:
        plan = plan_in("dev", "review")
        row = plan.components.get()

        assert (row.component, row.action, plan.worst_class) == ("volcano", "remove", "gpu-pods")
        assert consents.verified_phrase(plan) == "destroy 4 objects in cirrus-dev"
        assert {destroyed["definition"]: destroyed["count"] for destroyed in row.prepared["destroys"]} == {
            "queues.scheduling.volcano.sh": 4, "podgroups.scheduling.volcano.sh": 0, "jobs.batch.volcano.sh": 0,
            "hypernodes.topology.volcano.sh": 0,
        }  # fmt: skip
