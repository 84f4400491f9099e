"""Reachability of a cluster, and the order of versions."""

from __future__ import annotations

from datetime import timedelta

import pytest

from clusters.inventory import reachability, rows
from tests.clusters.factories import ClusterFactory
from tests.clusters.inventory.observed import AT, LATER

pytestmark = pytest.mark.django_db


def test_an_unreachable_cluster_says_since_when_and_why_and_keeps_since():
    cluster = ClusterFactory(reach="reachable")

    assert reachability.lost(cluster, "connection refused", since=AT)
    assert not reachability.lost(cluster, "timed out", since=LATER)

    cluster.refresh_from_db()
    assert (cluster.reach, cluster.reach_since, cluster.reach_reason) == ("unreachable", AT, "timed out")


def test_a_cluster_that_answers_again_is_news_once():
    cluster = ClusterFactory(reach="unreachable", reach_reason="timed out")

    assert reachability.reached(cluster, at=LATER)
    assert not reachability.reached(cluster, at=LATER + timedelta(seconds=1))

    cluster.refresh_from_db()
    assert (cluster.reach, cluster.reach_since, cluster.reach_reason) == ("reachable", LATER, "")


def test_observed_at_is_written_every_few_seconds_and_never_backwards():
    cluster = ClusterFactory()

    for seconds in (0, 1, 10, 3):
        reachability.seen_at(cluster, AT + timedelta(seconds=seconds))

    cluster.refresh_from_db()
    assert cluster.observed_at == AT + timedelta(seconds=10)


def test_resource_versions_compare_as_numbers_where_they_are():
    assert rows.is_older("99", "900")
    assert not rows.is_older("900", "99")
    assert not rows.is_older("abc", "900")
