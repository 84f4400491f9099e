"""GPUs of virtual machines: names as NVIDIA's plugin for KubeVirt makes them of vGPU types and of pci.ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters import objects
from clusters.inventory import device_rows, store
from clusters.models import GpuPod, Node
from gpus.capacity import fit
from tests.clusters.dra_objects import board, raw_slice
from tests.clusters.factories import ClusterFactory, raw_node, raw_pod
from tests.clusters.inventory.observed import AT, see
from tests.factories import UserFactory

TYPES = {
    "nvidia.com/GRID_T4-1Q": "T4-1Q",
    "nvidia.com/GRID_M10-2B4": "M10-2B4",
    "nvidia.com/GRID_A100D-7-80C": "A100D-7-80C",
    "nvidia.com/NVIDIA_A100-1-5CME": "A100-1-5CME",
    "nvidia.com/NVIDIA_A10-24Q": "A10-24Q",
    "nvidia.com/NVIDIA_H200X-141C": "H200X-141C",
    "nvidia.com/NVIDIA_H200X-1-18C": "H200X-1-18C",
    "nvidia.com/NVIDIA_L40S-48A": "L40S-48A",
    "nvidia.com/NVIDIA_RTX6000-Ada-12Q": "RTX6000-Ada-12Q",
    "nvidia.com/NVIDIA_RTX_Pro_6000_Blackwell_DC-1-24Q": "RTX_Pro_6000_Blackwell_DC-1-24Q",
}
"""Virtual GPU types of NVIDIA's user guide (docs.nvidia.com/vgpu), spaces as the plugin writes them."""
BOARDS = {
    "nvidia.com/GA102GL_A10": "GA102GL_A10",
    "nvidia.com/TU104GL_TESLA_T4": "TU104GL_TESLA_T4",
    "nvidia.com/TU104GL_Tesla_T4": "TU104GL_Tesla_T4",
    "nvidia.com/GV100GL_TESLA_V100_PCIE_32GB": "GV100GL_TESLA_V100_PCIE_32GB",
    "nvidia.com/GH100_H100_PCIE": "GH100_H100_PCIE",
    "nvidia.com/AD102GL_L40S": "AD102GL_L40S",
    "nvidia.com/GB100_B200": "GB100_B200",
    "nvidia.com/GK210GL_TESLA_K80": "GK210GL_TESLA_K80",
    "nvidia.com/TU117GLM_QUADRO_T2000_MOBILE": "TU117GLM_QUADRO_T2000_MOBILE",
    "nvidia.com/2901": "2901",
    "nvidia.com/pgpu": "pgpu",
}
"""Boards' names in pci.ids, as the plugin writes them; in mixed case as KubeVirt's own documentation has one."""
OTHERS = (
    "nvidia.com/GA100_A100_NVSWITCH", "nvidia.com/GA102_HIGH_DEFINITION_AUDIO_CONTROLLER",
    "nvidia.com/TU104_USB_TYPEC_UCSI_CONTROLLER", "nvidia.com/hostdev", "nvidia.com/mlnxnics", "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "nvidia.com/priority", "nvidia.com/resibp66s0",
    "nvidia.com/sriov_nic-1", "intel.com/GA102GL_A10", "example.com/GRID_T4-1Q", "nvidia.com/cc.ready",
)  # fmt: skip
"""Of NVSwitches, other functions of a board, adapters, and the memory and cores of HAMi."""


@pytest.mark.parametrize(("resource", "profile"), (TYPES | BOARDS).items())
def test_types_and_boards_are_gpus_of_a_profile_of_their_own(resource, profile):
    assert (objects.is_gpu(resource), objects.is_virtual(resource), objects.profile(resource)) == (True, True, profile)


@pytest.mark.parametrize("resource", OTHERS)
def test_other_resources_of_the_same_domain_are_none(resource):
    assert (objects.is_gpu(resource), objects.profile(resource)) == (False, "")


@given(st.text(max_size=40))
def test_no_name_takes_long_or_makes_a_virtual_one_no_gpu(text):
    for resource in (f"nvidia.com/{text}", f"nvidia.com/GRID_{text}-1Q"):
        assert objects.is_gpu(resource) >= objects.is_virtual(resource)


def test_a_long_name_is_judged_at_once():
    assert not objects.is_gpu(f"nvidia.com/A{'-1' * 120}")


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu", "amd.com/cpx_nps4"])
def test_gpus_of_containers_are_not_of_virtual_machines(resource):
    assert objects.is_gpu(resource)
    assert not objects.is_virtual(resource)


@pytest.mark.django_db
def test_a_host_counts_its_vgpus_and_a_machine_holds_what_its_pod_was_given():
    cluster = ClusterFactory()
    host = raw_node("host")
    for resources in (host["status"]["capacity"], host["status"]["allocatable"]):
        resources |= {"nvidia.com/NVIDIA_A10-12Q": "4", "devices.kubevirt.io/kvm": "1k"}
    see(cluster, host, raw_node("plain", gpus=8))
    machine = raw_pod("virt-launcher-vm1-x", node="host", gpus=0)
    machine["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/NVIDIA_A10-12Q": "1"}}
    store.observe_pods(cluster, [machine], complete=False, at=AT, deleted=[])

    row, plain = Node.objects.order_by("name")
    assert (row.gpu_count, row.gpu_virtual, row.gpu_allocated) == (4, 4, 1)
    assert row.gpu_words == "4 × A10-12Q"
    assert (plain.gpu_count, plain.gpu_virtual) == (8, 0)
    assert GpuPod.objects.get().mig == {"A10-12Q": 1}
    assert list(Node.objects.present().split()) == [row]


@pytest.mark.django_db
def test_what_becomes_a_host_of_containers_again_has_none():
    cluster = ClusterFactory()
    host = raw_node("host")
    host["status"]["capacity"] |= {"nvidia.com/GA102GL_A10": "2"}
    see(cluster, host)
    row = Node.objects.get()
    assert row.gpu_virtual == 2, "the plugin restarts: it is in capacity alone"
    assert row.gpu_words == "2 for virtual machines"
    assert [(free.profile, free.offered) for free in fit.nodes(UserFactory(is_superuser=True), cluster)] == []
    see(cluster, raw_node("host", gpus=2))
    row = Node.objects.get()
    assert (row.gpu_count, row.gpu_virtual) == (2, 0)


@pytest.mark.django_db
def test_boards_of_virtual_machines_are_none_of_those_that_a_driver_offers_to_claims():
    cluster = ClusterFactory()
    host = raw_node("n1")
    for resources in (host["status"]["capacity"], host["status"]["allocatable"]):
        resources |= {"nvidia.com/GA102GL_A10": "4"}
    see(cluster, host)
    boards = [raw_slice(devices=[board(number) for number in range(4)])]
    device_rows.observe_slices(cluster, boards, complete=True, at=AT, deleted=[])
    row = Node.objects.get()
    assert (row.gpu_count, row.gpu_virtual, row.gpus_by_claim) == (8, 4, {"": 4})
    see(cluster, raw_node("n1", gpus=4))
    row = Node.objects.get()
    assert (row.gpu_count, row.gpu_virtual) == (4, 0), "as many, and of containers now: the driver's own"
