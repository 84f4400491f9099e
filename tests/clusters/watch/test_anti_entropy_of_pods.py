"""Pods without rows in a comparison of names: those that need none, and those that came and went meanwhile."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from clusters.models import GpuPod
from clusters.watch import anti_entropy
from common.clock import now
from tests.clusters.watch.test_anti_entropy import WatchedCluster

pytestmark = pytest.mark.django_db


@pytest.fixture
def here(settings):
    return WatchedCluster(settings)


@pytest.mark.parametrize("gpus", [0, 2])
def test_pods_whose_deletion_a_new_list_hides_are_no_difference(here, monkeypatch, gpus, caplog):
    """No event tells, after a 410, of the end of pods that came and went while names were read."""
    monkeypatch.setattr(anti_entropy, "ONE_BY_ONE", 2)
    for number in range(5):
        here.sim.pods.add(f"late{number}", node="n1", gpus=gpus)
    heads = here.fleet.heads

    def slow(kind, **how):
        page = heads(kind, **how)
        for number in range(5):
            here.sim.store.delete("pods", f"late{number}", "default")
        next(stream for stream in here.streams if stream.kind == kind).version = ""
        here.follow()
        return page

    here.fleet.heads = slow
    with caplog.at_level(logging.WARNING):
        assert here.turn("pods").found, "they differ at first"
    assert here.counted("pods") == {}
    assert not caplog.records


@pytest.mark.parametrize("one_by_one", [0, 100])
def test_a_row_that_is_behind_and_whose_pod_is_deleted_meanwhile_is_mended(here, monkeypatch, one_by_one):
    monkeypatch.setattr(anti_entropy, "ONE_BY_ONE", one_by_one)
    GpuPod.objects.filter(name="p2").update(resource_version="1")
    comparison = here.entropy.compare_names("pods")
    here.sim.store.delete("pods", "p2", "default")

    here.entropy.settle(comparison)

    assert not GpuPod.objects.filter(name="p2").exists()
    assert here.counted("pods") == {"behind": 1}


def test_pods_without_gpus_that_were_not_heard_are_listed_once(here, monkeypatch):
    monkeypatch.setattr(anti_entropy, "ONE_BY_ONE", 0)
    here.sim.pods.add("late", node="n1")
    pages, list_ = [], here.fleet.list

    def noted(kind, **how):
        pages.append(list_(kind, **how))
        return pages[-1]

    here.fleet.list = noted
    here.turn("pods")
    assert here.fleet.pod("default", "late")["metadata"]["uid"] in here.watched.rowless
    assert sorted(raw["metadata"]["name"] for raw in pages[-1].items) == ["p0", "p1", "p2"]
    before = len(pages)

    here.turn("pods")

    assert len(pages) - before == 1, "names alone"
    assert here.counted("pods") == {}


def test_a_row_that_comes_while_names_are_read_is_compared_the_next_time(here):
    """A refresh by another process may write a row of a pod that the list of names left out."""
    here.sim.pods.add("plain", node="n1")
    here.follow()
    uid = here.fleet.pod("default", "plain")["metadata"]["uid"]
    heads = here.fleet.heads

    def slow(kind, **how):
        page = heads(kind, **how)
        row = {"uid": uid, "namespace": "default", "name": "plain", "gpus": 8, "resource_version": "1"}
        GpuPod.objects.get_or_create(cluster=here.cluster, **row)
        GpuPod.objects.filter(uid=uid).update(versioned_at=now() - timedelta(minutes=5))
        return page

    here.fleet.heads = slow
    assert here.turn("pods") is None
    here.fleet.heads = heads
    here.turn("pods")
    assert here.counted("pods") == {"behind": 1}


@pytest.mark.parametrize("one_by_one", [0, 100])
def test_a_row_of_a_pod_that_needs_none_is_compared(here, monkeypatch, one_by_one, caplog):
    monkeypatch.setattr(anti_entropy, "ONE_BY_ONE", one_by_one)
    here.sim.pods.add("plain", node="n1")
    here.follow()
    raw = here.fleet.pod("default", "plain")
    uid = raw["metadata"]["uid"]
    GpuPod.objects.create(
        cluster=here.cluster, uid=uid, namespace="default", name="plain", gpus=8, resource_version="1"
    )

    with caplog.at_level(logging.WARNING):
        here.turn("pods")

    assert not GpuPod.objects.filter(uid=uid).exists()
    assert here.counted("pods") == {"behind": 1}
    assert "1 behind" in caplog.text
