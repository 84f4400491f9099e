"""Laws 1, 2 and 8 for labels that another program acts upon: drained first, and done when that program says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from common import yaml
from jobs.diffs.changes import Disruption
from jobs.models import Step
from jobs.rollouts import rollout_actions
from profiles.catalog import known_labels
from profiles.content import content
from profiles.policies import node_labels

MIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"


def _labels(world, node="n1"):
    return world.sim.node(node)["metadata"]["labels"]


def _stages(rollout):
    return set(rollout.steps.get(node_name="n1").stages)


def _plan(world, value="all-1g.10gb", key=MIG, **strategy):
    return world.plan(world.revision({}, labels={key: value}), canary=0, **strategy)


def test_a_plan_of_a_mig_layout_says_that_nodes_are_drained(make_world):
    world = make_world(nodes=2)
    world.sim.pods.workload("Job", "llm", namespace="team-llm", replicas=1, gpus=8)
    world.tick(5)
    plan = _plan(world)
    assert (plan.worst_class, plan.summary["drains"], plan.summary["gpus_out_at_once"]) == ("drain", 2, 8)
    assert plan.summary["gpu_jobs"] == 1
    assert "label-acts" in {f["code"] for f in plan.findings}


def test_a_mig_layout_counts_once_mig_manager_says_so(make_world):
    world = make_world()
    rollout = world.run(world.started(_plan(world)), step=2)
    assert rollout.status == "succeeded", rollout.steps.get().error
    assert _labels(world)[STATE] == "success"
    assert {"cordoning", "draining", "returning"} <= _stages(rollout)
    assert world.sim.nodes.peak_unavailable() == 1
    assert world.sim.node("n1")["status"]["allocatable"]["nvidia.com/mig-1g.10gb"] == "56"


def test_an_older_success_counts_for_nothing(make_world):
    """The answer about the layout from before is taken away with the write: no program is left to answer again."""
    world = make_world()
    world.run(world.started(_plan(world)), step=2)
    assert _labels(world)[STATE] == "success"
    world.sim.mig.is_running = False
    rollout = world.started(_plan(world, "all-3g.40gb", step_deadline_seconds=60))
    rollout = world.run(rollout, step=5)
    step = rollout.steps.get(node_name="n1")
    assert step.status == "failed"
    assert "MIG Manager has not answered" in step.error


def test_a_layout_that_mig_manager_cannot_make_fails_the_step(make_world):
    world = make_world()
    rollout = world.run(world.started(_plan(world, "all-9g.90gb")), step=2)
    step = rollout.steps.get(node_name="n1")
    assert step.status == "failed"
    assert f"{STATE}=failed" in step.error
    assert step.is_disrupted, "the node keeps cordon and slot until a person decides"


def test_mig_manager_may_reboot_the_node(make_world):
    world = make_world()
    world.sim.mig.reboots.add("n1")
    rollout = world.run(world.started(_plan(world)), step=5)
    assert rollout.status == "succeeded", rollout.steps.get().error


def test_a_revert_brings_back_the_layout_that_was_not_setpoints(make_world):
    world = make_world()
    uid = world.sim.node("n1")["metadata"]["uid"]
    world.fleet.relabel("n1", uid, lambda _: {MIG: "all-3g.40gb"})
    world.tick(60)
    rollout = world.run(world.started(_plan(world)), step=2)
    assert rollout.status == "succeeded"
    rollout_actions.revert(rollout, by=world.operator)
    world.run(rollout, step=2)
    assert rollout.steps.get().status == Step.Status.REVERTED, rollout.steps.get().error
    assert (_labels(world)[MIG], _labels(world)[STATE]) == ("all-3g.40gb", "success")
    assert world.sim.node("n1")["status"]["allocatable"]["nvidia.com/mig-3g.40gb"] == "16"


def test_a_layout_that_somebody_changed_since_the_plan_is_not_written_over(make_world):
    world = make_world()
    rollout = world.started(_plan(world))
    uid = world.sim.node("n1")["metadata"]["uid"]
    world.fleet.relabel("n1", uid, lambda _: {MIG: "all-3g.40gb"})
    world.until(rollout, "held")
    assert _labels(world)[MIG] == "all-3g.40gb"


def test_removing_such_a_label_drains_too(make_world):
    world = make_world()
    world.run(world.started(_plan(world)), step=2)
    plan = world.plan(world.revision({"vm.swappiness": "10"}), canary=0)
    assert plan.worst_class == "drain"


def test_a_device_plugin_that_offers_nothing_is_not_done(make_world):
    world = make_world()
    rollout = world.started(_plan(world, "sliced", "nvidia.com/device-plugin.config", step_deadline_seconds=120))
    world.sim.operators._offer("n1", {"nvidia.com/gpu": "0"})
    rollout = world.run(rollout, step=5)
    step = rollout.steps.get(node_name="n1")
    assert step.worst_class == "gpu-pods"
    assert step.status == "failed"
    assert "offers no nvidia.com/" in step.error


def test_a_label_that_nobody_acts_upon_is_live(make_world):
    world = make_world()
    assert _plan(world, "gold", "example.com/tier").worst_class == "live"


@pytest.mark.parametrize("key", [STATE, "nvidia.com/gpu-driver-upgrade-state", "nvidia.com/gpu.count"])
def test_what_operators_answer_in_is_not_set_by_profiles(key):
    assert node_labels.label(key, "success")


@pytest.mark.parametrize("entry", [{"class": "live"}, {"class": "drain", "program": "x", "effect": "y", "state": "z"}])
def test_an_entry_that_nobody_could_wait_for_does_not_load(entry):
    with pytest.raises(known_labels.BadLabels):
        known_labels.read({"example.com/x": entry})


def test_each_label_names_where_its_effect_is_known_from():
    sources = yaml.load(Path(known_labels.__file__).with_name("sources.yaml").read_bytes()).data
    for known in known_labels.KNOWN.values():
        urls = [sources[name]["url"] for name in known.sources]
        assert urls, known.key
        assert all(url.startswith(("https://docs.nvidia.com/", "https://github.com/NVIDIA/")) for url in urls), (
            known.key
        )


def test_profiles_and_plans_rank_classes_alike():
    assert tuple(map(str, Disruption)) == known_labels.ORDER


def test_a_profile_that_sets_such_a_label_says_its_class():
    mig = content.build(settings=[], labels=[content.Mark(MIG, "all-1g.10gb", "gpu")], annotations=[], taints=[])
    assert mig.worst_class == "drain"
