"""Devices that a node offers in shares are counted once, however the shares are named."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.inventory import store
from clusters.models import Node
from clusters.sharing import gpu_shares
from clusters.sharing.gpu_shares import Shares
from tests.clusters.factories import ClusterFactory, raw_node, raw_pod
from tests.clusters.inventory.observed import see

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
SLICED = {
    "nvidia.com/gpu.count": "4",
    "nvidia.com/gpu.product": "Tesla-T4-SHARED",
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
}
"""As NVIDIA's documentation prints them for four boards: docs.nvidia.com, GPU Operator, Time-Slicing GPUs."""
PLAIN = SLICED | {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.replicas": "1"}
HAMI = "GPU-00552014-5c87,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0,true:GPU-0fc3eda5,10,32768,100,NVIDIA,0,true:"
HAMI_JSON = json.dumps([{"id": f"GPU-{number}", "count": 10, "devmem": 32768, "health": True} for number in range(2)])


@pytest.mark.parametrize(
    ("resources", "labels", "registered", "expected"),
    [
        pytest.param({GPU: "4"}, PLAIN, "", {}, id="not shared"),
        pytest.param({GPU: "4"}, {}, "", {}, id="no labels"),
        pytest.param({GPU: "16"}, SLICED, "", {"": Shares(16, 4)}, id="time slicing"),
        pytest.param({GPU: "16"}, {"nvidia.com/gpu.replicas": "4"}, "", {"": Shares(16, 4)}, id="no count"),
        pytest.param({GPU: "13"}, SLICED, "", {"": Shares(13, 4)}, id="one of four boards whole"),
        pytest.param({GPU: "0", f"{GPU}.shared": "16"}, SLICED, "", {"": Shares(16, 4)}, id="renamed"),
        pytest.param({GPU: "3", f"{GPU}.shared": "4"}, SLICED, "", {"": Shares(7, 4)}, id="one board renamed"),
        pytest.param({f"{GPU}.shared": "16"}, {}, "", {"": Shares(16, 16)}, id="renamed, no labels"),
        pytest.param(
            {GPU: "0", MIG: "28"},
            {f"{MIG}.count": "7", f"{MIG}.replicas": "4"},
            "",
            {"1g.10gb": Shares(28, 7)},
            id="instances",
        ),
        pytest.param(
            {f"{MIG}.shared": "28", GPU: "2"},
            {f"{MIG}.count": "7", f"{MIG}.replicas": "4", "nvidia.com/gpu.count": "2"},
            "",
            {"1g.10gb": Shares(28, 7)},
            id="instances renamed beside whole boards",
        ),
        pytest.param({GPU: "8"}, {gpu_shares.GKE_CLIENTS: "4"}, "", {"": Shares(8, 2)}, id="GKE"),
        pytest.param({GPU: "20"}, {}, HAMI, {"": Shares(20, 2)}, id="HAMi"),
        pytest.param({GPU: "20"}, {}, HAMI_JSON, {"": Shares(20, 2)}, id="HAMi 2.5"),
        pytest.param({GPU: "2"}, {}, HAMI_JSON, {}, id="HAMi that splits nothing"),
        pytest.param({GPU: "4"}, {}, "[" * 100_000, {}, id="junk instead of HAMi's list"),
        pytest.param({GPU: "x"}, SLICED, "", {}, id="no number"),
        pytest.param({GPU: "16"}, {"nvidia.com/gpu.replicas": "-4"}, "", {}, id="a negative label"),
        pytest.param({GPU: "16"}, SLICED | {"nvidia.com/gpu.count": "99"}, "", {"": Shares(16, 4)}, id="absurd count"),
    ],
)
def test_shares_and_the_devices_behind_them(resources, labels, registered, expected):
    assert gpu_shares.offered(resources, labels, registered=registered) == expected


WORDS = st.one_of(st.integers(-9, 99).map(str), st.text(max_size=4))


@given(
    st.dictionaries(st.sampled_from([GPU, f"{GPU}.shared", MIG, f"{MIG}.shared", "amd.com/gpu"]), WORDS),
    st.dictionaries(
        st.sampled_from([f"{base}.{what}" for base in (GPU, MIG) for what in ("count", "replicas")]), WORDS
    ),
    st.one_of(st.text(max_size=30), st.lists(st.integers(), max_size=4).map(json.dumps)),
)
def test_devices_are_never_more_than_shares_and_held_shares_never_fill_more(resources, labels, registered):
    for part in gpu_shares.offered(resources, labels, registered=registered).values():
        assert 0 < part.devices <= part.shares
        filled = [part.filled(held) for held in range(part.shares + 1)]
        assert filled == sorted(filled)
        assert (filled[0], filled[-1]) == (0, part.devices)
        assert part.filled(1) == 1


@pytest.mark.django_db
class TestRows:
    def node(self, cluster, *, shares, labels, **more):
        raw = raw_node("n1", gpus=shares, labels=labels)
        for name in ("capacity", "allocatable"):
            raw["status"][name] |= more
        see(cluster, raw)

    def hold(self, cluster, *gpus, resource=GPU):
        pods = [raw_pod(f"p{number}", gpus=count) for number, count in enumerate(gpus)]
        for pod in pods:
            resources = pod["spec"]["containers"][0]["resources"]
            resources["limits"] = {resource: resources["limits"].pop(GPU)}
        store.observe_pods(cluster, pods, complete=True)

    def counts(self):
        row = Node.objects.get()
        return row.gpu_count, row.gpu_allocated, row.gpu_shares_offered, row.gpu_shares_held

    def test_boards_are_counted_and_pods_hold_as_many_as_their_shares_fill(self):
        cluster = ClusterFactory()
        self.node(cluster, shares=16, labels=SLICED)
        assert self.counts() == (4, 0, 16, 0)
        self.hold(cluster, 1, 1, 1)
        assert self.counts() == (4, 1, 16, 3)
        self.hold(cluster, 1, 1, 2, 1)
        assert self.counts() == (4, 2, 16, 5)
        self.hold(cluster, *[1] * 16)
        assert self.counts() == (4, 4, 16, 16)
        row = Node.objects.get()
        assert (row.gpu_product, row.gpu_words) == ("Tesla-T4", "4 × Tesla-T4 in 16 shares")

    def test_renamed_shares_are_held_too(self):
        cluster = ClusterFactory()
        self.node(cluster, shares=0, labels=SLICED, **{f"{GPU}.shared": "16"})
        self.hold(cluster, 1, 1, 1, 1, 1, resource=f"{GPU}.shared")
        assert self.counts() == (4, 2, 16, 5)

    def test_shares_of_instances_stand_beside_whole_boards(self):
        cluster = ClusterFactory()
        self.node(cluster, shares=2, labels={f"{MIG}.count": "7", f"{MIG}.replicas": "4"}, **{MIG: "28"})
        self.hold(cluster, 1, 1)
        assert self.counts() == (9, 2, 28, 0)
        self.hold(cluster, 1, 1, 3, resource=MIG)
        assert self.counts() == (9, 2, 28, 5)
        assert Node.objects.get().gpu_words == "2 × unknown, 7 × 1g.10gb in 28 shares"

    def test_what_pods_hold_is_counted_again_when_sharing_begins_and_ends(self):
        cluster = ClusterFactory()
        self.node(cluster, shares=4, labels=PLAIN)
        self.hold(cluster, 1, 1, 1)
        assert self.counts() == (4, 3, 0, 0)
        self.node(cluster, shares=16, labels=SLICED)
        assert self.counts() == (4, 1, 16, 3)
        self.node(cluster, shares=4, labels=PLAIN)
        assert self.counts() == (4, 3, 0, 0)
