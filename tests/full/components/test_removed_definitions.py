"""Definitions among a chart's templates, which helm deletes: removals and reverts that were cut off."""

from __future__ import annotations

import threading

import pytest

from clusters.connection import registry
from components.plans.prepared import Prepared
from tests.components import records
from tests.full.components.kinds_chart import World, world
from tests.full.harness.client import eventually

__all__ = ["world"]
pytestmark = pytest.mark.django_db


def with_templates(world: World) -> None:
    """1.0.0 brings a definition, 1.1.0 an object of its kind with it, 2.0.0 neither of them."""
    kind = {"templates/kind.yaml": world.crd("Widget")}
    settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-settings}\n"
    world.chart("1.0.0", crds={}, more=kind | {"templates/a.yaml": settings})
    world.chart("1.1.0", crds={}, more=kind)
    world.chart("2.0.0", crds={}, more={"templates/a.yaml": settings})
    for version in ("1.0.0", "1.1.0"):
        world.carry_out(world.prepare(version))
        eventually(lambda: world.serves("Widget"), lambda: "the kind is not served")


def half_removed(world: World, prepared: Prepared) -> None:
    """Leave a removal as a killed helm does: recorded as removing, its definition gone with the objects of its kind."""
    with registry.api_server(world.cluster) as server:
        records.leave(server, prepared.namespace, prepared.release, "uninstalling")
    world.forget([f"widgets.{world.group}"])
    eventually(lambda: not world.serves("Widget"), lambda: "the kind is still served")


def is_there(world: World) -> bool:
    arguments = ("get", f"widgets.{world.group}", world.name, "-n", world.name, "--ignore-not-found", "-o", "name")
    return world.serves("Widget") and bool(world.plane.kubectl(*arguments))


def test_a_removal_that_ended_after_its_definitions_were_gone_is_finished(world: World) -> None:
    with_templates(world)
    prepared = world.prepare("", is_gone=True)
    half_removed(world, prepared)

    world.carry_out(prepared)

    assert world.status(prepared) == "uninstalled"
    eventually(lambda: not world.serves("Widget"), lambda: "the kind is still served")
    world.carry_out(prepared, "revert")
    assert world.status(prepared) == "deployed"
    assert is_there(world)


def test_a_removal_that_ended_so_is_put_back(world: World) -> None:
    with_templates(world)
    prepared = world.prepare("", is_gone=True)
    half_removed(world, prepared)

    world.carry_out(prepared, "revert")

    assert world.status(prepared) == "deployed"
    assert is_there(world)
    assert world.prepare("1.1.0").action == "none"


def test_a_removal_is_put_back_while_its_definition_is_still_going(world: World) -> None:
    """Objects with finalizers hold it: one that goes is waited for, and then made once more."""
    with_templates(world)
    prepared = world.prepare("", is_gone=True)
    held = (f"widgets.{world.group}", world.name, "-n", world.name, "--type=merge", "-p")
    world.plane.kubectl("patch", *held, '{"metadata":{"finalizers":["example.com/wait"]}}')
    world.carry_out(prepared)
    assert world.serves("Widget")

    freed = threading.Timer(3, world.plane.kubectl, ("patch", *held, '{"metadata":{"finalizers":null}}'))
    freed.start()
    world.carry_out(prepared, "revert")
    freed.join()

    assert world.status(prepared) == "deployed"
    assert is_there(world)


def test_an_upgrade_that_removes_a_definition_is_put_back_with_it(world: World) -> None:
    with_templates(world)
    upgrade = world.prepare("2.0.0")
    assert upgrade.destroys
    world.carry_out(upgrade)
    eventually(lambda: not world.serves("Widget"), lambda: "the kind is still served")

    world.carry_out(upgrade, "revert")

    assert world.status(upgrade) == "deployed"
    assert is_there(world)
