"""Component drift on the real control plane: noticed by metadata watches, compared, attributed to its author."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from clusters.models import Pool
from clusters.watch.following import Following
from clusters.watch.streams import WatchTimings
from compliance.checks import components
from compliance.models import ComponentStanding
from compliance.services import assignments
from components.charts import archives
from profiles.content import content
from profiles.content.cluster import WantedComponent
from profiles.models import Profile, Revision
from tests.components.packing import packed
from tests.full.components.tiny_chart import TEMPLATE, World, by_hand, world

__all__ = ["world"]
pytestmark = pytest.mark.django_db
SCALED = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}-scaled}
spec:
  replicas: 1
  selector: {matchLabels: {app: scaled}}
  template:
    metadata: {labels: {app: scaled}}
    spec: {containers: [{name: main, image: registry.example.org/scaled}]}
"""
WITHIN_SECONDS = 60
"""What the issue promises."""


class Watched:
    """A component that is assigned and installed, watched and checked as the processes do it."""

    def __init__(self, world: World) -> None:
        self.world = world
        files = {
            "Chart.yaml": "apiVersion: v2\nname: tiny\nversion: 4.0.0\n",
            "values.yaml": "color: green\ngiven: ''\n",
            "templates/a.yaml": TEMPLATE,
            "templates/b.yaml": SCALED,
        }
        archives.store(packed(files), origin="uploaded", by="admin")
        wanted = WantedComponent("tiny", "4.0.0", values={"color": "blue"})
        prepared = world.prepare("4.0.0", color="blue")
        world.carry_out(prepared)
        world.until_ready(prepared)
        built = content.build(settings=(), labels=(), annotations=(), taints=(), components=[wanted])
        revision = Revision.objects.create(
            profile=Profile.objects.create(name="tiny"), number=1, digest=content.digest(built), content=built.to_json()
        )
        pool = Pool.objects.create(cluster=world.cluster, name="all", selector={"matchLabels": {"a": "b"}})
        assignments.assign(pool, revision, enforce=False, rollout_id=world.cluster.pk, by=None)
        components.reconcile()
        self.following = Following(world.cluster, WatchTimings())

    def until(self, state: str, sentence: str = "") -> ComponentStanding:
        began = time.monotonic()
        while True:
            self.following.turn()
            for pk in components.due():
                components.check(pk)
            row = ComponentStanding.objects.get()
            if row.state == state and sentence in row.sentence:
                return row
            assert time.monotonic() - began < WITHIN_SECONDS, (row, row.sentence, row.unwatched)
            time.sleep(1)


@pytest.fixture
def watched(world: World) -> Iterator[Watched]:
    made = Watched(world)
    yield made
    made.following.close()


def test_what_somebody_else_writes_is_seen_within_a_minute_and_by_name(watched: Watched) -> None:
    world, space = watched.world, watched.world.namespace
    row = watched.until("compliant")
    assert (row.installed, row.number, row.unwatched) == ("4.0.0", 1, "")
    assert sorted(plural for _, plural in row.kinds) == ["configmaps", "daemonsets", "deployments", "secrets"]
    watched.until("compliant")

    kubectl = world.plane.kubectl
    kubectl(
        "set", "image", "daemonset/tiny-agent", "main=evil.example.org/agent", "-n", space, "--field-manager=mallory"
    )
    row = watched.until("drifted", "set by mallory")
    (difference,) = row.differences
    assert difference["path"] == "spec.template.spec.containers[main].image"
    assert (difference["approved"], difference["live"]) == (
        "registry.example.org/agent:4.0.0",
        "evil.example.org/agent",
    )
    assert difference["at"]

    kubectl("delete", "configmap", "tiny-settings", "-n", space)
    row = watched.until("drifted", f"ConfigMap {space}/tiny-settings is gone")
    assert row.total == 2

    kubectl("scale", "deployment/tiny-scaled", "--replicas=3", "-n", space)
    deadline = time.monotonic() + WITHIN_SECONDS
    while (row := watched.until("drifted")).total < 3:
        assert time.monotonic() < deadline, row.differences
    scaled = next(difference for difference in row.differences if difference["path"] == "spec.replicas")
    assert (scaled["approved"], scaled["live"], scaled["who"]) == ("1", "3", "kubectl (through scale)")
    assert "autoscaler" in scaled["note"]

    repair = world.prepare("4.0.0", color="blue")
    assert {difference.name: difference.change for difference in repair.objects} == {
        "tiny-agent": "changed",
        "tiny-scaled": "changed",
        "tiny-settings": "created",
    }
    world.carry_out(repair)
    assert watched.until("compliant").total == 0

    by_hand(world, "pink")
    row = watched.until("foreign")
    assert "Another party made revision 3 of tiny" in row.sentence
    assert {"version", "color"} <= {difference["path"] for difference in row.differences}
