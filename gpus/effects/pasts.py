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
    """Return the hours of `after` on the DAYS newest days on which they end before the rollout begins."""
    first = 1
    while after.end - first * DAY > before.end:
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
        days = [(day, _hours(study, day, names)) for day in days_of(*span)]
        for row in rows:
            since = changed_at.get(row.node_id)
            usable = [read for day, read in days if since is None or day.start >= since + arms.settle(study)]
            for device in row.devices:
                if not device["left_out"]:
                    key = Device(device["uuid"], device["instance"], row.node_name, device["model"])
                    device["past"] = mean_of([read[key] for read in usable if key in read], device)


def mean_of(days: Sequence[Sequence[Bucket]], device: Mapping[str, Any]) -> dict[str, Any]:
    """Return {days, figures}: the mean by measure over days on which the first window's job held the device."""
    totals: dict[str, list[float]] = {}
    counted = 0
    for buckets in days:
        weighted = [bucket._replace(covered=bucket.covered * FIVES) for bucket in buckets]
        activity = WindowActivity.of(weighted, device["model"])
        if windows.job(activity.holder) != device["job_before"]:
            continue
        levels = activity.levels()
        counted += bool(levels)
        for name, level in levels.items():
            if name in device["figures"]:
                totals.setdefault(name, []).append(level)
    means = {name: float(f"{sum(levels) / len(levels):.6g}") for name, levels in totals.items()}
    return {"days": counted, "figures": means}


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
