"""Plans of components: one plan, one approval and one rollout, and one pool that owns each."""

from __future__ import annotations

import pytest

from common.errors import WrongState
from components.helm.errors import HelmRefused
from jobs.approvals import reviews
from jobs.models import Slot
from tests.jobs.component_steps import outcomes, plan_of
from tests.jobs.conftest import World

# ── one plan, one approval, one rollout, one status ───────────────────────────────────────────────────────────────────


def test_one_rollout_carries_out_settings_and_components(world, releases):
    plan = plan_of(world, "kueue", "cert-manager", settings={"vm.swappiness": "10"}, canary=0, batch="100%")
    assert list(plan.components.values_list("component", flat=True)) == ["cert-manager", "kueue"]

    rollout = world.run(world.started(plan))

    assert rollout.status == "succeeded"
    assert set(outcomes(rollout).values()) == {"succeeded"}
    assert releases.writes == [("cert-manager", "1.0.0"), ("kueue", "1.0.0")]
    assert world.value("n1") == "10"
    assert not Slot.objects.exists()


def test_a_plan_of_components_alone_only_has_the_nodes_watched(world, releases):
    rollout = world.run(world.started(plan_of(world, "cert-manager")))

    assert rollout.status == "succeeded"
    assert outcomes(rollout) == {"cert-manager": "succeeded"}
    assert world.value("n1") == "60"
    assert set(world.pool.standings.values_list("state", flat=True)) == {"compliant"}


def test_components_are_carried_out_where_no_node_can_be_changed(world, releases):
    for name in ("n1", "n2", "n3"):
        world.sim.nodes.cordon(name, by="bob@example.org")
    world.look()
    plan = plan_of(world, "cert-manager")
    assert not plan.is_blocked

    assert world.run(world.started(plan)).status == "succeeded"
    assert releases.version("cert-manager") == "1.0.0"


def test_what_is_as_wanted_already_is_left_alone(world, releases):
    world.run(world.started(plan_of(world, "cert-manager")))
    plan = plan_of(world, "cert-manager", "volcano")

    assert plan.components.get(component="cert-manager").left_out == "It is already compliant."
    rollout = world.run(world.started(plan))
    assert outcomes(rollout) == {"volcano": "succeeded"}

    with pytest.raises(WrongState, match="nothing to plan"):
        plan_of(world, "cert-manager", "volcano")


def test_after_a_failure_to_get_ready_the_same_can_be_planned_again_and_is_only_looked_at(world, releases):
    releases.broken["cert-manager"] = "Deployment a: exceeded quota"
    rollout = world.run(world.started(plan_of(world, "cert-manager")))
    assert outcomes(rollout) == {"cert-manager": "failed"}
    runs = releases.writes.copy()

    still = plan_of(world, "cert-manager")
    assert not still.is_blocked
    assert still.components.get().left_out == ""
    assert any("exceeded quota" in finding["detail"] for finding in still.findings)
    reviews.withdraw(still, by=world.operator)

    releases.broken.clear()
    plan = plan_of(world, "cert-manager")
    assert not plan.is_blocked
    rollout = world.run(world.started(plan))
    assert (rollout.status, outcomes(rollout)) == ("succeeded", {"cert-manager": "succeeded"})
    assert releases.writes == runs, "nothing is installed a second time"
    with pytest.raises(WrongState, match="nothing to plan"):
        plan_of(world, "cert-manager")


def test_a_component_that_is_not_ready_any_more_is_not_as_wanted(world, releases):
    world.run(world.started(plan_of(world, "cert-manager")))
    releases.not_ready["cert-manager"] = "Deployment a: 0 of 2 pods"
    plan = plan_of(world, "cert-manager")
    assert plan.components.get().left_out == ""
    assert "0 of 2 pods" in str(plan.findings)


def test_what_blocks_a_component_blocks_the_plan(world, releases):
    from components.release.work import PlanNote

    releases.notes["cilium"] = (
        PlanNote(severity="block", code="gitops", title="Argo CD owns the release", detail="Commit it there."),
    )
    plan = plan_of(world, "cilium")

    assert plan.is_blocked
    assert [f["title"] for f in plan.findings if f["severity"] == "block"] == ["cilium: Argo CD owns the release"]


def test_a_component_that_cannot_be_prepared_blocks_the_plan_with_the_reason(world, releases, monkeypatch):
    def refuse(cluster, wanted, peers):
        raise HelmRefused("values.replicas: must be an integer")

    monkeypatch.setattr("components.release.work.prepare", refuse)
    plan = plan_of(world, "cert-manager")

    assert [(f["title"], f["detail"]) for f in plan.findings if f["severity"] == "block"] == [
        ("cert-manager cannot be prepared", "values.replicas: must be an integer")
    ]
    assert plan.shown_class == "unknown", "nothing is known of what it would do"


def test_a_class_is_shown_where_every_component_was_prepared(world, releases):
    plan = plan_of(world, "cert-manager")

    assert plan.shown_class == plan.worst_class != "unknown"


# ── one owning assignment ─────────────────────────────────────────────────────────────────────────────────────────────


def _other_pool(world: World) -> None:
    from clusters.models import Pool

    world.run(world.started(plan_of(world, "cert-manager")))
    world.pool = Pool.objects.create(cluster=world.cluster, name="infer", selector={"matchLabels": {"pool": "infer"}})
    world.sim.add_node("i1", gpus=8, labels={"pool": "infer"})
    world.observe()


def test_identical_wishes_of_two_pools_share_one_component(world, releases):
    _other_pool(world)
    plan = plan_of(world, "cert-manager", settings={"vm.swappiness": "10"})

    row = plan.components.get()
    assert "train" in row.left_out
    assert not plan.is_blocked


def test_different_wishes_of_two_pools_block_and_name_the_other(world, releases):
    _other_pool(world)
    plan = plan_of(world, "cert-manager@2.0.0")

    block = next(f for f in plan.findings if f["severity"] == "block")
    assert block["code"] == "component-owner"
    assert "train" in block["title"]
