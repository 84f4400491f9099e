"""Places where GPUs were held, by node, namespace and day: the same seconds as the cost page, in as many statements
for any number of pods."""

from __future__ import annotations

import pytest
from django.db import connection
from django.db.models import F, Sum
from django.test.utils import CaptureQueriesContext

from clusters.models import GpuPod
from gpus.models import GpuUse, NodeUse, TeamRules
from gpus.storage import retention, rollups
from tests.gpus.recording import Recording

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(clock):
    clock.at = clock.at.replace(hour=12, minute=0, second=0, microsecond=0)
    recording = Recording(clock.at, nodes=2, gpus=4)
    recording.held = {("n0", 0): ("team/a", 0.9), ("n0", 1): ("lab/b", 0.0), ("n1", 0): ("team/a", 0.0)}
    recording.pods()
    recording.store()
    return recording


def uses() -> dict[tuple[str, str, str], tuple[float, float]]:
    rows = NodeUse.objects.values_list("node_name", "namespace", "owner", "held", "active")
    return {(node, space, owner): (held, active) for node, space, owner, held, active in rows}


def test_each_node_has_what_each_namespace_held_there(world):
    world.go_on(600)
    assert uses() == {
        ("n0", "team", ""): (pytest.approx(600), pytest.approx(600)),
        ("n0", "lab", ""): (pytest.approx(600), 0),
        ("n1", "team", ""): (pytest.approx(600), 0),
    }


def test_nodes_sum_to_the_cost_pages_seconds_over_midnight_and_lost_time(world, clock):
    world.at = clock.at.replace(hour=23, minute=30)
    world.store()
    world.go_on(2400)
    world.lose(600)
    world.held = {("n1", 1): ("team/a", 0.5)}
    world.pods()
    world.go_on(1200)
    whole = sum((F(name) for name in GpuUse.STATES[1:]), F(GpuUse.STATES[0]))
    by_space = GpuUse.objects.values("day", "namespace").annotate(
        held_=Sum(whole), active_=Sum(F("effective") + F("low"))
    )
    of_nodes = NodeUse.objects.values("day", "namespace").annotate(held_=Sum("held"), active_=Sum("active"))
    wanted = {(row["day"], row["namespace"]): (row["held_"], row["active_"]) for row in by_space}
    got = {(row["day"], row["namespace"]): (row["held_"], row["active_"]) for row in of_nodes}
    assert len({day for day, _ in wanted}) == 2
    assert got == {key: (pytest.approx(held), pytest.approx(active)) for key, (held, active) in wanted.items()}


def test_a_reading_given_twice_adds_nothing(world):
    world.go_on(600)
    before = uses()
    rollups.store(world.cluster.pk, world.reading(), claimed=world.claimed)
    assert uses() == before


def test_an_owner_is_kept_apart_only_where_a_rule_names_it(world):
    TeamRules.objects.create(rules=[{"by": "owner", "pattern": "Job/nightly-*", "team": 1}])
    GpuPod.objects.filter(node_name="n0", namespace="team").update(owner_kind="Job", owner_name="nightly-7")
    GpuPod.objects.filter(node_name="n1").update(owner_kind="Job", owner_name="daily-7")
    world.go_on(300)
    assert set(uses()) >= {("n0", "team", "Job/nightly-7"), ("n0", "lab", ""), ("n1", "team", "")}
    assert not NodeUse.objects.filter(owner="Job/daily-7").exists()


def _statements(clock, pods: int) -> int:
    """Return how many statements about these rows the reading takes that closes a step of four nodes."""
    recording = Recording(clock.at, nodes=4, gpus=pods)
    recording.held = {
        (f"n{node}", index): (f"team/pod-{node}-{index}", 0.5) for node in range(4) for index in range(pods)
    }
    recording.pods()
    GpuPod.objects.filter(cluster=recording.cluster).update(owner_kind="Job", owner_name=F("name"))
    recording.store()
    recording.go_on(150)
    with CaptureQueriesContext(connection) as queries:
        recording.go_on(150)
    assert NodeUse.objects.filter(cluster=recording.cluster).count() == 4, "one row a node, for any number of pods"
    return sum("gpus_nodeuse" in query["sql"] for query in queries.captured_queries)


def test_a_reading_takes_as_many_statements_for_many_pods_as_for_few(clock):
    clock.at = clock.at.replace(hour=12, minute=0, second=0, microsecond=0)
    assert _statements(clock, 2) == _statements(clock, 200) == 2, "one read, one upsert"


def test_it_is_kept_as_long_as_hours_of_nodes_and_a_week_at_least(world, clock, settings):
    world.go_on(300)
    settings.SETPOINT_GPU_HOUR_DAYS = 1
    clock.forward(seconds=7 * 86400)
    retention.forget_old()
    assert NodeUse.objects.exists(), "the page of a team shows seven days"
    clock.forward(seconds=2 * 86400)
    retention.forget_old()
    assert not NodeUse.objects.exists()
