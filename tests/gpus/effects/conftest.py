"""The small world of the engine's tests, and rollouts whose GPUs' truth is known."""

from __future__ import annotations

import pytest

from gpus.models import TelemetrySource
from gpus.storage import history
from gpus.telemetry import factory
from tests.gpus.hosts_answering import HostTruth
from tests.gpus.studying import Worked
from tests.jobs.conftest import make_world

__all__ = ["make_world"]


@pytest.fixture
def worked(db, clock, monkeypatch):
    def make(*args, **kwargs):
        scenario = Worked(*args, **kwargs)
        monkeypatch.setattr(history, "buckets", scenario.truth.buckets)
        return scenario

    return make


@pytest.fixture
def hosted(worked, monkeypatch):
    """A rollout in a cluster with a Prometheus, and what its hosts did."""

    def make(*args, **kwargs):
        scenario = worked(*args, **kwargs)
        TelemetrySource.objects.create(cluster=scenario.cluster, kind="service", service="monitoring/prometheus:web")
        truth = HostTruth(scenario)
        monkeypatch.setattr(factory, "expressions", truth.expressions)
        return scenario, truth

    return make
