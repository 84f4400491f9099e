"""Kernels that presets need, judged in a plan against every node that the component reaches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusters.models import Node
from components.catalog import catalog
from components.charts import archives
from components.plans.prepared import PlanNote
from components.release import work
from profiles.content.cluster import WantedComponent
from tests.components.packing import entry, versioned
from tests.components.release.test_conflicting import DAEMONS
from tests.components.release.test_work import World
from tests.simfleet.site import Site

pytestmark = pytest.mark.django_db
PRESETS = """
presets:
  fast: {title: Fast, why: For tests, values: {fast: true}, kernel: ">=6.8", sources: [S]}
  plain: {title: Plain, why: For tests, values: {fast: false}, sources: [S]}
"""
ONLY_LINUX = DAEMONS.replace("spec: {containers", "spec: {nodeSelector: {kubernetes.io/os: linux}, containers")


@pytest.fixture
def world(tmp_path: Path, settings: Any):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    folder = tmp_path / "catalog"
    folder.mkdir()
    archives.store(versioned("overlay", "1.0.0", ONLY_LINUX, "fast: false\n"), origin="uploaded")
    (folder / "overlay.yaml").write_text(entry("overlay", "1.0.0", workload="DaemonSet/overlay", more=PRESETS))
    site = Site(tmp_path)
    with catalog.extended(folder):
        yield World(site)
    site.close()


def node(world: World, name: str, kernel: str, **more: Any) -> Node:
    given = {"labels": {"kubernetes.io/os": "linux"}} | more
    return Node.objects.create(cluster=world.cluster, uid=f"u-{name}", name=name, kernel=kernel, **given)


def kernel_notes(world: World, *presets: str) -> list[PlanNote]:
    prepared = work.prepare(world.cluster, WantedComponent("overlay", "1.0.0", presets=presets))
    return [note for note in prepared.notes if note.code == "kernel"]


def test_nodes_whose_kernel_is_too_old_block_the_plan_by_name(world):
    node(world, "new", "6.8.0-1015-azure")
    assert kernel_notes(world, "fast") == []
    node(world, "debian", "6.1.0-13-amd64")
    node(world, "old", "5.15.0-25-generic")

    [note] = kernel_notes(world, "fast")
    assert (note.severity, note.title) == (
        "block",
        "The preset fast needs Linux 6.8 or later, and 2 nodes have an older one",
    )
    assert note.detail.startswith("debian (6.1.0-13-amd64), old (5.15.0-25-generic). ")
    assert kernel_notes(world, "plain") == []
    assert kernel_notes(world) == []


def test_a_node_that_the_component_does_not_reach_is_not_asked(world):
    node(world, "windows", "10.0.20348.2582", labels={"kubernetes.io/os": "windows"})
    node(world, "ancient", "4.4.0", labels={"kubernetes.io/os": "plan9"})
    assert kernel_notes(world, "fast") == []


def test_what_is_not_known_is_told_as_such_and_blocks_nothing(world):
    node(world, "mute", "")
    node(world, "rhel", "5.14.0-427.el9")
    notes = {note.title: (note.severity, note.detail) for note in kernel_notes(world, "fast")}
    assert notes == {
        "The preset fast needs Linux 6.8 or later: whether the vendor brought it to 1 node is unknown": (
            "warn",
            "rhel (5.14.0-427.el9). Such kernels carry parts of newer ones, so the number alone does not decide.",
        ),
        "The preset fast needs Linux 6.8 or later, and the kernel of 1 node is unknown": (
            "warn",
            "mute (not reported).",
        ),
    }


def test_an_old_node_that_joined_since_only_warns_while_nothing_is_to_be_changed(world):
    node(world, "new", "6.8.0")
    wanted = WantedComponent("overlay", "1.0.0", presets=("fast",))
    world.carry_out(work.prepare(world.cluster, wanted))
    node(world, "old", "5.15.0")
    [note] = kernel_notes(world, "fast")
    assert note.severity == "warn"


def test_many_nodes_are_counted_and_the_first_ones_named(world):
    for number in range(23):
        node(world, f"n{number:02}", "5.10.0")
    [note] = kernel_notes(world, "fast")
    assert "23 nodes have" in note.title
    assert "n19 (5.10.0) and 3 more." in note.detail
