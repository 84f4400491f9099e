"""Trial of an approval policy against stored plans: which of them it would have stopped, and by which rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from accounts.models import User
from jobs.forecast import owners
from jobs.models import Approval, Plan, Rollout
from jobs.policy import judgement, policy_text
from jobs.policy.conditions import Budget
from jobs.policy.judgement import PolicyJudgement
from jobs.policy.policy_text import Policy, PolicyRule
from jobs.reports import selectors

CHUNK = 50
STEPS = 1_500_000
"""Of one trial: about 20 s of one core at most. Plans beyond it are counted as not judged."""
SHOWN = 100


@dataclass(frozen=True, slots=True)
class StoppedPlan:
    """A plan that the policy would have stopped: refused, or with more approvals required than it got."""

    plan: Plan
    rule: str
    why: str
    is_refused: bool
    by_active: bool
    """The active policy stops it, too."""


@dataclass(frozen=True, slots=True)
class Trial:
    plans: int
    judged: int
    stopped: tuple[StoppedPlan, ...]
    stopped_count: int
    active_count: int
    """Of those judged, how many the active policy stops."""
    by_rule: Mapping[str, int]

    @property
    def is_partial(self) -> bool:
        return self.judged < self.plans


def try_policy(text: str, user: User) -> Trial:
    """Judge all plans that this person may see, each at the moment of its start or request. Raises Invalid."""
    policy = policy_text.read(text)
    version = judgement.active_version()
    active = judgement.sound_policy(version)[0] if version else None
    plans = selectors.visible_plans(user).select_related("rollout")
    total, judged, budget = plans.count(), 0, Budget(STEPS)
    stopped: list[StoppedPlan] = []
    by_rule: Counter[str] = Counter()
    active_count = 0
    while judged < total and budget.left > 0:
        chunk = list(plans.order_by("-number")[judged : judged + CHUNK])
        if not chunk:
            break
        rows, also = _judged(policy, active, chunk, budget)
        if budget.left <= 0:
            break  # the budget ended within this chunk, whose answers are not all answers of rules
        judged += len(chunk)
        active_count += also
        stopped += rows
        by_rule.update(row.rule for row in rows)
    return Trial(total, judged, tuple(stopped[:SHOWN]), len(stopped), active_count, dict(by_rule.most_common()))


def _judged(
    policy: Policy, active: Policy | None, plans: Sequence[Plan], budget: Budget
) -> tuple[list[StoppedPlan], int]:
    moments = {plan.pk: moment_of(plan) for plan in plans}
    given = _given(plans)
    owned = _owned((policy, active), plans)
    by_new = judgement.judge_plans(policy, 0, plans, moments, budget)
    by_active = judgement.judge_plans(active, 0, plans, moments, budget) if active else {}
    rows, count = [], 0
    for plan in plans:
        now_stops = (
            plan.pk in by_active
            and _reason(by_active[plan.pk], given.get(plan.pk, 0), has_owners=plan.pk in owned) is not None
        )
        count += now_stops
        if reason := _reason(by_new[plan.pk], given.get(plan.pk, 0), has_owners=plan.pk in owned):
            rows.append(StoppedPlan(plan, *reason, by_active=now_stops))
    return rows, count


def moment_of(plan: Plan) -> datetime:
    """Return when the plan was started, else asked for, else made: the moment that rules about the hour judge."""
    rollout: Rollout | None = getattr(plan, "rollout", None)
    if rollout is not None:
        return rollout.start_at or rollout.created_at
    return plan.requested_at or plan.created_at


def _given(plans: Sequence[Plan]) -> dict[UUID, int]:
    """Return, by plan, how many people's newest verdict on its digest is an approval."""
    newest: dict[tuple[UUID, int], str] = {}
    rows = Approval.objects.filter(plan__in=plans).order_by("at", "pk")
    digests = {plan.pk: plan.digest for plan in plans}
    for plan_id, person_id, digest, verdict in rows.values_list("plan_id", "person_id", "digest", "verdict"):
        if digest == digests[plan_id]:
            newest[plan_id, person_id] = verdict
    return Counter(plan_id for (plan_id, _), verdict in newest.items() if verdict == Approval.Verdict.APPROVE)


def _owned(policies: Iterable[Policy | None], plans: Sequence[Plan]) -> set[UUID]:
    """Return the plans that have owners; none where no rule asks for them."""
    if not any(rule.owners for policy in policies if policy for rule in policy.rules):
        return set()
    return {pk for pk, rows in owners.owners_of(plans).items() if rows}


def _reason(judged: PolicyJudgement, given: int, *, has_owners: bool) -> tuple[str, str, bool] | None:
    """(rule, why, whether it is refused); None: it passes. Roles and teams of approvers and log-ins are not judged
    afterwards."""

    def required(rule: PolicyRule) -> int:
        return max(rule.approvers, 1 if rule.owners and has_owners else 0)

    for refusal in judged.refusals:
        return refusal.rule, refusal.why, True
    short = [rule for rule in judged.demands if required(rule) > given]
    worst = max(short, key=required, default=None)
    return None if worst is None else (worst.name, _shortage(required(worst), given), False)


def _shortage(required: int, given: int) -> str:
    return f"{required} approver{'' if required == 1 else 's'} required, {given} approved"
