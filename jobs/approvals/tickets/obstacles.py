"""Obstacles by change records: a start without the reference that an environment requires, or while a ticket holds it.

Judged live, never frozen into a plan: a change record only restricts. Break-glass passes a missing reference and a
missing release, as it passes missing approvals; what the ticket system holds or has closed holds it, as a freeze does.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence

from audit import macs
from clusters.models import Cluster
from jobs.approvals.tickets import patterns
from jobs.models import ChangeRecord, ChangeRecordRule, Plan
from jobs.models.tickets import REFERENCE_CHARACTERS

State = ChangeRecord.State
_PURPOSE = b"setpoint change record of a plan, scheme 1"


def mark_of(plan: Plan, reference: str) -> str:
    """Return the mark that the plan's row carries with its reference: one that was put into the table has none."""
    return macs.mark(_PURPOSE, {"plan": str(plan.pk), "reference": reference}) if reference else ""


def rules_of(cluster: Cluster) -> list[ChangeRecordRule]:
    """Return the rules that apply to a cluster: its environment's, or all if its row was changed outside Setpoint."""
    rows = ChangeRecordRule.objects.order_by("environment")
    return list(rows.filter(environment=cluster.environment) if cluster.is_genuine else rows)


def lock_record(plan: Plan) -> None:
    """Lock the plan's change record in the transaction of a start, so that a hold comes before it and counts, or
    after it and holds the rollout.
    """
    if plan.change_record:
        ChangeRecord.objects.select_for_update().filter(pk=plan.change_record).first()


def obstacle(plan: Plan, rules: Sequence[ChangeRecordRule] | None = None) -> str:
    """Explain, in a sentence, why the plan may not start; empty: its change record permits it.

    `rules`: those of its cluster, where the caller has read them.
    """
    rules = rules_of(plan.cluster) if rules is None else rules
    if reason := next((reason for rule in rules if (reason := _reason_of_form(plan, rule))), ""):
        return reason
    return state_reason(plan, must_release=any(rule.must_release for rule in rules))


def stop_reason(plan: Plan) -> str:
    """Explain, in a sentence, why no step of the plan's rollout may start now, though it began; empty: it may."""
    return state_reason(plan, must_release=False)


def state_reason(plan: Plan, *, must_release: bool) -> str:
    """Explain why the ticket system forbids it now; empty: it does not. No query for a plan without a reference."""
    reference = plan.change_record
    if not reference:
        return ""
    if not hmac.compare_digest(plan.change_record_mac, mark_of(plan, reference)):
        return f"The change record of {plan} was written outside Setpoint: enter it again."
    record = ChangeRecord.objects.filter(pk=reference).first()
    state = State(record.state) if record else State.UNKNOWN
    if record and not record.is_genuine:
        return (
            f"The state of change record {reference} was changed outside Setpoint: "
            "its ticket system must send it again."
        )
    if record and state in ChangeRecord.STOPS:
        note = f": {record.note}" if record.note else ""
        return f"Change record {reference} is {state.label.lower()} by {record.source}{note.rstrip('.')}."
    if must_release and state != State.RELEASE:
        return f"Change record {reference} is not released yet: its ticket system has to release it first."
    return ""


def form_objection(reference: str, rules: Iterable[ChangeRecordRule]) -> str:
    """Return why this is no reference here, naming the pattern that it lacks; empty: it is one."""
    if not patterns.is_reference(reference):
        return f"At most {REFERENCE_CHARACTERS} visible characters of ASCII, without blanks."
    for rule in rules:
        if rule.is_genuine and not patterns.fits(rule.pattern, reference):
            return f"It must have the form {rule.pattern}, which {rule.environment} requires."
    return ""


def _reason_of_form(plan: Plan, rule: ChangeRecordRule) -> str:
    if not rule.is_genuine:
        return (
            f"The change record rule of {rule.environment} was changed outside Setpoint: an administrator must save it."
        )
    needs_reference = rule.is_required or rule.must_release
    if not plan.change_record:
        form = f"enter one of the form {rule.pattern}"
        return f"{plan} has no change record, which {rule.environment} requires: {form}." if needs_reference else ""
    if needs_reference and not patterns.fits(rule.pattern, plan.change_record):
        form = f"of the form {rule.pattern}, which {rule.environment} requires"
        return f"The change record {plan.change_record} of {plan} is not {form}: enter another."
    return ""
