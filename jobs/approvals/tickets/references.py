"""The reference of a plan: permission to enter it, in which states, and in which form."""

from __future__ import annotations

from django.db import transaction

from accounts.models import User
from accounts.permissions import may
from audit import services as audit
from common.errors import Invalid, LostRace, NotAllowed, WrongState
from jobs.approvals import plan_actions
from jobs.approvals.tickets import obstacles
from jobs.models import ChangeRecord, Plan


def reason_not_to_enter(plan: Plan, user: User) -> str:
    """Return why this person may not enter or change it now; empty when they may."""
    return reason_of_person(plan, user) or reason_of_state(plan)


def reason_of_person(plan: Plan, user: User) -> str:
    if not plan_actions.token_allows(user, "plan"):
        return "This token cannot do that: it needs the token scope plan."
    if may(user, "operator", plan.cluster.scopes):
        return ""
    return f"This needs the role operator for {plan.cluster}. An administrator can grant it."


def reason_of_state(plan: Plan) -> str:
    if plan.status in plan.NEXT:
        return ""
    if plan.status == Plan.Status.STARTED and not plan.change_record:
        return ""  # after a start by break-glass, whose change record is opened afterwards
    return f"{plan} is {plan.state_in_words}: its change record can no longer be changed."


@transaction.atomic
def enter(plan: Plan, change_record: str, *, by: User) -> Plan:
    """Store the reference; empty takes it away. It is no part of what is approved: approvals stay.

    Raises NotAllowed, WrongState, Invalid naming the pattern.
    """
    reference = change_record.strip()
    if reason := reason_of_person(plan, by):
        raise NotAllowed(reason)
    plan = Plan.objects.select_for_update().select_related("cluster").get(pk=plan.pk)
    if reason := reason_of_state(plan):
        raise WrongState(reason)
    if reference and (objection := obstacles.form_objection(reference, obstacles.rules_of(plan.cluster))):
        raise Invalid("The change record was not stored.", fields={"change_record": [objection]})
    if reference == plan.change_record and plan.change_record_mac == obstacles.mark_of(plan, reference):
        return plan
    before = plan.change_record
    try:
        plan.put(change_record=reference, change_record_mac=obstacles.mark_of(plan, reference))
    except LostRace as error:
        raise WrongState(f"{plan} was changed by another request a moment ago; reload and try again.") from error
    if reference:  # so that a start and a hold meet at its row
        ChangeRecord.objects.get_or_create(pk=reference)
    audit.record(
        by=by,
        action="plan.change-record",
        target=f"plan:{plan.pk}",
        target_name=str(plan),
        cluster_id=plan.cluster_id,
        before={"change_record": before},
        after={"change_record": reference},
    )
    return plan
