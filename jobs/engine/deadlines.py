"""Deadlines of a step, and times of its retries (law 4)."""

from __future__ import annotations

from datetime import datetime, timedelta

from clusters.fleet import CredentialsRefused, FleetError, Forbidden
from common.clock import now
from components.helm.errors import HelmError, HelmUnauthorized
from jobs.engine import commit
from jobs.engine.failure import fail, hold
from jobs.engine.outcome import NodeView, StepOutcome, StepView, wait
from jobs.models import Step

Status = Step.Status

FORBIDDEN_SECONDS = 10.0
"""A judgment: kube-apiserver 1.35 serves for parts of a second before it has read its roles."""


REFUSED = "The API server refuses Setpoint's credentials; replace them, and this continues by itself"
"""Before the API server's own words, on the page of the rollout that waits for it."""


def within_deadline(view: StepView, out: StepOutcome) -> StepOutcome:
    """Let the step wait on, unless its deadline is over (law 4). A queued step's time begins with its turn."""
    step = view.step
    if out.is_patient:
        return _renewed(view, out)
    if step.status == Status.QUEUED and not step.waiting_for:
        out.fields["deadline_at"] = commit.deadline_for(step, view.strategy)
        return out
    if step.deadline_at is None or now() < step.deadline_at:
        return out
    last = out.waits_for or step.waiting_for or "no answer"
    why = f"Gave up after {_minutes(step.entered_at)}: {last}{_unready(view, last)}"
    return hold(view, why) if view.step.status in (Status.DRAINING, Status.QUEUED) else fail(view, why)


def _unready(view: StepView, last: str) -> str:
    """Explain what keeps an agent or a kubelet from answering, where it is known and `last` does not say it."""
    if not isinstance(view, NodeView) or view.node.is_ready:
        return ""
    why = view.node.ready_reason or "its kubelet is silent"
    return "" if why in last else f" {view.node.name} is not Ready: {why}."


def _renewed(view: StepView, out: StepOutcome) -> StepOutcome:
    """Restart the step's own deadline, as what it waits for has one; written down only now and then."""
    step = view.step
    whole = commit.deadline_for(step, view.strategy)
    if step.deadline_at is None or whole is None or step.deadline_at - now() < (whole - now()) / 2:
        out.fields["deadline_at"] = whole
    return out


def _minutes(since: datetime) -> str:
    seconds = int((now() - since).total_seconds())
    return f"{seconds // 60} min {seconds % 60} s" if seconds >= 60 else f"{seconds} s"


def backoff(step: Step, at: datetime) -> float:
    """Seconds until the next try: as long as it has waited already, from 1 s to 60 s, so that tries thin out."""
    return min(60.0, max(1.0, (at - step.entered_at) / timedelta(seconds=1)))


def after_failed_call(step: Step, error: FleetError | HelmError) -> StepOutcome:
    """The API server did not carry it out, and may later: the step waits, with what it waits for.

    Refused credentials are a person's to replace, and say nothing about the node: a step's own time does not run out
    over them (law 4 holds by the alert and the page, which name them).
    """
    again_in = backoff(step, now())
    if isinstance(error, CredentialsRefused | HelmUnauthorized):
        return wait(f"{REFUSED}: {error}", again_in=again_in, is_patient=True)
    return wait(f"The API server does not answer: {error}", again_in=again_in)


def after_refused_call(view: StepView, error: Forbidden, *, waited_for: str) -> StepOutcome:
    """A missing right counts once it is heard twice, FORBIDDEN_SECONDS apart; `waited_for` is what the step says.

    An API server that was started a moment ago forbids what it permits as soon as it has read its roles, and behind a
    load balancer it may be one of several.
    """
    message = f"The API server refused: {error}"
    return fail(view, message) if waited_for == message[:500] else wait(message, again_in=FORBIDDEN_SECONDS)


def poll_seconds(step: Step, at: datetime, *, most: float) -> float:
    """Seconds until the next look: a quarter of what it has taken, so that looking often costs a quarter more time at
    the most, from 0.25 s up."""
    return min(most, max(0.25, (at - step.entered_at) / timedelta(seconds=4)))
