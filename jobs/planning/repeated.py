"""One plan a request: a form sent twice, or a request repeated after a timeout, leads to the plan already made.

The form, or the Idempotency-Key, names the request; its content counts too, so that a form changed and sent again makes
another plan. The key is stored with the plan, in its transaction, and is unique: of two at once the database lets one
in, and a process killed before the end leaves nothing behind. The answers that accounts.access.repeats keeps come
before this; they are written after the plan, and are lost with a process killed between the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import IntegrityError

from accounts.models import User
from accounts.permissions import require
from clusters.models import Pool
from jobs.diffs.changes import digest
from jobs.forecast.strategy import Strategy
from jobs.models import Plan
from jobs.planning import planner
from profiles.models import Revision


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    plan: Plan
    is_repeated: bool
    """The plan was there already."""


def make_once(
    *, key: str, pool: Pool, revision: Revision, strategy: Strategy, by: User, message: str
) -> AnsweredRequest:
    """Make the plan, or return the one that the same request of this person made; without a key, always make it.

    A plan that was rejected, withdrawn or expired answers no request any more. Raises what planner.make does.
    """
    require(by, "operator", pool.cluster.scopes, doing="make a plan")
    request_key = key_of(key, pool=pool, revision=revision, strategy=strategy, by=by, message=message)
    if there := answer_to(request_key):
        return AnsweredRequest(there, is_repeated=True)
    try:
        plan = planner.make(
            pool=pool, revision=revision, strategy=strategy, by=by, message=message, request_key=request_key
        )
    except IntegrityError:  # one_plan_a_request: the same request made it meanwhile
        if there := answer_to(request_key):
            return AnsweredRequest(there, is_repeated=True)
        raise
    return AnsweredRequest(plan, is_repeated=False)


def key_of(key: str, *, pool: Pool, revision: Revision, strategy: Strategy, by: User, message: str) -> str | None:
    """Return the key under which the plan is stored; None: the request does not name itself.

    The strategy counts as it was asked for: a seed not given is drawn for each plan.
    """
    return digest([by.pk, key, pool.pk, revision.pk, strategy.to_json(), message]) if key else None


def answer_to(request_key: str | None) -> Plan | None:
    return Plan.objects.answering(request_key).first() if request_key else None
