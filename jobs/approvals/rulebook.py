"""Writing of approval rules: permission, validation, and the effect on plans that wait now."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction

from accounts.models import PendingChange, RoleBinding, User
from accounts.people import bootstrap, pending
from accounts.people.pending import Proposed
from accounts.permissions import GLOBAL, check_scope, may, require_person
from audit import services as audit
from clusters.models import Cluster
from common.clock import now
from common.errors import Invalid, Stale, WrongState
from components.catalog import catalog
from jobs.approvals import reviews, rules, weaker_rules
from jobs.diffs.changes import Disruption
from jobs.models import ApprovalRule, Plan

MOST_APPROVERS = 10
"""A judgment: more people than a platform team has is a mistake, and no plan would ever be approved."""
MOST = 1_000_000
"""A judgment: no cluster has more GPUs or jobs."""
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
BUILT_IN: tuple[dict[str, Any], ...] = (
    {"name": "default", "approvers": 1},
    {
        "name": "production, disruptive",
        "environment": "production",
        "worst_class": "network",
        "approvers": 2,
    },
    {"name": "settings that weaken security", "weakens_security": True, "approvers": 2},
)
"""What an installation begins with; the migration that made the table holds the same."""
FIELDS = (
    "name", "environment", "cluster", "worst_class", "gpu_percent", "node_percent", "gpus", "gpu_jobs",
    "namespace", "component", "weakens_security", "approvers",
    "of_count", "of_role", "of_scope", "is_enabled",
)  # fmt: skip
OF_ROLES = (RoleBinding.Role.APPROVER, RoleBinding.Role.OPERATOR, RoleBinding.Role.ADMIN)


def reason_not_to_change(user: User) -> str:
    """Return why this person may not change rules; empty when they may."""
    if user.is_service:
        return "A service account cannot write approval rules: people decide them."
    return "" if may(user, "admin", GLOBAL) else "This needs the role admin for all clusters."


WEAKEN = "rule.weaken"


@transaction.atomic
def create(*, by: User, **fields: Any) -> ApprovalRule:
    """Raises NotAllowed, Invalid naming each field."""
    require_person(by, "admin", GLOBAL, doing="write approval rules")
    wanted = _checked(fields)
    row = ApprovalRule(changed_by=by, **wanted)
    _save(row)
    _record(row, by, "rule.create", before=None)
    reviews.rejudge(by=by)
    return row


@transaction.atomic
def change(row: ApprovalRule, *, by: User, version: int, **fields: Any) -> ApprovalRule | Proposed:
    """Change only the given fields. Raises NotAllowed, Invalid, Stale.
    A change by which any plan would need less waits for consent.
    """
    require_person(by, "admin", GLOBAL, doing="write approval rules")
    wanted = _checked({name: getattr(row, name) for name in FIELDS} | fields)
    _lock(row, version)
    if weaker_rules.is_weaker(row, wanted) and not bootstrap.needs_no_consent(by):
        about = f"The rule “{row.name}” requires less: {_describe(row)} becomes {_describe(ApprovalRule(**wanted))}."
        return _propose(row, by, about, {name: wanted[name] for name in FIELDS if wanted[name] != getattr(row, name)})
    return _change(row, by, version, wanted)


def _change(row: ApprovalRule, by: User, version: int, wanted: Mapping[str, Any]) -> ApprovalRule:
    before = as_json(row)
    for name, value in wanted.items():
        setattr(row, name, value)
    row.version, row.changed_at, row.changed_by = version + 1, now(), by
    _save(row)
    _record(row, by, "rule.change", before=before)
    reviews.rejudge(by=by)
    return row


@transaction.atomic
def delete(row: ApprovalRule, *, by: User, version: int) -> list[Plan] | Proposed:
    """Plans that it alone held back are approved by what is left. One that holds waits for consent.

    Raises NotAllowed, Stale.
    """
    require_person(by, "admin", GLOBAL, doing="write approval rules")
    _lock(row, version)
    if weaker_rules.is_weaker(row, None) and not bootstrap.needs_no_consent(by):
        return _propose(row, by, f"The rule “{row.name}” is deleted: {_describe(row)} is no longer required.", None)
    return _delete(row, by)


def _delete(row: ApprovalRule, by: User) -> list[Plan]:
    before, pk = as_json(row), row.pk
    row.delete()
    row.pk = pk
    _record(row, by, "rule.delete", before=before, is_gone=True)
    return reviews.rejudge(by=by)


def _propose(row: ApprovalRule, by: User, about: str, changes: Mapping[str, Any] | None) -> Proposed:
    """`changes` None: it is deleted."""
    stored = None if changes is None else {name: _stored(value) for name, value in changes.items()}
    wanted = {"version": row.version, "changes": stored}
    return pending.propose(kind=WEAKEN, by=by, about=about, target=f"rule:{row.pk}", wanted=wanted)


def _stored(value: Any) -> Any:
    return str(value.pk) if isinstance(value, Cluster) else value


def _describe(row: ApprovalRule) -> str:
    off = "" if row.is_enabled else " (disabled)"
    return f"{rules.describe_demand(rules.RuleRequirement.of(row))} for {rules.describe_conditions(row)}{off}"


def _consented(change: PendingChange, by: User) -> None:
    """Apply a proposed change to the very version that it was proposed for. Raises Stale, Invalid."""
    row = ApprovalRule.objects.filter(pk=int(change.target.removeprefix("rule:"))).first()
    if row is None:
        raise WrongState("The rule no longer exists: refuse this change.")
    version, changes = change.wanted["version"], change.wanted["changes"]
    _lock(row, version)
    if changes is None:
        _delete(row, by)
        return
    changes = dict(changes)
    if changes.get("cluster"):
        changes["cluster"] = Cluster.objects.get(pk=changes["cluster"])
    _change(row, by, version, _checked({name: getattr(row, name) for name in FIELDS} | changes))


pending.KINDS[WEAKEN] = _consented


def as_json(row: ApprovalRule) -> dict[str, Any]:
    """Return what the rule says, for the audit record; the cluster by its id."""
    out = {name: getattr(row, name) for name in FIELDS if name != "cluster"}
    return out | {"cluster": str(row.cluster_id) if row.cluster_id else None}


def _lock(row: ApprovalRule, version: int) -> None:
    """One writer at a time, and only on the version that was read."""
    current = ApprovalRule.objects.select_for_update().filter(pk=row.pk).values_list("version", flat=True).first()
    if current != version:
        raise Stale(f"The rule “{row.name}” was changed meanwhile. Reload it and try again.")


def _save(row: ApprovalRule) -> None:
    try:
        with transaction.atomic():  # savepoint: judge this one write
            row.save()
    except IntegrityError as error:  # the unique name
        raise Invalid("The rule is not valid.", fields={"name": ["There is a rule of this name."]}) from error


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Every field, whole. Raises Invalid with all that is wrong at once."""
    errors: dict[str, list[str]] = {}
    name = " ".join(str(given.get("name") or "").split())
    if not 1 <= len(name) <= 80:
        errors["name"] = ["Give it a name of at most 80 characters: pages and records show which rule required what."]
    environment, cluster = given.get("environment") or "", given.get("cluster")
    if environment and environment not in Cluster.Environment.values:
        errors["environment"] = [f"Must be one of {', '.join(Cluster.Environment.values)}, or empty."]
    elif environment and cluster is not None and cluster.environment != environment:
        errors["environment"] = [f"{cluster} is {cluster.environment}: the rule would never match."]
    worst_class = given.get("worst_class") or ""
    if worst_class and worst_class not in set(Disruption):
        errors["worst_class"] = [f"Must be one of {', '.join(Disruption)}, or empty."]
    gpu_percent = _number(given, "gpu_percent", 1, 100, errors)
    node_percent = _number(given, "node_percent", 1, 100, errors)
    gpus = _number(given, "gpus", 1, MOST, errors)
    gpu_jobs = _number(given, "gpu_jobs", 1, MOST, errors)
    namespace, component = _checked_names(given, errors)
    approvers = _number(given, "approvers", 1, MOST_APPROVERS, errors)
    of_role, of_scope, of_count = _checked_approvers(given, approvers or 1, errors)
    if approvers is None and "approvers" not in errors:
        errors["approvers"] = [f"Must be a whole number from 1 to {MOST_APPROVERS}."]
    if errors:
        raise Invalid("The rule is not valid.", fields=errors)
    return {
        "name": name, "environment": environment, "cluster": cluster, "worst_class": worst_class,
        "gpu_percent": gpu_percent, "node_percent": node_percent, "gpus": gpus, "gpu_jobs": gpu_jobs,
        "namespace": namespace, "component": component, "weakens_security": given.get("weakens_security") is True,
        "approvers": approvers,
        "of_role": of_role, "of_scope": of_scope, "of_count": of_count,
        "is_enabled": given.get("is_enabled") is not False,
    }  # fmt: skip


def _checked_names(given: Mapping[str, Any], errors: dict[str, list[str]]) -> tuple[str, str]:
    """A namespace, as Kubernetes names them, and a component of the catalog."""
    namespace, component = str(given.get("namespace") or ""), str(given.get("component") or "")
    if namespace and not _NAMESPACE.fullmatch(namespace):
        errors["namespace"] = ["Must be a namespace's name: lower-case letters, digits and '-', at most 63."]
    known = [entry.name for entry in catalog.all()]
    if component and component not in known:
        errors["component"] = [f"Must be one of {', '.join(known)}, or empty."]
    return namespace, component


def _checked_approvers(given: Mapping[str, Any], approvers: int, errors: dict[str, list[str]]) -> tuple[str, str, int]:
    """The role among the approvers: all of it or nothing."""
    role, scope = given.get("of_role") or "", given.get("of_scope") or ""
    count = _number(given, "of_count", 0, MOST_APPROVERS, errors) or 0
    if not role:
        if count and "of_count" not in errors:
            errors["of_role"] = ["Choose the role that they must hold."]
        return "", "", 0
    if role not in OF_ROLES:
        errors["of_role"] = [f"Must be one of {', '.join(OF_ROLES)}, or empty."]
    if not count and "of_count" not in errors:
        errors["of_count"] = [f"Enter how many of them must be {role}: at least 1."]
    elif count > approvers:
        errors["of_count"] = [f"More than the {approvers} who approve."]
    if scope:
        try:
            scope = check_scope(scope)
        except Invalid as refusal:
            errors["of_scope"] = refusal.fields["scope"]
    return role, scope, count


def _number(given: Mapping[str, Any], name: str, least: int, most: int, errors: dict[str, list[str]]) -> int | None:
    value = given.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        errors[name] = [f"Must be a whole number from {least} to {most}."]
        return None
    return value


def _record(row: ApprovalRule, by: User, action: str, *, before: Any, is_gone: bool = False) -> None:
    audit.record(
        by=by,
        action=action,
        target=f"rule:{row.pk}",
        target_name=row.name,
        cluster_id=row.cluster_id,
        before=before,
        after=None if is_gone else as_json(row),
    )
