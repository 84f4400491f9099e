"""Restart of a node or its kubelet: granted once, carried out by the node's agent, and waited for."""

from __future__ import annotations

from datetime import datetime, timedelta

from clusters import objects
from common.clock import now
from contract.nodetuning import SettingStatus
from jobs.engine import spec
from jobs.engine.event_log import clock_time
from jobs.engine.failure import fail
from jobs.engine.outcome import POLL_SECONDS, NodeView, StepOutcome, go, wait
from jobs.engine.stages import node_marks
from jobs.engine.stages.agent_report import awaited_report, is_about_attempt, refusal, refusal_to_work
from jobs.models import Step

Status = Step.Status


def restarting(view: NodeView) -> StepOutcome:
    """Once the agent has written everything, grant the restart that the plan names, and wait for its end."""
    step, node, tuning = view.step, view.node, view.tuning
    grant = f"{step.pk}.{step.attempt}"
    report = (tuning.status.get("restart") or {}) if tuning else {}
    if rebooted := unasked_reboot(view):
        return _granted_before(view, grant) or rebooted
    if step.granted_at is None and (why := node_marks.failed_program(view)):
        return fail(view, why)
    if step.granted_at is None and (busy := node_marks.pending_program(view)):
        return wait(busy, again_in=POLL_SECONDS)
    if step.granted_at is None and report.get("id") == grant:
        return _granted_before(view, grant) or wait("Waiting for the agent to write the settings.")
    answers = is_about_attempt(view)
    if tuning is None or not (answers or step.granted_at):
        return wait(awaited_report(view, "Waiting for the agent to write the settings."))
    if answers and (bad := refusal(view, (SettingStatus.PENDING_RESTART,))):
        return bad
    if step.granted_at is None and (why := refusal_to_work(view)):
        return wait(why)
    if step.granted_at is None:
        if not _needs_restart(view):
            return go(Status.VERIFYING).says("Effective without a restart.")
        view.before_write()
        fields = _granted(view)
        raw = view.fleet.tune(
            step.node_name, spec.build(view, restart=spec.restart_grant(view, str(fields["boot_id"])))
        )
        out = StepOutcome(waits_for=f"Granted one {view.restart} restart.", fields=fields)
        out.fields["generation"] = int(objects.meta(raw).get("generation") or 0)
        out.raw_tuning = raw
        return out.says(f"Granted {view.restart} of boot {str(fields['boot_id'])[:8]}.")
    if report.get("id") == grant and report.get("state") == "Refused":
        return fail(view, f"The agent refused the restart: {report.get('reason') or 'no reason given'}.")
    is_taken = report.get("id") == grant
    if view.restart == "reboot":
        if node.boot_id == step.boot_id:
            return _going_down(view, is_taken=is_taken)
        if not answers or tuning.status.get("bootID") == step.boot_id:
            return wait(f"{node.name} has booted (boot {node.boot_id[:8]}); waiting for its agent to answer.")
        return _after_restart(view, f"Booted, boot {node.boot_id[:8]}, kernel {node.kernel}.")
    services = "containerd and the kubelet" if view.restart == "containerd" else "the kubelet"
    if not is_taken or report.get("state") != "Done":
        return wait(_asked_of_agent(view, "grant", f"restart {services}", step.deadline_at, is_taken=is_taken))
    return _after_restart(view, f"Restarted {services}.")


def _going_down(view: NodeView, *, is_taken: bool) -> StepOutcome:
    """The granted boot is still the one last seen: on its way down, or stuck (law 4).

    Going down has the time of any other stage; only the boot itself takes as long as a reboot may.
    """
    step, node = view.step, view.node
    assert step.granted_at is not None
    if not node.is_ready:
        until = step.deadline_at  # when it is over, the step ends with this sentence
        end = f", which may take until {clock_time(until)}" if until and now() < until else ""
        return wait(f"{node.name} is down for its reboot{end}: {node.ready_reason or 'its kubelet is silent'}.")
    down_by = step.granted_at + timedelta(seconds=view.strategy.step_deadline_seconds)
    if now() >= down_by:
        did = "took the reboot grant" if is_taken else "did not take the reboot grant"
        return fail(view, f"The agent {did} of {clock_time(step.granted_at)}, and {node.name} did not go down.")
    return wait(_asked_of_agent(view, "reboot grant", "go down", down_by, is_taken=is_taken))


def _asked_of_agent(view: NodeView, grant: str, what: str, until: datetime | None, *, is_taken: bool) -> str:
    """Explain what the agent has to do by then; when that time is over, what it did not do."""
    end = f" until {clock_time(until)}" if until else ""
    name = view.node.name
    if until and until <= now():
        did = f"took the {grant} and did not {what}" if is_taken else f"did not take the {grant}"
        return f"The agent of {name} {did}."
    if is_taken:
        return f"The agent of {name} took the {grant} and has{end} to {what}."
    return f"Waiting{end} for the agent of {name} to take the {grant} and {what}."


def _granted(view: NodeView) -> dict[str, object]:
    """A grant is for the boot that the step began in, never for one that came since."""
    return {"granted_at": now(), "boot_id": view.step.boot_id or view.node.boot_id, "is_disrupted": True}


def _granted_before(view: NodeView, grant: str) -> StepOutcome | None:
    """A worker may have been killed between writing a grant and saying so: the object itself knows (law 6)."""
    stored_spec = view.fleet.tuning(view.step.node_name).get("spec") or {}
    if (stored_spec.get("restart") or {}).get("id") != grant:
        return None
    return StepOutcome(waits_for="The restart was granted.", again_in=0.001, fields=_granted(view))


def _after_restart(view: NodeView, text: str) -> StepOutcome:
    if not view.node.is_ready:
        return wait(f"{view.node.name} is back, waiting for it to be Ready.")
    return go(Status.VERIFYING).says(text)


def _needs_restart(view: NodeView) -> bool:
    """Return whether the agent waits for a restart, or the plan named one.

    A revert goes by the agent alone: an argument that no boot has had is gone without one.
    """
    assert view.tuning is not None
    settings = view.tuning.status.get("settings", ())
    if any(s.get("state") == SettingStatus.PENDING_RESTART for s in settings):
        return True
    return not view.is_revert and any(c.restart == view.restart for c in view.changes.items)


def unasked_reboot(view: NodeView) -> StepOutcome | None:
    if view.step.boot_id and view.node.boot_id != view.step.boot_id and not view.step.granted_at:
        if program := node_marks.rebooting_program(view):
            text = f"{program} rebooted {view.node.name}: boot {view.node.boot_id[:8]}."
            return StepOutcome(waits_for=text, again_in=0.001, fields={"boot_id": view.node.boot_id}).says(text)
        return fail(
            view,
            f"{view.node.name} was rebooted meanwhile, not by Setpoint: boot {view.step.boot_id[:8]} became "
            f"{view.node.boot_id[:8]}.",
        )
    return None
