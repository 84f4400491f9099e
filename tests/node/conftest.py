"""Real nodes: machines in QEMU that join the test's control plane, and a Setpoint that knows them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.controlplane.admin import Admin
from tests.controlplane.fixtures import deploy
from tests.controlplane.plane import Plane
from tests.full.harness.processes import Installation
from tests.full.harness.servers import Postgres, Redis
from tests.full.harness.site import ENDED, SETTINGS, Site
from tests.nodemachine.node import Node, images
from tests.ports import free_port

PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils", "sfdisk": "fdisk", "mkfs.ext4": "e2fsprogs",
    "mmdebstrap": "mmdebstrap", "buildah": "buildah",
}  # fmt: skip
"""Programs that make and run a machine, and their Debian packages."""


@pytest.fixture(scope="session")
def archives() -> list[Path]:
    if os.geteuid() != 0:
        pytest.skip("building images and disks without a daemon needs root")
    if missing := [package for program, package in PROGRAMS.items() if not shutil.which(program)]:
        pytest.skip(f"no machine can be made: apt-get install {' '.join(missing)}")
    return images()


@pytest.fixture(scope="session")
def node(
    deployed: Plane, cluster_admin: Admin, archives: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    """A machine that has booted and is Ready, with the agent's pod of deploy/setpoint.yaml running on it."""
    with joined(Node(deployed, cluster_admin, tmp_path_factory.mktemp("machine"), "node-a", archives)) as made:
        yield made


@pytest.fixture(scope="module")
def second_node(
    deployed: Plane, cluster_admin: Admin, archives: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    with joined(Node(deployed, cluster_admin, tmp_path_factory.mktemp("machine"), "node-b", archives)) as made:
        yield made


@pytest.fixture(scope="module")
def cluster() -> Iterator[Plane]:
    """A control plane of a module's own, for tests that would be in the way of every other one."""
    with Plane(tunnel=free_port()) as plane:
        deploy(plane)
        yield plane


@pytest.fixture(scope="session")
def site(node: Node) -> Iterator[Site]:
    """One Setpoint for all tests: to another one, what this one asked of the node would be a stranger's."""
    with opened(node, SETTINGS) as made:
        yield made


@pytest.fixture(autouse=True)
def tidied(site: Site, node: Node) -> Iterator[None]:
    """Let the next test begin with nothing in progress, on a node that Setpoint has not changed.

    A test that ended early may have left one that no revert brings back: then a new machine takes its place.
    """
    yield
    for rollout in site.operator.every("rollouts"):
        if rollout["status"] not in ENDED:
            site.give_up(rollout["id"])
    if left := node.left_behind():
        print(f"{node.name} is replaced: {left}")
        label(node.replace())
        site.await_observed([node.name])


@contextmanager
def opened(node: Node, settings: Mapping[str, str]) -> Iterator[Site]:
    """A Setpoint that knows the node and its cluster."""
    with Postgres() as postgres, Redis() as redis, Installation(postgres.url, redis.url, settings) as installation:
        site = Site(node.plane, node.admin, installation)
        try:
            site.open()
            site.await_observed([node.name])
            yield site
        finally:
            site.close()


@contextmanager
def joined(node: Node) -> Iterator[Node]:
    try:
        label(node.start())
        yield node
    finally:
        node.close()


def label(node: Node) -> None:
    node.admin.patch("nodes", node.name, {"metadata": {"labels": {"pool": "machines"}}})
