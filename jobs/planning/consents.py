"""Typed consent: a plan that destroys objects or formats disks starts only after each approver has typed how many.

What is destroyed is part of what was prepared, so the plan's digest covers it (`components.plans.prepared.Destroyed`);
disks are named in what the plan saw on each node (`jobs.diffs.disk_formats`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from common.errors import Invalid, WrongState
from jobs.diffs.changes import Changes, Disruption
from jobs.diffs.disk_formats import formatted_serials
from jobs.models import ChangeSet, Plan, PlanComponent, PlanNode

_DRAINED = [str(each) for each in Disruption if each.rank >= Disruption.DRAIN.rank]
"""Classes of change sets that may format a disk: contract.keys gives a layout the class drain."""


def consent_phrase(cluster: str, destroyed: Iterable[Mapping[str, Any]], disks: int = 0) -> str:
    """Return the phrase to be typed; empty: no kind is destroyed together with its objects, and no disk formatted."""
    parts = []
    counts = [int(kind["count"]) for kind in destroyed]
    if any(counts):
        # Negative: of one kind they could not be counted.
        parts.append("destroy all objects" if min(counts) < 0 else f"destroy {_counted(sum(counts), 'object')}")
    if disks:
        parts.append(f"format {_counted(disks, 'disk')}")
    return f"{' and '.join(parts)} in {cluster}" if parts else ""


def _counted(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"


def phrase_of_rows(cluster: str, rows: Iterable[PlanComponent], disks: int) -> str:
    kinds = [kind for row in rows if not row.left_out for kind in row.prepared.get("destroys", ())]
    return consent_phrase(cluster, kinds, disks)


def disks_to_format(plan: Plan) -> dict[str, tuple[str, ...]]:
    """Return the serial numbers of the disks that a plan formats, by the name of their node."""
    sets = ChangeSet.objects.filter(plan_nodes__plan=plan, worst_class__in=_DRAINED).distinct()
    serials = {pk: formatted_serials(Changes.from_json(content)) for pk, content in sets.values_list("pk", "content")}
    formats = {pk: of_set for pk, of_set in serials.items() if of_set}
    if not formats:
        return {}
    rows = PlanNode.objects.filter(plan=plan, change_set__in=list(formats), left_out="").order_by("batch", "position")
    return {name: formats[pk] for name, pk in rows.values_list("name", "change_set_id")}


def verified_phrase(plan: Plan) -> str:
    """Return the phrase in `plan.summary["consent"]`, read again from what the digest covers. Raises WrongState."""
    rows = PlanComponent.objects.filter(plan=plan, left_out="", kind=PlanComponent.Kind.RELEASE)
    phrase = consent_phrase(
        plan.cluster.name,
        [kind for many in rows.values_list("prepared__destroys", flat=True) for kind in many or ()],
        sum(len(serials) for serials in disks_to_format(plan).values()),
    )
    if phrase != stored_phrase(plan):
        raise WrongState(f"{plan} was altered since it was made: what it destroys differs. Plan again.")
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
        missing = "The text does not match." if typed.strip() else "It is missing."
        raise Invalid(
            f"{plan} makes changes that a revert cannot undo: it deletes kinds with all objects, or formats disks.",
            fields={"consent": [f"Type exactly: {phrase}. {missing}"]},
        )
    return phrase
