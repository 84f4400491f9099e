"""Page of one rollout, and its counts for REST, in a fixed number of queries: batches, failures, actions offered."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from django.db.models import Case, Count, F, When, Window
from django.db.models.functions import RowNumber

from accounts.models import User
from accounts.permissions import may
from common import counting
from common.clock import now
from jobs.calendars import targets
from jobs.engine import event_log, sweeping, windows
from jobs.forecast import slots
from jobs.forecast.strategy import Strategy
from jobs.models import Rollout, Step, StepEvent
from jobs.planning import digests
from jobs.reports import counts as numbers
from jobs.reports import glass, order_graph, plan_components
from jobs.reports.remaining import remaining_time
from jobs.rollouts import possible_actions
from jobs.rollouts.eta import RemainingTime
from jobs.rollouts.step_actions import StepOffers

SHOWN_STEPS = 40
SHOWN_EVENTS = 40
SHOWN_BATCHES = 5
"""Batches that are shown node by node; those with in-progress nodes first, then those where something went wrong."""

STAGES = (  # column, and the statuses whose time it shows
    ("Slot", (Step.Status.ADMITTED,)),
    ("Cordon", (Step.Status.CORDONING,)),
    ("Drain", (Step.Status.DRAINING,)),
    ("Apply", (Step.Status.APPLYING,)),
    ("Restart", (Step.Status.RESTARTING,)),
    ("Verify", (Step.Status.VERIFYING,)),
    ("Return", (Step.Status.RETURNING,)),
    ("Soak", (Step.Status.SOAKING,)),
)


def rollout_page(rollout: Rollout, user: User) -> dict[str, Any]:
    steps = rollout.steps.all()
    by_batch, kinds = _count_steps(rollout)
    counts = sum(by_batch.values(), Counter())
    parts = plan_components.parts_of_rollout(rollout)
    of_parts = Counter((row["step"].kind, row["step"].status) for row in parts.get("component_steps", ()))
    done = numbers.finished_steps({("node", status): count for status, count in counts.items()} | of_parts)
    failed = _failed_parts(parts)
    troubled = sum(row["step"].status in _TROUBLED for row in parts.get("component_steps", ()))
    running = sum(counts[s] for s in Step.ACTIVE)
    strategy = Strategy.from_json(rollout.plan.strategy)
    worst = Case(When(status=Step.Status.FAILED, then=0), default=1)
    failing = steps.filter(status__in=_TROUBLED).order_by(worst, "-entered_at", "-pk").first()
    verbs = offered_actions(rollout, user, kinds)
    calendar = windows.calendar(rollout)
    freeze = targets.active_freeze(rollout.cluster, rollout.plan.pool_id, calendar)
    return {
        **parts,
        "failed_first": None if failing else first_failure(rollout),
        "graph": order_graph.rollout_graph(rollout, [row["step"] for row in parts.get("component_steps", ())], counts),
        "rollout": rollout,
        "glass": glass.of_rollout(rollout, user),
        "slower_since": sweeping.slower_since() if rollout.is_live else None,
        "plan": rollout.plan,
        "strategy": strategy,
        "total": done.of_nodes,
        "done": done.nodes,
        "components_done": done.parts,
        "segments": [
            (name, count)
            for name, count in (
                ("succeeded", counts[Step.Status.SUCCEEDED]),
                ("reverted", counts[Step.Status.REVERTED]),
                ("failed", counts[Step.Status.FAILED]),
                ("held", counts[Step.Status.HELD]),
                ("running", running),
                ("skipped", counts[Step.Status.SKIPPED]),
                ("queued", counts[Step.Status.QUEUED]),
            )
            if count
        ],
        "out": slots.out_of_service(rollout.cluster),
        "failures": counts[Step.Status.FAILED],
        "failed_parts": failed.total(),
        "parts_failed": event_log.kinds_sentence(failed) if failed else "",
        "failed_in_all": counts[Step.Status.FAILED] + failed.total(),
        "pace": remaining_time(rollout, by_batch, calendar, freeze) if rollout.is_live else None,
        "failing": failing,
        "failing_offers": offers_for(rollout, failing, user, [o["action"] for o in verbs]) if failing else [],
        "failing_others": max(0, counts[Step.Status.FAILED] + counts[Step.Status.HELD] + troubled - 1),
        **_events(rollout, failing),
        "batches": _batches(rollout, by_batch),
        "stages": [name for name, _ in STAGES],
        "actions": verbs,
        "ending": ended_sentence(rollout, [entry["action"] for entry in verbs]),
        "is_operator": may(user, "operator", rollout.cluster.scopes),
        "freeze": freeze,
    }


def time_left(rollout: Rollout) -> RemainingTime | None:
    """Return the remaining time, as the page shows it; None: it has ended."""
    if not rollout.is_live:
        return None
    calendar = windows.calendar(rollout)
    freeze = targets.active_freeze(rollout.cluster, rollout.plan.pool_id, calendar)
    by_batch, _ = _count_steps(rollout)
    return remaining_time(rollout, by_batch, calendar, freeze)


def _events(rollout: Rollout, failing: Step | None) -> dict[str, list[StepEvent]]:
    """The newest of the rollout itself, newest first, and those of the step that fails, in their order: one query."""
    newest = StepEvent.objects.filter(rollout=rollout).order_by("-pk")
    parts = {"events": newest.filter(step=None)[:SHOWN_EVENTS]}
    if failing:
        parts["failing_events"] = newest.filter(step=failing)[:SHOWN_EVENTS]
    events = counting.lists_of(StepEvent.objects.filter(rollout=rollout), parts)
    return {"events": events["events"], "failing_events": events.get("failing_events", [])[::-1]}


def _failed_parts(parts: Mapping[str, Any]) -> Counter[str]:
    """Failed steps of components and of policy objects, by kind."""
    rows = parts.get("component_steps", ())
    return Counter(row["step"].kind for row in rows if row["step"].status == Step.Status.FAILED)


_TURNED = (Rollout.Status.REVERTING, Rollout.Status.REVERTED, Rollout.Status.ABORTING, Rollout.Status.CANCELLED)


def first_failure(rollout: Rollout) -> StepEvent | None:
    """Return the first failure logged of an aborted or reverted rollout, whose step itself tells no more."""
    if rollout.status not in _TURNED:
        return None
    failures = rollout.events.filter(level=StepEvent.Level.BAD).exclude(step=None)
    return failures.select_related("step").order_by("pk").first()


def failure_sentence(rollout: Rollout) -> str:
    """Explain which step failed or is held; else what failed before the rollout was aborted or reverted; else empty."""
    worst = Case(When(status=Step.Status.FAILED, then=0), default=1)
    step = rollout.steps.filter(status__in=_TROUBLED).order_by(worst, "entered_at", "pk").first()
    if step is not None:
        what = "is held" if step.status == Step.Status.HELD else "failed"
        while_ = f" while {step.failed_in}" if step.failed_in else ""
        return f"{step.name} {what}{while_}: {step.error or step.waiting_for}"
    event = first_failure(rollout)
    return event.about_its_step if event else ""


def offered_actions(
    rollout: Rollout, user: User, kinds: Set[possible_actions.StepSummary] | None = None
) -> list[dict[str, Any]]:
    """Every verb: whether the state permits it, and whether this person may. `kinds` where they were read already."""
    permitted = possible_actions.permissions(rollout, user)
    actions = possible_actions.all_actions(rollout, kinds)
    return [{"action": action, "is_permitted": permitted[action.verb]} for action in actions]


def ended_sentence(rollout: Rollout, actions: Iterable[possible_actions.RolloutAction]) -> str:
    """Explain once for the page what can no longer be done; empty while the rollout lives."""
    if rollout.is_live:
        return ""
    if any(action.is_possible for action in actions):
        return "This rollout has ended: no other action is possible."
    why = next(action.why_not for action in actions if action.verb == "revert")
    return f"This rollout has ended, and it cannot be reverted: {why}. To change its nodes again, make a new plan."


def offers_for(
    rollout: Rollout, step: Step, user: User, looked: Sequence[possible_actions.RolloutAction] = ()
) -> list[dict[str, Any]]:
    """Every verb about one node: whether its state permits it, and whether this person may."""
    offers = StepOffers(rollout, user, looked)
    permitted = offers.permitted()
    return [{"action": action, "is_permitted": permitted[action.verb]} for action in offers.of(step)]


def finished_steps(rollout: Rollout) -> numbers.FinishedSteps:
    """Return the finished steps, as the rollout's page shows them."""
    rows = rollout.steps.order_by().values_list("kind", "status").annotate(Count("pk"))
    return numbers.finished_steps({(kind, status): count for kind, status, count in rows})


def step_counts(rollout: Rollout) -> dict[str, int]:
    """Steps by status."""
    return dict(rollout.steps.values_list("status").annotate(Count("pk")).order_by())


def _count_steps(rollout: Rollout) -> tuple[dict[int, Counter[str]], set[possible_actions.StepSummary]]:
    """Nodes by status of each batch, in their order: every count of the page. And what kinds of steps there are."""
    rows: dict[int, Counter[str]] = defaultdict(Counter)
    kinds: set[possible_actions.StepSummary] = set()
    query = rollout.steps.values_list("kind", "batch", "status", "direction", "has_applied").annotate(Count("pk"))
    for kind, batch, status, direction, has_applied, count in query.order_by("batch"):
        kinds.add((status, direction, has_applied))
        if kind == Step.Kind.NODE:
            rows[batch][status] += count
    return rows, kinds


def _batches(rollout: Rollout, rows: Mapping[int, Counter[str]]) -> list[dict[str, Any]]:
    """Batches with their counts; nodes only of the few with the most steps in progress, at most SHOWN_STEPS of each.

    Batches in a row that are all done, or all wait, are one line however many there are.
    """
    planned = rollout.plan.summary.get("batches", ())
    takes_joining = digests.newest_key_when_planned(rollout.plan) is not None
    canaries = {b["number"] for b in planned if b["is_canary"]}
    control = {b["number"] for b in planned if b.get("is_control")}
    domains = {b["number"]: b["domain"] for b in planned if "domain" in b}
    shown = _shown_steps(rollout, _open_batches(rows))
    lines: list[dict[str, Any]] = []
    for batch, counts in rows.items():
        state = _state_of(batch, counts, shown)
        line: dict[str, Any] = {
            "number": batch,
            "to": batch,
            "is_canary": batch in canaries,
            "is_control": batch in control,
            "domain": domains.get(batch),
            "is_joined": takes_joining and batch > len(planned),
            "counts": _shown_counts(counts),
            "nodes": sum(counts.values()),
            "is_open": batch in shown,
            "steps": shown.get(batch, []),
            "hidden": sum(counts.values()) - len(shown[batch]) if batch in shown else 0,
            "state": state,
        }
        before = lines[-1] if lines else None
        if (
            before
            and state
            and before["state"] == state
            and not (before["is_canary"] or line["is_joined"] or before["is_control"] != line["is_control"])
            and before["domain"] == line["domain"]
        ):
            both = Counter(dict(before["counts"]))
            both.update(dict(line["counts"]))
            before |= {"to": batch, "counts": list(both.items()), "nodes": before["nodes"] + line["nodes"]}
        else:
            lines.append(line)
    return lines


def _state_of(batch: int, counts: Counter[str], shown: Mapping[int, Any]) -> str:
    """Return the state by which a batch joins its neighbors in one line; empty for one shown node by node."""
    if batch in shown:
        return ""
    if set(counts) == {Step.Status.QUEUED}:
        return "waits"
    return "over" if set(counts) <= set(Step.RESTING) - {Step.Status.FAILED} else "other"


_TROUBLED = (Step.Status.FAILED, Step.Status.HELD)


def _open_batches(rows: Mapping[int, Counter[str]]) -> list[int]:
    """Batches that neither rest in peace nor wait untouched; in-progress nodes first, then what went wrong."""
    quiet = set(Step.RESTING) - {Step.Status.FAILED}
    alive = [b for b, c in rows.items() if not set(c) <= quiet and set(c) != {Step.Status.QUEUED}]
    return sorted(alive, key=lambda b: (not set(rows[b]) & set(Step.ACTIVE), not set(rows[b]) & set(_TROUBLED), b))[
        :SHOWN_BATCHES
    ]


def _shown_steps(rollout: Rollout, batches: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    """The worst and then the latest of each batch, in one query."""
    if not batches:
        return {}
    order = (Case(When(status__in=_TROUBLED, then=0), default=1), F("entered_at").desc(), F("position"))
    rank = Window(RowNumber(), partition_by="batch", order_by=order)
    rows = rollout.steps.filter(batch__in=batches).annotate(rank=rank).filter(rank__lte=SHOWN_STEPS)
    shown: dict[int, list[dict[str, Any]]] = {batch: [] for batch in batches}
    soak = Strategy.from_json(rollout.plan.strategy).soak_seconds
    for step in rows.order_by("batch", "rank"):
        shown[step.batch].append({"step": step, "cells": stage_cells(step), "now": activity_text(step, soak)})
    return shown


def activity_text(step: Step, soak_seconds: int) -> str:
    """Return what the node does now. The engine states the soak once; here it counts down."""
    if step.status == Step.Status.SOAKING and not step.error:
        left = soak_seconds - int((now() - step.entered_at).total_seconds())
        return f"Soaking, {left} s left." if left > 0 else "Soaked; the next look ends it."
    return step.error or step.waiting_for or step.status


def _shown_counts(counts: Counter[str]) -> list[tuple[str, int]]:
    """(status for people, count): the states under way are all `running`."""
    out: Counter[str] = Counter()
    for status, count in counts.items():
        out["running" if status in Step.ACTIVE else status] += count
    return list(out.items())


def stage_cells(step: Step) -> list[dict[str, Any]]:
    """Return one cell a stage: its state and the seconds spent."""
    out = []
    for _, statuses in STAGES:
        spent = sum(step.stages.get(s, 0) for s in statuses)
        state = "done" if any(s in step.stages for s in statuses) else ""
        if step.status in statuses:
            state = "waiting" if step.waiting_for else "running"
            spent += (now() - step.entered_at).total_seconds()
        elif step.failed_in in statuses:
            state = "held" if step.status == Step.Status.HELD else "failed"
        out.append({"state": state, "seconds": int(spent)})
    return out


def events_of(step: Step) -> list[StepEvent]:
    return list(step.events.order_by("pk"))
