"""A cluster with a history can be disconnected, and says what it keeps."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from audit.models import Record
from clusters.models import Cluster, Node
from clusters.reports.selectors import clusters_with_counts
from clusters.services import lifecycle
from common.errors import WrongState
from jobs.hooks import panels
from jobs.models import ApprovalRule, Plan, Rollout


def test_a_cluster_is_kept_while_a_rollout_lives_and_leaves_with_its_history(world):
    rollout = world.started()
    with pytest.raises(WrongState, match=str(rollout)):
        lifecycle.disconnect(world.cluster, by=world.admin)
    world.run(rollout)

    left = lifecycle.disconnect(world.cluster, by=world.admin)

    assert any("3 settings on 3 nodes" in sentence for sentence in left.stays)
    assert not any(model.objects.exists() for model in (Cluster, Node, Plan, Rollout))
    assert Record.objects.filter(action="cluster.disconnect").exists()
    assert world.fleet.installation() is None


def test_a_rule_about_a_cluster_does_not_go_with_it(world):
    """A rule deleted with its cluster would escape the second administrator; and the cluster could come back."""
    rule = ApprovalRule.objects.create(name="three for this one", cluster=world.cluster, approvers=3)
    with pytest.raises(WrongState, match=rule.name):
        lifecycle.disconnect(world.cluster, by=world.admin)
    assert ApprovalRule.objects.filter(pk=rule.pk).exists()
    rule.delete()
    lifecycle.disconnect(world.cluster, by=world.admin)


def test_what_a_page_read_before_does_not_count_at_the_removal_itself(world):
    """A rollout that began after the page had read which ones live keeps its cluster."""
    seen = clusters_with_counts(world.admin).get()
    list(panels.of_cluster(SimpleNamespace(user=world.admin), seen))
    rollout = world.started()

    with pytest.raises(WrongState, match=str(rollout)):
        lifecycle.disconnect(seen, by=world.admin)

    assert Cluster.objects.filter(pk=seen.pk).exists()
    assert world.fleet.installation() is not None, "its mark stays"
