"""The difference between a revision and one node, from rows alone: pure, so that it can be tested on rubbish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from clusters import tolerations
from clusters.tolerations import EVICTS
from contract import keys
from contract.keys import ApplyClass
from contract.nodetuning import Mode, Operator
from jobs.diffs import disk_formats
from jobs.diffs.changes import Change, ChangeKind, Changes, Disruption
from profiles.catalog import known_labels

Pods = Sequence[Sequence[Mapping[str, Any]]]
"""What each of them tolerates."""
UNWATCHED, REPORTED, REPAIRED = "unwatched", "reported", "repaired"
"""What becomes of drift on a node."""
ABSENT_IS_A_VALUE = frozenset({keys.KeyKind.MODULE, keys.KeyKind.CMDLINE})
"""Kinds whose absence is an ordinary answer: a module not loaded, an argument not given."""
_satisfied = lru_cache(maxsize=4096)(keys.satisfied)
"""Of a key few values are asked, and a fleet reports few; to parse them again for each node is what takes time."""


@dataclass(frozen=True, slots=True)
class Target:
    """Target state of a revision, read once for all nodes."""

    settings: tuple[tuple[str, str, str, str], ...]
    """(key, operator, value, apply class)"""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[tuple[str, str, str], ...] = ()
    """(key, value, effect)"""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Target:
        return cls(
            settings=tuple(
                (s["key"], s["operator"], s["value"], s.get("apply_class") or keys.apply_class(s["key"]))
                for s in content.get("settings", ())
            ),
            labels=dict(content.get("labels") or {}),
            annotations=dict(content.get("annotations") or {}),
            taints=tuple((t["key"], t.get("value") or "", t["effect"]) for t in content.get("taints", ())),
        )


NOTHING = Target(settings=())


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """State of one node as known when planning."""

    observed: Mapping[str, str]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: Sequence[Mapping[str, Any]]
    originals: Mapping[str, str | None] = field(default_factory=dict)
    """Keys that Setpoint wrote here before, with their originals."""
    before: Target = NOTHING
    """The revision it is expected to run now."""
    pods: Pods | None = None
    """What each pod there tolerates; None: not known, so that a taint is taken to evict some."""


@dataclass(slots=True)
class NodeDifference:
    changes: Changes
    higher: list[str] = field(default_factory=list)
    """Raise-only (or lower-only) keys that the node already exceeds; nothing is written."""
    lacking: list[str] = field(default_factory=list)


def compare_node(target: Target, seen: ObservedNode) -> NodeDifference:
    """Every key of the target against what the node answers."""
    items: list[Change] = []
    higher: list[str] = []
    lacking: list[str] = []
    for key, operator, value, apply_class in target.settings:
        effective = seen.observed.get(key)
        if (effective is None and keys.kind_of(key) not in ABSENT_IS_A_VALUE) or disk_formats.is_impossible(
            key, value, effective
        ):
            lacking.append(key)
        elif not _satisfied(operator, value, effective):
            items.append(Change(ChangeKind.SETTING, key, operator, value, effective, apply_class))
        elif operator != Operator.EQUALS and not _satisfied(Operator.EQUALS, value, effective):
            higher.append(key)
    items += _restores(target, seen)
    items += _decorations(ChangeKind.LABEL, target.labels, seen.before.labels, seen.labels)
    items += _decorations(ChangeKind.ANNOTATION, target.annotations, seen.before.annotations, seen.annotations)
    items += _taints(target, seen)
    return NodeDifference(Changes.of(items, lacking), higher, lacking)


class NodeComparison:
    """Comparison of many nodes with one target. Nodes of the same shape, by all that a difference depends on, are
    compared once, and share their difference."""

    def __init__(self, target: Target) -> None:
        self.target = target
        # What the taint disturbs depends on the pods of each node: no two nodes are taken to be alike.
        self._is_evicting = any(effect == EVICTS for *_, effect in target.taints)
        self._known: dict[tuple[Any, ...], NodeDifference] = {}

    def of(self, seen: ObservedNode) -> NodeDifference:
        """Return what `compare_node` does; the answer is shared, and not to be changed."""
        if self._is_evicting:
            return compare_node(self.target, seen)
        shape = self._shape(seen)
        if shape not in self._known:
            self._known[shape] = compare_node(self.target, seen)
        return self._known[shape]

    def _shape(self, seen: ObservedNode) -> tuple[Any, ...]:
        target, before = self.target, seen.before
        return (
            tuple(seen.observed.get(key) for key, *_ in target.settings),
            tuple((key, original, seen.observed.get(key)) for key, original in seen.originals.items()),
            _present_marks(target.labels, before.labels, seen.labels),
            _present_marks(target.annotations, before.annotations, seen.annotations),
            tuple((str(t.get("key")), str(t.get("effect")), str(t.get("value") or "")) for t in seen.taints),
            tuple((key, effect) for key, _, effect in before.taints),
        )


def _present_marks(
    wanted: Mapping[str, str], before: Mapping[str, str], there: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Return the node's labels or annotations that a difference can depend on."""
    return tuple((key, there[key]) for key in (*wanted, *(k for k in before if k not in wanted)) if key in there)


def changes_or_watch(changes: Changes, *, enforce: bool, mode: str, is_expected: bool) -> Changes:
    """These changes, or, where there are none, what the node's agent is to do about drift from now on.

    A node that has every value already, but is not expected to run the revision, is told of it like the others: else
    it would not be watched, and it would wait for ever.
    """
    if changes.items or (is_expected and (not enforce or mode == Mode.ENFORCE)):
        return changes
    before, after = (REPORTED if is_expected else UNWATCHED), (REPAIRED if enforce else REPORTED)
    item = Change(ChangeKind.MODE, "drift", Operator.EQUALS, after, before, ApplyClass.LIVE)
    return Changes.of([item], changes.unsupported)


def is_within(changes: Changes, target: Target, *, enforce: bool) -> bool:
    """Return whether these are live changes to a node that Setpoint never wrote to, and all of them the target's."""
    wanted = {(ChangeKind.SETTING, *setting) for setting in target.settings}
    wanted |= {
        (ChangeKind.LABEL, key, Operator.EQUALS, value, _class_of_mark(ChangeKind.LABEL, key))
        for key, value in target.labels.items()
    }
    wanted |= {
        (ChangeKind.ANNOTATION, k, Operator.EQUALS, value, ApplyClass.LIVE) for k, value in target.annotations.items()
    }
    wanted |= {
        (ChangeKind.TAINT, f"{k}:{e}", Operator.EQUALS, v, _class_of_taint(e))
        for k, v, e in target.taints
        if e != EVICTS
    }
    wanted |= {(ChangeKind.MODE, "drift", Operator.EQUALS, REPAIRED if enforce else REPORTED, ApplyClass.LIVE)}
    return all(is_mild(c) and (c.kind, c.key, c.operator, c.value, c.apply_class) in wanted for c in changes.items)


def is_mild(change: Change) -> bool:
    """Return whether the change disturbs nothing that runs or comes by itself: live, or a taint against new pods.

    A node that joins has no pods yet that such a taint could concern.
    """
    is_taint = change.kind == ChangeKind.TAINT and not change.key.endswith(f":{EVICTS}")
    return change.apply_class == ApplyClass.LIVE or (is_taint and change.apply_class == Disruption.NEW_PODS)


def _restores(target: Target, seen: ObservedNode) -> list[Change]:
    wanted = {key for key, *_ in target.settings}
    return [
        Change(ChangeKind.RESTORE, key, Operator.EQUALS, original, seen.observed.get(key), keys.apply_class(key))
        for key, original in seen.originals.items()
        if key not in wanted
    ]


def _decorations(
    kind: ChangeKind, wanted: Mapping[str, str], before: Mapping[str, str], there: Mapping[str, str]
) -> list[Change]:
    out = [
        Change(kind, key, Operator.EQUALS, value, there.get(key), _class_of_mark(kind, key))
        for key, value in wanted.items()
        if there.get(key) != value
    ]
    out += [
        Change(kind, key, Operator.EQUALS, None, there.get(key), _class_of_mark(kind, key))
        for key in before
        if key not in wanted and key in there
    ]
    return out


def _class_of_mark(kind: ChangeKind, key: str) -> str:
    """Return the effect of writing or removing it on running work: that of a program that acts upon the label."""
    known = known_labels.get(key) if kind == ChangeKind.LABEL else None
    return Disruption(known.disruption) if known else ApplyClass.LIVE


def _class_of_taint(effect: str, value: str = "", key: str = "", pods: Pods | None = ()) -> Disruption:
    """Return the effect of setting the taint: new pods without a toleration stay away.
    NoExecute evicts running ones, too.
    """
    if effect not in tolerations.KEEPS_AWAY:
        return Disruption.LIVE
    taint = {"key": key, "value": value, "effect": effect}
    if effect == EVICTS and (pods is None or any(tolerations.lasts(pod, [taint]) is not None for pod in pods)):
        # The pods it evicts are evicted by Setpoint first, under the budget.
        return Disruption.DRAIN
    return Disruption.NEW_PODS


def _taints(target: Target, seen: ObservedNode) -> list[Change]:
    there = {(str(t.get("key")), str(t.get("effect"))): str(t.get("value") or "") for t in seen.taints}
    wanted = {(key, effect): value for key, value, effect in target.taints}
    ours = {(key, effect) for key, _, effect in seen.before.taints}
    out = []
    for (key, effect), value in wanted.items():
        if there.get((key, effect)) != value:
            worst = _class_of_taint(effect, value, key, seen.pods)
            out.append(
                Change(ChangeKind.TAINT, f"{key}:{effect}", Operator.EQUALS, value, there.get((key, effect)), worst)
            )
    for key, effect in ours - set(wanted):
        if (key, effect) in there:
            # Removing a taint interrupts nothing: pods that it kept away may come again.
            out.append(
                Change(ChangeKind.TAINT, f"{key}:{effect}", Operator.EQUALS, None, there[key, effect], Disruption.LIVE)
            )
    return out
