"""Simulated GPUs and their exporters: the truth follows the pods, and each text says the truth."""

from __future__ import annotations

import time

import pytest

from clusters.fleet import Backend
from gpus.exposition import parse
from gpus.findings import Findings
from gpus.normalisation import normalise
from gpus.samples import ExporterPod, Generation, HonorLabels, Metric, Reading, Series
from simfleet import gpus
from simfleet.core import SimCluster
from simfleet.fleets import training_cluster
from simfleet.memory import SimFleet


@pytest.fixture
def atlas() -> SimCluster:
    return training_cluster("atlas", nodes=12)


def test_the_same_seed_gives_the_same_gpus_and_another_gives_others() -> None:
    same = [list(training_cluster("atlas", nodes=8, seed=seed).gpus.fleet()) for seed in (1, 1, 2)]
    assert same[0] == same[1] != same[2]


def test_the_state_follows_the_pods(atlas: SimCluster) -> None:
    name = "atlas-gpu-001"
    assert all(one.pod and one.busy > 0.8 for one in atlas.gpus.truth(name))
    before = atlas.gpus.truth(name)[0].energy
    atlas.tick(100)
    used = atlas.gpus.truth(name)[0].energy - before
    assert 100 * 400 < used < 100 * 700  # joules: between idle and the board's limit
    (pod,) = [p for p in atlas.store.on_node(name) if p.key[1].startswith("llm-pretrain")]
    atlas.pods.terminate(pod, grace=0)
    assert all(one.pod is None and one.busy == 0 and one.power == 72 for one in atlas.gpus.truth(name))
    assert atlas.gpus.truth(name)[0].energy >= before + used


def test_who_serves_comes_in_waves_and_who_sleeps_holds_memory(atlas: SimCluster) -> None:
    atlas.add_node("n", gpus=2)
    atlas.pods.workload("ReplicaSet", "chat", gpus=1, nodes=["n"])
    atlas.add_pod("notebook", gpus=1, node="n")
    seen = []
    for _ in range(20):
        seen.append([one.busy for one in atlas.gpus.truth("n")])
        atlas.tick(60)
    assert max(busy for busy, _ in seen) > 0.8
    assert min(busy for busy, _ in seen) < 0.2
    assert {busy for _, busy in seen} == {0}
    assert atlas.gpus.truth("n")[1].memory_used > 30 * gpus.GIB


@pytest.mark.parametrize("mode", ["direct", HonorLabels.OFF, HonorLabels.ON])
def test_both_generations_in_each_mode_are_read_as_what_is_true(atlas: SimCluster, mode: str) -> None:
    reading = read(atlas, mode)
    truth = {one.uuid: one for one in atlas.gpus.fleet() if one.node not in atlas.exporters.silent}
    assert reading.generations == {Generation.CLASSIC, Generation.BASE_UNITS}
    assert len(truth) == 11 * 8 == len(reading.samples)
    for sample in reading.samples:
        one = truth[sample.device.uuid]
        assert sample.node == one.node
        assert [(h.namespace, h.pod, h.container) for h in sample.holders] == ([one.pod] if one.pod else [])
        assert sample.values[Metric.BUSY] == pytest.approx(one.busy)
        assert sample.values[Metric.TENSOR] == pytest.approx(one.tensor, abs=1e-6)
        assert sample.values[Metric.MEMORY_USED] == one.memory_used
        assert sample.values[Metric.POWER] == pytest.approx(one.power)
        assert sample.values[Metric.ENERGY] == pytest.approx(one.energy, abs=0.001)
        assert sample.values[Metric.SM_CLOCK] == one.sm_clock
        assert [xid.code for xid in sample.xids] == ([one.xid] if one.xid else [])
    assert {xid.code for sample in reading.samples for xid in sample.xids} == {48}


def test_a_gpu_that_fell_off_the_bus_says_its_xid_and_no_number(atlas: SimCluster) -> None:
    atlas.gpus.fall_ill("atlas-gpu-002", 3, xid=79)
    (lost,) = [s for s in read(atlas, "direct").samples if s.node == "atlas-gpu-002" and s.index == "3"]
    assert not lost.values
    assert lost.xids[0].code == 79


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
    assert text.count("\n") == 24 * (2 + 8)


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
    return normalise(series, when=when, exporters=pods, findings=findings)
