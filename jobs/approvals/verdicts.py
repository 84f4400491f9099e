"""Result of a plan's verdicts, and permission to give one. Reads only: `reviews` writes, `rules` counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from accounts.models import User
from accounts.permissions import may
from jobs.approvals import rules
from jobs.approvals.rules import RuleNeed, RuleRequirement
from jobs.models import Approval, Plan
from jobs.planning import authorship, consents
from jobs.policy import judgement
from jobs.policy.judgement import NO_POLICY, PolicyJudgement


@dataclass(frozen=True, slots=True)
class ApprovalState:
    """State of a plan's approval: what the rules require, the newest verdict of each person, what is missing."""

    needs: tuple[RuleNeed, ...]
    """One a rule that applies, the strictest first."""
    approved_by: tuple[User, ...]
    rejected_by: tuple[User, ...]
    changes_by: tuple[User, ...] = ()
    policy: PolicyJudgement = NO_POLICY

    @property
    def rule(self) -> RuleRequirement:
        """The strictest of them."""
        return self.needs[0].rule

    @property
    def missing(self) -> int:
        """The least number of further approvers."""
        return max(need.missing for need in self.needs)

    @property
    def wanted(self) -> tuple[RuleNeed, ...]:
        """Rules that still require an approver with a certain role."""
        return tuple(need for need in self.needs if need.missing_of_role)

    @property
    def is_approved(self) -> bool:
        return not self.missing and not self.rejected_by and not self.changes_by


def strictest_requirement(plan: Plan) -> RuleRequirement:
    """The strictest of the rules that apply."""
    return rules.requirements_for(plan)[0]


def stored_verdicts(plan: Plan) -> list[Approval]:
    """Return every verdict on this plan, of all digests and rounds, the oldest first: always as stored now."""
    return list(plan.approvals.select_related("person").order_by("at", "pk"))


def approval_state(plan: Plan, verdicts: Iterable[Approval] | None = None) -> ApprovalState:
    """Return the state of the plan's approval.
    Only genuine verdicts of its present digest and round count, and only the newest of each person who may still
    approve.
    `verdicts`: what stored_verdicts() just returned, where a page shows them, too.
    """
    newest: dict[int, Approval] = {}
    for row in stored_verdicts(plan) if verdicts is None else verdicts:
        if (row.digest, row.round) == (plan.digest, plan.round) and row.is_genuine:
            newest[row.person_id] = row
    by_verdict = {verdict: [a.person for a in newest.values() if a.verdict == verdict] for verdict in Approval.Verdict}
    agreed = {row.person_id for row in newest.values() if row.consent == consents.stored_phrase(plan)}
    agreeing = [person for person in by_verdict[Approval.Verdict.APPROVE] if person.pk in agreed]
    yes = tuple(person for person in agreeing if not reason_not_to_judge(plan, person))
    policy = judgement.judge_plan(plan)
    return ApprovalState(
        needs=rules.needs(rules.requirements_for(plan, policy), yes, rules.role_check(plan)),
        approved_by=yes,
        rejected_by=tuple(by_verdict[Approval.Verdict.REJECT]),
        changes_by=tuple(by_verdict[Approval.Verdict.CHANGES]),
        policy=policy,
    )


def has_approved(plan: Plan, user: User, verdicts: Iterable[Approval] | None = None) -> bool:
    """Return whether this person's newest verdict on the present digest is an approval.
    `verdicts` as in approval_state().
    """
    rows = plan.approvals.all() if verdicts is None else verdicts
    mine = (user.pk, plan.digest, plan.round)
    own = [a for a in rows if (a.person_id, a.digest, a.round) == mine and a.is_genuine]
    return bool(own) and max(own, key=lambda a: (a.at, a.pk)).verdict == Approval.Verdict.APPROVE


def reason_not_to_judge(plan: Plan, user: User) -> str:
    """Return why this person may not give a verdict on this plan; empty when they may. Superusers are no exception."""
    if user.is_service:
        return "A service account never approves."
    if not user.is_active:
        return f"{user} is deactivated."
    if user.pk in (plan.created_by_id, plan.requested_by_id):
        return "Authors cannot approve their own plans."
    if what := authorship.authors_of_plan(plan).get(user.pk):
        return f"Authors cannot approve: {what}."
    if not may(user, "approver", plan.cluster.scopes):
        return f"This needs the role approver for {plan.cluster}."
    if plan.requested_at and not rules.held_role_at(user, "approver", plan.cluster.scopes, plan.requested_at):
        return f"The role approver was given after approval of {plan} was asked for: it counts for later plans."
    return ""
