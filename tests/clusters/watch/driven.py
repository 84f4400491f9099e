"""One cluster, its watch streams and the writer, driven by hand."""

from __future__ import annotations

from clusters.models import Cluster, Node
from clusters.watch.streams import Stream, Watched, WatchTimings
from clusters.watch.writer import Writer
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory

PACE = WatchTimings(
    watch=1.5, gather=0.05, tick=0.05, shortest_watch=0, backoff=0.01, longest_backoff=0.02, leases=0.2, enrol=0.1
)


class DrivenCluster:
    """One cluster, its three streams and the writer: no threads, no waits."""

    def __init__(self, **sim):
        self.sim = SimCluster(**sim)
        self.fleet = SimFleet(self.sim)
        self.cluster = ClusterFactory(uid=self.sim.uid, ownership="ours")
        self.start()

    def start(self):
        """Start as a new process does: it knows nothing but the rows."""
        self.writer = Writer(PACE)
        self.watched = Watched(Cluster.objects.get(), self.fleet)
        self.streams = [Stream(self.watched, kind, self.writer.post, PACE) for kind in ("nodes", "nodetunings", "pods")]

    def step(self, times=1):
        for _ in range(times):
            for stream in self.streams:
                stream.step()
            self.flush()

    def flush(self):
        while self.writer.flush():
            pass

    def row(self):
        return Cluster.objects.get()


def names():
    return sorted(Node.objects.present().values_list("name", flat=True))
