"""A counter of XIDs is judged by its rise: it never falls while its exporter runs, and its alert must end."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction

from clusters.models import Node
from common.clock import now
from gpus.alerts import rules
from gpus.metrics import xids
from gpus.metrics.samples import DeviceKey, Metric, Reading, Sample, Xid, XidEvidence
from gpus.models import GpuDevice, TelemetrySource
from gpus.storage import devices
from tests.clusters.factories import ClusterFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(clock):
    cluster = ClusterFactory()
    Node.objects.create(cluster=cluster, uid="n1", name="n1", is_ready=True, gpu_count=1)

    def sentences(*xids: Xid) -> list[str]:
        """Return the sentences of the rule after one more reading, with these XIDs."""
        sample = Sample(DeviceKey("GPU-1"), "n1", "0", "H100", "", "", (), {Metric.BUSY: 0.5}, xids)
        devices.store(cluster.pk, Reading(now(), (sample,)), claimed=transaction.atomic)
        fields = {"state": "well", "read_at": now(), "devices": 1}
        TelemetrySource.objects.update_or_create(cluster=cluster, defaults=fields)
        return [condition.sentence for condition in rules.fatal_xids(cluster.pk, 0).conditions]

    return sentences


def total(count: int, code: int = 79) -> Xid:
    return Xid(code, count, XidEvidence.TOTAL)


LAST = Xid(79, 1, XidEvidence.LAST)
AWHILE = (xids.LASTS + timedelta(minutes=1)).total_seconds()


def test_a_counter_that_rests_is_over_and_one_that_rises_is_told_again(world, clock):
    assert len(world(total(1))) == 1
    clock.forward(60)
    assert len(world(total(1))) == 1
    clock.forward(AWHILE)
    assert world(total(1)) == []
    clock.forward(60)
    assert len(world(total(2))) == 1
    clock.forward(AWHILE)
    assert world(total(2)) == []


@pytest.mark.parametrize("between", [(), (total(2),)])
def test_an_exporter_that_starts_again_counts_from_zero(world, clock, between):
    world(total(7))
    clock.forward(AWHILE)
    assert world(total(7)) == []
    clock.forward(60)
    assert len(world(*between)) == len(between)
    clock.forward(AWHILE)
    assert len(world(total(1))) == 1


def test_the_gauge_of_a_counted_code_sticks_no_more_and_that_of_another_does(world, clock):
    world(total(1), LAST)
    clock.forward(AWHILE)
    assert world(total(1), LAST) == []
    (sentence,) = world(total(1, 95), LAST)
    assert "XID 79" in sentence
    clock.forward(AWHILE)
    (sentence,) = world(total(1, 95), LAST)
    assert ("XID 79" in sentence, "XID 95" in sentence, "Time unknown" in sentence) == (True, False, True)


def test_what_was_stored_without_a_time_gets_one(world, clock):
    world(total(1))
    GpuDevice.objects.update(xids=[[79, 1, "total"]])
    assert len(world(total(1))) == 1
    clock.forward(AWHILE)
    assert world(total(1)) == []
