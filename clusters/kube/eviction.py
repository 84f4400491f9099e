"""Meaning of the Eviction API's answers: the same status code says "a budget forbids it" and "slow down"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from clusters.fleet import Eviction
from clusters.kube.apiserver import ApiResponse


def interpret(answer: ApiResponse, *, is_there: Callable[[], bool], blocking: Callable[[], list[str]]) -> Eviction:
    """The outcome. After a conflict, `is_there` looks for the pod of that UID; `blocking` names budgets that select it.

    Raises what the status means when it is none of an eviction's own.
    """
    status = answer.status_object()
    message = str(status.get("message") or "")[:500]
    if answer.status < 300:
        return Eviction("evicted")
    if answer.status == 404 and status:
        return Eviction("gone", message=message)
    if answer.status == 409 and status:
        # Mostly the UID precondition: a pod of that name is there, but another. Any other conflict is worth a new try.
        return Eviction("throttled" if is_there() else "gone", message=message)
    if answer.status == 429 and "DisruptionBudget" in _causes(status):
        return Eviction("blocked", ", ".join(blocking()), answer.retry_after, message)
    if answer.status == 429:
        return Eviction("throttled", retry_after=answer.retry_after, message=message or "too many requests")
    if answer.status == 500 and "more than one PodDisruptionBudget" in message:
        return Eviction("blocked", ", ".join(blocking()), answer.retry_after, message)
    if answer.status == 403 and "NamespaceTerminating" in _causes(status):
        return Eviction("terminating", message=message)
    raise answer.refusal()


def _causes(status: Mapping[str, Any]) -> set[str]:
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return {str(cause.get("reason")) for cause in causes or () if isinstance(cause, dict)}
