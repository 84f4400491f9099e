"""The approval rules of today as the text of a policy that requires the same approvers, and the proof of it.

A row that was changed outside Setpoint is not part of it: what it required is not known, so it is repaired first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from common.clock import now
from common.errors import WrongState
from jobs.approvals import rules
from jobs.approvals.rules import RuleRequirement
from jobs.diffs.changes import Disruption
from jobs.models import ApprovalRule, Plan
from jobs.policy import conditions, judgement, policy_text
from jobs.policy.conditions import Budget
from jobs.policy.fact_types import FACTS_VERSION
from jobs.policy.judgement import PolicyJudgement
from jobs.policy.policy_text import Policy

CHUNK = 50
MOST_PLANS = 1000
"""Compared, the newest first: about 10 s of one core."""
Demand = tuple[int, frozenset[tuple[int, str, str]]]
"""Number of approvers, and (how many of them, role, scope); what decides whether a plan is approved."""


@dataclass(frozen=True, slots=True)
class RulesAsPolicy:
    """Text of a policy made of the approval rules, and how it compares with them on stored plans."""

    text: str
    rules: int
    disabled: int
    plans: int
    compared: int
    differing: tuple[Plan, ...]
    """Of which text and rules require different approvers; none, unless a row was changed outside Setpoint."""


def policy_from_rules() -> RulesAsPolicy:
    """Write the approval rules as a policy, and compare both on stored plans.

    Raises WrongState: they cannot be written as one policy.
    """
    rows = list(ApprovalRule.objects.select_related("cluster"))
    text = text_of_rules(rows)
    policy = policy_text.read(text)
    total, compared, differing = Plan.objects.count(), 0, list[Plan]()
    plans = Plan.objects.select_related("cluster", "pool", "revision__profile").order_by("-number")
    while compared < min(total, MOST_PLANS):
        chunk = list(plans[compared : compared + CHUNK])
        if not chunk:
            break
        compared += len(chunk)
        differing += differing_plans(policy, rows, chunk)
    enabled = sum(row.is_enabled for row in rows)
    return RulesAsPolicy(text, enabled, len(rows) - enabled, total, compared, tuple(differing))


def text_of_rules(rows: Sequence[ApprovalRule]) -> str:
    """Return the enabled rules as a policy; disabled ones are named in a comment. Raises WrongState."""
    if changed := [row.name for row in rows if not row.is_genuine]:
        raise WrongState(f"The rule “{changed[0]}” was changed outside Setpoint: delete it and make it again first.")
    enabled = [row for row in rows if row.is_enabled]
    if len(enabled) > policy_text.MOST_RULES:
        raise WrongState(f"There are {len(enabled)} approval rules; a policy has at most {policy_text.MOST_RULES}.")
    disabled = ", ".join(_quoted(row.name) for row in rows if not row.is_enabled)
    lines = [
        "# Made of the approval rules: each requires the same approvers of the same plans.",
        *([f"# Disabled, and left out: {disabled}"] if disabled else []),
        f"facts: {FACTS_VERSION}",
        "zone: UTC",
        "rules:" if enabled else "rules: []",
    ]
    for row in enabled:
        lines += _rule_lines(row)
    text = "\n".join(lines) + "\n"
    if len(text.encode()) > policy_text.MOST_BYTES:
        raise WrongState(f"The approval rules take more than the {policy_text.MOST_BYTES} bytes of a policy.")
    return text


def _rule_lines(row: ApprovalRule) -> list[str]:
    first, *others = conditions_of(row)
    requirement = RuleRequirement.of(row)
    lines = [f"# Cluster {_quoted(row.cluster.name)}:"] if row.cluster else []
    lines += [f"- name: {_quoted(row.name)}"]
    if first == "true":
        lines.append('  when: "true"')
    else:
        lines += ["  when: |", f"    {first}", *(f"    && {each}" for each in others)]
    demands = [f"approvers: {requirement.approvers}"]
    if requirement.of_count:
        demands += [f"of_count: {requirement.of_count}", f"of_role: {requirement.of_role}"]
        demands += [f"of_scope: {_quoted(requirement.of_scope)}"] if requirement.of_scope else []
    return [*lines, f"  require: {{{', '.join(demands)}}}"]


def conditions_of(row: ApprovalRule) -> list[str]:
    """Return the rule's conditions in CEL, all of which must hold; `true` alone if it states none."""
    parts = []
    if row.environment:
        parts.append(f"{_quoted(row.environment)} in plan.environments")
    if row.cluster is not None:
        parts.append(f'plan.cluster_id == "{row.cluster.pk}"')  # its administrators may change the name
    if row.worst_class:
        parts.append(f"plan.known_risk >= {Disruption(row.worst_class).name}")
    for name, number in (("gpu_percent", row.gpu_percent), ("node_percent", row.node_percent)):
        parts += [f"plan.{name} >= {number}.0"] if number is not None else []
    for name, number in (("most_gpus", row.gpus), ("most_gpu_jobs", row.gpu_jobs)):
        parts += [f"plan.{name} >= {number}"] if number is not None else []
    if row.namespace:
        parts.append(f"{_quoted(row.namespace)} in plan.all_namespaces")
    if row.component:
        parts.append(f"plan.components.exists(c, c.name == {_quoted(row.component)})")
    if row.weakens_security:
        parts.append("plan.weakens_security")
    return parts or ["true"]


def _quoted(text: str) -> str:
    """Return a string as YAML and CEL both read it. What cannot be printed is replaced: a policy's names are shown."""
    return json.dumps("".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text),
                      ensure_ascii=False)  # fmt: skip


def differing_plans(policy: Policy, rows: Sequence[ApprovalRule], plans: Sequence[Plan]) -> list[Plan]:
    """Return the plans of which the policy alone refuses anything, or requires other approvers than these rules."""
    facts, moments = rules.facts_of(plans, rows), dict.fromkeys((plan.pk for plan in plans), now())
    judged = judgement.judge_plans(policy, 0, plans, moments, Budget(conditions.STEPS * len(plans)))
    return [
        plan
        for plan in plans
        if judged[plan.pk].refusals
        or demand_of(rules.fitting_requirements(rows, facts[plan.pk])) != demand_of_policy(judged[plan.pk])
    ]


def demand_of_policy(judged: PolicyJudgement) -> Demand:
    return demand_of((rules.FLOOR, *rules.policy_requirements(judged)))


def demand_of(requirements: Iterable[RuleRequirement]) -> Demand:
    every = list(requirements)
    roles = frozenset((rule.of_count, rule.of_role, rule.of_scope) for rule in every if rule.of_count)
    return max(rule.approvers for rule in every), roles
