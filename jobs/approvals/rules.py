"""Approval rules that apply to a plan, and what they require together: all of them apply, so the strictest wins.

One approver is always needed, even if the rows say otherwise: a plan that no rule fits still has to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from accounts.models import RoleBinding, User
from accounts.people import owners as team_owners
from accounts.permissions import GLOBAL, TEAM, may
from jobs.diffs.changes import Disruption
from jobs.forecast import owners, rule_facts, rule_shares
from jobs.forecast.rule_facts import NO_EXTRAS, ExtraFacts
from jobs.models import ApprovalRule, Plan
from jobs.policy import judgement
from jobs.policy.judgement import PolicyJudgement


@dataclass(frozen=True, slots=True)
class RuleRequirement:
    """Requirement of one rule, as data: `approvers` in all, of whom `of_count` hold `of_role` in `of_scope`."""

    name: str
    approvers: int
    of_count: int = 0
    of_role: str = ""
    of_scope: str = ""
    """Empty: any scope that covers the plan's cluster."""
    pk: int | None = None
    about: str = ""
    """Which plans it fits, in words; known of the rules of a plan."""
    team: str = ""
    """Name of the team whose people it asks for, in place of a role; `of_scope` has its key."""

    @property
    def demand(self) -> str:
        return describe_demand(self)

    @property
    def of_whom(self) -> str:
        """The role that some of the approvers hold, and where: `approver in env:production`."""
        if self.team:
            return f"of the team {self.team}"
        if self.of_scope == "*":
            return f"{self.of_role} for all clusters"
        return f"{self.of_role} in {self.of_scope}" if self.of_scope else self.of_role

    @classmethod
    def of(cls, row: ApprovalRule) -> RuleRequirement:
        if not row.is_genuine:
            return cls(f"{row.name}, changed outside Setpoint: delete it and make it again", UNMET, pk=row.pk)
        return cls(row.name, row.approvers, row.of_count if row.of_role else 0, row.of_role, row.of_scope, row.pk)

    @property
    def strictness(self) -> tuple[int, int, str]:
        return self.approvers, self.of_count, self.name


UNMET = 1000
"""Approvers required by a rule that was changed in the table: what it asked for before is not known."""
UNKNOWN = "unknown"
"""The environment of a cluster whose row was changed outside Setpoint."""
FLOOR = RuleRequirement("default", 1, about="every plan, regardless of other rules")

Holds = Callable[[User, str, str], bool]
"""(person, role, scope): whether they hold it; an empty scope is any that covers the plan's cluster."""


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """Facts of a plan that rules are matched against. Shares are of the whole cluster as it is now, 0 to 1."""

    environment: str
    cluster_id: UUID
    worst: Disruption
    gpu_share: float = 0.0
    node_share: float = 0.0
    more: ExtraFacts = NO_EXTRAS


@dataclass(frozen=True, slots=True)
class RuleNeed:
    """One rule, and how far the approvals meet it."""

    rule: RuleRequirement
    approved: int
    held: int
    """Number of approvers that hold the role that the rule names."""

    @property
    def missing(self) -> int:
        """The least number of further approvers. One person may meet several rules, so this is not a sum."""
        return max(0, self.rule.approvers - self.approved, self.rule.of_count - self.held)

    @property
    def missing_of_role(self) -> int:
        return max(0, self.rule.of_count - self.held)


def rule_fits(row: ApprovalRule, facts: PlanFacts) -> bool:
    """Return whether the rule applies to such a plan: every condition that it states holds.

    One that was changed in the table is about every plan, and one of an environment about each whose own is not known.
    """
    return not row.is_genuine or (
        row.is_enabled
        and (not row.environment or facts.environment in (row.environment, UNKNOWN))
        and (row.cluster_id is None or row.cluster_id == facts.cluster_id)
        and (not row.worst_class or facts.worst.rank >= Disruption(row.worst_class).rank)
        and (row.gpu_percent is None or 100 * facts.gpu_share >= row.gpu_percent)
        and (row.node_percent is None or 100 * facts.node_share >= row.node_percent)
        and rule_facts.facts_fit(row, facts.more)
    )


def fitting_requirements(rows: Iterable[ApprovalRule], facts: PlanFacts) -> tuple[RuleRequirement, ...]:
    """The rules that apply, the strictest first; never none."""
    requirements = [RuleRequirement.of(row) for row in rows if rule_fits(row, facts)]
    return tuple(sorted(requirements, key=lambda r: r.strictness, reverse=True)) or (FLOOR,)


def needs(applying: Sequence[RuleRequirement], approved_by: Sequence[User], holds: Holds) -> tuple[RuleNeed, ...]:
    return tuple(
        RuleNeed(
            rule,
            approved=len(approved_by),
            held=sum(holds(person, rule.of_role, rule.of_scope) for person in approved_by) if rule.of_count else 0,
        )
        for rule in applying
    )


def requirements_for(plan: Plan, policy: PolicyJudgement | None = None) -> tuple[RuleRequirement, ...]:
    """The rules that apply to this plan now, in a number of queries that its size does not change.
    `policy`: its judgment by the policy, where it was made already.
    """
    there = ApprovalRule.objects.select_related("cluster")  # all: a row changed in the table must not hide itself
    rows = [
        row for row in there if not row.is_genuine or (row.is_enabled and row.cluster_id in (None, plan.cluster_id))
    ]
    about: dict[int | None, str] = {row.pk: describe_conditions(row) for row in rows}
    requirements = fitting_requirements(rows, facts_of([plan], rows)[plan.pk])
    known = [replace(rule, about=about.get(rule.pk, rule.about)) for rule in requirements]
    # The policy's come beside the rules', never in their place: it can only demand more.
    policy = policy or judgement.judge_plan(plan)
    known += policy_requirements(policy)
    known += owner_requirements(plan, policy)
    return tuple(sorted(known, key=lambda r: r.strictness, reverse=True))


def policy_requirements(policy: PolicyJudgement) -> list[RuleRequirement]:
    return [
        RuleRequirement(
            f"{rule.name} (policy v{policy.version})", rule.approvers, rule.of_count, rule.of_role, rule.of_scope,
            about="plans for which the policy's condition holds",
        )
        for rule in policy.demands
        if rule.approvers
    ]  # fmt: skip


def owner_requirements(plan: Plan, policy: PolicyJudgement) -> list[RuleRequirement]:
    """Return, where a rule of the policy asks for owners, one requirement for each team that owns what it touches."""
    asking = [rule for rule in policy.demands if rule.owners]
    rows = owners.owners_of([plan])[plan.pk] if asking else []
    return [
        RuleRequirement(
            f"{rule.name} (policy v{policy.version})", 1, 1, RoleBinding.Role.VIEWER, f"{TEAM}{owner.team}",
            about=f"plans that touch what {owner.name} owns", team=owner.name,
        )
        for rule in asking
        for owner in rows
    ]  # fmt: skip


def facts_of(plans: Sequence[Plan], rows: Sequence[ApprovalRule]) -> dict[UUID, PlanFacts]:
    """Return, by plan, the facts that these rules need; as many queries for any number of plans."""
    has_share = any(row.gpu_percent is not None or row.node_percent is not None for row in rows)
    has_more = any(rule_facts.has_extra_condition(row) for row in rows)
    shares = rule_shares.shares_of(plans) if has_share else {}
    more = rule_facts.extra_facts(plans, rows) if has_more else {}
    return {
        plan.pk: PlanFacts(
            plan.cluster.environment if plan.cluster.is_genuine else UNKNOWN,
            plan.cluster_id,
            Disruption(plan.worst_class),
            *shares.get(plan.pk, (0.0, 0.0)),
            more=more.get(plan.pk, NO_EXTRAS),
        )
        for plan in plans
    }


def role_check(plan: Plan) -> Holds:
    """Asks the roles that people hold now, and held when approval was asked for."""

    known: list[Mapping[int, str]] = []

    def holds(person: User, role: str, scope: str) -> bool:
        if scope.startswith(TEAM):
            known[:] = known or [owners.team_names()]
            return team_owners.belonged_at(person, int(scope.removeprefix(TEAM)), plan.requested_at, known[0])
        scopes = (*GLOBAL, scope) if scope else plan.cluster.scopes
        return may(person, role, scopes) and (
            plan.requested_at is None or held_role_at(person, role, scopes, plan.requested_at)
        )

    return holds


def held_role_at(person: User, role: str, scopes: Sequence[str], at: datetime) -> bool:
    """Return whether one of the bindings that count now existed at that time already."""
    if person.is_superuser:
        return True
    return any(
        given <= at
        for (bound_role, scope), given in person.granted.items()
        if role in (bound_role, "viewer") and scope in scopes
    )


def describe_conditions(row: ApprovalRule) -> str:
    """Describe the plans that the rule fits: `production, containerd restart or more disruptive`."""
    parts = [row.environment or "every environment"]
    if row.cluster_id:
        parts.append(f"cluster {row.cluster}")
    if row.worst_class:
        most = Disruption(row.worst_class) is max(Disruption, key=lambda c: c.rank)
        parts.append(row.worst_class.replace("-", " ") + ("" if most else " or more disruptive"))
    if row.gpu_percent is not None:
        parts.append(f"at least {row.gpu_percent} % of the cluster's GPUs")
    if row.node_percent is not None:
        parts.append(f"at least {row.node_percent} % of the cluster's nodes")
    if row.gpus is not None:
        parts.append(f"at least {row.gpus} GPU{'' if row.gpus == 1 else 's'} out of service")
    if row.gpu_jobs is not None:
        parts.append(f"at least {row.gpu_jobs} GPU job{'' if row.gpu_jobs == 1 else 's'} interrupted")
    if row.namespace:
        parts.append(f"GPU jobs of the namespace {row.namespace} interrupted")
    if row.component:
        parts.append(f"the component {row.component}")
    if row.weakens_security:
        parts.append("settings that weaken security")
    return ", ".join(parts)


def describe_demand(rule: RuleRequirement) -> str:
    """Describe the number and kind of approvers: `2 approvers, 1 of them admin for all clusters`."""
    if rule.team:
        return f"an approver with a role in the team {rule.team}"
    text = f"{rule.approvers} approver{'' if rule.approvers == 1 else 's'}"
    return f"{text}, {rule.of_count} of them {describe_role(rule)}" if rule.of_count else text


def describe_role(rule: RuleRequirement) -> str:
    """`admin for all clusters`, `approver in env:production`, `admin here`, `of the team Speech`."""
    if rule.team:
        return rule.of_whom
    if not rule.of_scope:
        return f"{rule.of_role} here"
    return f"{rule.of_role} for all clusters" if rule.of_scope in GLOBAL else f"{rule.of_role} in {rule.of_scope}"
