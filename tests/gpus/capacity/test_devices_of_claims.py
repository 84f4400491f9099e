"""GPUs for claims are free or held alike on every page, and fit no pod that requests nvidia.com/gpu."""

from __future__ import annotations

import pytest

from clusters.inventory import device_rows, store
from clusters.models import Node
from gpus.capacity import fit
from gpus.reports import selectors
from tests.clusters.dra_objects import board, divisible, pod_with_claims, raw_claim, raw_slice
from tests.clusters.factories import ClusterFactory, raw_node, raw_pod
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster():
    """n1 has 8 boards for claims, of which 3 are held, one by two pods, and an instance of a board that is split; n2
    has 8 of a device plugin, of which 2 are held."""
    cluster = ClusterFactory()
    store.observe_nodes(cluster, [raw_node("n1"), raw_node("n2", gpus=8)], complete=True)
    boards = [*divisible(0), *(board(minor) for minor in range(1, 8))]
    device_rows.observe_slices(cluster, [raw_slice("n1", boards)], complete=True)
    pods = [pod_with_claims(name, f"{name}-gpu") for name in ("a", "b")]
    pods += [pod_with_claims(name, "shared", is_template=False) for name in ("c", "d")]
    store.observe_pods(cluster, [*pods, raw_pod("e", node="n2", gpus=2)], complete=True)
    claims = [
        raw_claim("a-gpu", "gpu-1", "gpu-2", pods=["a"]),
        raw_claim("b-gpu", "gpu-0-mig-1g10gb-19-0", pods=["b"]),
        raw_claim("shared", "gpu-3", pods=["c", "d"]),
    ]
    device_rows.observe_claims(cluster, claims, complete=True)
    return cluster


def test_free_and_held_devices_are_the_same_on_the_pages(cluster):
    admin = UserFactory(is_superuser=True)
    units = {(row.name, row.profile): (row.offered, row.free) for row in fit.nodes(admin, cluster)}
    assert units == {
        ("n1", "1g.10gb, by ResourceClaim"): (1, 0),
        ("n1", "whole GPUs, by ResourceClaim"): (7, 4),
        ("n2", ""): (8, 6),
    }
    offered, held = (sum(Node.objects.values_list(name, flat=True)) for name in ("gpu_count", "gpu_allocated"))
    assert (offered, held) == (16, 6)
    assert sum(free for _, free in units.values()) == offered - held
    tally = selectors.groups(admin, [], cluster)
    assert sum(group.tally.total for group in tally) == offered
    assert sum(group.tally.held_unknown for group in tally) == held


def test_a_gang_of_nvidia_com_gpu_does_not_fit_into_what_claims_are_given(cluster):
    page = fit.page(UserFactory(is_superuser=True), cluster)
    assert (page["free"], page["offered"]) == (6, 8)
    assert (page["instances_free"], page["instances_offered"]) == (4, 8)


def test_pods_that_a_driver_gives_devices_by_an_extended_resource_leave_fewer_free():
    cluster = ClusterFactory()
    store.observe_nodes(cluster, [raw_node("n1")], complete=True)
    device_rows.observe_slices(cluster, [raw_slice("n1", [board(minor) for minor in range(4)])], complete=True)
    store.observe_pods(cluster, [raw_pod("a", gpus=3)], complete=True)
    [row] = fit.nodes(UserFactory(is_superuser=True), cluster)
    assert (row.offered, row.free) == (4, 1)
