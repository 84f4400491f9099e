"""Actions on a plan: permitted or not, for a person, and why: one answer for pages and REST (law 10).

A verb is refused by the plan's state, for everyone, or to a person, in every state. Lists leave out what takes
reading the whole plan: whether it still is what its digest says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.db.models import Q

from accounts.models import User
from accounts.permissions import may
from clusters.models import Cluster
from common.errors import NotAllowed, WrongState
from jobs.approvals import rings, verdicts
from jobs.approvals.tickets import obstacles
from jobs.diffs import cluster_scope
from jobs.forecast import blast_radius
from jobs.forecast.strategy import Strategy
from jobs.models import Approval, Plan, Step
from jobs.planning import component_owners, consents, digests
from jobs.policy import judgement
from jobs.policy.judgement import PolicyJudgement

Status = Plan.Status

JUDGED = (Status.REVIEW, Status.APPROVED)
FROM: dict[str, tuple[str, ...]] = {
    "request": (Status.DRAFT, Status.CHANGES),
    "approve": JUDGED,
    "request-changes": JUDGED,
    "reject": JUDGED,
    "retract": JUDGED,
    "withdraw": tuple(status for status, after in Plan.NEXT.items() if Status.WITHDRAWN in after),
    "start": (Status.APPROVED,),
}
"""Each verb, and in which states of a plan it is possible."""

OTHERWISE = {
    "request": "approval is requested of a draft, or after requested changes",
    "approve": "a verdict is given while it needs review",
    "request-changes": "a verdict is given while it needs review",
    "reject": "a verdict is given while it needs review",
    "retract": "an approval can be withdrawn before the start",
    "withdraw": "it has ended",
    "start": "it is not approved",
}

OF_WHAT_IT_SAYS = ("approve", "start")
"""Verbs that agree to all of the plan; what was altered can still be sent back or rejected."""

TOKEN_SCOPE_FOR = {
    "request": "plan",
    "withdraw": "plan",
    "approve": "approve",
    "request-changes": "approve",
    "reject": "approve",
    "retract": "approve",
    "start": "apply",
}
"""Which scope a token needs for each verb of a plan; the API's views read it here."""


@dataclass(frozen=True, slots=True)
class ActionCheck:
    """Answer about one verb: empty reasons mean yes. Each says what is the case and what to do instead."""

    verb: str
    of_state: str
    """Why the plan does not permit it, for anyone."""
    of_person: str
    """Why this person, with the token in use, may not, in any state."""

    @property
    def is_possible(self) -> bool:
        return not self.reason

    @property
    def reason(self) -> str:
        """The reason against it; what no change of the plan would mend comes first."""
        return self.of_person or self.of_state


def check_actions(plan: Plan, user: User, given: Iterable[Approval] | None = None,
                  policy: PolicyJudgement | None = None) -> dict[str, ActionCheck]:  # fmt: skip
    """Return the answer of each verb. Reads all of the plan. `given`, `policy`: its verdicts and its judgment by the
    policy, where they were read already."""
    states = reasons_of_state(plan, policy=policy)
    people = reasons_of_person(plan, user, given)
    return {verb: ActionCheck(verb, states[verb], people[verb]) for verb in FROM}


def reasons_of_state(plan: Plan, *, is_whole: bool = True, policy: PolicyJudgement | None = None) -> dict[str, str]:
    """Return, by verb, why the plan does not permit it; empty where it does."""
    altered = _altered_reason(plan) if is_whole and plan.status in JUDGED and not plan.late else ""
    is_judged = is_whole and _is_judged(plan, "approve")
    refused = (policy or judgement.judge_plan(plan)).reason(at_start=False) if is_judged else ""
    return {verb: _why_not_now(plan, verb, altered, refused) for verb in FROM}


def reasons_of_person(plan: Plan, user: User, given: Iterable[Approval] | None = None) -> dict[str, str]:
    """Return, by verb, why this person may not; empty where they may."""
    judging = verdicts.reason_not_to_judge(plan, user)
    has_approved = verdicts.has_approved(plan, user, given)
    return {verb: _why_not(plan, verb, user, judging, has_approved=has_approved) for verb in FROM}


def require(plan: Plan, verb: str, by: User) -> None:
    """Call it in the verb's transaction. Raises NotAllowed, WrongState."""
    require_person(plan, verb, by)
    altered = _altered_reason(plan) if verb in OF_WHAT_IT_SAYS and plan.status in JUDGED and not plan.late else ""
    refused = judgement.refusal_reason(plan, at_start=False) if _is_judged(plan, verb) else ""
    if reason := _why_not_now(plan, verb, altered, refused):
        raise WrongState(reason)


def _is_judged(plan: Plan, verb: str) -> bool:
    """Return whether the policy is asked about an approval; a start asks it once more, at its own moment."""
    return verb == "approve" and plan.status in JUDGED and not plan.late


def require_person(plan: Plan, verb: str, by: User) -> None:
    """Raises NotAllowed."""
    if reason := reasons_of_person(plan, by)[verb]:
        raise NotAllowed(reason)


def token_allows(user: User, scope: str) -> bool:
    """True without a token: a person at a page is not narrowed."""
    return user.acting_token is None or scope in user.acting_token.scopes


def obstacle_beside_approval(plan: Plan) -> str:
    """Return what forbids a start in this state besides missing approvals, and what a change record lacks; empty:
    nothing. Reads all of the plan."""
    passed = (_unapproved_reason, obstacles.obstacle)
    checks = (_altered_reason, obstacles.stop_reason, *(why_not for why_not in _OF_A_START if why_not not in passed))
    return next((reason for why_not in checks if (reason := why_not(plan))), "")


# ── of persons ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _why_not(plan: Plan, verb: str, user: User, judging: str, *, has_approved: bool) -> str:
    scope = TOKEN_SCOPE_FOR[verb]
    if not token_allows(user, scope):
        return f"This token cannot do that: it needs the token scope {scope}."
    if verb == "request":
        return _missing_role(plan, "operator", user, "request approval")
    if verb == "start":
        return _missing_role(plan, "operator", user, "start a rollout")
    if verb == "withdraw":
        is_own = user.pk in (plan.created_by_id, plan.requested_by_id)
        return "" if is_own else _missing_role(plan, "admin", user, "withdraw another person's plan")
    if verb == "retract":
        return "" if has_approved else f"Only an approver of {plan} can withdraw that approval."
    return judging


def _missing_role(plan: Plan, role: str, user: User, doing: str) -> str:
    if may(user, role, plan.cluster.scopes):
        return ""
    return f"This needs the role {role} for {plan.cluster}, to {doing}. An administrator can grant it."


# ── of the plan ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _why_not_now(plan: Plan, verb: str, altered: str, refused: str) -> str:
    if plan.status not in FROM[verb]:
        return f"{plan} is {plan.state_in_words}: {OTHERWISE[verb]}."
    if plan.late:
        return plan.late
    if verb == "request" and plan.is_blocked:
        blocks = "; ".join(f["title"] for f in plan.findings if f["severity"] == "block")
        return f"{plan} is blocked: {blocks}. Plan again once that is fixed."
    if verb in OF_WHAT_IT_SAYS and altered:
        return altered
    if verb == "approve" and refused:
        return refused
    if verb != "start":
        return ""
    return next((reason for why_not in _OF_A_START if (reason := why_not(plan))), "")


def _altered_reason(plan: Plan) -> str:
    """Reads all of the plan."""
    if not plan.is_genuine:
        return f"{plan} is not what was planned: its row was changed outside Setpoint. Plan again."
    if not digests.is_as_approved(plan) or not digests.are_components_intact(plan):
        what = "approved" if plan.status == Status.APPROVED else "planned"
        return f"{plan} is not what was {what} any more: its digest differs. Plan again."
    if changed := digests.changed_entry(plan):
        return changed
    try:
        consents.verified_phrase(plan)  # or the consent that was typed was for something else
    except WrongState as refusal:
        return str(refusal)
    return ""


def _unapproved_reason(plan: Plan) -> str:
    standing = verdicts.approval_state(plan)
    if standing.is_approved:
        return ""
    return (
        f"{plan} needs {standing.missing} more approval{'' if standing.missing == 1 else 's'}: some approvers "
        "may no longer approve, the rules or the owners were changed, or a verdict was given before an upgrade."
    )


def _refused_by_policy(plan: Plan) -> str:
    return judgement.refusal_reason(plan, at_start=True)


def _owned_by_another_pool(plan: Plan) -> str:
    try:
        component_owners.refuse_start(plan)
    except WrongState as refusal:
        return str(refusal)
    return ""


def _beyond_the_budget(plan: Plan) -> str:
    """Explain which component exceeds the present budget and would wait for ever, though it fitted once (law 1)."""
    budget = Strategy.from_json(plan.strategy).allowed_out(plan.cluster.budget)
    for row in plan.components.filter(left_out=""):
        if why := blast_radius.never_begins_reason(row, budget):
            return f"{why} Lower its own limit and plan again, or raise the budget."
    return ""


def _not_ours(plan: Plan) -> str:
    if plan.cluster.ownership == Cluster.Ownership.OURS:
        return ""
    return f"{plan.cluster} belongs to installation {plan.cluster.ownership_mark or 'nobody'}."


def _busy_parts(plan: Plan) -> str:
    """Another rollout works on a node or a release of it. What begins meanwhile, the database refuses."""
    nodes = plan.nodes.filter(left_out="").values("node")
    releases = [cluster_scope.release_key(plan, row) for row in plan.components.filter(left_out="").defer("prepared")]
    live = Step.objects.filter(Q(node__in=nodes) | Q(release__in=releases), is_live=True)
    other = live.select_related("rollout").first()
    return busy_reason(other) if other else ""


def busy_reason(other: Step | None) -> str:
    """Explain why a plan cannot start while `other` lives; None: that one ended a moment ago."""
    name = f"R-{other.rollout.number} ({other.name})" if other else "another rollout"
    return f"{name} works on some of these nodes or components. Start this plan when it is done."


_OF_A_START: tuple[Callable[[Plan], str], ...] = (
    _unapproved_reason,
    _refused_by_policy,
    obstacles.obstacle,
    rings.reason_not_to_start,
    _owned_by_another_pool,
    _beyond_the_budget,
    _not_ours,
    _busy_parts,
)
