"""Plans, approvals, rollouts, steps and the ledger. Every status changes through `move`, and its table lists what is
legal."""

from jobs.models.approvals import Approval, ApprovalRule
from jobs.models.break_glass import BreakGlass, BreakGlassQuerySet, GlassReview
from jobs.models.calendars import CalendarRule, CalendarRuleQuerySet
from jobs.models.fleet_runs import FleetRun
from jobs.models.gates import Freeze, Signal
from jobs.models.ledger import Ledger, Slot
from jobs.models.ownership import ComponentOwner
from jobs.models.plan_requests import PlanRequest, PlanRequestQuerySet
from jobs.models.plans import JUDGEMENT, ChangeSet, Plan, PlanComponent, PlanNode, PlanQuerySet
from jobs.models.policies import PolicyVersion
from jobs.models.rollouts import Rollout, RolloutQuerySet
from jobs.models.state_machine import Counter, Moves
from jobs.models.steps import Step, StepEvent, StepQuerySet
from jobs.models.sweepers import Sweeper
from jobs.models.takeovers import Takeover, TakeoverNode
from jobs.models.tickets import ChangeRecord, ChangeRecordRule, TicketConnection, TicketMessage

__all__ = [
    "JUDGEMENT",
    "Approval",
    "ApprovalRule",
    "BreakGlass",
    "BreakGlassQuerySet",
    "CalendarRule",
    "CalendarRuleQuerySet",
    "ChangeRecord",
    "ChangeRecordRule",
    "ChangeSet",
    "ComponentOwner",
    "Counter",
    "FleetRun",
    "Freeze",
    "GlassReview",
    "Ledger",
    "Moves",
    "Plan",
    "PlanComponent",
    "PlanNode",
    "PlanQuerySet",
    "PlanRequest",
    "PlanRequestQuerySet",
    "PolicyVersion",
    "Rollout",
    "RolloutQuerySet",
    "Signal",
    "Slot",
    "Step",
    "StepEvent",
    "StepQuerySet",
    "Sweeper",
    "Takeover",
    "TakeoverNode",
    "TicketConnection",
    "TicketMessage",
]
