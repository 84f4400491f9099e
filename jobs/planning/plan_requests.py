"""Plans of many nodes: asked for in a request, made by a worker, followed by a page.

A plan of few nodes is made within the request, as ever, and by the same code. The row is the queue: a claim is a
conditional update with a lease, which a thread renews while the plan is made. A worker that is killed costs its lease,
then another begins from the start, for nothing of a plan is stored before all of it is. The move of the request to done
is in the transaction that stores the plan, so a worker that lost its claim stores none.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import Error, IntegrityError, close_old_connections, connections, transaction

from accounts.models import User
from accounts.permissions import require
from clusters.fleet import FleetError
from clusters.models import Pool
from clusters.services.pools import matching
from common.clock import now
from common.errors import LostRace, NotAllowed, Refusal, WrongState
from jobs.diffs.changes import digest
from jobs.forecast.strategy import Strategy
from jobs.models import Plan, PlanRequest
from jobs.planning import planner, repeated
from jobs.planning.repeated import AnsweredRequest
from profiles.models import Revision

log = logging.getLogger(__name__)
Status = PlanRequest.Status

WITHIN_REQUEST = 250
"""Nodes of a pool whose plan is made within the request: at 0.6 ms of CPU a node, where each differs, that is the
150 ms which a page may take, and still a second or two on a machine with ten times as much to do."""
MOST_LIVE = 200
"""Requests of one person that are not done: all pools of a large filter, and no more."""
MOST_ATTEMPTS = 3
"""A plan that ended its workers so often would end the next, too."""
KEPT = timedelta(hours=24)
"""After the end: as long as the answer to an Idempotency-Key, which may lead here."""
NOTED_EVERY_SECONDS = 1.0
"""Progress that the page can show: it asks every two seconds."""


@dataclass(frozen=True, slots=True)
class PendingPlan:
    """The request that a worker carries out, or has carried out."""

    request: PlanRequest
    is_repeated: bool
    """It was there already."""


# ── asked for ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def submit(
    *,
    key: str,
    pool: Pool,
    revision: Revision,
    strategy: Strategy,
    by: User,
    message: str,
    within: int | None = None,
) -> AnsweredRequest | PendingPlan:
    """Make the plan if its pool has at most `within` nodes (None: WITHIN_REQUEST), else queue it: the caller wakes a
    worker.

    The same again, by the same person, leads to the plan or the request that is there: by its key while the plan is
    worth something, and by its content while the plan is being made. Raises what repeated.make_once does; what only
    the comparison can tell is in the request's `error`.
    """
    require(by, "operator", pool.cluster.scopes, doing="make a plan")
    request_key = repeated.key_of(key, pool=pool, revision=revision, strategy=strategy, by=by, message=message)
    if there := repeated.answer_to(request_key):
        return AnsweredRequest(there, is_repeated=True)
    content = digest([by.pk, pool.pk, revision.pk, strategy.to_json(), message])
    if live := _live(content):
        return PendingPlan(live, is_repeated=True)
    count = matching(pool).count()
    if count <= (WITHIN_REQUEST if within is None else within):
        return repeated.make_once(key=key, pool=pool, revision=revision, strategy=strategy, by=by, message=message)
    planner.refuse_unfit(pool)
    if PlanRequest.objects.live().filter(requested_by=by).count() >= MOST_LIVE:
        raise WrongState(f"You already have {MOST_LIVE} plans in preparation. Wait until some are finished.")
    try:
        with transaction.atomic():
            row = PlanRequest.objects.create(
                cluster=pool.cluster,
                pool=pool,
                revision=revision,
                strategy=strategy.to_json(),
                message=message,
                requested_by=by,
                token=by.acting_token,
                content=content,
                request_key=request_key,
                nodes=count,
            )
    except IntegrityError:  # one_live_plan_request: the same came meanwhile
        if live := _live(content):
            return PendingPlan(live, is_repeated=True)
        raise
    return PendingPlan(row, is_repeated=False)


def _live(content: str) -> PlanRequest | None:
    return PlanRequest.objects.live().filter(content=content).first()


# ── carried out ───────────────────────────────────────────────────────────────────────────────────────────────────────
def due_requests(limit: int = 20) -> list[UUID]:
    return list(PlanRequest.objects.due().values_list("pk", flat=True)[:limit])


def carry_out(pk: UUID) -> PlanRequest | None:
    """Make the plan, or store why not. None: it is another worker's, or gone with its pool.

    What is a defect, or a database that is away, is raised; the request is then due again when its lease is over.
    """
    related = ("pool__cluster", "revision__profile", "requested_by", "token")
    row = PlanRequest.objects.due().select_related(*related).filter(pk=pk).first()
    if row is None:
        return None
    lease = now() + timedelta(seconds=settings.SETPOINT_LEASE_SECONDS)
    try:
        row.move(Status.RUNNING, claim=str(uuid4()), lease_until=lease, attempts=row.attempts + 1, phase="", compared=0)
        if row.attempts > MOST_ATTEMPTS:
            ended = f"{MOST_ATTEMPTS} attempts ended without a result. See the workers' logs, then request it again."
            return _fail(row, {"status": 500, "code": "ended", "detail": ended, "fields": {}})
        with _ClaimRenewal(row):
            return _make(row)
    except LostRace:
        return None


def _make(row: PlanRequest) -> PlanRequest:
    """Raises LostRace where the claim is lost."""
    progress = _NotedProgress(row)
    try:
        planner.make(
            pool=row.pool,
            revision=row.revision,
            strategy=Strategy.from_json(row.strategy),
            by=_asker(row),
            message=row.message,
            request_key=row.request_key,
            progress=progress.note,
            stored=lambda plan: _done(row, plan),
        )
    except Refusal as refusal:
        return _fail(
            row,
            {"status": refusal.status, "code": refusal.code, "detail": str(refusal), "fields": refusal.fields},
        )
    except FleetError as error:
        detail = f"The cluster's API server: {error}"
        return _fail(row, {"status": 502, "code": "cluster-unreachable", "detail": detail, "fields": {}})
    except IntegrityError:  # one_plan_a_request: the same request was answered meanwhile
        there = repeated.answer_to(row.request_key)
        if there is None:
            raise
        _done(row, there)
    return row


def _asker(row: PlanRequest) -> User:
    """Return who asked, with no more rights than they had by the token that they acted through. Raises NotAllowed."""
    if not row.is_genuine:
        raise NotAllowed("The request was changed in the database: request the plan again.")
    by = row.requested_by
    if row.token is not None:
        if not row.token.is_live or not row.token.is_genuine:
            raise NotAllowed(f"The token {row.token} expired or was revoked before the plan was made. Use a valid one.")
        by.acting_token = row.token
    return by


def _done(row: PlanRequest, plan: Plan) -> None:
    row.move(Status.DONE, plan=plan, claim="", lease_until=None, finished_at=now())


def _fail(row: PlanRequest, error: dict[str, Any]) -> PlanRequest:
    row.move(Status.FAILED, error=error, claim="", lease_until=None, finished_at=now())
    return row


class _NotedProgress:
    """Progress of one claim in its row, at most once a second and at each new phase."""

    def __init__(self, row: PlanRequest) -> None:
        self._row, self._phase, self._next = row, "", 0.0

    def note(self, phase: str, done: int, total: int) -> None:
        """Raises LostRace: another worker has it, or it was deleted."""
        if phase == self._phase and time.monotonic() < self._next:
            return
        self._phase, self._next = phase, time.monotonic() + NOTED_EVERY_SECONDS
        _renew(self._row, phase=phase, compared=done, nodes=total)


def _renew(row: PlanRequest, **fields: Any) -> None:
    """Renew the lease. Raises LostRace."""
    lease = now() + timedelta(seconds=settings.SETPOINT_LEASE_SECONDS)
    ours = PlanRequest.objects.filter(pk=row.pk, claim=row.claim, status=Status.RUNNING)
    if not ours.update(lease_until=lease, **fields):
        raise LostRace(f"plan request {row.pk}")


class _ClaimRenewal:
    """Thread that renews a claim: pods and charts are read without a word of progress, for longer than a lease."""

    def __init__(self, row: PlanRequest) -> None:
        self._row, self._ended = row, threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"renew-plan-{row.pk}", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(settings.SETPOINT_CALL_TIMEOUT_SECONDS)

    def _keep(self) -> None:
        try:
            while not self._ended.wait(settings.SETPOINT_LEASE_SECONDS / 3):
                try:
                    _renew(self._row)
                except Error as error:  # InterfaceError is no DatabaseError
                    log.warning("the lease of plan request %s could not be renewed: %s", self._row.pk, error)
                    close_old_connections()  # what a restarted database leaves answers never again
        except LostRace:
            return  # the thread that plans notices it, at the latest when it stores
        finally:
            connections.close_all()  # this thread's


def forget() -> int:
    """Delete requests that ended long ago. Returns how many."""
    return PlanRequest.objects.exclude(status__in=PlanRequest.LIVE).filter(finished_at__lt=now() - KEPT).delete()[0]
