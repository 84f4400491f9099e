"""Facts that conditions may name, with their types. docs/policy.md has the same table, and a test compares the two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from jobs.diffs.changes import Disruption

FACTS_VERSION = 1
"""Raised when a fact is renamed, removed or counted in another way; a new fact alone does not raise it."""


@dataclass(frozen=True, slots=True)
class FactType:
    """Type of a fact: a scalar, `class` (of disruption, which has an order), a list of one type, or a record."""

    kind: str
    item: FactType | None = None
    fields: Mapping[str, FactType] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return f"list of {self.item}" if self.item else self.kind


BOOL, INT, DOUBLE, STRING, CLASS = (FactType(kind) for kind in ("bool", "int", "double", "string", "class"))


def list_of(item: FactType) -> FactType:
    return FactType("list", item)


COMPONENT = FactType(
    "component", fields={"name": STRING, "action": STRING, "namespace": STRING, "version": STRING, "risk": CLASS}
)
FINDING = FactType("finding", fields={"code": STRING, "severity": STRING})

PLAN: Mapping[str, tuple[FactType, str]] = {
    "cluster": (STRING, "Name of the cluster"),
    "cluster_id": (STRING, "Id of the cluster, the same under another name"),
    "environment": (
        STRING,
        "`production`, `staging` or `development`; unknown if its row was changed outside Setpoint",
    ),
    "pool": (STRING, "Name of the pool"),
    "profile": (STRING, "Name of the profile"),
    "revision": (STRING, "The revision, as pages show it"),
    "risk": (CLASS, "The most disruptive class; unknown while a component could not be prepared"),
    "nodes": (INT, "Nodes that it changes"),
    "drains": (INT, "Nodes whose pods leave: of the class `containerd-restart` or more disruptive"),
    "reboots": (INT, "Nodes that reboot"),
    "batches": (INT, "Batches of nodes"),
    "canary_nodes": (INT, "Nodes of the canary batch; 0 without one"),
    "gpus": (INT, "GPUs of the pool"),
    "gpus_out": (INT, "GPUs out of service at once, at most"),
    "gpu_hours": (DOUBLE, "GPU-hours that it costs, estimated"),
    "gpu_jobs": (INT, "GPU jobs that it interrupts"),
    "namespaces": (list_of(STRING), "Namespaces of those jobs"),
    "pods_evicted": (INT, "Pods evicted"),
    "components": (list_of(COMPONENT), "Components and groups of policy objects that it changes"),
    "settings": (list_of(STRING), "Keys of the node settings that it changes"),
    "weakens_security": (BOOL, "A setting of it weakens the security of a node"),
    "destroys": (BOOL, "It destroys objects or formats disks, which an approver types a consent for"),
    "formatted_disks": (INT, "Local disks that it formats"),
    "findings": (list_of(FINDING), "Findings of the plan"),
    "author": (STRING, "E-mail address of its author, empty if Setpoint drafted it; unknown if the account is gone"),
    "authors": (list_of(STRING), "Those who wrote what it brings; unknown if one of the accounts is gone"),
    "drafted": (BOOL, "Setpoint made it by itself"),
    "measured": (BOOL, "Its evidence: it holds a control group back and measures its effect"),
    "environments": (list_of(STRING), "`plan.environment`; all three where that is unknown"),
    "known_risk": (CLASS, "`plan.risk` where it is known; else the class of the parts that could be prepared"),
    "gpu_percent": (DOUBLE, "Share of the cluster's GPUs on nodes that it changes or disturbs, 0 to 100, as of now"),
    "node_percent": (DOUBLE, "Share of the cluster's nodes that it changes or disturbs, 0 to 100, as of now"),
    "most_gpus": (INT, "GPUs of all nodes that it takes out of service, as of now; at least `plan.gpus_out`"),
    "most_gpu_jobs": (INT, "GPU jobs on nodes that it drains, as of now; at least `plan.gpu_jobs`"),
    "owners": (
        list_of(STRING),
        "Teams that own its pool, its profile, or a pool whose nodes it changes or disturbs: when it was made, and now",
    ),
    "all_namespaces": (list_of(STRING), "Namespaces of those jobs, and `plan.namespaces`"),
}
JUDGED: Mapping[str, tuple[FactType, str]] = {
    "hour": (INT, "Hour of the day, 0 to 23, in the policy's time zone"),
    "minute": (INT, "Minute of the hour"),
    "weekday": (INT, "Day of the week, 1 (Monday) to 7 (Sunday)"),
    "date": (STRING, "`2026-11-27`"),
}
CLASSES: Mapping[str, int] = {each.name: each.rank for each in Disruption}
"""Constants of the type `class`: `plan.risk >= DRAIN`."""

ROOTS: Mapping[str, FactType] = {
    "plan": FactType("plan", fields={name: kind for name, (kind, _) in PLAN.items()}),
    "judged": FactType("judged", fields={name: kind for name, (kind, _) in JUDGED.items()}),
    **dict.fromkeys(CLASSES, CLASS),
}


def documented() -> Iterator[tuple[str, str, str]]:
    """Yield (name, type, meaning) of each fact; the fields of records after their list."""
    for root, facts in (("plan", PLAN), ("judged", JUDGED)):
        for name, (kind, meaning) in facts.items():
            yield f"{root}.{name}", str(kind), meaning
            for part, of_part in (kind.item.fields if kind.item else {}).items():
                yield f"{root}.{name}[].{part}", str(of_part), f"Of each {kind.item}"
