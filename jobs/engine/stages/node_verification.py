"""Verification of a node's step: success is the kernel's own answer (law 8)."""

from __future__ import annotations

from contract import keys, quantities
from contract.nodetuning import SettingStatus
from jobs.engine import spec
from jobs.engine.failure import fail, hold, success_status
from jobs.engine.outcome import POLL_SECONDS, NodeView, StepOutcome, go, wait
from jobs.engine.stages import node_marks
from jobs.engine.stages.agent_report import awaited_report, is_about_attempt, refusal, refusal_to_work
from jobs.engine.stages.node_restart import unasked_reboot
from jobs.models import Step

Status = Step.Status


def verifying(view: NodeView) -> StepOutcome:
    """Success is the kernel's own answer (law 8)."""
    if rebooted := unasked_reboot(view):
        return rebooted
    if not is_about_attempt(view):
        return wait(awaited_report(view, "Waiting for the agent to read the values back from the kernel."))
    if bad := refusal(view, ()):
        return bad
    if why := node_marks.failed_program(view):
        return fail(view, why)
    if otherwise := _restored_otherwise(view):
        return hold(view, otherwise)
    if waiting := refusal_to_work(view) or not_yet(view):
        return wait(waiting)
    if waiting := node_marks.pending_program(view):
        return wait(waiting, again_in=POLL_SECONDS)
    return go(Status.RETURNING) if view.worst.takes_slot else go(success_status(view))


def not_yet(view: NodeView) -> str:
    """Explain, in a sentence, what is still missing; empty when everything wanted is effective."""
    assert view.tuning is not None
    reports = {s.get("key"): s for s in view.tuning.status.get("settings", ())}
    for key, operator, value, _ in view.target.settings:
        if key in view.changes.unsupported:
            continue
        effective = reports.get(key, {}).get("effective", view.tuning.observed.get(key))
        if not keys.satisfied(operator, value, effective):
            return f"{key} is {effective or 'absent'}, wanted {operator} {value}."
        if keys.kind_of(key) is keys.KeyKind.HUGEPAGES and (short := _allocatable_short(view, key, value)):
            return short
    for restore in spec.build(view).restore:
        report = reports.get(restore.key, {})
        effective = report.get("effective", view.tuning.observed.get(restore.key))
        if not keys.is_restored(restore.key, restore.original, effective):
            why = f" ({report['reason']})" if report.get("reason") else ""
            return f"{restore.key} is {effective or 'absent'}{why}, its original is {restore.original or 'absent'}."
    for key, value in view.target.labels.items():
        if view.node.labels.get(key) != value:
            return f"Waiting to see the label {key}={value}."
    return ""


def _restored_otherwise(view: NodeView) -> str:
    """The first key that the agent calls restored although the kernel answers another value than the approved one."""
    assert view.tuning is not None
    reports = {s.get("key"): s for s in view.tuning.status.get("settings", ())}
    for restore in spec.build(view).restore:
        report = reports.get(restore.key, {})
        effective = report.get("effective", view.tuning.observed.get(restore.key))
        if report.get("state") == SettingStatus.RESTORED and not keys.is_restored(
            restore.key, restore.original, effective
        ):
            return (
                f"{restore.key} must be restored to {restore.original or 'absent'}, as approved, and its agent calls "
                f"{effective or 'absent'} restored."
            )
    return ""


_BYTES = {"2Mi": 2 << 20, "1Gi": 1 << 30}


def _allocatable_short(view: NodeView, key: str, value: str) -> str:
    """Huge pages count once the kubelet offers them: it reads capacity only at its start (kubernetes issue 111757)."""
    resource = key.partition(".")[0]
    offered = quantities.count(view.node.allocatable.get(resource, "0"))
    if "." in key or view.step.direction == Step.Direction.REVERT:
        return ""
    if offered < int(value) * _BYTES[resource.removeprefix("hugepages-")]:
        return f"The kubelet offers {offered >> 20} MiB of {resource}, wanted {value} pages."
    return ""
