"""Starts of pods in the demo's past: enough for the page, the slow node among them, and nothing left behind."""

from __future__ import annotations

from datetime import timedelta

import pytest

from clusters.models import GpuPod, PodStart
from common.clock import now
from config.demo import starts
from gpus.reports.starts import report
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db


def test_hours_of_the_demo_have_starts_and_the_node_with_a_slow_disk_is_the_slowest():
    for name in starts.PLACES:
        ClusterFactory(name=name)
    for quarter in reversed(range(30 * 4)):
        starts.pass_by(timedelta(minutes=15 * quarter))
    page = report.of(UserFactory(roles=["viewer"]), report.Query(days=1, by="model"))
    assert not GpuPod.every.exists()
    assert page.whole.starts == PodStart.objects.count() == 10 * 3 * 2 * 2
    assert 0 < page.whole.never_ready < page.whole.starts / 5
    assert page.whole.dropped == page.whole.without_probe == 0
    assert {(line.cluster.name, line.name) for line in page.lines} == {
        (place, model) for place in starts.PLACES for model in starts.MODELS
    }
    assert {slow.line.node for slow in page.nodes[:2]} == {f"{place}-gpu-005" for place in starts.PLACES}
    assert PodStart.objects.latest("ended_at").ended_at <= now()
