"""One function a state: look, perhaps call the cluster once or twice, answer an Outcome. No database here.

Each can run twice or be killed between any two lines: what was written is found again on the next look (law 6).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from clusters import objects
from clusters.fleet import PodRef, Taint
from common.clock import now
from contract import keys, names, quantities
from contract.nodetuning import SettingStatus
from jobs.diffs.changes import ChangeKind
from jobs.diffs.staleness import is_moved
from jobs.engine import node_marks, node_taints, preconditions, spec, withdrawal
from jobs.engine.event_log import clock_time
from jobs.engine.failure import fail, hold, node_gone, success_status
from jobs.engine.outcome import NodeView, StepOutcome, go, wait
from jobs.forecast import findings
from jobs.models import Step

Status = Step.Status

POLL_SECONDS = 3.0
"""How soon a drain looks again at pods that are ending or blocked; the Eviction API has no watch."""


def begin(view: NodeView) -> StepOutcome:
    """Queued: is this still what was approved (law 2), and can the node be asked?"""
    if unfit := _cannot_start(view):
        return unfit
    if view.worst.takes_slot:
        return go(Status.ADMITTED).says("Slot taken.")
    return go(Status.APPLYING, boot_id=view.node.boot_id, has_applied=True)


def _cannot_start(view: NodeView) -> StepOutcome | None:
    node, tuning = view.node, view.tuning
    if node.gone_at is not None:
        return node_gone(view, f"Node {node.name} with UID {node.uid[:8]} was deleted or replaced since the plan.")
    if tuning is None or tuning.protocol == 0:
        return wait("No agent has answered on this node yet.", again_in=POLL_SECONDS)
    skew = tuning.protocol - names.PROTOCOL
    if abs(skew) > names.MAX_SKEW:
        which = "the control plane" if skew > 0 else "the agent"
        return hold(
            view, f"Agent protocol {tuning.protocol} and ours, {names.PROTOCOL}, are too far apart: upgrade {which}."
        )
    if view.silent_since:
        return wait(f"Agent silent since {view.silent_since:%H:%M:%S} UTC.", again_in=POLL_SECONDS)
    if node.is_driver_busy:
        return wait(f"An operator upgrades the driver of {node.name} ({node.driver_upgrade}).", again_in=POLL_SECONDS)
    if not view.is_revert:
        # A revert is how an ill node gets well, so it passes this gate; never the budget's.
        if not node.is_ready and not view.strategy.include_unavailable:
            return wait(
                f"{node.name} is not Ready: {node.ready_reason or 'the kubelet is silent'}.", again_in=POLL_SECONDS
            )
        if node.is_cordoned and not view.strategy.include_unavailable and node.cordoned_by != view.owner:
            return wait(f"{node.name} is cordoned by another party.", again_in=POLL_SECONDS)
        if not view.step.has_applied and not objects.selects(view.selector, node.labels):
            left = f"{node.name} left the pool since the plan: its labels are not those that the plan is about."
            return hold(view, f"{left} Skip it, or label it as it was and retry.")
        if moved := _moved(view):
            return hold(view, moved)
    if moved := _taint_moved(view):
        return hold(view, moved)
    return None


def _taint_moved(view: NodeView) -> str:
    """The first planned taint that is neither as the plan saw it nor as it wants it, whichever way the step goes."""
    there = {(t["key"], t["effect"]): t["value"] for t in view.node.taints}
    for change in view.changes.items:
        if change.kind == ChangeKind.TAINT:
            key, _, effect = change.key.rpartition(":")
            present = there.get((key, effect))
            if present not in (change.expect, change.value):
                return f"The taint {change.key} moved: it is {present if present is not None else 'absent'} now."
    return ""


def _moved(view: NodeView) -> str:
    """The first planned key with neither its before- nor its after-value."""
    assert view.tuning is not None
    for change in view.changes.settings():
        effective = view.tuning.observed.get(change.key)
        if is_moved(change, effective):
            return (
                f"{change.key} moved: it was {change.expect or 'absent'} in the plan and is {effective or 'absent'} "
                "now. Plan again."
            )
    return ""


def admitted(view: NodeView) -> StepOutcome:
    return go(Status.CORDONING, boot_id=view.step.boot_id or view.node.boot_id)


def cordoning(view: NodeView) -> StepOutcome:
    """Cordon, unless the node was cordoned before: then the cordon stays another's (law 5)."""
    after, begins = (Status.DRAINING, {}) if view.worst.drains else (Status.APPLYING, {"has_applied": True})
    view.before_write()
    # Another step of this installation can only have rested: its slot on this node came over, and its cordon does, too.
    ours = view.owner.rpartition("/")[0] + "/"
    node = view.fleet.cordon(view.step.node_name, view.step.node_uid, view.owner, instead_of=ours)
    if objects.cordon_owner(node) != view.owner:
        out = go(after, was_cordoned=True, is_ours_to_uncordon=False, **begins)
        return _with_node(out.says("Already cordoned by others; it stays theirs."), node)
    return _with_node(go(after, is_ours_to_uncordon=True, was_cordoned=False, **begins).says("Cordoned."), node)


def draining(view: NodeView) -> StepOutcome:
    """Evict what may be evicted, wait for the rest; PodDisruptionBudgets decide, never we."""
    pods = [
        p for p in view.fleet.pods_on(view.step.node_name) if not objects.stays(p) and node_taints.is_drained(view, p)
    ]
    if not pods:
        return go(Status.APPLYING, has_applied=True).says("Drained.")
    if refused := _without_consent(view, pods):
        return hold(view, refused)
    leaving = [p for p in pods if not objects.meta(p).get("deletionTimestamp")]
    if leaving and not view.step.is_disrupted:
        budgets = view.fleet.budgets()
        if not all(findings.blocking_budgets(p, budgets) for p in leaving):
            # Committed before the first eviction, so that a kill in between cannot make it look untouched (law 14).
            return StepOutcome(fields={"is_disrupted": True}, waits_for="Evicting pods.", again_in=0.001)
    blocked: list[str] = []
    pause = POLL_SECONDS
    evicted = 0
    for pod in leaving:
        view.before_write()
        meta = objects.meta(pod)
        answer = view.fleet.evict(PodRef(meta["namespace"], meta["name"], meta["uid"]))
        evicted += answer.outcome == "evicted"
        if answer.outcome == "blocked":
            blocked.append(f"{answer.budget or 'a PodDisruptionBudget'} for {meta['namespace']}/{meta['name']}")
        if answer.outcome == "throttled":
            pause = max(pause, answer.retry_after)
            break
    if blocked:
        left = f"{_pods(len(pods))} left on {view.step.node_name}"
        text = f"The PodDisruptionBudget {blocked[0]} allows no disruption; {left}."
    else:
        text = f"{_pods(len(pods))} on {view.step.node_name} {'is' if len(pods) == 1 else 'are'} ending."
    out = wait(text, again_in=pause)
    if evicted:
        out.fields["is_disrupted"] = True
        out.says(f"Evicted {_pods(evicted)}, {len(pods)} on the node.")
    return out


def _pods(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"


def _without_consent(view: NodeView, pods: list[dict[str, object]]) -> str:
    """Consent covers what the plan showed; a bare pod that came later needs it just the same."""
    for pod in pods:
        name = f"{objects.meta(pod).get('namespace')}/{objects.meta(pod).get('name')}"
        if not objects.controller(pod)[0] and not view.strategy.delete_unmanaged_pods:
            return f"Pod {name} has no controller and would be lost; the plan has no consent for that."
        if objects.has_empty_dir(pod) and not view.strategy.delete_empty_dir_data:
            return f"Pod {name} has an emptyDir volume whose data would be lost; the plan has no consent for that."
    return ""


def applying(view: NodeView) -> StepOutcome:
    """Labels, annotations and taints, then the spec. Originals are in the database since the move into this state."""
    node = None
    labels, annotations = dict(view.target.labels), dict(view.target.annotations)
    if pods := node_taints.unplanned_evictions(view):
        return hold(view, pods)
    if moved := node_marks.write_labels(view):
        return hold(view, moved)
    if labels or annotations or view.before.labels or view.before.annotations:
        view.before_write()
        node = view.fleet.decorate(view.step.node_name, view.step.node_uid, labels=labels, annotations=annotations)
    add, remove = _taints(view)
    if add or remove:
        view.before_write()
        node = view.fleet.taint(view.step.node_name, view.step.node_uid, add=add, remove=remove)
    view.before_write()
    raw = view.fleet.tune(view.step.node_name, spec.build(view))
    generation = int(objects.meta(raw).get("generation") or 0)
    after = Status.RESTARTING if view.worst.restart else Status.VERIFYING
    out = go(after, generation=generation, has_applied=True)
    if view.worst.takes_slot:
        out.fields["is_disrupted"] = True
    out.raw_tuning = raw
    return _with_node(out, node) if node else out


def _taints(view: NodeView) -> tuple[list[Taint], list[Taint]]:
    add, remove = [], []
    for change in view.changes.items:
        if change.kind != ChangeKind.TAINT:
            continue
        key, _, effect = change.key.rpartition(":")
        value = change.expect if view.is_revert else change.value
        if value is None:
            remove.append(Taint(key, "", effect))
        else:
            add.append(Taint(key, value, effect))
    return add, remove


def restarting(view: NodeView) -> StepOutcome:
    """Once the agent has written everything, grant the restart that the plan names, and wait for its end."""
    step, node, tuning = view.step, view.node, view.tuning
    grant = f"{step.pk}.{step.attempt}"
    report = (tuning.status.get("restart") or {}) if tuning else {}
    if rebooted := _rebooted(view):
        return _granted_before(view, grant) or rebooted
    if step.granted_at is None and (why := node_marks.failed_program(view)):
        return fail(view, why)
    if step.granted_at is None and (busy := node_marks.pending_program(view)):
        return wait(busy, again_in=POLL_SECONDS)
    if step.granted_at is None and report.get("id") == grant:
        return _granted_before(view, grant) or wait("Waiting for the agent to write the settings.")
    answers = _answers(view)
    if tuning is None or not (answers or step.granted_at):
        return wait(_unanswered(view, "Waiting for the agent to write the settings."))
    if answers and (bad := _refused(view, (SettingStatus.PENDING_RESTART,))):
        return bad
    if step.granted_at is None:
        if not _needs_restart(view):
            return go(Status.VERIFYING).says("Effective without a restart.")
        view.before_write()
        fields = _granted(view)
        raw = view.fleet.tune(
            step.node_name, spec.build(view, restart=spec.restart_grant(view, str(fields["boot_id"])))
        )
        out = StepOutcome(waits_for=f"Granted one {view.worst.restart} restart.", fields=fields)
        out.fields["generation"] = int(objects.meta(raw).get("generation") or 0)
        out.raw_tuning = raw
        return out.says(f"Granted {view.worst.restart} of boot {str(fields['boot_id'])[:8]}.")
    if report.get("id") == grant and report.get("state") == "Refused":
        return fail(view, f"The agent refused the restart: {report.get('reason') or 'no reason given'}.")
    is_taken = report.get("id") == grant
    if view.worst.restart == "reboot":
        if node.boot_id == step.boot_id:
            return _going_down(view, is_taken=is_taken)
        if not answers or tuning.status.get("bootID") == step.boot_id:
            return wait(f"{node.name} has booted (boot {node.boot_id[:8]}); waiting for its agent to answer.")
        return _back(view, f"Booted, boot {node.boot_id[:8]}, kernel {node.kernel}.")
    if not is_taken or report.get("state") != "Done":
        return wait(_asked_of_agent(view, "grant", "restart the kubelet", step.deadline_at, is_taken=is_taken))
    return _back(view, "kubelet restarted.")


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
    asked = view.fleet.tuning(view.step.node_name).get("spec") or {}
    if (asked.get("restart") or {}).get("id") != grant:
        return None
    return StepOutcome(waits_for="The restart was granted.", again_in=0.001, fields=_granted(view))


def _back(view: NodeView, text: str) -> StepOutcome:
    if not view.node.is_ready:
        return wait(f"{view.node.name} is back, waiting for it to be Ready.")
    return go(Status.VERIFYING).says(text)


def _needs_restart(view: NodeView) -> bool:
    assert view.tuning is not None
    return any(s.get("state") == SettingStatus.PENDING_RESTART for s in view.tuning.status.get("settings", ())) or any(
        c.apply_class == view.worst.value for c in view.changes.items
    )


def verifying(view: NodeView) -> StepOutcome:
    """Success is the kernel's own answer (law 8)."""
    if rebooted := _rebooted(view):
        return rebooted
    if not _answers(view):
        return wait(_unanswered(view, "Waiting for the agent to read the values back from the kernel."))
    if bad := _refused(view, ()):
        return bad
    if why := node_marks.failed_program(view):
        return fail(view, why)
    if otherwise := _restored_otherwise(view):
        return hold(view, otherwise)
    if waiting := _not_yet(view):
        return wait(waiting)
    if waiting := node_marks.pending_program(view):
        return wait(waiting, again_in=POLL_SECONDS)
    return go(Status.RETURNING) if view.worst.takes_slot else go(success_status(view))


def _answers(view: NodeView) -> bool:
    """Return whether the agent's status is about this attempt and this generation of spec."""
    status = view.tuning.status if view.tuning else {}
    return (
        status.get("step") == str(view.step.pk)
        and status.get("attempt") == view.step.attempt
        and view.tuning is not None
        and view.tuning.observed_generation >= view.step.generation
    )


def _unanswered(view: NodeView, otherwise: str) -> str:
    """Explain that the agent's answer cannot be read, which is not the same as no answer; else return `otherwise`."""
    malformed = view.tuning.malformed if view.tuning else ""
    return f"The agent's answer cannot be read: {malformed}." if malformed else otherwise


def _refused(view: NodeView, tolerated: tuple[str, ...]) -> StepOutcome | None:
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


def _not_yet(view: NodeView) -> str:
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
        effective = reports.get(restore.key, {}).get("effective", view.tuning.observed.get(restore.key))
        if not keys.is_restored(restore.key, restore.original, effective):
            return f"{restore.key} is {effective or 'absent'}, its original is {restore.original or 'absent'}."
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
                f"{restore.key} was to go back to {restore.original or 'absent'}, as approved, and its agent calls "
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


def _rebooted(view: NodeView) -> StepOutcome | None:
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


def returning(view: NodeView) -> StepOutcome:
    """Release what is ours, keep what is others', and give the slot back once the node is seen schedulable."""
    node = view.fleet.node(view.step.node_name)
    if lost := _identity(view, node):
        return lost
    if waits := withdrawal.withdraw_before_return(view):
        return waits
    out = _after_return(view)
    out.frees_slot = True
    if objects.cordon_owner(node) == view.owner:
        was_cordoned = objects.is_cordoned(node)
        view.before_write()
        # Also where somebody uncordoned it: a mark that outlives its cordon would make the next person's ours.
        node = view.fleet.uncordon(view.step.node_name, view.step.node_uid, view.owner)
        if objects.is_cordoned(node):
            return _with_node(out.says("Kept cordoned on request: Setpoint no longer owns the cordon."), node)
        if was_cordoned:
            out.says("Uncordoned.")
    if objects.is_cordoned(node):
        return _with_node(out.says("Stays cordoned: that cordon is not Setpoint's."), node)
    if not view.step.ending and not objects.is_ready(node):
        return _with_node(wait(f"{view.node.name} is not Ready yet.", again_in=POLL_SECONDS), node)
    return _with_node(out, node)


def _after_return(view: NodeView) -> StepOutcome:
    free = {"is_ours_to_uncordon": False, "is_disrupted": False}  # the next attempt begins with an untouched node
    if view.step.ending:
        return go(view.step.ending, ending="", **free)
    if view.strategy.soak_seconds and not view.is_revert:
        return go(Status.SOAKING, **free)
    return go(success_status(view), **free)


def soaking(view: NodeView) -> StepOutcome:
    """The node must stay well for a while before the next batch starts."""
    if not view.node.is_ready:
        return fail(view, f"{view.node.name} became not Ready while soaking: {view.node.ready_reason}.")
    if bad := _refused(view, ()):
        return bad
    left = view.strategy.soak_seconds - (now() - view.step.entered_at).total_seconds()
    if left > 0:
        # Looked at whenever the node changes: one that is ill for a while in between is what soaking is there to see.
        end = clock_time(view.step.entered_at + timedelta(seconds=view.strategy.soak_seconds))
        return wait(f"Soaking {view.node.name} until {end}.")
    return go(success_status(view))


def _identity(view: NodeView, node: dict[str, object]) -> StepOutcome | None:
    uid = objects.meta(node).get("uid")
    if uid != view.step.node_uid:
        return node_gone(view, f"{view.step.node_name} has UID {str(uid)[:8]} now: another node under the same name.")
    return None


def _with_node(out: StepOutcome, node: dict[str, object]) -> StepOutcome:
    out.raw_node = node
    return out


JUDGED = (Status.QUEUED, *preconditions.WRITES, Status.VERIFYING)
"""States in which what was approved must still stand."""


def guard(view: NodeView) -> StepOutcome | None:
    """Handle what can happen to a node in any active stage: deleted, replaced, or uncordoned by others."""
    step, node = view.step, view.node
    if node.gone_at is not None:
        return node_gone(view, f"{node.name} was deleted or replaced while {step.status}.")
    if step.status in JUDGED and (unfit := view.unfit or preconditions.altered_step_reason(view)):
        return hold(view, unfit)
    if stays := preconditions.return_to_queue(view):
        return stays
    holds = step.is_ours_to_uncordon and step.status in (
        Status.DRAINING,
        Status.APPLYING,
        Status.RESTARTING,
        Status.VERIFYING,
    )
    if not holds or node.is_cordoned:
        return None
    fresh = view.fleet.node(step.node_name)
    if lost := _identity(view, fresh):
        return lost
    if objects.is_cordoned(fresh):
        return None
    if step.recordoned:
        if objects.cordon_owner(fresh) == view.owner:
            view.before_write()
            fresh = view.fleet.uncordon(step.node_name, step.node_uid, view.owner)  # takes our mark away
        out = hold(view, f"{node.name} was uncordoned twice externally while Setpoint worked on it.")
        out.fields["is_ours_to_uncordon"] = False
        return _with_node(out, fresh)
    view.before_write()
    fresh = view.fleet.cordon(step.node_name, step.node_uid, view.owner)
    ours = objects.cordon_owner(fresh) == view.owner
    out = StepOutcome(
        waits_for="Cordoned again.", again_in=0.001, fields={"recordoned": 1, "is_ours_to_uncordon": ours}
    )
    return _with_node(out.says("The node was uncordoned externally; cordoned again, once.", "warn"), fresh)


STAGES: dict[str, Callable[[NodeView], StepOutcome]] = {
    Status.QUEUED: begin,
    Status.ADMITTED: admitted,
    Status.CORDONING: cordoning,
    Status.DRAINING: draining,
    Status.APPLYING: applying,
    Status.RESTARTING: restarting,
    Status.VERIFYING: verifying,
    Status.RETURNING: returning,
    Status.SOAKING: soaking,
}
