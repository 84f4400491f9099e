"""Simulated GPUs and their exporters: the truth follows the pods, and each text says the truth."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from clusters.fleet import Backend
from gpus.metrics.findings import Findings
from gpus.metrics.samples import ExporterPod, Generation, HonorLabels, Metric, Reading, Series
from gpus.normalization.pipeline import normalize
from gpus.telemetry.exposition import parse
from simfleet.controllers import gpus
from simfleet.core import SimCluster
from simfleet.fleets import training_cluster
from simfleet.machines import slowing
from simfleet.machines.hardware import Hardware
from simfleet.memory import SimFleet


@pytest.fixture
def atlas() -> SimCluster:
    return training_cluster("atlas", nodes=12)


def test_the_same_seed_gives_the_same_gpus_and_another_gives_others() -> None:
    same = [list(training_cluster("atlas", nodes=8, seed=seed).gpus.fleet()) for seed in (1, 1, 2)]
    assert same[0] == same[1] != same[2]


def test_the_state_follows_the_pods(atlas: SimCluster) -> None:
    name = "atlas-gpu-001"
    assert all(gpu.pod and gpu.busy > 0.8 for gpu in atlas.gpus.truth(name))
    before = atlas.gpus.truth(name)[0].energy
    atlas.tick(100)
    used = atlas.gpus.truth(name)[0].energy - before
    assert 100 * 400 < used < 100 * 700  # joules: between idle and the board's limit
    (pod,) = [p for p in atlas.store.on_node(name) if p.key[1].startswith("llm-pretrain")]
    atlas.pods.terminate(pod, grace=0)
    assert all(gpu.pod is None and gpu.busy == 0 and gpu.power == 72 for gpu in atlas.gpus.truth(name))
    assert atlas.gpus.truth(name)[0].energy >= before + used


def test_who_serves_comes_in_waves_and_who_sleeps_holds_memory(atlas: SimCluster) -> None:
    atlas.add_node("n", gpus=2)
    atlas.pods.workload("ReplicaSet", "chat", gpus=1, nodes=["n"])
    atlas.add_pod("notebook", gpus=1, node="n")
    seen = []
    for _ in range(20):
        seen.append([gpu.busy for gpu in atlas.gpus.truth("n")])
        atlas.tick(60)
    assert max(busy for busy, _ in seen) > 0.8
    assert min(busy for busy, _ in seen) < 0.2
    assert {busy for _, busy in seen} == {0}
    assert atlas.gpus.truth("n")[1].memory_used > 30 * gpus.GIB


@pytest.mark.parametrize("mode", ["direct", HonorLabels.OFF, HonorLabels.ON])
def test_both_generations_in_each_mode_are_read_as_what_is_true(atlas: SimCluster, mode: str) -> None:
    reading = read(atlas, mode)
    truth = {gpu.uuid: gpu for gpu in atlas.gpus.fleet() if gpu.node not in atlas.exporters.silent}
    assert reading.generations == {Generation.CLASSIC, Generation.BASE_UNITS}
    assert len(truth) == 11 * 8 == len(reading.samples)
    for sample in reading.samples:
        gpu = truth[sample.device.uuid]
        assert sample.node == gpu.node
        assert [(h.namespace, h.pod, h.container) for h in sample.holders] == ([gpu.pod] if gpu.pod else [])
        assert sample.values[Metric.BUSY] == pytest.approx(gpu.busy)
        assert sample.values[Metric.TENSOR] == pytest.approx(gpu.tensor, abs=1e-6)
        assert sample.values[Metric.MEMORY_USED] == gpu.memory_used
        assert sample.values[Metric.POWER] == pytest.approx(gpu.power)
        assert sample.values[Metric.ENERGY] == pytest.approx(gpu.energy, abs=0.001)
        assert sample.values[Metric.SM_CLOCK] == gpu.sm_clock
        assert [xid.code for xid in sample.xids] == ([gpu.xid] if gpu.xid else [])
    assert {xid.code for sample in reading.samples for xid in sample.xids} == {48}


def test_a_gpu_that_fell_off_the_bus_says_its_xid_and_no_number(atlas: SimCluster) -> None:
    atlas.gpus.fall_ill("atlas-gpu-002", 3, xid=79)
    (lost,) = [s for s in read(atlas, "direct").samples if s.node == "atlas-gpu-002" and s.index == "3"]
    assert not lost.values
    assert lost.xids[0].code == 79


def test_a_node_that_is_held_back_has_lower_clocks_and_nothing_else_changes(atlas: SimCluster) -> None:
    before = atlas.gpus.truth("atlas-gpu-002")
    atlas.gpus.hold_back("atlas-gpu-002", 0.7)
    after = atlas.gpus.truth("atlas-gpu-002")
    assert any(gpu.pod for gpu in before)
    assert [gpu.sm_clock for gpu in after] == [gpu.sm_clock * (0.7 if gpu.pod else 1) for gpu in before]
    assert [replace(gpu, sm_clock=0) for gpu in after] == [replace(gpu, sm_clock=0) for gpu in before]
    with pytest.raises(KeyError):
        atlas.gpus.hold_back("atlas-gpu-999", 0.7)


def test_an_exporter_answers_through_the_proxy_unless_it_or_its_machine_is_silent(atlas: SimCluster) -> None:
    def answer(node: str) -> tuple[int, bytes]:
        (pod,) = [p for p in atlas.store.on_node(node) if p.key[1].startswith("nvidia-dcgm-exporter")]
        reply = SimFleet(atlas).through(Backend("pods", *pod.key, "9400"), "metrics", limit=10**7, timeout=5)
        return reply.status, reply.body

    assert answer("atlas-gpu-001") == (200, atlas.exporters.text("atlas-gpu-001").encode())
    silent = next(iter(atlas.exporters.silent))
    with pytest.raises(Exception, match="refused"):
        answer(silent)


def test_only_what_is_asked_for_is_made() -> None:
    big = training_cluster("big", nodes=400, control_planes=0)
    begun = time.perf_counter()
    text = big.exporters.text("big-gpu-300")
    assert time.perf_counter() - begun < 0.1
    assert text.count("\n") == 25 * (2 + 8)


def read(atlas: SimCluster, mode: str) -> Reading:
    findings, when = Findings(), atlas.clock.now()
    names = [n.key[1] for n in atlas.store.all("nodes") if atlas.gpus.truth(n.key[1])]
    series: list[Series] = []
    pods = []
    for node in names:
        if node in atlas.exporters.silent:
            continue
        (pod,) = [p for p in atlas.store.on_node(node) if p.key[1].startswith("nvidia-dcgm-exporter")]
        pods.append(ExporterPod(*pod.key, node))
        if mode == "direct":
            series += parse(atlas.exporters.text(node), findings=findings, exporter="/".join(pod.key))
        else:
            stored = atlas.exporters.stored(node, honor_labels=mode == HonorLabels.ON)
            series += [Series(name, labels, value) for name, labels, value in stored]
    return normalize(series, when=when, exporters=pods, findings=findings)


# ── MIG ───────────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("mode", ["direct", HonorLabels.OFF])
def test_what_mig_splits_is_offered_held_told_and_added_up_once(mode: str) -> None:
    layout = (("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"), ("1g.10gb",) * 7)
    sim = training_cluster("mig", nodes=2, gpus=3, is_busy=False, mig={2: layout})
    node = SimFleet(sim).list("nodes").items[-1]
    offered = {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "9"}
    offered |= {"nvidia.com/mig-2g.20gb": "1", "nvidia.com/mig-3g.40gb": "1"}
    assert offered.items() <= node["status"]["allocatable"].items()

    truth = sim.gpus.truth("mig-gpu-002")
    assert [(gpu.index, gpu.instance) for gpu in truth] == [
        (0, "1"), (0, "3"), (0, "7"), (0, "8"), *((1, str(7 + n)) for n in range(7)), (2, ""),
    ]  # fmt: skip
    reading = read(sim, mode)
    samples = {(s.index, s.device.instance): s for s in reading.samples if s.node == "mig-gpu-002"}
    assert set(samples) == {(str(gpu.index), gpu.instance) for gpu in truth}
    for gpu in truth:
        sample = samples[str(gpu.index), gpu.instance]
        assert sample.profile == gpu.profile
        assert [(h.namespace, h.pod, h.container) for h in sample.holders] == ([gpu.pod] if gpu.pod else [])
        assert sample.values[Metric.ENGINE] == pytest.approx(gpu.engine, abs=1e-6)
        assert sample.values[Metric.MEMORY_USED] == gpu.memory_used <= gpu.memory
        assert (Metric.BUSY in sample.values) is (gpu.instance == "")
        assert (Metric.POWER in sample.values) is (gpu.instance == "")
    boards = [board for board in reading.boards if board.node == "mig-gpu-002"]
    power = {gpu.index: gpu.power for gpu in truth}
    assert {int(board.index): pytest.approx(board.values[Metric.POWER]) for board in boards} == {
        0: power[0], 1: power[1],
    }  # fmt: skip
    assert len(list(reading.hardware())) == 6, "three GPUs on each node"


def test_a_pod_gets_instances_of_the_profile_it_asks_for_and_waits_where_none_is_free() -> None:
    sim = training_cluster("mig", nodes=1, gpus=2, is_busy=False, control_planes=0)
    sim.add_node("split", hardware=Hardware(gpus=2, mig=(("3g.40gb", "3g.40gb"),)))
    for name in ("a", "b", "c"):
        sim.add_pod(name, gpus=1, resource="nvidia.com/mig-3g.40gb")
    sim.add_pod("whole", gpus=2)
    sim.tick(10)
    homes = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in SimFleet(sim).pods()}
    assert (homes["a"], homes["b"], homes["c"]) == ("split", "split", None)
    assert {gpu.profile: bool(gpu.pod) for gpu in sim.gpus.truth("split")} == {"3g.40gb": True, "": False}
    assert homes["whole"] is None, "its node is tainted, and the other has one whole GPU"


def test_a_board_that_is_split_takes_what_its_instances_use_and_no_more() -> None:
    sim = SimCluster(seed=2)
    sim.add_node("n", hardware=Hardware(gpus=1, mig=(("1g.10gb",) * 7,)))
    begun = sim.gpus.truth("n")[0].energy
    sim.tick(100)
    assert sim.gpus.truth("n")[0].energy - begun == pytest.approx(100 * 72)
    for number in range(7):
        sim.pods.workload("Job", f"job-{number}", gpus=1, nodes=["n"], resource="nvidia.com/mig-1g.10gb")
    begun = sim.gpus.truth("n")[0].energy
    sim.tick(100)
    assert 100 * 72 < sim.gpus.truth("n")[0].energy - begun < 100 * 700


# ── what a node's kernel costs ────────────────────────────────────────────────────────────────────────────────────────
def test_work_on_a_node_with_other_settings_achieves_less_and_as_much_again_once_they_are_put_right() -> None:
    sim = SimCluster(seed=1)
    for name in ("well", "ill"):
        sim.add_node(name, gpus=4)
        sim.pods.workload("Job", "llm-pretrain", namespace=name, gpus=4, nodes=[name])
        sim.drift(name, "vm.swappiness", "10")

    def tensor(name: str) -> float:
        activities: list[float] = []
        for _ in range(40):
            sim.tick(30)
            activities += [gpu.tensor for gpu in sim.gpus.truth(name)]
        return sum(activities) / len(activities)

    well, same = tensor("well"), tensor("ill")
    assert well == pytest.approx(same, rel=0.01)
    energy = sim.gpus.truth("ill")[0].energy
    sim.drift("ill", "vm.swappiness", "60")
    assert sim.gpus.truth("ill")[0].energy == energy, "what was used until then stays"
    lost = slowing.SWAPPED / (1 - slowing.TRANSLATED - slowing.COMPACTED)
    assert tensor("ill") / well == pytest.approx(1 - lost, rel=0.01)
    sim.drift("ill", "vm.swappiness", "35")
    assert tensor("ill") / well == pytest.approx(1 - lost / 2, rel=0.01)
    sim.drift("ill", "vm.swappiness", "10")
    assert tensor("ill") == pytest.approx(well, rel=0.01)
    assert tensor("well") == pytest.approx(well, rel=0.01)
