"""Report of a node's agent: whether it is about this attempt of the step, and what it refused."""

from __future__ import annotations

from contract.nodetuning import SettingStatus, reason_not_to_work
from jobs.engine.failure import fail, hold
from jobs.engine.outcome import NodeView, StepOutcome


def is_about_attempt(view: NodeView) -> bool:
    """Return whether the agent's status is about this attempt and this generation of spec."""
    status = view.tuning.status if view.tuning else {}
    return (
        status.get("step") == str(view.step.pk)
        and status.get("attempt") == view.step.attempt
        and view.tuning is not None
        and view.tuning.observed_generation >= view.step.generation
    )


def awaited_report(view: NodeView, otherwise: str) -> str:
    """Explain that the agent's answer cannot be read, which is not the same as no answer; else return `otherwise`."""
    malformed = view.tuning.malformed if view.tuning else ""
    return f"The agent's answer cannot be read: {malformed}." if malformed else otherwise


def refusal_to_work(view: NodeView) -> str:
    """Return the agent's reason for carrying out nothing at all, such as a full disk; empty while it works."""
    return reason_not_to_work(view.tuning.status) if view.tuning else ""


def refusal(view: NodeView, tolerated: tuple[str, ...]) -> StepOutcome | None:
    """Held or failed, by what the agent says of each key."""
    assert view.tuning is not None
    if view.tuning.malformed:
        return fail(view, f"The agent's answer cannot be read: {view.tuning.malformed}.")
    for setting in view.tuning.status.get("settings", ()):
        state, key, reason = setting.get("state"), setting.get("key"), setting.get("reason") or ""
        if state == SettingStatus.MOVED:
            return hold(
                view, f"{key} moved: {reason or 'it is ' + str(setting.get('effective'))}. It is left as it is."
            )
        if state in (SettingStatus.FAILED, SettingStatus.DENIED, SettingStatus.UNSUPPORTED, SettingStatus.CONTENDED):
            return fail(view, f"{key} {state}: {reason or 'the agent gave no reason'}.")
        if state == SettingStatus.NOT_EFFECTIVE and state not in tolerated:
            return fail(view, f"{key}: {reason or 'the kernel answers ' + str(setting.get('effective'))}.")
    return None
