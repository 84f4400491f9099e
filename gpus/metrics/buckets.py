"""History of single devices, five minutes by five: what effects, alerts and sparklines read. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from gpus.metrics.samples import Metric


class Bucket(NamedTuple):
    """Five minutes of one device."""

    start: datetime
    """Aware UTC, a multiple of 5 minutes."""
    covered: float
    """0-1: share of the five minutes that readings cover."""
    held: float
    """0-1: share of the covered time with a holder."""
    means: Mapping[Metric, float]
    """Gauges: mean over the readings that had it; counters: increase within the bucket; absent: not reported."""
    holder: str
    """`namespace/pod` when one and the same held it throughout, else empty."""


class Device(NamedTuple):
    uuid: str
    instance: str
    node_name: str
    model: str
