"""A recording of GPUs whose pods the watch heard of, and the keys of its jobs."""

from __future__ import annotations

from clusters.inventory import store
from clusters.inventory.job_owner import JobIdentity
from gpus.metrics.samples import Metric
from tests.clusters.inventory.test_job_rows import pod
from tests.gpus.recording import Recording


class Watched(Recording):
    """Readings whose pods the watch heard of; `heard` keeps each (start, end, node, GPU, pod, busy, watts)."""

    def __init__(self, at, **kwargs):
        super().__init__(at, **kwargs)
        self.origin, self.heard = at, []

    def stamp(self, at):
        return f"{at:%Y-%m-%dT%H:%M:%SZ}"

    def hears(self, name, *, node="", gpus=4, created=None, ended=False, phase="", **kwargs):
        raw = pod(name, node=node or "n0", gpus=gpus, running=0 if node else None, phase=phase, **kwargs)
        raw["metadata"]["namespace"] = "team"
        raw["metadata"]["creationTimestamp"] = self.stamp(created or self.at)
        if node:
            state = {"running": {"startedAt": self.stamp(created or self.at)}}
            raw["status"]["containerStatuses"][0]["state"] = state
        deleted = [raw] if ended else []
        store.observe_pods(self.cluster, [] if ended else [raw], complete=False, at=self.at, deleted=deleted)

    def store(self):
        before = getattr(self, "last", None)
        super().store()
        if before:
            for sample in self.reading().samples:
                holder = next((f"{part.namespace}/{part.pod}" for part in sample.holders), "")
                busy, watts = sample.values[Metric.BUSY], sample.values[Metric.POWER]
                self.heard.append((before, self.at, sample.node, sample.device.uuid, holder, busy, watts))
        self.last = self.at


NAMES = {"u-1": "train", "u-2": "serve", "u-3": "serve", "u-dark": "dark", "u-late": "late", "u-x": "x", "u-y": "y"}


def key_of(uid):
    return JobIdentity("Job", NAMES[uid], uid).key("team")
