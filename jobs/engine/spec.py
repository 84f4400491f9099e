"""The NodeTuning spec of a step: the whole target, what each key must still be, and what goes back to its original."""

from __future__ import annotations

from contract import clock, names
from contract.keys import satisfied
from contract.nodetuning import Mode, Operator, RestartGrant, Restore, SettingStatus, Spec, Wanted
from jobs.diffs.changes import ChangeKind
from jobs.engine.outcome import NodeView


def build(view: NodeView, *, restart: RestartGrant | None = None) -> Spec:
    """Keys that a node lacks are left out; a key with neither its planned before- nor after-value is the agent's
    Moved."""
    mode = Mode.ENFORCE if view.strategy.enforce else Mode.APPLY
    return Spec(
        node_uid=view.step.node_uid,
        mode=mode,
        protocol=names.PROTOCOL,
        rollout=view.rollout,
        step=str(view.step.pk),
        attempt=view.step.attempt,
        revision=view.revision_digest,
        settings=tuple(_wanted(view)),
        restore=tuple(_restores(view)),
        observe=view.observe,
        restart=restart,
    )


def restart_grant(view: NodeView, boot_id: str) -> RestartGrant:
    """Permission to end the boot `boot_id`; its id is the step's and attempt's, so a repeated write grants nothing
    new. It ends by itself when the step would give up waiting for it. Raises FleetError."""
    until = view.fleet.clock().timestamp() + view.strategy.step_deadline_seconds
    return RestartGrant(
        id=f"{view.step.pk}.{view.step.attempt}",
        action=view.restart,
        boot_id=boot_id,
        expires=clock.stamp(until),
    )


def expected_values(view: NodeView) -> dict[str, str | None]:
    """Return what each key answers now that no digest names.
    Stored before the first write, and asked of the agent from then on, however often the spec of this attempt is
    written
    (law 6). A value that is changed in between has moved.
    """
    forward = {c.key for c in view.changes.items if c.kind in (ChangeKind.SETTING, ChangeKind.RESTORE)}
    frozen = {w.key: w.expect for w in _wanted(view)}
    if not view.is_revert:
        return {key: value for key, value in frozen.items() if key not in forward}
    observed, kept = _observed(view), {key for key, *_ in view.target.settings}
    left = [key for key, *_ in view.before.settings if key not in kept]
    return frozen | {key: _overwritable(view, key, observed.get(key)) for key in left}


def _observed(view: NodeView) -> dict[str, str]:
    return dict(view.tuning.observed) if view.tuning else {}


def _wanted(view: NodeView) -> list[Wanted]:
    observed = _observed(view)
    planned = {c.key: c for c in view.changes.items if c.kind == ChangeKind.SETTING}
    out = []
    for key, operator, value, _ in view.target.settings:
        if key in view.changes.unsupported:
            continue
        if not view.is_revert and key in planned:
            expect = planned[key].expect
        elif view.is_revert:
            expect = _frozen(view, key, _overwritable(view, key, observed.get(key)))
        else:
            # Compliant when planned. If it is not any more, the agent must see that it moved.
            effective = observed.get(key)
            expect = effective if satisfied(operator, value, effective) else value
            expect = _frozen(view, key, expect)
        out.append(Wanted(key, operator, value, expect))
    return out


def _restores(view: NodeView) -> list[Restore]:
    observed = _observed(view)
    if not view.is_revert:
        changes = [c for c in view.changes.items if c.kind == ChangeKind.RESTORE]
        return [Restore(c.key, c.value, c.expect) for c in changes]  # the original that was approved, not another one
    kept = {key for key, *_ in view.target.settings}
    return [
        Restore(key, view.originals[key], _frozen(view, key, _overwritable(view, key, observed.get(key))))
        for key, *_ in view.before.settings
        if key not in kept and key in view.originals
    ]


def _frozen(view: NodeView, key: str, otherwise: str | None) -> str | None:
    return view.step.expects.get(key) if key in view.step.expects else otherwise


_OTHERS = (SettingStatus.DRIFTED, SettingStatus.CONTENDED, SettingStatus.MOVED)
"""What an agent reports of a key whose value Setpoint did not write."""


def _overwritable(view: NodeView, key: str, effective: str | None) -> str | None:
    """The value a revert may overwrite: what this rollout left there.

    A value that the kernel clamped, or that was refused, is this rollout's own doing and may be put back. One that
    drifted afterwards is another party's: then the written value is given, and the agent reports Moved.
    """
    reports = view.tuning.status.get("settings", ()) if view.tuning else ()
    report = next((r for r in reports if r.get("key") == key), None)
    if report is None or report.get("state") not in _OTHERS:
        return effective
    left = next(((op, value) for k, op, value, _ in view.before.settings if k == key), None)
    if left and left[0] != Operator.EQUALS and satisfied(*left, effective):
        return effective
    return report.get("written") or (left[1] if left else effective)
