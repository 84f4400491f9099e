"""Charts that bring definitions in crds/, through helm v3 and v4 on the real control plane."""

from __future__ import annotations

import time

import pytest

from components.helm import client
from components.release import work
from tests.full.components.kinds_chart import LOOKUP, NO_FINALIZERS, World, blocks, codes, world
from tests.full.harness.client import eventually

__all__ = ["world"]
pytestmark = pytest.mark.django_db


def test_a_chart_with_objects_of_its_own_kinds_is_planned_installed_removed_and_planned_again(world: World) -> None:
    both = world.crd("Widget") + world.crd("Gadget")
    world.chart("1.0.0", crds={"all": both})

    first = world.prepare("1.0.0")

    assert blocks(first) == []
    assert {
        (difference.kind, difference.name.partition(".")[0])
        for difference in first.objects
        if difference.change != "same"
    } == {
        ("Namespace", world.name),
        ("CustomResourceDefinition", "widgets"),
        ("CustomResourceDefinition", "gadgets"),
        ("ConfigMap", f"{world.name}-settings"),
        ("Widget", world.name),
    }
    served = next(difference.diff for difference in first.objects if difference.kind == "ConfigMap")
    assert "served: 'true'" in served, "helm creates crds/ before it renders, so an install finds its own kinds served"
    assert "revert-leaves" in codes(first)
    assert "revert-destroys" not in codes(first)

    world.carry_out(first)
    assert world.status(first) == "deployed"
    data = world.admin.get("configmaps", f"{world.name}-settings", world.name)["data"]
    assert data == {"served": "true"}, "what is installed is what the plan showed"
    assert world.prepare("1.0.0").action == "none"

    world.carry_out(first, "revert")
    assert world.serves("Widget"), "definitions of crds/ stay"
    again = world.prepare("1.0.0")
    assert blocks(again) == []
    assert again.action == "install"
    world.carry_out(again)
    assert world.status(again) == "deployed"


def test_an_upgrade_creates_the_definitions_that_the_plan_lists_and_leaves_those_that_are_there(world: World) -> None:
    world.chart("1.0.0", crds={"widget": world.crd("Widget")})
    world.carry_out(world.prepare("1.0.0"))
    before = world.definition("Widget")
    wider = world.crd("Widget", "size: {type: integer}, color: {type: string}")
    more = f"apiVersion: {world.group}/v1\nkind: Gadget\nmetadata: {{name: one}}\n"
    crds = {"widget": wider, "gadget": world.crd("Gadget")}
    world.chart("2.0.0", crds=crds, more={"templates/gadget.yaml": more})

    upgrade = world.prepare("2.0.0")

    assert blocks(upgrade) == []
    assert {"crd-stale", "crds-created"} <= codes(upgrade)
    made = [
        (difference.change, difference.name)
        for difference in upgrade.objects
        if difference.kind == "CustomResourceDefinition"
    ]
    assert made == [("created", f"gadgets.{world.group}")]
    world.carry_out(upgrade)
    assert world.status(upgrade) == "deployed"
    assert world.definition("Widget") == before
    assert world.prepare("2.0.0").action == "none"

    world.carry_out(upgrade, "revert")
    assert world.serves("Gadget"), "definitions of crds/ stay"
    removal = world.prepare("", is_gone=True)
    [stays] = [note.detail for note in removal.notes if note.code == "crds-stay"]
    assert stays.count("(1)") == 1, "of the Widget, which goes"
    assert all(f"{plural}.{world.group}" in stays for plural in ("widgets", "gadgets"))
    world.carry_out(removal)
    assert world.serves("Widget")
    assert world.definition("Widget") == before


def test_an_older_definition_of_somebody_else_is_left_as_it_is(world: World) -> None:
    world.plane.kubectl("apply", "-f", "-", text=world.crd("Widget", "size: {type: integer, minimum: 1}"))
    eventually(lambda: world.serves("Widget"), lambda: "the kind is not served")
    before = world.definition("Widget")
    world.chart("1.0.0", crds={"widget": world.crd("Widget"), "gadget": world.crd("Gadget")})

    prepared = world.prepare("1.0.0")

    assert blocks(prepared) == []
    assert "crd-stale" in codes(prepared)
    made = [difference.name for difference in prepared.objects if difference.kind == "CustomResourceDefinition"]
    assert made == [f"gadgets.{world.group}"]
    world.carry_out(prepared)
    assert world.status(prepared) == "deployed"
    assert world.definition("Widget") == before
    world.carry_out(prepared, "revert")
    assert world.definition("Widget") == before
    assert world.serves("Gadget")


def test_an_older_definition_of_a_former_release_is_left_as_it_is(world: World) -> None:
    world.chart("1.0.0", crds={"widget": world.crd("Widget")})
    world.carry_out(world.prepare("1.0.0"))
    world.carry_out(world.prepare("", is_gone=True))
    before = world.definition("Widget")
    wider = world.crd("Widget", "size: {type: integer}, color: {type: string}")
    world.chart("2.0.0", crds={"widget": wider})

    again = world.prepare("2.0.0")

    assert blocks(again) == []
    assert "crd-stale" in codes(again)
    world.carry_out(again)
    assert world.status(again) == "deployed"
    assert world.definition("Widget") == before


def test_objects_of_a_version_that_an_older_definition_does_not_serve_are_refused_beforehand(world: World) -> None:
    world.plane.kubectl("apply", "-f", "-", text=world.crd("Widget").replace("name: v1\n", "name: v1beta1\n"))
    eventually(
        lambda: f"{world.group}/v1beta1" in world.api_versions(),
        lambda: "the kind is not served",
    )
    world.chart("1.0.0", crds={"widget": world.crd("Widget")})

    assert any("Widget" in text and "does not serve" in text for text in blocks(world.prepare("1.0.0")))


def test_a_definition_that_is_gone_since_the_plan_is_not_created_unseen(world: World) -> None:
    world.chart("1.0.0", crds={"widget": world.crd("Widget"), "gadget": world.crd("Gadget")})
    world.plane.kubectl("apply", "-f", "-", text=world.crd("Gadget"))
    eventually(lambda: world.serves("Gadget"), lambda: "the kind is not served")
    prepared = world.prepare("1.0.0")
    world.forget([f"gadgets.{world.group}"])
    eventually(lambda: not world.serves("Gadget"), lambda: "the kind is still served")

    with pytest.raises(client.HelmRefused, match="plan again"):
        world.carry_out(prepared)


def test_a_chart_that_looks_things_up_is_planned_and_says_where_it_could_not_ask(world: World) -> None:
    world.chart("1.0.0", crds={"widget": world.crd("Widget")}, more={"templates/found.yaml": LOOKUP})
    world.plane.kubectl("create", "namespace", world.name)
    world.plane.kubectl("create", "configmap", "asked-for", "-n", world.name)

    def codes_and_diff() -> tuple[set[str], str]:
        prepared = world.prepare("1.0.0")
        assert blocks(prepared) == []
        return codes(prepared), next(
            difference.diff for difference in prepared.objects if difference.name == f"{world.name}-found"
        )

    note_codes, diff = codes_and_diff()
    if client.program().is_v4:
        assert "not-looked-up" in note_codes
    else:
        assert "not-looked-up" not in note_codes
        assert "there: 'true'" in diff
    world.plane.kubectl("apply", "-f", "-", text=world.crd("Widget"))
    eventually(lambda: world.serves("Widget"), lambda: "the kind is not served")
    note_codes, diff = codes_and_diff()
    assert "not-looked-up" not in note_codes
    assert "there: 'true'" in diff


def test_an_install_ended_at_any_moment_is_completed_by_the_next_try(world: World) -> None:
    """Fifteen times, from before helm has begun to when it is about done; also of definitions, which come first."""
    world.chart("1.0.0", crds={"widget": world.crd("Widget"), "gadget": world.crd("Gadget")})
    prepared = world.prepare("1.0.0")
    ended = 0
    for number in range(15):
        at = time.monotonic() + 0.1 * number
        try:
            work.carry_out(
                world.cluster,
                prepared,
                direction="forward",
                deadline=time.monotonic() + 120,
                stop=lambda at=at: time.monotonic() > at,
                tell=lambda line: None,
            )
        except (client.Stopped, client.ReleaseBusy):  # busy: what the killed helm wrote last arrived after the look
            ended += 1
            continue
        work.carry_out(
            world.cluster,
            prepared,
            direction="revert",
            deadline=time.monotonic() + 120,
            stop=lambda: False,
            tell=lambda line: None,
        )
        assert world.status(prepared) == ""
    assert ended
    world.carry_out(prepared)
    assert world.status(prepared) == "deployed"
    assert world.prepare("1.0.0").action == "none"


def test_a_namespace_that_is_being_deleted_is_named_and_waited_for(world: World) -> None:
    world.chart("1.0.0", crds={"widget": world.crd("Widget")})
    world.plane.kubectl("create", "namespace", world.name)
    finalizers = '{"metadata":{"finalizers":["example.com/wait"]}}'
    world.plane.kubectl("create", "configmap", "held", "-n", world.name)
    world.plane.kubectl("patch", "configmap", "held", "-n", world.name, "--type=merge", "-p", finalizers)
    world.plane.kubectl("delete", "namespace", world.name, "--wait=false")
    with pytest.raises(client.HelmRefused, match="is being deleted"):
        world.prepare("1.0.0")
    world.plane.kubectl("patch", "configmap", "held", "-n", world.name, "--type=json", "-p", NO_FINALIZERS)
    eventually(lambda: world.admin.find("namespaces", world.name) is None, lambda: "the namespace is still there")
    assert blocks(world.prepare("1.0.0")) == []
