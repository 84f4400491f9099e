"""The port's writes to nodes: cordons, labels, annotations, taints, and nodes replaced under their name (law 9)."""

from __future__ import annotations

import pytest

from clusters import objects
from clusters.fleet import Conflict, NotFound, Replaced, Taint
from contract import names

OWNER = "installation/step-1"
OTHER_UID = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def node(world):
    made = world.node(world.name("node"), labels={"theirs": "1"})
    return made["metadata"]["name"], made["metadata"]["uid"]


def taints(raw):
    return {(t["key"], t.get("value", ""), t["effect"]) for t in raw["spec"].get("taints") or ()}


def test_a_cordon_says_whose_it_is_and_goes_whole(world, node):
    name, uid = node
    held = world.fleet.cordon(name, uid, OWNER)
    assert (objects.is_cordoned(held), objects.cordon_owner(held)) == (True, OWNER)
    assert objects.cordon_owner(world.fleet.cordon(name, uid, OWNER)) == OWNER  # twice is once
    free = world.fleet.uncordon(name, uid, OWNER)
    assert (objects.is_cordoned(free), objects.cordon_owner(free)) == (False, "")
    assert not objects.is_cordoned(world.fleet.uncordon(name, uid, OWNER))  # delivered twice


def test_only_the_owner_of_a_cordon_releases_it(world, node):
    name, uid = node
    world.fleet.cordon(name, uid, OWNER)
    with pytest.raises(Conflict, match=OWNER):
        world.fleet.uncordon(name, uid, "installation/step-2")
    assert objects.is_cordoned(world.fleet.node(name))


def test_a_persons_cordon_is_nobody_elses(world, node):
    name, uid = node
    world.edit("nodes", name, {"spec": {"unschedulable": True}})
    with pytest.raises(Conflict):
        world.fleet.uncordon(name, uid, OWNER)
    assert objects.is_cordoned(world.fleet.node(name))


def test_a_persons_cordon_does_not_become_ours_by_cordoning(world, node):
    name, uid = node
    world.edit("nodes", name, {"spec": {"unschedulable": True}})
    seen = world.fleet.cordon(name, uid, OWNER)
    assert (objects.is_cordoned(seen), objects.cordon_owner(seen)) == (True, "")
    assert objects.cordon_owner(world.fleet.node(name)) == ""


def test_a_cordon_of_ours_changes_its_owner_only_when_that_is_asked_for(world, node):
    name, uid = node
    world.fleet.cordon(name, uid, OWNER)
    assert objects.cordon_owner(world.fleet.cordon(name, uid, "installation/step-2")) == OWNER
    assert objects.cordon_owner(world.fleet.cordon(name, uid, "other/step-2", instead_of="other/")) == OWNER
    taken = world.fleet.cordon(name, uid, "installation/step-2", instead_of="installation/")
    assert (objects.is_cordoned(taken), objects.cordon_owner(taken)) == (True, "installation/step-2")


def test_a_mark_without_its_cordon_is_no_cordon(world, node):
    """kubectl uncordon leaves the annotation behind."""
    name, uid = node
    world.fleet.cordon(name, uid, OWNER)
    world.edit("nodes", name, {"spec": {"unschedulable": None}})
    assert objects.is_cordoned(world.fleet.cordon(name, uid, "installation/step-2"))
    world.edit("nodes", name, {"spec": {"unschedulable": None}})
    free = world.fleet.uncordon(name, uid, "installation/step-2")
    assert (objects.is_cordoned(free), objects.cordon_owner(free)) == (False, "")


def test_a_node_that_a_person_wants_kept_stays_cordoned_without_our_marks(world, node):
    name, uid = node
    world.fleet.cordon(name, uid, OWNER)
    world.edit("nodes", name, {"metadata": {"annotations": {names.KEEP_CORDONED: "a fan"}}})
    with pytest.raises(Conflict, match=OWNER):
        world.fleet.uncordon(name, uid, "installation/step-2")
    theirs = world.fleet.uncordon(name, uid, OWNER)
    assert objects.is_cordoned(theirs)
    assert not {names.CORDONED_BY, names.KEEP_CORDONED} & set(theirs["metadata"].get("annotations") or {})
    with pytest.raises(Conflict, match="another party"):
        world.fleet.uncordon(name, uid, OWNER)


def test_a_wish_to_keep_a_node_that_is_not_cordoned_goes_with_our_mark(world, node):
    name, uid = node
    world.fleet.cordon(name, uid, OWNER)
    world.edit("nodes", name, {"metadata": {"annotations": {names.KEEP_CORDONED: "a fan"}}})
    world.edit("nodes", name, {"spec": {"unschedulable": None}})
    free = world.fleet.uncordon(name, uid, OWNER)
    assert not objects.is_cordoned(free)
    assert not {names.CORDONED_BY, names.KEEP_CORDONED} & set(free["metadata"].get("annotations") or {})


def writes(fleet, name, uid):
    return {
        "cordon": lambda: fleet.cordon(name, uid, OWNER),
        "uncordon": lambda: fleet.uncordon(name, uid, OWNER),
        "decorate": lambda: fleet.decorate(name, uid, labels={"ours": "1"}, annotations={}),
        "taint": lambda: fleet.taint(name, uid, add=[Taint("ours", "1", "NoSchedule")], remove=[]),
    }


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "decorate", "taint"])
def test_no_write_reaches_a_node_that_was_replaced_under_its_name(world, node, verb):
    name, uid = node
    world.fleet.cordon(name, uid, OWNER)
    new = world.replace_node(name)
    assert new["metadata"]["uid"] != uid
    before = world.fleet.node(name)
    with pytest.raises(Replaced):
        writes(world.fleet, name, uid)[verb]()
    after = world.fleet.node(name)
    assert after["metadata"].get("labels") == before["metadata"].get("labels")
    assert not objects.is_cordoned(after)
    assert ("ours", "1", "NoSchedule") not in taints(after)


@pytest.mark.parametrize("verb", ["cordon", "uncordon", "decorate", "taint"])
def test_no_write_brings_a_deleted_node_back(world, node, verb):
    name, uid = node
    world.delete_node(name)
    with pytest.raises(NotFound):
        writes(world.fleet, name, uid)[verb]()
    with pytest.raises(NotFound):
        world.fleet.node(name)


def test_decorating_owns_exactly_what_it_names(world, node):
    name, uid = node
    decorate = world.fleet.decorate
    first = decorate(name, uid, labels={"ours": "1", "also": "2", "none": None}, annotations={"setpoint.dev/note": "x"})
    assert first["metadata"]["labels"].items() >= {"ours": "1", "also": "2", "theirs": "1"}.items()
    assert "none" not in first["metadata"]["labels"]
    assert first["metadata"]["annotations"]["setpoint.dev/note"] == "x"
    second = decorate(name, uid, labels={"ours": "3"}, annotations={})
    assert second["metadata"]["labels"].items() >= {"ours": "3", "theirs": "1"}.items()
    assert "also" not in second["metadata"]["labels"]
    assert "setpoint.dev/note" not in (second["metadata"].get("annotations") or {})


def test_decorating_takes_no_label_from_its_owner(world, node):
    name, uid = node
    world.edit("nodes", name, {"metadata": {"labels": {"tier": "gold"}}})
    with pytest.raises(Conflict, match="kubectl-edit"):
        world.fleet.decorate(name, uid, labels={"tier": "lead"}, annotations={})
    assert world.fleet.node(name)["metadata"]["labels"]["tier"] == "gold"
    agreed = world.fleet.decorate(name, uid, labels={"tier": "gold"}, annotations={})
    assert agreed["metadata"]["labels"]["tier"] == "gold"


def test_decorating_leaves_a_cordon_and_a_cordon_leaves_decorations(world, node):
    name, uid = node
    world.fleet.decorate(name, uid, labels={"ours": "1"}, annotations={})
    world.fleet.cordon(name, uid, OWNER)
    after = world.fleet.decorate(name, uid, labels={}, annotations={})
    assert objects.cordon_owner(after) == OWNER
    assert objects.is_cordoned(after)
    assert "ours" not in after["metadata"]["labels"]


def test_a_taint_is_added_changed_and_taken_away_among_others(world, node):
    name, uid = node
    world.edit("nodes", name, {"spec": {"taints": [{"key": "theirs", "effect": "NoExecute"}]}})
    taint = world.fleet.taint
    ours = ("ours", "1", "NoSchedule")
    added = taint(name, uid, add=[Taint(*ours)], remove=[])
    assert taints(added) == {ours, ("theirs", "", "NoExecute")}

    def writes_nothing() -> bool:
        before, after = (taint(name, uid, add=[Taint(*ours)], remove=[])["metadata"] for _ in range(2))
        return before["resourceVersion"] == after["resourceVersion"]

    assert any(writes_nothing() for _ in range(5)), "controllers write to a node too, but not all the time"
    nowhere = taint(name, uid, add=[Taint("new", "1", "NoSchedule")], remove=[], where="absent")
    assert taints(nowhere) == {ours, ("theirs", "", "NoExecute")}
    changed = taint(name, uid, add=[Taint("ours", "2", "NoSchedule")], remove=[], where="ours")
    assert taints(changed) == {("ours", "2", "NoSchedule"), ("theirs", "", "NoExecute")}
    gone = taint(name, uid, add=[], remove=[Taint("ours", "2", "NoSchedule")])
    assert taints(gone) == {("theirs", "", "NoExecute")}


def test_the_name_of_the_annotation_is_the_contracts(world, node):
    name, uid = node
    assert world.fleet.cordon(name, uid, OWNER)["metadata"]["annotations"][names.CORDONED_BY] == OWNER


def test_relabeling_writes_over_others_and_is_left_by_a_later_decoration(world, node):
    name, uid = node
    world.edit("nodes", name, {"metadata": {"labels": {"tier": "gold", "tier.state": "success"}}})
    after = world.fleet.relabel(
        name, uid, lambda there: {"tier": "lead", "tier.state": None} if there["tier"] == "gold" else {}
    )
    labels = after["metadata"]["labels"]
    assert (labels["tier"], "tier.state" in labels) == ("lead", False)
    assert (
        world.fleet.decorate(name, uid, labels={"tier": "lead"}, annotations={})["metadata"]["labels"]["tier"] == "lead"
    )
    assert world.fleet.decorate(name, uid, labels={}, annotations={})["metadata"]["labels"]["tier"] == "lead"
    gone = world.fleet.relabel(name, uid, lambda there: {"tier": None})
    assert "tier" not in gone["metadata"]["labels"]


def test_relabeling_of_a_replaced_node_is_refused(world, node):
    with pytest.raises(Replaced):
        world.fleet.relabel(node[0], "another-uid", lambda _: {"tier": "lead"})
