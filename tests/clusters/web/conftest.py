"""A simulated cluster, rows of one, a person who is logged in, and the template that a page rendered."""

from __future__ import annotations

import pytest
from django.http import HttpResponse

from accounts.models import RoleBinding, User
from clusters.connection import registry
from clusters.inventory import store
from clusters.web import node_views, views
from common.clock import now
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import (
    ClusterFactory,
    raw_node,
    raw_pod,
    raw_status,
    raw_tuning,
)
from tests.clusters.web.addresses import URL


@pytest.fixture
def shown(monkeypatch):
    """The last template rendered, with its context."""
    seen = {}

    def render(request, template, context, status=200):
        seen.clear()
        seen.update(context, template=template)
        return HttpResponse(template, status=status)

    for module in (views, node_views):
        monkeypatch.setattr(module, "render", render)
    return seen


@pytest.fixture
def sim():
    cluster = SimCluster(name="atlas")
    with registry.override(URL, SimFleet(cluster)):
        yield cluster


@pytest.fixture
def fleet():
    cluster = ClusterFactory(reach="reachable", observed_at=now(), name="atlas")
    raws = [
        raw_node("n0", gpus=8, labels={"pool": "train"}),
        raw_node("n1", gpus=8, labels={"pool": "train"}, ready=False),
        raw_node("n2", unschedulable=True),
    ]
    store.observe_nodes(cluster, raws, complete=True)
    store.observe_tunings(cluster, [raw_tuning("n0", status=raw_status("n0"))], complete=True)
    store.observe_pods(cluster, [raw_pod("p1", node="n0", gpus=8)], complete=True)
    return cluster


@pytest.fixture
def log_in(client):
    def as_(role, scope="*"):
        user = User.objects.create_user(f"{role}@example.com")
        RoleBinding.objects.create(user=user, role=role, scope=scope)
        client.force_login(user)
        return client

    return as_
