"""Actions on one node of a rollout, with reasons against them: one answer for buttons, API and verbs (law 10).

The rollout is looked at once, its steps cost nothing more: a page of 500 steps asks as many queries as one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from accounts.models import User
from clusters.models import Node
from compliance.models import NodeExpectation
from jobs.diffs import dependency_graph
from jobs.diffs.dependency_graph import StepOrder
from jobs.engine import reverting
from jobs.models import Rollout, Step
from jobs.rollouts import conflicts, possible_actions, rollout_actions
from jobs.rollouts.possible_actions import RolloutAction

Status = Step.Status
FOLLOWS = {
    "retry-failed": "Runs this node again, from the beginning.",
    "skip": "Leaves this node as it is and removes Setpoint's cordon.",
    "revert": "Restores this node's recorded originals. Part of the approved plan.",
    "keep-cordoned": "When its step releases the node, it stays cordoned, and you own the cordon.",
}

OF_COMPONENTS = {
    "retry-failed": "Checks the release, repairs its record where needed, and runs helm again.",
    "skip": "Leaves this component as it is; what requires it continues without it.",
    "revert": "Rolls the release back to its earlier revision, or removes it if there was none. Part of the approved "
    "plan.",
}

OF_POLICIES = {
    "retry-failed": "Applies them again; what is already compliant stays as it is.",
    "skip": "Leaves these objects as they are; what requires them continues without them.",
    "revert": "Removes the objects that this rollout created and restores those that it changed; namespaces stay. "
    "Part of the approved plan.",
}


@dataclass
class StepOffers:
    """Actions offered on one rollout to one person; made again for each request."""

    rollout: Rollout
    user: User
    looked: Sequence[RolloutAction] = ()
    """What may be done with the rollout, where that was read already."""

    def of(self, step: Step) -> list[RolloutAction]:
        """Every verb about one node or component, with whether its state permits it."""
        out = []
        for verb, follows in _verbs(step).items():
            out.append(RolloutAction(verb, self._why_not(verb, step), follows))
        return out

    def permitted(self) -> dict[str, bool]:
        """Return what this person may do, in any state."""
        return dict.fromkeys(FOLLOWS, possible_actions.may_operate(self.rollout, self.user))

    def _why_not(self, verb: str, step: Step) -> str:
        if verb == "keep-cordoned":
            return rollout_actions.reason_not_to_keep(
                step, is_kept=step.is_ours_to_uncordon and step.node_id in self._kept
            )
        reason = {"retry-failed": self._why_not_retry, "skip": _why_not_skip, "revert": _why_not_revert}[verb](step)
        reason = reason or self._whole[verb].why_not
        if not reason and step.is_component:
            return self._why_not_component(verb, step)
        if not reason and verb != "skip" and step.node_id in self._foreign:
            reason = "a later rollout changed this node, so it takes a new plan"
        if not reason and step.node_id in self._busy and (verb != "skip" or reverting.has_our_cordon(step)):
            reason = f"{self._busy[step.node_key]} works on this node now"
        return reason

    def _why_not_component(self, verb: str, step: Step) -> str:
        if verb == "skip":
            return ""
        if step.release in self._written_later:
            return f"a later rollout changed {_this_part(step)}, so it takes a new plan"
        if verb == "revert" and self._order and (others := self._order.standing_on(step.component)):
            return conflicts.requires_sentence(others, step.component)
        if step.release in self._taken:
            return f"{self._taken[step.release]} works on {_this_part(step)} now"
        return ""

    def _why_not_retry(self, step: Step) -> str:
        if step.status not in (Status.FAILED, Status.HELD):
            return f"it is {step.status}, and only a failed or held {_kind_noun(step)} is tried again"
        is_back = step.direction == Step.Direction.REVERT
        if self.rollout.status == Rollout.Status.REVERTING and not is_back:
            return f"the rollout is being reverted and takes no {_kind_noun(step)} forwards"
        return ""

    @cached_property
    def _whole(self) -> dict[str, RolloutAction]:
        return {action.verb: action for action in self.looked or possible_actions.all_actions(self.rollout)}

    @cached_property
    def _kept(self) -> set[int]:
        rows = Node.objects.filter(steps__rollout=self.rollout, keep_cordoned=True)
        return set(rows.values_list("pk", flat=True))

    @cached_property
    def _foreign(self) -> set[int]:
        """Nodes that a later rollout has begun to write: rollouts._refuse_foreign, for all of them at once."""
        later = NodeExpectation.objects.filter(node__steps__rollout=self.rollout, since__gte=self.rollout.created_at)
        return set(later.exclude(rollout_id=self.rollout.pk).values_list("node_id", flat=True))

    @cached_property
    def _busy(self) -> dict[int, str]:
        rows = Step.objects.filter(is_live=True, node__steps__rollout=self.rollout).exclude(rollout=self.rollout)
        return {node: f"R-{number}" for node, number in rows.values_list("node_id", "rollout__number") if node}

    @cached_property
    def _order(self) -> StepOrder | None:
        return dependency_graph.step_order(self.rollout)

    @cached_property
    def _written_later(self) -> set[str]:
        """Releases that a later rollout has begun to write."""
        return set(conflicts.later_releases(self.rollout).values_list("release", flat=True))

    @cached_property
    def _taken(self) -> dict[str, str]:
        """Releases that another rollout works on."""
        rows = Step.objects.of_components().filter(is_live=True, rollout__cluster=self.rollout.cluster_id)
        rows = rows.exclude(rollout=self.rollout).select_related("rollout")
        return {step.release: str(step.rollout) for step in rows}


def _verbs(step: Step) -> dict[str, str]:
    if step.is_policies:
        return OF_POLICIES
    return OF_COMPONENTS if step.is_component else FOLLOWS


def _kind_noun(step: Step) -> str:
    if step.is_policies:
        return "group of policy objects"
    return "component" if step.is_component else "node"


def _this_part(step: Step) -> str:
    return "these policy objects" if step.is_policies else "this component"


def _why_not_skip(step: Step) -> str:
    if step.status in (Status.QUEUED, Status.FAILED, Status.HELD):
        return ""
    return f"it is {step.status}, and only a queued, failed or held {_kind_noun(step)} is skipped"


def _why_not_revert(step: Step) -> str:
    if step.status == Status.REVERTED:
        return "it is already reverted"
    if not step.has_applied:
        return f"nothing was written to this {_kind_noun(step)}"
    if step.status not in possible_actions.CAN_BE_PUT_BACK:
        return f"it is {step.status}: wait until it finishes"
    return ""
