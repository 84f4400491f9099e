"""The watch on a real API server: what its caches, bookmarks, admission policies and garbage collector really do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from accounts.models import User
from clusters.connection import registry
from clusters.models import Cluster, GpuPod, Node, NodeTuning
from clusters.services import lifecycle
from clusters.watch import supervisor
from clusters.watch.streams import WatchTimings
from common import hooks
from common.clock import now
from contract import names

SECONDS = 8.0
"""Length of a watch here: the API server's bookmark comes two seconds before its end."""


@pytest.fixture
def connected(transactional_db: None, deployed: Any, cluster_admin: Any, settings: Any) -> Iterator[Cluster]:
    """The real cluster, connected with Setpoint's own account and watched by a thread of this process."""
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    settings.SETPOINT_LEASE_SECONDS = 5
    installation = settings.SETPOINT_INSTALLATION
    admin = User.objects.create_user("ada@example.com", is_superuser=True)
    credential = deployed.credentials(token=cluster_admin.controller_token())
    cluster = lifecycle.connect_cluster(name="real", environment="staging", credential=credential, by=admin)
    stop = threading.Event()
    thread = threading.Thread(
        target=supervisor.run, args=(stop, "test", WatchTimings(watch=SECONDS, leases=2, enrol=0.5))
    )
    thread.start()
    try:
        yield cluster
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive()
        settings.SETPOINT_INSTALLATION = installation  # a test may have played another one, whose mark would stay
        lifecycle.disconnect(cluster, by=admin)
        registry.forget(cluster.pk)


def soon(is_so: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, what
        time.sleep(0.1)


def test_rows_follow_a_real_cluster(connected: Cluster, cluster_admin: Any, a_node: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(hooks.observed_keys, "_subscribers", [lambda: ["vm.swappiness"]])
    raw = a_node(gpus=8, labels={"pool": "train"})
    name = raw["metadata"]["name"]

    soon(lambda: Node.objects.present().filter(name=name, is_ready=True, gpu_count=8).exists(), "the node has no row")
    soon(lambda: NodeTuning.objects.filter(node__name=name, mode="observe").exists(), "the node was not enrolled")
    tuning = cluster_admin.get(names.PLURAL, name)
    assert tuning["spec"]["nodeUID"] == raw["metadata"]["uid"]

    limits = {"resources": {"limits": {"nvidia.com/gpu": "4"}}}
    pod = cluster_admin.pod(node=name, spec={"containers": [{"name": "main", "image": "none", **limits}]})
    soon(lambda: Node.objects.filter(name=name, gpu_allocated=4).exists(), "the pod's GPUs were not counted")
    cluster_admin.delete("pods", pod["metadata"]["name"], "default", grace=0)
    soon(lambda: not GpuPod.objects.exists(), "the pod's row outlived it")

    cluster_admin.patch("nodes", name, {"spec": {"unschedulable": True}})
    soon(lambda: Node.objects.filter(name=name, is_cordoned=True, cordoned_by="").exists(), "the cordon was not seen")
    cluster_admin.delete("nodes", name)
    soon(lambda: not Node.objects.present().filter(name=name).exists(), "the node's row outlived it")


def test_a_quiet_cluster_proves_itself_within_the_length_of_a_watch(connected: Cluster) -> None:
    """Freshness (law 11) rests on the API server's bookmark before the end of each watch."""
    soon(lambda: Cluster.objects.get().observed_at is not None, "never seen")
    worst = timedelta()
    until = time.monotonic() + 2.5 * SECONDS
    while time.monotonic() < until:
        seen = Cluster.objects.get().observed_at
        assert seen is not None
        worst = max(worst, now() - seen)
        time.sleep(0.2)

    # Reopening, gathering, and SEEN_EVERY come on top of the watch itself; a busy machine adds its own.
    assert worst < timedelta(seconds=SECONDS + 5), worst
    assert Cluster.objects.get().reach == "reachable"


def test_a_second_installation_is_refused_by_the_mark(connected: Cluster, deployed: Any, settings: Any) -> None:
    admin = User.objects.get()
    credential = registry.credentials(connected)
    Cluster.objects.filter(pk=connected.pk).update(uid="as-if-it-were-another-database")
    settings.SETPOINT_INSTALLATION = "another-installation"
    try:
        with pytest.raises(lifecycle.Foreign):
            lifecycle.connect_cluster(name="second", environment="staging", credential=credential, by=admin)
    finally:
        Cluster.objects.filter(pk=connected.pk).update(uid=connected.uid)
