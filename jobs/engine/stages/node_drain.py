"""Drain of a node: evict what may be evicted, and wait for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clusters import objects
from clusters.fleet import PodRef
from clusters.sharing import gpu_groups
from jobs.engine.failure import hold
from jobs.engine.outcome import POLL_SECONDS, NodeView, StepOutcome, go, wait
from jobs.engine.stages import node_taints
from jobs.forecast import findings
from jobs.models import Step

Status = Step.Status


def draining(view: NodeView) -> StepOutcome:
    """Evict what may be evicted, wait for the rest; PodDisruptionBudgets decide, never we."""
    there = view.fleet.pods_on(view.step.node_name)
    pods = [pod for pod in there if not objects.stays(pod) and node_taints.is_drained(view, pod)]
    pods = _without_kept(pods, there)
    if not pods:
        return go(Status.APPLYING, has_applied=True).says("Drained.")
    if refused := _without_consent(view, pods):
        return hold(view, refused)
    leaving = [p for p in _in_turn(pods) if not objects.meta(p).get("deletionTimestamp")]
    if leaving and not view.step.is_disrupted:
        budgets = view.fleet.budgets()
        if not all(findings.blocking_budgets(p, budgets) for p in leaving):
            # Committed before the first eviction, so that a kill in between cannot make it look untouched (law 14).
            return StepOutcome(fields={"is_disrupted": True}, waits_for="Evicting pods.", again_in=0.001)
    blocked: list[str] = []
    pause = POLL_SECONDS
    evicted = 0
    for pod in leaving:
        view.before_write()
        meta = objects.meta(pod)
        answer = view.fleet.evict(PodRef(meta["namespace"], meta["name"], meta["uid"]))
        evicted += answer.outcome == "evicted"
        if answer.outcome == "blocked":
            blocked.append(f"{answer.budget or 'a PodDisruptionBudget'} for {meta['namespace']}/{meta['name']}")
        if answer.outcome == "throttled":
            pause = max(pause, answer.retry_after)
            break
    if blocked:
        left = f"{_pods(len(pods))} left on {view.step.node_name}"
        text = f"The PodDisruptionBudget {blocked[0]} allows no disruption; {left}."
    else:
        text = f"{_pods(len(pods))} on {view.step.node_name} {'is' if len(pods) == 1 else 'are'} ending."
    out = wait(text, again_in=pause)
    if evicted:
        out.fields["is_disrupted"] = True
        out.says(f"Evicted {_pods(evicted)}, {len(pods)} on the node.")
    return out


def _without_kept(pods: list[dict[str, Any]], there: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Leave out reservations of GPUs that a pod shares which the drain leaves on the node."""
    leaving = {objects.meta(pod).get("uid") for pod in pods}
    staying = [pod for pod in there if objects.meta(pod).get("uid") not in leaving and not objects.is_finished(pod)]
    kept = {key for pod in staying if not gpu_groups.is_reservation(pod) for key in gpu_groups.devices(pod)}
    return [pod for pod in pods if not (gpu_groups.is_reservation(pod) and kept & gpu_groups.devices(pod).keys())]


def _in_turn(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pods to evict now: reservations of shared GPUs only once the pods that share them are gone.

    Without its reservation a pod is deleted by its scheduler, and no PodDisruptionBudget is asked.
    """
    first = [pod for pod in pods if not gpu_groups.is_reservation(pod)]
    shared = {key for pod in first for key in gpu_groups.devices(pod)}
    return first + [
        pod for pod in pods if gpu_groups.is_reservation(pod) and not shared & gpu_groups.devices(pod).keys()
    ]


def _pods(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"


def _without_consent(view: NodeView, pods: list[dict[str, Any]]) -> str:
    """Consent covers what the plan showed; a bare pod that came later needs it just the same.

    A reservation of a shared GPU needs none: it is made again with the pods that share one.
    """
    for pod in pods:
        name = f"{objects.meta(pod).get('namespace')}/{objects.meta(pod).get('name')}"
        is_lost = not objects.controller(pod)[0] and not gpu_groups.is_reservation(pod)
        if is_lost and not view.strategy.delete_unmanaged_pods:
            return f"Pod {name} has no controller and would be lost; the plan has no consent for that."
        if objects.has_empty_dir(pod) and not view.strategy.delete_empty_dir_data:
            return f"Pod {name} has an emptyDir volume whose data would be lost; the plan has no consent for that."
    return ""
