"""The rights that each component of a plan needs, for pages and REST: their holder, what lacks, and its role."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from components.access.rights import Rights
from components.plans.authority import Authority
from components.policies.policy_objects import PreparedPolicies
from jobs.diffs import cluster_scope
from jobs.models import PlanComponent

SHOWN = 80
"""Rights of one component, on a page; the API has all."""


def authority_of(row: PlanComponent) -> Authority | None:
    """None where nothing is done, and of policy objects, which no chart brings."""
    if not row.prepared or row.left_out:
        return None
    prepared = cluster_scope.read_prepared(row)
    return None if isinstance(prepared, PreparedPolicies) else prepared.authority


def role_yaml(row: PlanComponent, found: Authority, *, is_whole: bool = False) -> str:
    """Return the role as YAML, for the cluster's administrator to apply; `is_whole`: with what is dangerous."""
    return Rights(row.component, found.rights).text(is_whole=is_whole)


def role_file_name(row: PlanComponent) -> str:
    return f"setpoint-component-{row.component}.yaml"


def rights_of_page(row: PlanComponent, found: Authority | None) -> dict[str, Any] | None:
    """Return what the page shows of one component's rights: what lacks first, then what is dangerous."""
    if found is None:
        return None
    ordered = sorted(found.rights, key=lambda one: (not one.lacks, not one.danger))
    return {
        "account": found.account or "the cluster's own credential",
        "until": administrator_until_text(found),
        "is_known": found.is_known,
        "rights": ordered[:SHOWN],
        "more": max(0, len(ordered) - SHOWN),
        "count": len(ordered),
        "lacking": len(found.lacking),
        "dangerous": len(found.dangerous),
        "role": role_yaml(row, found),
        "file": role_file_name(row),
    }


def administrator_until_text(found: Authority) -> str:
    until = found.administrator_until
    return f"{until[:10]} {until[11:16]} UTC" if until else ""


def administrators(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Components that helm carries out as a cluster administrator: a line of their own for approvers."""
    return [
        {"component": one["row"].component, "until": one["rights"]["until"]}
        for one in rows
        if one.get("rights") and one["rights"]["until"]
    ]


def as_json(row: PlanComponent, found: Authority) -> dict[str, Any]:
    """Return the rights as REST shows them."""
    return {
        "account": found.account,
        "administrator_until": found.administrator_until.replace("+00:00", "Z") or None,
        "is_known": found.is_known,
        "lacking": len(found.lacking),
        "rules": [
            {
                "namespace": one.namespace,
                "api_groups": list(one.groups),
                "resources": list(one.resources),
                "resource_names": list(one.names),
                "non_resource_urls": list(one.urls),
                "verbs": list(one.verbs),
                "needed_for": one.why,
                "danger": one.danger,
                "lacks": list(one.lacks),
            }
            for one in found.rights
        ],
        "role": role_yaml(row, found),
        "apply": f"kubectl apply -f {role_file_name(row)}",
    }
