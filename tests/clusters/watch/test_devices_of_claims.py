"""Devices for claims are followed where there are any; that they cannot be read is no trouble for anything else."""

from __future__ import annotations

import pytest

from clusters.inventory import device_rows
from clusters.models import Cluster, DeviceClaim, DeviceSlice, GpuPod, Node
from clusters.watch.devices import DeviceStream, DeviceWatch
from clusters.watch.streams import DEVICE_KINDS
from simfleet.apiserver.callers import person
from tests.clusters.dra_objects import board, pod_with_claims, raw_claim, raw_slice
from tests.clusters.watch.driven import PACE, DrivenCluster

ADMIN = person("admin")


@pytest.fixture
def here(db):
    here = DrivenCluster()
    here.sim.add_node("n1")
    here.step()
    here.devices = [DeviceStream(here.watched, kind, here.writer.post, PACE) for kind in DEVICE_KINDS]
    return here


def look(here):
    for stream in here.devices:
        stream.step()
    here.flush()


def put(here, kind, raw):
    body = {**raw, "metadata": {k: v for k, v in raw["metadata"].items() if k not in ("uid", "resourceVersion")}}
    return here.sim.api.create(ADMIN, kind, body, raw["metadata"].get("namespace", ""))


def counts():
    row = Node.objects.get()
    return row.gpu_count, row.gpu_allocated


def node_name():
    return Node.objects.values_list("name", flat=True).get()


def test_slices_and_claims_are_heard_as_they_come_and_go(here):
    name, own = node_name(), counts()
    put(here, "resourceslices", raw_slice(name, [board(0), board(1)]))
    put(here, "resourceslices", raw_slice(name, [board(0)], driver="dra.net"))
    look(here)
    assert counts()[0] == max(own[0], 2)
    pod = put(here, "pods", pod_with_claims("a", "a-gpu", is_template=False, node=name))
    claim = raw_claim("a-gpu", "gpu-1", pods=["a"], node=name)
    claim["status"]["reservedFor"][0]["uid"] = pod.raw["metadata"]["uid"]
    put(here, "resourceclaims", claim)
    here.step()
    look(here)
    assert DeviceClaim.objects.count() == 1
    here.sim.api.delete(ADMIN, "resourceclaims", "a-gpu", "default")
    look(here)
    assert not DeviceClaim.objects.exists()
    assert here.watched.unread == {}


def test_a_kind_that_may_not_be_read_leaves_the_cluster_reachable(here):
    here.sim.api.forbidden |= {(verb, kind) for verb in ("list", "watch") for kind in DEVICE_KINDS}
    watch = DeviceWatch(here.watched, here.writer.post, PACE)
    watch.turn()
    look(here)
    here.step(2)
    row = Cluster.objects.get()
    assert "resourceslices" in row.devices_unread
    assert (row.reach, watch.threads) == ("reachable", [])
    here.sim.api.forbidden.clear()
    watch.turn()
    assert Cluster.objects.get().devices_unread == ""


def test_what_cannot_be_read_any_more_is_told_and_read_again(here):
    put(here, "resourceslices", raw_slice(node_name(), [board(0)]))
    look(here)
    here.sim.api.forbidden |= {("watch", "resourceslices"), ("list", "resourceslices")}
    for _ in range(3):
        look(here)
    assert set(here.watched.unread) == {"resourceslices"}
    assert DeviceSlice.objects.exists()  # what was read stays
    here.sim.api.forbidden.clear()
    look(here)
    assert here.watched.unread == {}


def test_a_cluster_without_a_driver_is_not_followed_and_forgets_an_earlier_one(here):
    device_rows.observe_slices(here.cluster, [raw_slice("n1", [board(0)])], complete=True)
    device_rows.observe_claims(here.cluster, [raw_claim("x", "gpu-0", pods=["a"])], complete=True)
    watch = DeviceWatch(here.watched, here.writer.post, PACE)
    watch.turn()
    assert watch.threads == []
    assert not DeviceSlice.objects.exists()
    assert not DeviceClaim.objects.exists()


def test_what_the_writer_could_not_write_is_listed_again(here, monkeypatch):
    put(here, "resourceslices", raw_slice(node_name(), [board(0)]))
    from clusters.watch import writer

    broken = {**writer._OBSERVE, "resourceslices": lambda *a, **k: 1 / 0}
    with monkeypatch.context() as patched:
        patched.setattr(writer, "_OBSERVE", broken)
        look(here)
    assert not DeviceSlice.objects.exists()
    look(here)
    assert DeviceSlice.objects.exists()
    assert not GpuPod.every.filter(gpus=0).exclude(claims=[]).exists()
