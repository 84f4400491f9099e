"""The long part of a component's step, or of policy objects': a task of its own, while a thread keeps the claim.

A killed worker loses a lease; the next attempt looks at what is there first, and mends what it finds (law 6).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from datetime import timedelta
from types import TracebackType
from uuid import UUID

from django.conf import settings
from django.db import Error, close_old_connections, connections
from django.db.models import Min

from clusters.fleet import CredentialsRefused, FleetError, Forbidden
from common.clock import now
from common.errors import Refusal
from components.helm.errors import HelmError, HelmUnauthorized, HelmWaits, Stopped
from jobs.diffs import cluster_scope
from jobs.engine import claims, commit, deadlines, preconditions, windows
from jobs.engine.failure import fail
from jobs.engine.outcome import StepOutcome, go, wait
from jobs.engine.stages import component_stages
from jobs.engine.stages.component_stages import ComponentView
from jobs.forecast.strategy import Strategy
from jobs.models import Rollout, Step

log = logging.getLogger(__name__)
Status = Step.Status

LINES = 40
"""Of helm's output that the row keeps; a page shows no more."""
LINE_CHARACTERS = 300
LATE, SOON = timedelta(seconds=1), timedelta(seconds=2)
"""Around the moment of a look: what a slice takes; and what is worth waiting for, rather than for the next sweep."""
SHOWS_EVERY_SECONDS = 2.0
"""How often helm's output reaches the page."""


def due_steps(rollout_id: UUID, *, kind: str = "") -> list[UUID]:
    """Return the steps of a rollout that a worker should begin or resume now."""
    rows = claims.due_for_helm(now()).filter(rollout=rollout_id, **({"kind": kind} if kind else {}))
    return list(rows.order_by("position").values_list("pk", flat=True))


def seconds_to_next_check(rollout_id: UUID) -> float | None:
    """Return the seconds until the next readiness check that is soon; None: no step waits, or the sweep will do."""
    at = now()
    waiting = Step.objects.of_components().filter(rollout=rollout_id, status=Status.VERIFYING, claim="")
    # One that was due just now and was not looked at: the slice took that long. Longer ago, something keeps it.
    near = waiting.filter(not_before__gt=at - LATE, not_before__lt=at + SOON)
    first = near.aggregate(first=Min("not_before"))["first"]
    return None if first is None else max(0.0, (first - at).total_seconds())


def carry_out(step_id: UUID) -> UUID | None:
    """Carry one out, to its end or its deadline. Returns the rollout to wake; None: not its turn.

    Runs for minutes and holds no transaction. What it may do was judged when the step began; here once more, since it
    may have waited long.
    """
    token, step = claims.claim_for_helm(step_id)
    if step is None:
        return None
    try:
        strategy = Strategy.from_json(step.rollout.plan.strategy)
        view = component_stages.views(step.rollout, [step], strategy, step.lease_until or now())[0]
        view.unfit = view.unfit or preconditions.altered_reason(step.rollout)
        gate = windows.StartGate(step.rollout)
        view.freeze = preconditions.freeze_reason(step.rollout, gate.opening) or gate.refusal(step)
        out, waited_for = component_stages.guard(view), step.waiting_for
        if out is None and claims.begin_helm(step, token, strategy):
            out = _run(view, token, waited_for)
        if out is not None:
            commit.commit(token, [(step, out)], strategy=strategy)
    finally:
        claims.release(token)
    return step.rollout_id


def _run(view: ComponentView, token: str, waited_for: str) -> StepOutcome:
    """One run of helm, or through the objects, with every way it can fail translated."""
    step = view.step
    assert step.deadline_at is not None
    left = min((step.deadline_at - now()).total_seconds(), commit.helm_seconds(view.strategy))
    with ClaimRenewal(step, token) as renewal:
        try:
            cluster_scope.carry_out(
                view.cluster,
                view.prepared,
                direction=step.direction,
                deadline=time.monotonic() + left,
                stop=renewal.is_over,
                tell=renewal.tell,
            )
            out = go(Status.VERIFYING, waiting_for="Waiting until it is ready.", looks=0).says(view.words.ended)
        except Stopped:
            out = wait(f"{view.words.stopped} {renewal.why or 'on request'}.")
        except HelmWaits as error:
            out = wait(str(error), again_in=component_stages.LOOK_SECONDS)
        except Forbidden as error:
            out = deadlines.after_refused_call(view, error, waited_for=waited_for)
        except (CredentialsRefused, HelmUnauthorized) as error:
            out = deadlines.after_failed_call(step, error)
        except (HelmError, FleetError) as error:
            message = str(error) or type(error).__name__
            if error.is_final:
                out = fail(view, message)
            else:
                out = wait(message, again_in=deadlines.backoff(step, now())).says(
                    f"{view.words.again} {message}", "warn"
                )
        except Refusal as error:
            out = fail(view, str(error))
    out = out if out.to else deadlines.within_deadline(view, out)
    out.fields["output"] = renewal.lines()
    return out


class ClaimRenewal:
    """Keeps one step's claim while helm runs, in a thread, and ends helm once the claim is lost or the step turned."""

    def __init__(self, step: Step, token: str) -> None:
        self._step, self._token = step, token
        self._until = step.lease_until or now()
        self._said: deque[str] = deque(step.output, maxlen=LINES)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"renew-{step.component}", daemon=True)
        self.why = ""
        """Why helm must end, as a clause; empty while it may continue."""

    def __enter__(self) -> ClaimRenewal:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(settings.SETPOINT_CALL_TIMEOUT_SECONDS)

    def is_over(self) -> bool:
        return bool(self.why)

    def tell(self, line: str) -> None:
        """Called by the thread that reads helm's output; it reaches the page with the next renewal."""
        if text := line.strip()[:LINE_CHARACTERS]:
            self._said.append(text)

    def lines(self) -> list[str]:
        return list(self._said)

    def beat(self) -> None:
        """Renew once. Reads and writes the database."""
        until = now() + timedelta(seconds=settings.SETPOINT_LEASE_SECONDS)
        try:
            if not claims.renew(self._step, self._token, until, self.lines()):
                self.why = "another worker took its place"
                return
            self._until = until
            aborted = Rollout.objects.filter(pk=self._step.rollout_id, status=Rollout.Status.ABORTING)
            if self._step.direction == Step.Direction.FORWARD and aborted.filter(abort_reverts=True).exists():
                self.why = "the rollout was aborted, and in-progress work is reverted"
        except Error as error:  # InterfaceError is no DatabaseError
            log.warning("the lease of step %s could not be renewed: %s", self._step.pk, error)
            close_old_connections()  # what a restarted database leaves answers never again
            if now() >= self._until:
                self.why = "its lease could not be renewed in time"

    def _keep(self) -> None:
        every = min(settings.SETPOINT_LEASE_SECONDS / 3, SHOWS_EVERY_SECONDS)
        try:
            while not self._ended.wait(every):
                self.beat()
        except Exception:
            # Unrenewed, the lease ends and another worker begins: helm must not continue beside it.
            log.exception("the lease of step %s is renewed no more", self._step.pk)
            self.why = "its lease could not be renewed"
        finally:
            connections.close_all()  # this thread's
