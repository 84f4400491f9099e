"""Plans, rollouts and releases that need a component's catalog entry; answers `common.hooks.component_uses`."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from components.blast.judgment import REMOVE
from jobs.models import Plan, PlanComponent, Rollout, Step


def uses(name: str) -> Iterator[str]:
    """Three queries."""
    parts = PlanComponent.objects.filter(component=name, kind=PlanComponent.Kind.RELEASE)
    for number in Plan.objects.open().filter(components__in=parts).order_by("-number").values_list("number", flat=True):
        yield f"P-{number} is made with it"
    live = Rollout.objects.live().filter(plan__components__in=parts)
    for number in live.order_by("-number").values_list("number", flat=True):
        yield f"R-{number} works with it"
    yield from _releases(name)


def _releases(name: str) -> Iterator[str]:
    """Yield each cluster in which the last step of the component that began may have left a release."""
    steps = Step.objects.filter(kind=Step.Kind.COMPONENT, component=name).exclude(status=Step.Status.QUEUED)
    steps = steps.select_related("rollout__cluster", "plan_component").order_by("-rollout__number")
    seen: set[UUID] = set()
    for step in steps:
        cluster = step.rollout.cluster
        if cluster.pk not in seen:
            seen.add(cluster.pk)
            if _leaves_release(step):
                yield f"its release is in {cluster}"


def _leaves_release(step: Step) -> bool:
    """Return whether there may be a release after the step: one that failed in the middle may have left it."""
    assert step.plan_component is not None
    prepared = step.plan_component.prepared
    is_removal = step.plan_component.action == REMOVE
    if step.status == Step.Status.REVERTED or step.direction == Step.Direction.REVERT:
        return bool(prepared.get("back_to")) or step.status != Step.Status.REVERTED
    return not (is_removal and step.status == Step.Status.SUCCEEDED)
