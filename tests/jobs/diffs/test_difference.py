"""Laws of the difference between a revision and one node: what differs, nothing else, and no answer makes it fail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract import keys
from jobs.diffs.changes import Change, ChangeKind, Changes
from jobs.diffs.node_diff import NodeDifference, ObservedNode, Target, compare_node

KEYS = ["vm.swappiness", "fs.aio-max-nr", "net.core.rmem_max", "hugepages-2Mi", "kernel.pid_max"]
FLAGS = ["module.ib_umad", "cmdline.iommu"]
OPERATORS = ["=", ">=", "<="]
EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"]

numbers = st.integers(0, 40).map(str)
names = st.sampled_from(["a.io/x", "a.io/y", "z"])
marks = st.dictionaries(names, st.sampled_from(["", "1", "2"]))
text = st.text(max_size=30)


def wanted(key: str, operator: str, value: str) -> tuple[str, str, str, str]:
    return (key, operator, value, str(keys.apply_class(key)))


def seen(observed: dict[str, str] | None = None, **fields: Any) -> ObservedNode:
    return ObservedNode(**({"observed": observed or {}, "labels": {}, "annotations": {}, "taints": []} | fields))


def swappiness(operator: str, value: str, observed: str | None) -> NodeDifference:
    there = {} if observed is None else {"vm.swappiness": observed}
    return compare_node(Target((wanted("vm.swappiness", operator, value),)), seen(there))


@st.composite
def targets(draw: st.DrawFn) -> Target:
    settings_ = [
        wanted(key, draw(st.sampled_from(OPERATORS)), draw(numbers))
        for key in draw(st.lists(st.sampled_from(KEYS), unique=True))
    ]
    settings_ += [wanted(key, "=", "loaded") for key in draw(st.lists(st.sampled_from(FLAGS), unique=True))]
    taints = draw(st.lists(st.tuples(names, st.sampled_from(["", "v"]), st.sampled_from(EFFECTS)), unique_by=_identity))
    return Target(tuple(settings_), draw(marks), draw(marks), tuple(taints))


def _identity(taint: tuple[str, str, str]) -> tuple[str, str]:
    return taint[0], taint[2]


@st.composite
def nodes(draw: st.DrawFn) -> ObservedNode:
    before = draw(targets())
    taints = draw(st.lists(st.tuples(names, st.sampled_from(["", "v"]), st.sampled_from(EFFECTS)), unique_by=_identity))
    return ObservedNode(
        observed=draw(st.dictionaries(st.sampled_from(KEYS), numbers))
        | draw(st.dictionaries(st.sampled_from(FLAGS), st.just("loaded"))),
        labels=draw(marks),
        annotations=draw(marks),
        taints=[{"key": k, "value": v, "effect": e} for k, v, e in taints],
        originals=draw(st.dictionaries(st.sampled_from(KEYS + FLAGS), st.none() | numbers, max_size=3)),
        before=before,
    )


def apply(changes: Changes, there: ObservedNode) -> ObservedNode:
    """Return the node's state when each change was made, and no other."""
    observed, labels, annotations = dict(there.observed), dict(there.labels), dict(there.annotations)
    taints = {(t["key"], t["effect"]): t["value"] for t in there.taints}
    originals = dict(there.originals)
    for change in changes.items:
        into: dict[Any, Any] = {
            ChangeKind.LABEL: labels,
            ChangeKind.ANNOTATION: annotations,
            ChangeKind.TAINT: taints,
        }.get(ChangeKind(change.kind), observed)
        key = tuple(change.key.rsplit(":", 1)) if change.kind == ChangeKind.TAINT else change.key
        assert into.get(key) == change.expect, "the before-value is what is there"
        if change.value is None:
            into.pop(key, None)
        else:
            into[key] = change.value
        if change.kind == ChangeKind.RESTORE:
            originals.pop(change.key)
    listed = [{"key": k, "value": v, "effect": e} for (k, e), v in taints.items()]
    return ObservedNode(observed, labels, annotations, listed, originals, there.before)


# ── the laws ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(targets(), nodes())
@settings(max_examples=50)
def test_what_the_changes_make_of_a_node_satisfies_the_target_and_leaves_nothing_to_do(target, node):
    difference = compare_node(target, node)
    after = apply(difference.changes, node)

    for key, operator, value, _ in target.settings:
        assert key in difference.lacking or keys.satisfied(operator, value, after.observed.get(key))
    assert target.labels.items() <= dict(after.labels).items()
    assert target.annotations.items() <= dict(after.annotations).items()
    assert {(k, e, v) for k, v, e in target.taints} <= {(t["key"], t["effect"], t["value"]) for t in after.taints}
    again = compare_node(target, after)
    assert not again.changes.items
    assert again.lacking == difference.lacking


@given(targets(), nodes())
@settings(max_examples=50)
def test_nothing_is_touched_that_neither_the_target_nor_its_predecessor_names(target, node):
    ours = {(ChangeKind.SETTING, key) for key, *_ in target.settings}
    ours |= {(ChangeKind.RESTORE, key) for key in node.originals}
    for of in (target, node.before):
        ours |= {(ChangeKind.LABEL, key) for key in of.labels} | {
            (ChangeKind.ANNOTATION, key) for key in of.annotations
        }
        ours |= {(ChangeKind.TAINT, f"{key}:{effect}") for key, _, effect in of.taints}

    changes = compare_node(target, node).changes.items
    assert {(c.kind, c.key) for c in changes} <= ours
    assert len({(c.kind, c.key) for c in changes}) == len(changes), "one change a key"


@given(targets(), nodes())
@settings(max_examples=50)
def test_there_is_nothing_to_change_exactly_when_all_is_satisfied_and_nothing_is_left_over(target, node):
    difference = compare_node(target, node)
    taints = {(t["key"], t["effect"]): t["value"] for t in node.taints}
    is_satisfied = (
        all(
            key in difference.lacking or keys.satisfied(operator, value, node.observed.get(key))
            for key, operator, value, _ in target.settings
        )
        and target.labels.items() <= node.labels.items()
        and target.annotations.items() <= node.annotations.items()
        and all(taints.get((key, effect)) == value for key, value, effect in target.taints)
    )
    is_left_over = (
        set(node.originals) - {key for key, *_ in target.settings}
        or (set(node.before.labels) - set(target.labels)) & set(node.labels)
        or (set(node.before.annotations) - set(target.annotations)) & set(node.annotations)
        or ({(k, e) for k, _, e in node.before.taints} - {(k, e) for k, _, e in target.taints}) & set(taints)
    )

    assert (not difference.changes.items) == (is_satisfied and not is_left_over)


@given(targets(), nodes())
@settings(max_examples=50)
def test_a_raise_only_key_is_never_lowered_nor_a_lower_only_one_raised(target, node):
    for change in compare_node(target, node).changes.items:
        if change.kind != ChangeKind.SETTING or change.expect is None:
            continue
        if change.operator == ">=":
            assert int(change.value) > int(change.expect)
        elif change.operator == "<=":
            assert int(change.value) < int(change.expect)


@given(targets(), nodes())
@settings(max_examples=50)
def test_equal_differences_are_one_whatever_order_they_were_found_in(target, node):
    turned = Target(target.settings[::-1], target.labels, target.annotations, target.taints[::-1])

    changes, other = compare_node(target, node).changes, compare_node(turned, node).changes

    assert changes == other
    assert changes.digest == other.digest
    assert Changes.from_json(changes.to_json()) == changes


@given(targets(), nodes())
@settings(max_examples=50)
def test_the_most_disturbing_change_comes_first_and_names_the_class_of_all(target, node):
    changes = compare_node(target, node).changes
    if changes.items:
        assert changes.worst_class == changes.items[0].apply_class


# ── cases by hand ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_higher_than_asked_is_told_apart_from_one_that_has_just_that():
    assert swappiness(">=", "10", "60").higher == ["vm.swappiness"]
    assert swappiness(">=", "60", "60").higher == []
    assert swappiness("<=", "60", "10").higher == ["vm.swappiness"]
    assert not swappiness(">=", "10", "60").changes.items


def test_a_key_that_the_kernel_lacks_is_reported_and_not_written():
    difference = swappiness("=", "10", None)

    assert difference.lacking == ["vm.swappiness"]
    assert difference.changes == Changes((), ("vm.swappiness",))


@pytest.mark.parametrize("key", FLAGS)
def test_what_may_be_absent_is_no_missing_key(key):
    difference = compare_node(Target((wanted(key, "=", "loaded"),)), seen())

    assert difference.lacking == []
    assert [(c.key, c.expect, c.value) for c in difference.changes.items] == [(key, None, "loaded")]


def test_only_keys_with_an_original_are_put_back_even_to_being_absent():
    node = seen(
        {"vm.swappiness": "10", "fs.aio-max-nr": "5"}, originals={"vm.swappiness": "60", "module.ib_umad": None}
    )

    changes = compare_node(Target(()), node).changes.items

    assert [(c.kind, c.key, c.expect, c.value) for c in changes] == [
        ("restore", "module.ib_umad", None, None),
        ("restore", "vm.swappiness", "10", "60"),
    ]


def test_a_key_that_is_wanted_again_is_not_put_back():
    node = seen({"vm.swappiness": "10"}, originals={"vm.swappiness": "60"})
    assert not compare_node(Target((wanted("vm.swappiness", "=", "10"),)), node).changes.items


def test_marks_of_the_revision_before_go_and_those_of_others_stay():
    node = seen(
        labels={"ours": "1", "theirs": "1"},
        annotations={"ours": "1", "theirs": "1"},
        taints=[{"key": "ours", "effect": "NoSchedule"}, {"key": "theirs", "effect": "NoSchedule"}],
        before=Target((), {"ours": "1"}, {"ours": "1"}, (("ours", "", "NoSchedule"),)),
    )

    changes = compare_node(Target((), {"new": "2"}), node).changes.items

    assert sorted((c.kind, c.key, c.value) for c in changes) == [
        ("annotation", "ours", None),
        ("label", "new", "2"),
        ("label", "ours", None),
        ("taint", "ours:NoSchedule", None),
    ]


@pytest.mark.parametrize(
    ("effect", "drains"), [("NoExecute", True), ("NoSchedule", False), ("PreferNoSchedule", False)]
)
def test_a_taint_that_evicts_is_a_drain_when_it_comes_and_nothing_when_it_goes(effect, drains):
    comes = compare_node(Target((), taints=(("gpu", "yes", effect),)), seen()).changes
    goes = compare_node(
        Target(()),
        seen(taints=[{"key": "gpu", "effect": effect}], before=Target((), taints=(("gpu", "", effect),))),
    ).changes

    assert comes.worst_class == {"NoExecute": "drain", "NoSchedule": "new-pods"}.get(effect, "live")
    assert comes.worst_class.drains is drains
    assert goes.worst_class == "live"


def test_the_same_key_tainted_with_two_effects_is_two_taints():
    target = Target((), taints=(("gpu", "", "NoSchedule"), ("gpu", "", "NoExecute")))
    node = seen(taints=[{"key": "gpu", "effect": "NoSchedule"}])
    assert [c.key for c in compare_node(target, node).changes.items] == ["gpu:NoExecute"]


@given(
    st.dictionaries(st.sampled_from(KEYS + FLAGS), text),
    st.dictionaries(text, text),
    st.lists(
        st.dictionaries(st.sampled_from(["key", "effect", "value", "timeAdded"]), st.none() | text | st.integers())
    ),
    st.dictionaries(st.sampled_from(KEYS + FLAGS), st.none() | text),
    targets(),
)
@settings(max_examples=80)
def test_no_answer_of_an_agent_or_a_cluster_makes_planning_fail(observed, decorations, taints, originals, target):
    node = ObservedNode(observed, decorations, decorations, taints, originals, target)

    changes = compare_node(target, node).changes

    assert Changes.from_json(changes.to_json()) == changes
    assert all(isinstance(c, Change) for c in changes.items)
