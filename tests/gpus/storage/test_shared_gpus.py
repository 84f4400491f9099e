"""GPUs that a node offers in shares are as many in the figures as there are boards."""

from __future__ import annotations

import pytest

from clusters.inventory import allocation
from clusters.models import GpuPod, Node
from gpus.models import GpuBand
from gpus.reports import selectors
from tests.factories import UserFactory
from tests.gpus.recording import Recording

pytestmark = pytest.mark.django_db
OFFERED = 4
SHARES = 16
HELD = ("effective", "low", "held", "held_unknown")


@pytest.fixture
def world(clock):
    """Two nodes of four GPUs; those of n0 are shared by four, and six pods of two teams hold a share each."""
    at = clock.at.replace(hour=12, minute=0, second=0, microsecond=0)
    world = Recording(at, gpus=OFFERED)
    world.held = {("n0", 0): ("team/a", 0.9), ("n0", 1): ("lab/b", 0.0)}
    resources = {"nvidia.com/gpu": str(SHARES)}
    Node.objects.filter(name="n0").update(gpu_shares={"": [SHARES, OFFERED]}, allocatable=resources)
    for number in range(6):
        space = "team" if number % 2 else "lab"
        GpuPod.objects.create(
            cluster=world.cluster, uid=f"p{number}", namespace=space, name=f"p{number}", node_name="n0", gpus=1
        )
    allocation.recount(world.cluster, ["n0", "n1"], at)
    world.person = UserFactory(is_superuser=True)
    return world


def tally(world):
    (group,) = selectors.groups(world.person, selectors.sources(world.person))
    return group.tally


def test_all_boards_are_counted_once_and_none_lacks_telemetry(world, clock):
    world.store()
    clock.at = world.at
    counted = tally(world)
    assert (counted.total, counted.effective, counted.held_idle, counted.free) == (8, 1, 1, 6)
    assert counted.held_unknown == 0
    by_node = {node.name: node.tally.total for node in selectors.nodes(world.person, selectors.sources(world.person))}
    assert by_node == {"n0": 4, "n1": 4}


def test_without_telemetry_pods_hold_the_boards_that_their_shares_fill(world, clock):
    world.silent = {"n0", "n1"}
    world.store()
    clock.at = world.at
    counted = tally(world)
    assert (counted.total, counted.held_unknown) == (8, 2)


@pytest.mark.parametrize("silent", [set(), {"n0"}])
def test_hours_over_namespaces_are_those_of_the_boards_that_are_held(world, silent):
    world.silent = silent
    world.store()
    world.go_on(300)
    rows = GpuBand.objects.filter(seconds=300)
    (whole,) = rows.filter(scope="cluster")
    gpus = {state: getattr(whole, state) / 300 for state in GpuBand.STATES}
    assert sum(gpus.values()) == pytest.approx(8)
    assert sum(gpus[state] for state in HELD) == pytest.approx(2)
    by_space = {row.name: sum(getattr(row, state) for state in HELD) / 300 for row in rows.filter(scope="namespace")}
    assert by_space == {"team": pytest.approx(1), "lab": pytest.approx(1)}
