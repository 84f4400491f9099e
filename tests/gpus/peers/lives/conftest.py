from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import pytest

from clusters.models import Node
from gpus.models import GpuPrice
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory
from tests.gpus.peers.lives.watched import Watched
from tests.gpus.recording import PRODUCT


@pytest.fixture
def world(clock):
    """An hour and 20 minutes over midnight: a pod that restarts on another node, a rank that is idle, a neighbor."""
    clock.at = clock.at.replace(hour=0, minute=40, second=0, microsecond=0)
    part = Watched(clock.at - timedelta(minutes=80), nodes=3, cluster=ClusterFactory(name="atlas"))
    Node.objects.filter(cluster=part.cluster).update(gpu_allocated=4)
    for name, node in (("a", "n0"), ("b", "n1")):
        part.hears(name, node=node, job="train", job_uid="u-1")
    part.hears("other", node="n2", job="serve", job_uid="u-2")
    part.held = {(node, index): (f"team/{name}", busy) for node, name, busy in
                (("n0", "a", 0.9), ("n1", "b", 0.02), ("n2", "other", 0.6)) for index in range(4)}  # fmt: skip
    part.store()
    part.go_on(2400)
    part.hears("b", node="n1", job="train", job_uid="u-1", ended=True)
    part.hears("other", node="n2", job="serve", job_uid="u-2", ended=True)
    part.hears("c", node="n2", job="train", job_uid="u-1")
    part.held = {(node, index): (f"team/{name}", busy) for node, name, busy in
                (("n0", "a", 0.9), ("n2", "c", 0.8)) for index in range(4)}  # fmt: skip
    part.go_on(2400)
    model = PRODUCT.replace("-", " ")
    for amount, day, name, pue in (
        ("2.5", date(2026, 1, 1), model, 1), ("3.125", clock.at.date(), model, 1), ("0.2", date(2026, 1, 1), "", "1.4")
    ):  # fmt: skip
        kind = "gpu" if name else "energy"
        GpuPrice.objects.create(
            kind=kind, model=name, amount=Decimal(amount), valid_from=day, created_by="x", pue=Decimal(pue)
        )
    part.person = UserFactory(roles=["viewer"])
    return part
