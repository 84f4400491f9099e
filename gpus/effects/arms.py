"""Nodes of a study: the arms, the rest of the fleet as context, and which nodes count.

With a control, nodes are analyzed by intention to treat: a node whose change failed, that was put back or is gone stays
in the arm that chance put it in, with all that its GPUs did. Nodes do not fail by chance, so an arm without those that
did would no longer be like the other. Without a control only changed nodes tell before and after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Min, Q

from clusters.models import Node
from common.clock import now
from gpus.effects import windows
from gpus.effects.windows import Window
from gpus.models import Study, StudyNode
from jobs.diffs.changes import Disruption
from jobs.forecast import randomization
from jobs.models import Rollout, Step, StepEvent

Spans = Mapping[int, tuple[Window, Window] | None]
"""Both windows of each node, by the study node's key."""
CHANGED = "changed by {rollout} as well"
PUT_BACK, GONE, UNFINISHED = "put back", "no longer there", "did not succeed"
DRAINS = [kind.value for kind in Disruption if kind.drains]
REST_NODES = 64
"""Of the rest of the fleet: enough to see what happened to all, and one slice to read."""


def find_nodes(study: Study) -> None:
    steps = study.rollout.steps.of_nodes().select_related("node", "plan_node")
    own = study.nodes.filter(is_context=False)
    known = own.exclude(node=None).values_list("node_id")  # a NULL in NOT IN keeps every row out
    if study.is_causal:
        if study.nodes.exists():
            return  # the arms are whole from the beginning
        if ended := _treated_ended(study.rollout):
            began = study.rollout.started_at or ended
            drawn = steps.filter(node__is_control_plane=False, plan_node__batch__gt=0)
            rows = [_node(study, step, began, ended) for step in drawn]
            StudyNode.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)
        return
    done = steps.filter(status=Step.Status.SUCCEEDED, direction=Step.Direction.FORWARD).exclude(node__in=known)
    first = _first_told(study.rollout)
    rows = [_node(study, step, first.get(step.pk) or first_touch(step), step.entered_at) for step in done]
    if rows:
        StudyNode.objects.bulk_create([*rows, *_rest(study, rows)], batch_size=500, ignore_conflicts=True)


def _node(study: Study, step: Step, began: datetime, ended: datetime) -> StudyNode:
    assert step.node is not None
    assert step.plan_node is not None
    return StudyNode(
        study=study, node=step.node, node_name=step.node_name, stratum=step.node.gpu_product,
        is_treated=not step.plan_node.is_control, began_at=began, ended_at=ended,
    )  # fmt: skip


def _rest(study: Study, rows: Sequence[StudyNode]) -> list[StudyNode]:
    """Return nodes that the rollout leaves alone, each with the windows of one of `rows` and the same kind of GPU.

    REST_NODES over the whole rollout, spread over it as its nodes are, and drawn by lot.
    """
    all_nodes = study.rollout.steps.of_nodes().count()
    changed, context = (study.nodes.filter(is_context=kind).count() for kind in (False, True))
    wanted = -(-REST_NODES * (changed + len(rows)) // max(1, all_nodes)) - context
    if wanted <= 0:
        return []
    kinds = {row.stratum for row in rows}
    others = Node.objects.filter(
        cluster=study.rollout.cluster_id, gone_at=None, is_control_plane=False, gpu_count__gt=0, gpu_product__in=kinds
    )
    others = others.exclude(pk__in=study.rollout.steps.of_nodes().exclude(node=None).values("node"))
    others = others.exclude(pk__in=study.nodes.exclude(node=None).values("node"))
    lots: dict[str, list[tuple[str, int, str]]] = {kind: [] for kind in kinds}
    for pk, name, kind in others.values_list("pk", "name", "gpu_product").order_by():
        lots[kind].append((randomization.lot(study.rollout.number, name), pk, name))
    for drawn in lots.values():
        drawn.sort(reverse=True)
    out: list[StudyNode] = []
    while len(out) < wanted and any(lots[row.stratum] for row in rows):
        for row in rows:
            if len(out) < wanted and lots[row.stratum]:
                _, pk, name = lots[row.stratum].pop()
                out.append(
                    StudyNode(
                        study=study, node_id=pk, node_name=name, stratum=row.stratum, is_context=True,
                        began_at=row.began_at, ended_at=row.ended_at,
                    )
                )  # fmt: skip
    return out


def _treated_ended(rollout: Rollout) -> datetime | None:
    """Return when the last treated node ended; None while one is pending, or without a control or a change."""
    steps = rollout.steps.of_nodes().filter(plan_node__batch__gt=0, node__is_control_plane=False)
    treated = list(steps.filter(plan_node__is_control=False).values_list("status", "entered_at"))
    if any(status not in Step.RESTING for status, _ in treated):
        return None
    if not any(status == Step.Status.SUCCEEDED for status, _ in treated):
        return None
    return max(at for _, at in treated) if steps.filter(plan_node__is_control=True).exists() else None


def drained(rollout: Rollout) -> int:
    """Return how many treated nodes were emptied for the change; the control was not."""
    steps = rollout.steps.of_nodes().filter(plan_node__batch__gt=0, node__is_control_plane=False)
    treated = steps.filter(plan_node__is_control=False, worst_class__in=DRAINS)
    draining = Step.Status.DRAINING.value  # a node may be emptied and fail before anything is applied
    return treated.filter(Q(has_applied=True) | Q(status=draining) | Q(stages__has_key=draining)).count()


def first_touch(step: Step) -> datetime:
    """Return when the step's last attempt first touched the node: after queueing. Soaking comes after the change."""
    spent = sum(seconds for status, seconds in step.stages.items() if status != Step.Status.QUEUED)
    return step.entered_at - timedelta(seconds=spent)


def _first_told(rollout: Rollout) -> Mapping[Any, datetime]:
    """Return when the first attempt began to log events, for steps that were tried more than once."""
    again = StepEvent.objects.filter(rollout=rollout, step__attempt__gt=1)
    return dict(again.order_by().values_list("step").annotate(first=Min("at")))


# ── their windows ─────────────────────────────────────────────────────────────────────────────────────────────────────


def settle(study: Study) -> timedelta:
    return timedelta(minutes=study.settle_minutes)


def limit(study: Study) -> datetime | None:
    """Return when the control was rolled out after all, the limit of the second window; None if not yet."""
    if not study.is_causal:
        return None
    control = study.rollout.steps.filter(plan_node__is_control=True).exclude(status=Step.Status.QUEUED)
    begun = [first_touch(step) for step in control.only("entered_at", "stages", "status")]
    return windows.down(min(begun)) if begun else None


def last(study: Study, row: StudyNode, limited: datetime | None) -> datetime:
    """Return the end of a node's second window, once it is over."""
    end = windows.up(row.ended_at + settle(study)) + timedelta(hours=study.hours)
    return min(end, limited) if limited else end


# ── whether they count ────────────────────────────────────────────────────────────────────────────────────────────────


def judge(study: Study, rows: Sequence[StudyNode], spans: Spans) -> None:
    """Set why a node is left out, and the deviation of one that stays in its arm nevertheless."""
    changed, deviations = _changed_by_others(study, rows, spans), _deviations(study, rows)
    is_kept = study.is_causal and _has_treatment(study)
    for row in rows:
        deviation = deviations.get(row.node_id, "") if row.node_id else GONE
        other = changed.get(row.node_id, "") if row.node_id else ""
        row.deviation = deviation if is_kept else ""
        row.left_out = (other if is_kept else deviation or other)[:200]


def _has_treatment(study: Study) -> bool:
    """Return whether any node still has the change; a rollout that was put back as a whole has no effect to tell."""
    treated = study.rollout.steps.of_nodes().filter(plan_node__is_control=False)
    return treated.filter(status=Step.Status.SUCCEEDED, direction=Step.Direction.FORWARD).exists()


def _changed_by_others(study: Study, rows: Sequence[StudyNode], spans: Spans) -> dict[int | None, str]:
    """Return nodes that another rollout changed from the first window's start to the second's end, with which."""
    by_node = {row.node_id: row for row in rows if row.node_id}
    out: dict[int | None, str] = {}
    first = min((span[0].start for row in rows if (span := spans[row.pk])), default=now())
    others = Step.objects.filter(node__in=list(by_node), has_applied=True, entered_at__gt=first)
    own = Q(rollout=study.rollout) & ~Q(node__in=[row.node_id for row in rows if row.is_context])
    for step in others.exclude(own).select_related("rollout").order_by("entered_at", "pk"):
        span = spans[by_node[step.node_key].pk]
        if span and span[0].start < step.entered_at and first_touch(step) < span[1].end:
            out[step.node_key] = CHANGED.format(rollout=step.rollout)
    return out


def _deviations(study: Study, rows: Sequence[StudyNode]) -> dict[int | None, str]:
    """Return the nodes that are not what their arm was meant to be, with why."""
    by_node = {row.node_id: row for row in rows if row.node_id}
    out: dict[int | None, str] = {}
    for pk, gone_at in Node.objects.filter(pk__in=by_node).values_list("pk", "gone_at"):
        row = by_node[pk]
        if gone_at and (row.until is None or gone_at < last(study, row, None)):
            out[pk] = GONE
    own = study.rollout.steps.of_nodes().filter(node__in=list(by_node))
    for step in own:
        row = by_node[step.node_key]
        if step.node_key in out or row.is_context:
            continue
        if step.status == Step.Status.REVERTED or step.direction == Step.Direction.REVERT:
            out[step.node_key] = PUT_BACK
        elif row.is_treated and step.status != Step.Status.SUCCEEDED:
            out[step.node_key] = UNFINISHED
    return out
