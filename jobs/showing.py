"""Components of a plan and of a rollout, as pages show them: bounded, so that a large chart stays a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from components import work
from jobs.engine import order
from jobs.models import Plan, PlanComponent, Rollout, Step

SHOWN_OBJECTS = 60
"""Of a component, on a page; the API has all."""
SHOWN_LINES = 200
"""Of one object's difference, on a page."""
CHANGES = {"deleted": "-", "changed": "~", "unvalidated": "+", "created": "+"}
"""What happens to an object, the worst first, and its sign."""
_WORST = {name: place for place, name in enumerate(CHANGES)}
_SEVERITIES = {"block": 0, "warn": 1, "info": 2}


def of_plan(plan: Plan) -> dict[str, Any]:
    """The page's part; nothing, and no query, where the plan has no component."""
    if not (plan.summary.get("components") or plan.summary.get("components_left_out")):
        return {}
    found = list(plan.components.all())  # type: ignore[attr-defined]
    here = _here(plan, (row.component for row in found if not row.left_out))
    rows = [_shown(row, here) for row in found]
    return {"components": rows, "components_to_do": sum(not row["row"].left_out for row in rows)}


def _here(plan: Plan, components: Iterable[str]) -> frozenset[str]:
    """What this plan carries out: the only things that anything of it comes after."""
    return frozenset(components) | ({order.NODES} if plan.summary.get("nodes") else frozenset())


def _shown(row: PlanComponent, here: Collection[str]) -> dict[str, Any]:
    if not row.prepared:
        return {"row": row, "notes": [], "objects": [], "counts": [], "hidden": 0, "waits": ""}
    prepared = work.Prepared.from_json(row.prepared)
    objects = sorted(prepared.objects, key=lambda o: (_WORST.get(o.change, 0), o.weight))
    counts = Counter(o.change for o in objects)
    return {
        "row": row,
        "waits": waits(row.requires, row.after, here),
        "notes": sorted(prepared.notes, key=lambda note: _SEVERITIES.get(note.severity, 0)),
        "objects": [_object(o) for o in objects[:SHOWN_OBJECTS]],
        "hidden": max(0, len(objects) - SHOWN_OBJECTS),
        "counts": [(name, counts[name]) for name in CHANGES if counts[name]],
    }


def waits(requires: Sequence[str], after: Sequence[str], here: Collection[str]) -> str:
    """`requires cert-manager, after the node settings`; empty where it waits for nothing of what the plan does."""
    named = [f"after {'the node settings' if name == order.NODES else name}" for name in after if name in here]
    return ", ".join([*(f"requires {name}" for name in requires), *named])


def _object(one: work.ObjectDifference) -> dict[str, Any]:
    lines = [_line(text) for text in one.diff.splitlines() if not text.startswith(("--- ", "+++ "))]
    where = f"{one.namespace}/{one.name}" if one.namespace else one.name
    return {
        "change": one.change,
        "kind": one.kind,
        "where": where,
        "lines": lines[:SHOWN_LINES],
        "more": max(0, len(lines) - SHOWN_LINES),
    }


def _line(text: str) -> tuple[str, str]:
    """(sign, rest) of a line of a unified difference, as templates/_diff.html wants it."""
    if text.startswith("@@"):
        return ("@", text)
    return (text[0], text[1:].removeprefix(" ")) if text[:1] in ("+", "-") else (" ", text.removeprefix(" "))


def of_rollout(rollout: Rollout) -> dict[str, Any]:
    """Component steps in their order; nothing, and no query, where the plan has none."""
    if not rollout.plan.summary.get("components"):
        return {}
    steps = rollout.steps.of_components().select_related("plan_component")  # type: ignore[attr-defined]
    found = list(steps.defer("plan_component__prepared").order_by("position"))
    here = _here(rollout.plan, (step.component for step in found))
    rows = [_under_way(step, here) for step in found]
    done = sum(row["step"].status in (Step.Status.SUCCEEDED, Step.Status.REVERTED) for row in rows)
    return {"component_steps": rows, "components_done": done}


def _under_way(step: Step, here: Collection[str]) -> dict[str, Any]:
    planned = step.plan_component
    assert planned is not None
    return {
        "step": step,
        "planned": planned,
        "waits": waits(planned.requires, planned.after, here),
        "now": step.error or step.waiting_for,
    }


def of_step(step: Step) -> dict[str, Any]:
    """What a component's own page shows of the plan."""
    assert step.plan_component is not None
    plan = step.plan_component.plan
    names = plan.components.filter(left_out="").values_list("component", flat=True)  # type: ignore[attr-defined]
    return _shown(step.plan_component, _here(plan, names))
