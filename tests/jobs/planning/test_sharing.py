"""Two pools that want one component: one of them owns it, and keeps it through all its later revisions."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.models import Pool
from common.errors import WrongState
from compliance.checks import components
from jobs.models import Plan
from jobs.planning import component_owners
from jobs.rollouts import rollout_actions
from profiles.content.cluster import WantedComponent
from tests.jobs.conftest import World
from tests.jobs.releases import Releases


@pytest.fixture
def releases(monkeypatch: Any) -> Releases:
    return Releases().install(monkeypatch)


@pytest.fixture
def world(make_world: Any, releases: Releases) -> World:
    """Pools train and infer, a node each; no target yet."""
    made = make_world(nodes=1)
    made.sim.add_node("i1", gpus=8, labels={"pool": "infer"})
    made.observe()
    made.train = made.pool
    made.infer = Pool.objects.create(cluster=made.cluster, name="infer", selector={"matchLabels": {"pool": "infer"}})
    return made  # type: ignore[no-any-return]


def plan(world: World, pool: Pool, version: str | None, **settings: str) -> Plan:
    """Plan a revision that wants Volcano in this version; None: not at all. Always with something for the nodes."""
    world.pool = pool
    wanted = [WantedComponent("volcano", version)] if version else []
    number = Plan.objects.count()
    return world.plan(world.revision({"vm.swappiness": str(20 + number)} | settings, components=wanted))


def done(world: World, pool: Pool, version: str | None) -> None:
    rollout = world.run(world.started(plan(world, pool, version)))
    assert rollout.status == "succeeded", rollout.waiting_for


def blocks(made: Plan) -> list[str]:
    return [f["title"] for f in made.findings if f["severity"] == "block"]


def test_the_owner_goes_on_to_decide_however_often_its_target_is_set(world, releases):
    done(world, world.train, "1.0.0")
    done(world, world.infer, "1.0.0")  # the very same: it is left to train
    done(world, world.train, "1.0.0")  # set later than infer's
    assert component_owners.component_demands(world.cluster)["volcano"].owner == world.train

    made = plan(world, world.train, "2.0.0")
    assert blocks(made) == []
    (finding,) = [f for f in made.findings if f["code"] == "component-shared"]
    assert finding["severity"] == "warn"
    assert finding["title"] == "volcano changes for infer, too, whose target configures it differently"
    world.run(world.started(made))
    assert releases.version("volcano") == "2.0.0"


def test_whoever_came_later_is_blocked_and_told_who_owns_it_and_what_to_do(world):
    done(world, world.train, "1.0.0")
    made = plan(world, world.infer, "2.0.0")
    assert blocks(made) == ["volcano is train's in atlas, and configured differently there"]
    (finding,) = [f for f in made.findings if f["code"] == "component-owner"]
    assert finding["detail"].startswith(
        "train wanted it first, as 1.0.0; this revision wants 2.0.0. Change it with a plan"
    )


def test_after_the_owner_dropped_it_the_next_one_decides(world, releases):
    done(world, world.train, "1.0.0")
    done(world, world.infer, "1.0.0")
    dropping = plan(world, world.train, None)
    (finding,) = [f for f in dropping.findings if f["code"] == "component-dropped"]
    assert finding["detail"] == "infer wants it, too, and owns it from then on."
    world.run(world.started(dropping))

    done(world, world.infer, "2.0.0")
    assert releases.version("volcano") == "2.0.0"
    assert blocks(plan(world, world.train, "3.0.0")) == [
        "volcano is infer's in atlas, and configured differently there"
    ]


def test_a_target_that_was_taken_back_owns_nothing(world):
    rollout = world.run(world.started(plan(world, world.train, "1.0.0")))
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout)
    assert rollout.status == "reverted"
    assert component_owners.component_demands(world.cluster) == {}
    assert blocks(plan(world, world.infer, "2.0.0")) == []


def test_a_plan_made_before_another_pool_became_the_owner_does_not_start(world):
    late = world.approved(plan(world, world.infer, "2.0.0"))
    done(world, world.train, "1.0.0")
    with pytest.raises(WrongState, match="train owns volcano in atlas since this plan was made"):
        rollout_actions.start(late, by=world.operator)


def test_compliance_holds_a_shared_component_to_what_its_owner_wants(world):
    """The owner's target was set later than the other's, by an upgrade: it decides all the same."""
    done(world, world.train, "1.0.0")
    done(world, world.infer, "1.0.0")
    done(world, world.train, "2.0.0")
    key = world.cluster.pk, "component", "volcano"
    assert components.wanted()[key].pool_id == world.train.pk

    done(world, world.train, None)
    assert components.wanted()[key].pool_id == world.infer.pk


# ── Conflicts ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_component_is_judged_beside_what_its_own_plan_and_other_pools_want(world, releases):
    world.pool = world.infer
    world.run(world.started(world.plan(world.revision(components=[WantedComponent("kueue", "1.0.0")]))))
    world.pool = world.train
    wanted = [WantedComponent("volcano", "1.0.0"), WantedComponent("cert-manager", is_gone=True)]
    world.plan(world.revision(components=wanted))

    assert {(peer.name, peer.is_gone) for peer in releases.peers["volcano"]} == {
        ("volcano", False), ("cert-manager", True), ("kueue", False),
    }  # fmt: skip


def test_what_another_pool_wants_removed_is_not_taken_for_gone(world, releases):
    done(world, world.train, "1.0.0")
    world.pool = world.train
    world.run(world.started(world.plan(world.revision(components=[WantedComponent("volcano", is_gone=True)]))))
    world.pool = world.infer
    world.plan(world.revision(components=[WantedComponent("kueue", "1.0.0")]))

    assert [peer.name for peer in releases.peers["kueue"]] == ["kueue"]


def test_a_component_comes_when_what_it_conflicts_with_is_removed(world, releases):
    done(world, world.train, "1.0.0")
    wanted = [WantedComponent("volcano", is_gone=True), WantedComponent("kueue", "1.0.0")]
    made = world.plan(world.revision(components=wanted))

    assert "volcano" in made.components.get(component="kueue").after
    assert [row.component for row in made.components.order_by("position")] == ["volcano", "kueue"]
