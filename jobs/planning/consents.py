"""Typed consent: a plan that destroys objects starts only after each approver has typed how many.

What is destroyed is part of what was prepared, so the plan's digest covers it (`components.plans.prepared.Destroyed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from common.errors import Invalid, WrongState
from jobs.models import Plan, PlanComponent


def consent_phrase(cluster: str, destroyed: Iterable[Mapping[str, Any]]) -> str:
    """Return the phrase to be typed; empty: no kind is destroyed together with its objects."""
    counts = [int(kind["count"]) for kind in destroyed]
    if not any(counts):
        return ""
    if min(counts) < 0:  # of one kind they could not be counted
        return f"destroy all objects in {cluster}"
    total = sum(counts)
    return f"destroy {total} object{'' if total == 1 else 's'} in {cluster}"


def phrase_of_rows(cluster: str, rows: Iterable[PlanComponent]) -> str:
    return consent_phrase(
        cluster, [kind for row in rows if not row.left_out for kind in row.prepared.get("destroys", ())]
    )


def verified_phrase(plan: Plan) -> str:
    """Return the phrase in `plan.summary["consent"]`, read again from what the digest covers. Raises WrongState."""
    rows = PlanComponent.objects.filter(plan=plan, left_out="", kind=PlanComponent.Kind.RELEASE)
    phrase = consent_phrase(
        plan.cluster.name, [kind for many in rows.values_list("prepared__destroys", flat=True) for kind in many or ()]
    )
    if phrase != stored_phrase(plan):
        raise WrongState(f"{plan} is not what was planned: what it destroys was altered. Plan again.")
    return phrase


def stored_phrase(plan: Plan) -> str:
    """Return the phrase that pages and the API ask to be typed; empty: none."""
    return str(plan.summary.get("consent", ""))


def check_phrase(plan: Plan, typed: str) -> str:
    """Check the typed phrase and return it, where the plan asks for one.
    Raises Invalid at the field `consent`, WrongState.
    """
    phrase = verified_phrase(plan)
    if not phrase:
        return ""
    if typed.strip() != phrase:
        missing = "What you typed is something else." if typed.strip() else "It is missing."
        raise Invalid(
            f"{plan} deletes kinds together with all their objects, which cannot be restored.",
            fields={"consent": [f"Type exactly: {phrase}. {missing}"]},
        )
    return phrase
