"""Sentences of plans and rollouts that branch more often than a template should."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from common.templatetags.setpoint import duration, person
from jobs.approvals.rules import RuleNeed
from jobs.approvals.verdicts import ApprovalState
from jobs.forecast.strategy import Strategy
from jobs.models import Approval, ApprovalRule, Plan, Step


def _some(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# ── What a plan does ──────────────────────────────────────────────────────────────────────────────────────────────────
def in_one_sentence(plan: Plan) -> str:
    """Describe the plan's effect on nodes, jobs and everything else, and its length."""
    summary, strategy = plan.summary, plan.strategy
    sentence = f"{_to_nodes(plan)}{''.join(_besides(summary))}. Takes about {duration(summary['seconds'])}."
    if summary.get("control"):
        sentence += (
            f" {summary['control']} of the nodes, chosen at random, wait until {strategy['measure_hours']} h of the "
        )
        sentence += "others' effect are measured."
    if strategy.get("include_joining"):
        sentence += " Nodes new to the cluster that join while it runs follow, live changes only."
    return sentence


def _to_nodes(plan: Plan) -> str:
    summary = plan.summary
    pool = f"of {summary['pool_nodes']:,} {plan.cluster.environment} node{'' if summary['pool_nodes'] == 1 else 's'}"
    for name, verb in (("reboots", "Reboots"), ("drains", "Drains"), ("restarts", "Restarts the kubelet on")):
        if summary.get(name):
            return f"{verb} {summary[name]:,} {pool}, {summary['budget']} at a time"
    calm = "" if summary.get("nodes_hit") else "; no node leaves service"
    return f"Changes {summary['nodes']:,} {pool} while they work{calm}"


def _besides(summary: Mapping[str, Any]) -> Iterable[str]:
    yield from _to_components(summary)
    if count := summary.get("policies"):
        yield f", and makes or changes {_some(count, 'policy object')}"
    if count := summary.get("takes"):
        them = "it" if count == 1 else "them"
        yield f", and takes {_some(count, 'field')} back, reverting changes to {them} by others"
    if count := summary.get("nodes_hit"):
        is_one = sum(summary.get(part, 0) for part in ("components", "policies", "takes")) == 1
        yield f", which disturb{'s' if is_one else ''} {_some(count, 'node')}"
    if count := summary.get("gpu_jobs"):
        yield f", and interrupts {_some(count, 'GPU job')}"


def _to_components(summary: Mapping[str, Any]) -> Iterable[str]:
    if component := summary.get("component"):
        yield f", and {_to_one_component(component)}"
        return
    removals = summary.get("removals", 0)
    if count := summary.get("components", 0) - removals:
        yield f", and installs or changes {_some(count, 'component')}"
    if removals:
        yield f", and removes {_some(removals, 'component')}"


def _to_one_component(component: Mapping[str, str]) -> str:
    name, action, version = component["name"], component["action"], component["version"]
    if action in ("install", "remove"):
        return f"{action}s {name} {version}".rstrip()
    if action == "none":
        return f"waits until {name} is ready"
    return f"takes {name} from {component['from']} to {version}" if component["from"] else f"changes {name}"


def values_changed(summary: Mapping[str, Any]) -> str:
    """Count the values that change, and the pool's nodes that do not or are disturbed besides."""
    sentence = _some(summary["values"], "value")
    if count := summary.get("left_out"):
        sentence += f", {_some(count, 'node')} left out"
    if count := summary.get("watched"):
        sentence += f", {count:,} already compliant, only drift repair changes"
    if count := summary.get("compliant"):
        sentence += f", {count:,} already compliant"
    if count := summary.get("nodes_hit"):
        sentence += f"; components disturb {count:,}, {summary['nodes_hit_at_once']:,} at once"
    return sentence


def gpus_reached(summary: Mapping[str, Any]) -> int:
    """Count the GPUs of the pool, or of all nodes that its components disturb where those are more."""
    return max(int(summary.get("gpus", 0)), int(summary.get("gpus_hit", 0)))


def beside_reboots(summary: Mapping[str, Any]) -> str:
    """The most disruptive thing that happens to nodes which are not rebooted."""
    if count := summary.get("restarts"):
        return f"{_some(count, 'kubelet restart')} besides"
    if count := summary.get("drains"):
        return f"{_some(count, 'node')} drained"
    if count := summary.get("operators_drain"):
        return f"{count:,} drained by {'its' if count == 1 else 'their'} operator"
    return "no node is drained"


def after_a_failure(strategy: Strategy) -> str:
    follows = {"revert-node": "the failed node is reverted", "revert-all": "every node of this rollout is reverted"}
    return follows.get(strategy.on_failure, "nothing new starts until an operator decides")


class Origin(NamedTuple):
    words: str
    at: datetime


def origin(plan: Plan) -> Origin:
    """Return the person who asked for the plan, or else its maker."""
    if plan.requested_at:
        return Origin(f"asked by {person(plan.requested_by)}", plan.requested_at)
    if plan.summary.get("drafted"):
        return Origin("drafted by Setpoint", plan.created_at)
    return Origin(f"made by {person(plan.created_by)}", plan.created_at)


# ── Its approvals ─────────────────────────────────────────────────────────────────────────────────────────────────────
def why_not_counted(approval: Approval, plan: Plan) -> str:
    """Return the reason why a verdict does not count for the plan as it is; empty when it counts."""
    if approval.digest != plan.digest:
        return "on an earlier plan"
    if approval.round != plan.round:
        return "for an earlier request"
    return "" if approval.is_genuine else "not counted: given before an upgrade, or put into the database by others"


def from_whom(plan: Plan, can_approve: bool, needs: Iterable[RuleNeed]) -> str:
    """Name who can give the missing approvals: `from another person; among them 1 admin in env:production`."""
    others = "you can give it" if can_approve else "from another person"
    reviewers = "no reviewers requested" if plan.status == Plan.Status.DRAFT else others
    roles = ", ".join(f"{need.missing_of_role} {need.rule.of_whom}" for need in needs)
    return f"{reviewers}; among them {roles}" if roles else reviewers


def still_missing(need: RuleNeed) -> str:
    """Return the demand that a rule still has: `2 more, 1 of them approver for all clusters`."""
    of_role = f", {need.missing_of_role} of them {need.rule.of_whom}" if need.missing_of_role else ""
    return f"{need.missing} more{of_role}"


def approval_means(plan: Plan, standing: ApprovalState, has_approved: bool) -> str:
    """Return the consequence of this person's approval now."""
    if has_approved:
        return "Again, counted with the roles that you hold now."
    if standing.missing > 1:
        return f"One of {standing.missing} missing approvals."
    if plan.status == Plan.Status.APPROVED:
        return "Already approved; yours is added."
    return "Final approval. The plan becomes startable; nothing starts automatically."


# ── Rules of approval ─────────────────────────────────────────────────────────────────────────────────────────────────
def resting(rule: ApprovalRule, why_not: str) -> str:
    """Return the consequence of disabling or enabling a rule; `why_not` is the reason against it."""
    if why_not:
        return why_not
    if not rule.is_enabled:
        return "It is disabled and applies to no plan. Once enabled, it takes effect immediately."
    return (
        "It keeps its name and its history, and applies to no plan until it is enabled again. If it requires more "
        "than one approver, disabling it needs another administrator's consent."
    )


# ── A rollout ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def stops_at(failures: int, allowed: int) -> str:
    """Return the distance of the rollout from its stop, by the failures of nodes."""
    if failures > allowed:
        return "No new node starts"
    if failures < allowed:
        return f"New starts stop at {allowed + 1}"
    return "One more stops new starts" if failures else "The first stops new starts"


def why_no_output(step: Step) -> str:
    """Return the reason why a component's step has no output."""
    if step.granted_at:
        return "Nothing yet."
    return "Nothing is applied yet." if step.is_policies else "helm has not started for this component."
