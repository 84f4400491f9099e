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


def role_yaml(row: PlanComponent, authority: Authority, *, is_whole: bool = False) -> str:
    """Return the role as YAML, for the cluster's administrator to apply; `is_whole`: with what is dangerous."""
    return Rights(row.component, authority.rights).text(is_whole=is_whole)


def role_file_name(row: PlanComponent) -> str:
    return f"setpoint-component-{row.component}.yaml"


def rights_of_page(row: PlanComponent, authority: Authority | None) -> dict[str, Any] | None:
    """Return what the page shows of one component's rights: what lacks first, then what is dangerous."""
    if authority is None:
        return None
    ordered = sorted(authority.rights, key=lambda right: (not right.lacks, not right.danger))
    return {
        "account": authority.account or "the cluster's own credential",
        "until": administrator_until_text(authority),
        "is_known": authority.is_known,
        "rights": ordered[:SHOWN],
        "more": max(0, len(ordered) - SHOWN),
        "count": len(ordered),
        "lacking": len(authority.lacking),
        "dangerous": len(authority.dangerous),
        "role": role_yaml(row, authority),
        "file": role_file_name(row),
    }


def administrator_until_text(authority: Authority) -> str:
    until = authority.administrator_until
    return f"{until[:10]} {until[11:16]} UTC" if until else ""


def administrators(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Components that helm carries out as a cluster administrator: a line of their own for approvers."""
    return [
        {"component": row["row"].component, "until": row["rights"]["until"]}
        for row in rows
        if row.get("rights") and row["rights"]["until"]
    ]


def as_json(row: PlanComponent, authority: Authority) -> dict[str, Any]:
    """Return the rights as REST shows them."""
    return {
        "account": authority.account,
        "administrator_until": authority.administrator_until.replace("+00:00", "Z") or None,
        "is_known": authority.is_known,
        "lacking": len(authority.lacking),
        "rules": [
            {
                "namespace": right.namespace,
                "api_groups": list(right.groups),
                "resources": list(right.resources),
                "resource_names": list(right.names),
                "non_resource_urls": list(right.urls),
                "verbs": list(right.verbs),
                "needed_for": right.why,
                "danger": right.danger,
                "lacks": list(right.lacks),
            }
            for right in authority.rights
        ],
        "role": role_yaml(row, authority),
        "apply": f"kubectl apply -f {role_file_name(row)}",
    }
