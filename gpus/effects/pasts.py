"""Past of the devices of a study with a control: what each did at the same hours of earlier days.

It counts on days on which the job of the first window held the device, and only since the node was last changed: a
level under other settings, or of other work, says little of what comes next. A drained node was not held, so such
hours do not count either. All of it is of before the rollout, so chance put as much of it into either arm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Max

from gpus.effects import arms, windows
from gpus.effects.arms import Spans
from gpus.effects.windows import DAY, Window, WindowActivity
from gpus.metrics.buckets import Bucket, Device
from gpus.models import Study, StudyNode
from gpus.storage import history
from jobs.models import Step

DAYS = 7
HALF = timedelta(minutes=30)
FIVES = 12
"""Of an hour: a bucket of an hour weighs as much as twelve of five minutes."""


def days_of(before: Window, after: Window) -> list[Window]:
    """Return the hours of `after` on the DAYS newest days of which every stored hour that is read ends before the
    rollout begins."""
    first = 1
    while after.end - first * DAY > before.end - HALF:
        first += 1
    return [Window(after.start - day * DAY, after.end - day * DAY) for day in range(first, first + DAYS)]


def add(study: Study, batch: Sequence[StudyNode], spans: Spans) -> None:
    """Set `past` of each device that counts: its mean by measure over those days, and their number.

    DAYS queries where the windows are common to all nodes, as they are with a control.
    """
    changed_at = _last_changed(study, batch)
    for span in {span for row in batch if (span := spans[row.pk])}:
        rows = [row for row in batch if spans[row.pk] == span]
        names = {row.node_name for row in rows}
        counted = [(row, device) for row in rows for device in row.devices if not device["left_out"]]
        levels: list[list[dict[str, float]]] = [[] for _ in counted]
        for day in days_of(*span):
            read = _hours(study, day, names)  # a day at a time: the hours of a large fleet are large
            for (row, device), own in zip(counted, levels, strict=True):
                since = changed_at.get(row.node_id)
                key = Device(device["uuid"], device["instance"], row.node_name, device["model"])
                if since is None or day.start - HALF >= since + arms.settle(study):
                    own.append(levels_of(read.get(key, ()), device))
        for (_, device), own in zip(counted, levels, strict=True):
            device["past"] = mean_of(own, device)


def levels_of(buckets: Sequence[Bucket], device: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean by measure on a day; empty where the first window's job did not hold the device in most hours,
    or is not known."""
    weighted = [bucket._replace(covered=bucket.covered * FIVES) for bucket in buckets]
    activity = WindowActivity.of(weighted, device["model"])
    job = windows.job(activity.holder)
    return activity.levels() if job and job == device["job_before"] else {}


def mean_of(days: Sequence[Mapping[str, float]], device: Mapping[str, Any]) -> dict[str, Any]:
    """Return {days, figures}: the mean by measure over days with levels, and their number."""
    totals: dict[str, list[float]] = {}
    for day in days:
        for name, level in day.items():
            if name in device["figures"]:
                totals.setdefault(name, []).append(level)
    means = {name: float(f"{sum(levels) / len(levels):.6g}") for name, levels in totals.items()}
    return {"days": sum(map(bool, days)), "figures": means}


def _hours(study: Study, day: Window, names: set[str]) -> Mapping[Device, list[Bucket]]:
    """Return the stored hours of which at least half is in the window."""
    return history.hours(study.rollout.cluster_id, day.start - HALF, day.end - HALF, nodes=names)


def _last_changed(study: Study, batch: Sequence[StudyNode]) -> Mapping[int | None, datetime]:
    """Return when another rollout last changed each node, before this study's change."""
    nodes = [row.node_id for row in batch if row.node_id]
    began = min((row.began_at for row in batch), default=None)
    if began is None:
        return {}
    others = Step.objects.filter(node__in=nodes, has_applied=True, entered_at__lt=began).exclude(rollout=study.rollout)
    return dict(others.order_by().values_list("node").annotate(at=Max("entered_at")))
