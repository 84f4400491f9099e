"""Removing a component as a plan: what goes, what stays, who still uses it, and the way back, through helm v3.

The same over both helms and the real control plane: tests/full/components/test_components.py.
"""

from __future__ import annotations

import pytest

from clusters.connection import registry
from clusters.inventory import store
from components.blast import occupied
from components.catalog import catalog
from components.helm.errors import HelmRefused
from components.release import conformance, work
from profiles.content.cluster import WantedComponent
from tests.components import records
from tests.components.release.test_work import World, version_of, world
from tests.jobs.forecast.test_blast_table import ACTIONS, TABLE

__all__ = ["world"]
pytestmark = [pytest.mark.django_db, pytest.mark.one_database]  # helm and an API server
GIVEN = {
    "cilium": {"k8sServiceHost": "10.0.0.1", "k8sServicePort": 6443},
}


def installed(world: World, name: str) -> None:
    made = world.prepare(name, version_of(name), **GIVEN.get(name, {}))
    world.carry_out(made)
    world.until_ready(made)


def removal(world: World, name: str):
    made = work.prepare(world.cluster, WantedComponent(name, is_gone=True))
    return work.Prepared.from_json(made.to_json())


@pytest.mark.parametrize("name", ["volcano", "gpu-operator", "cilium"])
def test_a_component_is_removed_as_planned_and_a_revert_brings_it_back(world, name):
    installed(world, name)
    prepared = removal(world, name)
    assert prepared.action == "remove"
    assert {difference.change for difference in prepared.objects} == {"deleted"}
    assert prepared.blast is not None
    assert prepared.blast.worst == TABLE[name][ACTIONS.index("remove")]
    assert prepared.blast.undo == TABLE[name][ACTIONS.index("install")]

    assert not world.look(prepared).is_ready
    world.carry_out(prepared)
    world.until_ready(prepared)
    assert world.site.helm("list", "--all-namespaces", "--short") == ""
    assert world.carry_out(prepared) == [f"{name} is removed already."]
    assert removal(world, name).action == "none"

    assert not world.look(prepared, "revert").is_ready
    world.carry_out(prepared, "revert")
    world.until_ready(prepared, "revert")
    assert name in world.site.helm("list", "--all-namespaces", "--short")
    assert world.carry_out(prepared, "revert") == [f"{name} is there."]


def test_a_release_that_was_reverted_before_is_ours_again_after_its_removal_is_reverted(world):
    """Each revert is a rollback, and the second goes back to the first one's revision."""
    first = world.prepare("volcano", version_of("volcano"))
    world.carry_out(first)
    upgrade = world.prepare("volcano", version_of("volcano"), custom={"scheduler_replicas": 2})
    world.carry_out(upgrade)
    world.carry_out(upgrade, "revert")
    world.until_ready(upgrade, "revert")  # Volcano makes its queues by then, and the plan counts them
    prepared = removal(world, "volcano")
    world.carry_out(prepared)
    world.carry_out(prepared, "revert")
    world.until_ready(prepared, "revert")

    assert world.prepare("volcano", version_of("volcano")).action == "none"


def test_what_somebody_upgraded_since_the_plan_is_not_removed(world):
    installed(world, "volcano")
    prepared = removal(world, "volcano")
    world.carry_out(world.prepare("volcano", version_of("volcano"), custom={"scheduler_replicas": 2}))

    with pytest.raises(HelmRefused, match="plan again"):
        world.carry_out(prepared)
    assert "volcano" in world.site.helm("list", "--all-namespaces", "--short")


def test_a_removed_component_can_be_installed_again(world):
    installed(world, "volcano")
    world.carry_out(removal(world, "volcano"))
    again = world.prepare("volcano", version_of("volcano"))
    assert again.action == "install"
    world.carry_out(again)
    world.until_ready(again)


@pytest.mark.parametrize("is_planned_before", [True, False])
def test_an_installation_goes_on_after_a_helm_that_died_before_it_recorded_one(world, is_planned_before):
    """helm marks what it replaces first. Found by a soak: no try after that came any further."""
    installed(world, "volcano")
    world.carry_out(removal(world, "volcano"))
    if is_planned_before:
        again = world.prepare("volcano", version_of("volcano"))
    with registry.api_server(world.cluster) as server:
        records.leave(server, "volcano-system", "volcano", "superseded")
    if not is_planned_before:
        again = world.prepare("volcano", version_of("volcano"))
    assert again.action == "install"
    world.carry_out(again)
    world.until_ready(again)


def test_a_removal_and_the_installation_after_it_are_put_back_in_reverse_order(world):
    """helm's record of what was removed is not the later installation's to take away."""
    installed(world, "volcano")
    gone = removal(world, "volcano")
    world.carry_out(gone)
    again = world.prepare("volcano", version_of("volcano"))
    world.carry_out(again)
    world.until_ready(again)

    world.carry_out(again, "revert")
    world.until_ready(again, "revert")
    assert world.site.helm("list", "--all-namespaces", "--short") == ""
    world.carry_out(again, "revert")

    world.carry_out(gone, "revert")
    world.until_ready(gone, "revert")
    assert "volcano" in world.site.helm("list", "--all-namespaces", "--short")


def test_the_pod_network_is_not_removed_without_another(world):
    installed(world, "cilium")
    notes = [note for note in removal(world, "cilium").notes if note.code == "in-use"]
    assert [note.severity for note in notes] == ["block", "warn"]
    assert notes[1].title.endswith("None of these runs in its place: kube-proxy"), "nor would a Service be reachable"


def test_pods_that_hold_gpus_are_counted_when_their_device_plugin_goes(world):
    from clusters.models import GpuPod

    installed(world, "gpu-operator")
    assert not [note for note in removal(world, "gpu-operator").notes if note.code == "in-use"]
    GpuPod.objects.create(
        cluster=world.cluster, uid="1", namespace="team", name="train-0", node_name="n1", gpus=8, started_at=None
    )
    store.observe_nodes(world.cluster, [n.raw for n in world.site.sim.store.all("nodes")], complete=True)
    prepared = removal(world, "gpu-operator")
    [note] = [note for note in prepared.notes if note.code == "in-use"]
    assert note.severity == "warn"
    assert "8 GPUs" in note.title
    hit = prepared.blast
    assert (hit.worst, hit.jobs, hit.gpu_pods) == ("gpu-pods", ("team/Pod train-0",), 1)
    assert (hit.nodes, hit.gpus, hit.nodes_at_once, hit.gpus_at_once) == (("n1", "n2"), 16, 2, 16)


def test_gangs_that_run_or_wait_are_numbered_when_their_scheduler_goes(world):
    installed(world, "volcano")
    assert not [note for note in removal(world, "volcano").notes if note.code == "in-use"]
    for number, phase in enumerate(("Running", "Pending", "Inqueue", "Completed", "Running", "Unknown")):
        body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
        body |= {"metadata": {"name": f"gang-{number}", "namespace": "default"}, "spec": {}, "status": {"phase": phase}}
        world.site.sim.store.create("podgroups.scheduling.volcano.sh", body)
    titles = [note.title for note in removal(world, "volcano").notes if note.code == "in-use"]
    assert titles == ["5 PodGroups are not done: 3 running, 2 waiting"]


@pytest.mark.parametrize(
    ("true", "state"),
    [
        ((), "waiting"),
        (("QuotaReserved",), "waiting"),
        (("QuotaReserved", "Admitted"), "running"),
        (("QuotaReserved", "Admitted", "Finished"), "finished"),
    ],
)
def test_a_workload_of_kueue_runs_once_it_is_admitted(true, state):
    conditions = [{"type": name, "status": "True"} for name in true] + [{"type": "Evicted", "status": "False"}]
    assert occupied.state({"status": {"conditions": conditions}}) == state
    assert occupied.state({"status": {"conditions": [None, 1]}}) == occupied.state({"status": None}) == "waiting"


def test_compliance_says_whether_it_is_still_there(world):
    wanted = WantedComponent("volcano", is_gone=True)
    assert conformance.conform(world.cluster, wanted).state == conformance.COMPLIANT
    installed(world, "volcano")
    assert conformance.conform(world.cluster, wanted).state == conformance.BEHIND
    world.carry_out(removal(world, "volcano"))
    assert conformance.conform(world.cluster, wanted).state == conformance.COMPLIANT


def test_whoever_is_asked_for_in_the_catalog_cites_where_it_is_known_from():
    assert all(use.sources for component in catalog.all() for use in component.uses)
