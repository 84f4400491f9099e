"""Judgment of plans by the approval policy: what it refuses, and what it demands beyond the built-in law.

A policy only adds: it has no effect by which a plan needs less. A rule without an answer refuses (fail closed), and so
does a policy whose row was changed outside Setpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from common.clock import now
from common.errors import Invalid
from jobs.models import Plan, PolicyVersion
from jobs.policy import conditions, plan_facts, policy_text
from jobs.policy.conditions import Budget, ConditionFailed
from jobs.policy.policy_text import Policy, PolicyRule


@dataclass(frozen=True, slots=True)
class PolicyRefusal:
    """A rule that refuses a plan, and why."""

    rule: str
    why: str
    is_error: bool = False
    """The rule had no answer."""
    asks_the_clock: bool = False
    """It may end by itself: the rule is about the time of day."""


@dataclass(frozen=True, slots=True)
class PolicyJudgement:
    version: int | None = None
    """Number of the policy version; None: no policy was ever activated."""
    refusals: tuple[PolicyRefusal, ...] = ()
    demands: tuple[PolicyRule, ...] = ()
    """Rules that fit and require something."""

    @property
    def fresh_login_rules(self) -> tuple[str, ...]:
        return tuple(rule.name for rule in self.demands if rule.fresh_login)

    def reason(self, *, at_start: bool) -> str:
        """Return, in a sentence, what it refuses; empty: nothing. Rules about the time of day refuse a start only."""
        for refusal in self.refusals:
            if at_start or not refusal.asks_the_clock:
                return f"The approval policy refuses it (v{self.version}, rule “{refusal.rule}”): {refusal.why}"
        return ""


NO_POLICY = PolicyJudgement()


def active_version() -> PolicyVersion | None:
    """The version activated last, whether or not its row is sound; `sound_policy` judges that."""
    return PolicyVersion.objects.exclude(activated_at=None).order_by("-activated_at", "-number").first()


def judge_plan(plan: Plan, at: datetime | None = None) -> PolicyJudgement:
    """Judge a plan by the active policy, at a moment; by default now. The one answer for approvals and starts."""
    version = active_version()
    if version is None:
        return NO_POLICY
    policy, problem = sound_policy(version)
    if policy is None:
        return PolicyJudgement(version.number, (PolicyRefusal("all rules", problem, is_error=True),))
    if not policy.rules:
        return PolicyJudgement(version.number)
    facts = plan_facts.facts_of_plans([plan], policy.names)[plan.pk]
    return judge(policy, version.number, facts, at or now())


def refusal_reason(plan: Plan, *, at_start: bool) -> str:
    """Return why the active policy refuses the plan; empty where it does not. Each way to a start asks this."""
    return judge_plan(plan).reason(at_start=at_start)


def sound_policy(version: PolicyVersion) -> tuple[Policy | None, str]:
    """Return the policy of a version, or None and what is wrong with its row."""
    if not version.is_genuine or not version.is_active:
        return None, f"{version} was changed outside Setpoint. Activate a new version."
    try:
        return policy_text.read(version.text), ""
    except Invalid:
        return None, f"{version} cannot be read by this version of Setpoint. Activate a new version."


def judge_plans(policy: Policy, number: int, plans: Sequence[Plan], moments: Mapping[UUID, datetime],
                budget: Budget) -> dict[UUID, PolicyJudgement]:  # fmt: skip
    """Judge each plan at its own moment; `budget` is of all of them together."""
    facts = plan_facts.facts_of_plans(plans, policy.names) if policy.rules else {}
    return {plan.pk: judge(policy, number, facts.get(plan.pk, {}), moments[plan.pk], budget) for plan in plans}


def judge(policy: Policy, number: int, facts: Mapping[str, Any], at: datetime,
          budget: Budget | None = None) -> PolicyJudgement:  # fmt: skip
    """Judge a plan's facts. Every rule is asked; those that fit all apply."""
    budget = budget or Budget()
    context = conditions.context_of({"plan": facts, "judged": plan_facts.facts_of_moment(at, policy.zone)})
    refusals, demands = [], []
    for rule in policy.rules:
        clock = rule.when.asks_the_clock
        try:
            if not conditions.holds(rule.when, context, budget):
                continue
        except ConditionFailed as error:
            refusals.append(PolicyRefusal(rule.name, f"the rule has no answer, {error}.", True, False))
            continue
        if rule.refuse:
            refusals.append(PolicyRefusal(rule.name, rule.refuse, asks_the_clock=clock))
        else:
            demands.append(rule)
    return PolicyJudgement(number, tuple(refusals), tuple(demands))
