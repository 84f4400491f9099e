"""Components and policy objects of a plan and of a rollout, as pages show them: bounded, so that a large chart stays a
page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.blast.judgment import REMOVE
from components.policies.policy_objects import PreparedPolicies
from components.policies.takeover import Take
from components.release import work
from components.release.work import ObjectDifference
from jobs.diffs import cluster_scope, dependency_graph
from jobs.diffs.changes import Disruption
from jobs.engine import event_log
from jobs.models import Plan, PlanComponent, Rollout, Step
from jobs.reports import component_rights

SHOWN_OBJECTS = 60
"""Of a component, on a page; the API has all."""
SHOWN_HITS = 12
"""Of one component, on a page: what it does, and what goes."""
SHOWN_LINES = 200
"""Of one object's difference, on a page."""
CHANGES = {"deleted": "-", "changed": "~", "unvalidated": "+", "created": "+"}
"""What happens to an object, the worst first, and its sign."""
_WORST = {name: place for place, name in enumerate(CHANGES)}
_SEVERITIES = {"block": 0, "warn": 1, "info": 2}

LOOK = "wait until ready"
"""Of what is installed as wanted and was not seen ready."""


def parts_of_plan(plan: Plan) -> dict[str, Any]:
    """The page's part; nothing, and no query, where the plan has neither."""
    if not (plan.has_parts or plan.summary.get("components_left_out")):
        return {}
    parts = list(plan.components.all())
    here = _carried_out(plan, (row.component for row in parts if not row.left_out))
    rows = [_component_context(row, here) for row in parts]
    return {
        "components": rows,
        "components_to_do": sum(not row["row"].left_out for row in rows),
        "parts_title": _title(row.kind == PlanComponent.Kind.POLICIES for row in parts),
        "risks": _risks(rows),
        "destroyed": [kind for row in rows for kind in _destroyed(row["row"])],
        "reverts": [sentence for row in rows if (sentence := _undone(row["row"]))],
        "administrators": component_rights.administrators(rows),
    }


def _risks(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each part of the plan with what it does to running work, the most disruptive first."""
    out = []
    for shown in rows:
        if not (blast := shown.get("blast")):
            continue
        out.append(
            {
                "row": shown["row"],
                "blast": blast,
                "hits": blast.hits[:SHOWN_HITS],
                "more": max(0, len(blast.hits) - SHOWN_HITS),
                "deleted": blast.deleted[:SHOWN_HITS],
                "more_deleted": max(0, len(blast.deleted) - SHOWN_HITS),
            }
        )
    return sorted(out, key=lambda risk: (-Disruption(risk["blast"].worst).rank, risk["row"].position))


def _destroyed(row: PlanComponent) -> list[dict[str, Any]]:
    """Return the kinds that go together with objects of theirs."""
    return [] if row.left_out else [kind for kind in row.prepared.get("destroys", ()) if kind["count"]]


def _undone(row: PlanComponent) -> str:
    """Return what a revert does with a release; empty where the plan does nothing to one."""
    if row.left_out or row.kind != PlanComponent.Kind.RELEASE or row.action == "none":
        return ""
    prepared = work.Prepared.from_json(row.prepared)
    if row.action == REMOVE:
        if not prepared.back_to:
            return f"{row.component} does not come back"
        lost = sum(max(kind.count, 0) for kind in prepared.destroys)
        without = f", without the {lost:,} object{'' if lost == 1 else 's'} of its kinds" if lost else ""
        return f"{row.component} comes back as it was{without}"
    if not prepared.back_to:
        return f"{row.component} is removed"
    return f"{row.component} goes back to {prepared.from_version or 'its values before'}"


def _verb(row: PlanComponent, counts: Mapping[str, int]) -> str:
    """Return what the plan does with it, in one or two words."""
    if row.kind != PlanComponent.Kind.POLICIES:
        return LOOK if row.action == "none" else row.action
    new, other = counts["created"] + counts["unvalidated"], counts["changed"]
    return "create and change" if new and other else "change" if other else "create"


def _title(are_policies: Iterable[bool]) -> str:
    """Return the title of the card that shows a plan's or a rollout's parts."""
    kinds = set(are_policies)
    return "Components and policy objects" if len(kinds) > 1 else "Policy objects" if kinds == {True} else "Components"


def _carried_out(plan: Plan, components: Iterable[str]) -> frozenset[str]:
    """Return what this plan carries out: the only things that anything of it comes after."""
    return frozenset(components) | ({dependency_graph.NODES} if plan.summary.get("nodes") else frozenset())


def _component_context(row: PlanComponent, here: Collection[str]) -> dict[str, Any]:
    if not row.prepared:
        return {"row": row, "notes": [], "objects": [], "counts": [], "hidden": 0, "waits": "", "verb": row.action}
    prepared = cluster_scope.read_prepared(row)
    objects = list(objects_of(prepared))
    if not isinstance(prepared, PreparedPolicies):
        objects.sort(key=lambda o: (_WORST.get(o.change, 0), o.weight))
    counts = Counter(o.change for o in objects)
    return {
        "row": row,
        "blast": None if row.left_out else prepared.blast,
        "rights": component_rights.rights_of_page(row, component_rights.authority_of(row)),
        "done_to": action_text(row),
        "caveats": () if isinstance(prepared, PreparedPolicies) or row.left_out else prepared.caveats,
        "from_version": "" if isinstance(prepared, PreparedPolicies) else prepared.from_version,
        "verb": _verb(row, counts),
        "waits": waits_sentence(row.requires, row.after, here),
        "notes": sorted(prepared.notes, key=lambda note: _SEVERITIES.get(note.severity, 0)),
        "objects": [_object(o) for o in objects[:SHOWN_OBJECTS]],
        "hidden": max(0, len(objects) - SHOWN_OBJECTS),
        "counts": [(name, counts[name]) for name in CHANGES if counts[name]],
    }


@dataclass(frozen=True, slots=True)
class PolicyDifference(ObjectDifference):
    """Change of a policy object."""

    takes: tuple[Take, ...] = ()
    """Fields that are taken from their holders."""


def objects_of(prepared: cluster_scope.Prepared) -> Sequence[ObjectDifference]:
    """Return what differs, object by object; policy objects in the order in which they are applied."""
    if not isinstance(prepared, PreparedPolicies):
        return prepared.objects
    changed = [policy for policy in prepared.objects if policy.change != "same"]
    return [
        PolicyDifference(
            difference.change,
            ref.api_version,
            ref.kind,
            ref.namespace,
            ref.name,
            difference.diff,
            place,
            difference.takes,
        )
        for place, difference in enumerate(changed)
        for ref in (difference.ref,)
    ]


def waits_sentence(requires: Sequence[str], after: Sequence[str], here: Collection[str]) -> str:
    """`requires cert-manager; after the node settings and cilium`; empty where it waits for nothing of the plan's."""
    then = ["the node settings" if name == dependency_graph.NODES else name for name in after if name in here]
    conditions = [
        (word, event_log.join_names(names)) for word, names in (("requires", requires), ("after", then)) if names
    ]
    return "; ".join(f"{word} {names}" for word, names in conditions)


def action_text(row: PlanComponent) -> str:
    """`install 1.20.0`; of policy objects how they are written, which their counts say more about."""
    if row.kind == PlanComponent.Kind.POLICIES:
        return "written by Setpoint itself"
    return f"{LOOK if row.action == 'none' else row.action} {row.version}".rstrip()


def _object(difference: work.ObjectDifference) -> dict[str, Any]:
    lines = [_line(text) for text in difference.diff.splitlines() if not text.startswith(("--- ", "+++ "))]
    where = f"{difference.namespace}/{difference.name}" if difference.namespace else difference.name
    return {
        "change": difference.change,
        "kind": difference.kind,
        "where": where,
        "lines": lines[:SHOWN_LINES],
        "more": max(0, len(lines) - SHOWN_LINES),
    }


def _line(text: str) -> tuple[str, str]:
    """(sign, rest) of a line of a unified difference, as the template tag `difference` wants it."""
    if text.startswith("@@"):
        return ("@", text)
    return (text[0], text[1:]) if text[:1] in ("+", "-") else (" ", text.removeprefix(" "))


def parts_of_rollout(rollout: Rollout) -> dict[str, Any]:
    """Steps of components and policy objects in their order; nothing, and no query, where the plan has none."""
    if not rollout.plan.has_parts:
        return {}
    steps = rollout.steps.of_components().select_related("plan_component")
    steps_in_order = list(steps.defer("plan_component__prepared").order_by("position"))
    here = _carried_out(rollout.plan, (step.component for step in steps_in_order))
    rows = [_under_way(step, here) for step in steps_in_order]
    return {"component_steps": rows, "parts_title": _title(s.is_policies for s in steps_in_order)}


def _under_way(step: Step, here: Collection[str]) -> dict[str, Any]:
    planned = step.plan_component
    assert planned is not None
    return {
        "step": step,
        "planned": planned,
        "done_to": action_text(planned),
        "waits": waits_sentence(planned.requires, planned.after, here),
        "now": step.error or step.waiting_for,
    }


def part_of_step(step: Step) -> dict[str, Any]:
    """Return what a component's own page shows of the plan."""
    assert step.plan_component is not None
    plan = step.plan_component.plan
    names = plan.components.filter(left_out="").values_list("component", flat=True)
    return _component_context(step.plan_component, _carried_out(plan, names))
