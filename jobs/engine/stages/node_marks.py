"""Labels that another program acts upon: no older answer of it counts, and its own answer is success (law 8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta

from common.clock import now
from contract import quantities
from jobs.diffs.changes import ChangeKind
from jobs.engine.event_log import clock_time
from jobs.engine.outcome import NodeView
from profiles.catalog import known_labels
from profiles.catalog.known_labels import KnownLabel


def changing_labels(view: NodeView) -> Iterator[tuple[KnownLabel, str | None]]:
    """Each such label that this step changes, with the value that it brings; None: it takes it away.

    On the way back one that Setpoint did not set before has the value that the plan saw.
    """
    for change in view.changes.items:
        known = known_labels.get(change.key) if change.kind == ChangeKind.LABEL else None
        if known:
            value = view.target.labels.get(known.key, change.expect) if view.is_revert else change.value
            yield known, value


def write_labels(view: NodeView) -> str:
    """Write these labels, and take each program's older answer away in the same write. Returns why not, as a sentence.

    They are written over any field manager, for their programs' operators set them themselves; but only over what
    the plan saw (law 2). Twice does no harm: where the label has its value, the answer beside it is about that value.
    """
    marks = list(changing_labels(view))
    if not marks:
        return ""
    seen = {c.key: (c.expect, c.value) for c in view.changes.items if c.kind == ChangeKind.LABEL}
    moved: list[str] = []

    def change(there: Mapping[str, str]) -> Mapping[str, str | None]:
        moved[:] = [_moved_label(known.key, there) for known, _ in marks if there.get(known.key) not in seen[known.key]]
        out: dict[str, str | None] = {}
        for known, value in () if moved else marks:
            if there.get(known.key) == value:
                continue
            out[known.key] = value
            if known.state in there:
                out[known.state] = None
        return out

    view.before_write()
    view.fleet.relabel(view.step.node_name, view.step.node_uid, change)
    return moved[0] if moved else ""


def _moved_label(key: str, there: Mapping[str, str]) -> str:
    return f"The label {key} moved: it is {there.get(key, 'absent')} now, neither the value at planning nor the target."


def rebooting_program(view: NodeView) -> str:
    """The program that may reboot this node by itself because of this step; empty: none may."""
    return next((known.program for known, _ in changing_labels(view) if known.may_reboot), "")


def failed_program(view: NodeView) -> str:
    """Explain, in a sentence, what a program says it could not do; empty where none says so."""
    for known, value in changing_labels(view):
        answer = view.node.labels.get(known.state) if known.state else None
        if view.node.labels.get(known.key) == value and answer in known.failed:
            return f"{known.program} could not apply {known.key}={value or '(removed)'}: {known.state}={answer}."
    return ""


def pending_program(view: NodeView) -> str:
    """Explain, in a sentence, which program has not ended yet; empty when all have."""
    for known, value in changing_labels(view):
        if view.node.labels.get(known.key) != value and value is not None:
            return f"Waiting to see the label {known.key}={value}."
        if waiting := _of_state(view, known, value) if known.state else _of_offer(view, known):
            return waiting
    return ""


def _of_state(view: NodeView, known: KnownLabel, value: str | None) -> str:
    answer = view.node.labels.get(known.state)
    if answer in known.done:
        return ""
    if answer is not None:
        return f"{known.program} works on {view.node.name}: {known.state}={answer}."
    if value is not None:
        return f"{known.program} has not answered on {view.node.name}: {known.state} is absent."
    return _settling(view, known, f"{known.program} reports no state after {known.key} was removed")


def _of_offer(view: NodeView, known: KnownLabel) -> str:
    """A node that had no GPUs when planned has none to offer afterwards."""
    if not known.offers or not view.planned.gpus:
        return ""
    offered = {name: count for name, count in view.node.allocatable.items() if name.startswith(known.offers)}
    if not any(quantities.count(str(count)) for count in offered.values()):
        return f"{view.node.name} offers no {known.offers}* to pods yet: {known.program} has not come back."
    return _settling(view, known, f"{view.node.name} offers {', '.join(sorted(offered))}")


def _settling(view: NodeView, known: KnownLabel, what: str) -> str:
    until = view.step.entered_at + timedelta(seconds=known.settle_seconds)
    return f"{what}; checked until {clock_time(until)}." if now() < until else ""
