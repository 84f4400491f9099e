"""Actions on clusters. Every call to the network is made outside transactions.

Pools are in `clusters.services.pools`, the test of a credential in `clusters.connection.preflight`, the disconnect in
`clusters.services.disconnect`; all are offered here, too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.db import IntegrityError, transaction

from accounts import permissions
from accounts.models import PendingChange, User
from accounts.people import bootstrap, pending
from accounts.people.pending import Proposed
from audit import services as audit
from clusters.connection import audit_records, registry, token_renewal
from clusters.connection.preflight import KNOWN, PreflightResult, manifest, test_connection
from clusters.fleet import Fleet, FleetError
from clusters.inventory import inspection
from clusters.models import Cluster
from clusters.net import certificates
from clusters.net.credentials import Credentials
from clusters.services import former_clusters
from clusters.services.disconnect import DisconnectPreview, disconnect, disconnect_preview
from clusters.services.pools import Preview, create_pool, delete_pool, matching, preview, update_pool
from common.clock import now
from common.errors import Invalid, Stale, WrongState

__all__ = [
    "DisconnectPreview",
    "Preview",
    "connect_cluster",
    "create_pool",
    "delete_pool",
    "disconnect",
    "disconnect_preview",
    "manifest",
    "matching",
    "may_refresh",
    "may_try",
    "preview",
    "recheck",
    "rotate_credential",
    "test_connection",
    "update",
    "update_pool",
]

log = logging.getLogger(__name__)

Role = permissions.Role
MOST_BUDGET = 10_000

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class Foreign(WrongState):
    """The cluster belongs to another installation; taking it over is explicit (law 12)."""

    code = "foreign-installation"


def may_try(by: User) -> None:
    """Require the right to connect clusters somewhere: trying a URL makes this server connect. Raises NotAllowed."""
    permissions.require(by, Role.ADMIN, permissions.ANYWHERE, "test a credential")


def may_refresh(cluster: Cluster, by: User) -> None:
    """Operators and administrators of a cluster may have it read or tested. Raises NotAllowed."""
    if not permissions.may(by, Role.ADMIN, cluster.scopes):
        permissions.require(by, Role.OPERATOR, cluster.scopes, f"refresh or test {cluster}")


# ── connecting ────────────────────────────────────────────────────────────────────────────────────────────────────────
def connect_cluster(
    *, name: str, environment: str, credential: Credentials, by: User, take_over: bool = False, budget: int = 1
) -> Cluster:
    """Test, mark, store. From here on the watch creates a NodeTuning in mode observe for every node.

    Raises NotAllowed, Invalid (with fields), WrongState (connected already), Foreign.
    """
    fields = validated(name=name, environment=environment, budget=budget, by=by)
    verdict = _connectable(test_connection(credential, by), take_over=take_over)
    former_clusters.check(verdict.uid, environment, by)
    cluster = Cluster(id=uuid4(), uid=verdict.uid, server=credential.server, **fields)
    _seal(cluster, credential)
    _describe(cluster, verdict)
    with _talking_to(credential) as fleet:
        mark = fleet.claim(settings.SETPOINT_INSTALLATION, take_over=take_over)
        if mark != settings.SETPOINT_INSTALLATION:
            raise _foreign(mark)
        try:
            _store(cluster, verdict, by)
        except IntegrityError as error:  # another request connected it, or took the name
            if not Cluster.objects.filter(uid=verdict.uid).exists():
                _take_mark_back(fleet, cluster)
                raise _taken(name) from error
            raise WrongState("This cluster was connected a moment ago.") from error
        except Exception:
            _take_mark_back(fleet, cluster)
            raise
    return cluster


def validated(*, name: str, environment: str, budget: int, by: User) -> dict[str, Any]:
    """Validate a new cluster's fields and this user's right to connect it, before the cluster itself is asked.

    Raises NotAllowed, Invalid (with fields).
    """
    permissions.require(by, Role.ADMIN, ("*", f"env:{environment}"), "connect a cluster")
    fields = _checked({"name": name, "environment": environment, "budget": budget})
    if Cluster.objects.filter(name=name).exists():
        raise _taken(name)
    return fields


def _connectable(verdict: PreflightResult, *, take_over: bool) -> PreflightResult:
    """Raises Invalid, WrongState, Foreign."""
    if verdict.is_known:
        raise WrongState(next(check.text for check in verdict.checks if check.name == KNOWN))
    if verdict.problems:
        raise Invalid(" ".join(verdict.problems), fields={"credential": verdict.problems})
    if verdict.is_foreign and not take_over:
        raise _foreign(str(verdict.mark))
    return verdict


def _store(cluster: Cluster, verdict: PreflightResult, by: User) -> None:
    """Raises IntegrityError."""
    taken_from = verdict.mark if verdict.is_foreign else ""
    with transaction.atomic():
        cluster.save(force_insert=True)
        audit.record(
            by=by,
            action="cluster.connect",
            target=f"cluster:{cluster.pk}",
            target_name=cluster.name,
            cluster_id=cluster.pk,
            message=f"Taken over from installation {taken_from}." if taken_from else "",
            after=audit_records.facts(cluster),
        )


def _take_mark_back(fleet: Fleet, cluster: Cluster) -> None:
    try:
        fleet.release(settings.SETPOINT_INSTALLATION)
    except FleetError as error:
        log.error("the mark in %s could not be taken back: %s", cluster.server, error)


def _describe(cluster: Cluster, verdict: PreflightResult) -> None:
    cluster.kubernetes_version = verdict.version[:40]
    for name, value in inspection.ownership(settings.SETPOINT_INSTALLATION).items():
        setattr(cluster, name, value)
    if verdict.equipment:
        cluster.equipment = inspection.equipment_json(verdict.equipment)


class _talking_to:
    """Opens a fleet for a block; what it refuses or fails to answer becomes a refusal for the person who asked."""

    def __init__(self, credential: Credentials) -> None:
        self._trying = registry.trying(credential)

    def __enter__(self) -> Fleet:
        return self._trying.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._trying.__exit__(None, None, None)
        if isinstance(error, FleetError):
            raise Invalid(str(error), fields={"credential": [str(error)]}) from error


# ── keeping ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def rotate_credential(cluster: Cluster, *, credential: Credentials, by: User) -> Cluster:
    """Replace credential and URL; the new ones must reach the same cluster. Raises NotAllowed, Invalid, WrongState."""
    permissions.require(by, Role.ADMIN, cluster.scopes, f"rotate the credential of {cluster}")
    verdict = test_connection(credential, by)
    if verdict.uid and verdict.uid != cluster.uid:
        other = f"the cluster {verdict.known_as}" if verdict.known_as else f"another cluster ({verdict.uid})"
        text = f"This credential leads to {other}, not to {cluster} ({cluster.uid})."
        raise Invalid(text, fields={"credential": [text]})
    problems = [c.text for c in verdict.checks if c.state == "bad" and c.name != KNOWN]
    if problems:
        raise Invalid(" ".join(problems), fields={"credential": problems})
    before = audit_records.facts(cluster)
    cluster.server = credential.server
    _seal(cluster, credential)
    fields = (
        *("server", "credential", "credential_key", "credential_set_at", "credential_expires_at"),
        *("credential_renews", "renewal_error", "authority_expires_at"),
    )
    with transaction.atomic():
        if not Cluster.objects.filter(pk=cluster.pk).update(**{name: getattr(cluster, name) for name in fields}):
            raise WrongState("This cluster was disconnected meanwhile.")
        audit_records.record(cluster, "cluster.rotate_credential", by, before)
    registry.forget(cluster.pk)
    return cluster


def update(cluster: Cluster, *, by: User, version: int | None = None, **changes: Any) -> Cluster | Proposed:
    """Change name or budget, or propose another environment. `version`: the one the caller saw.

    Another environment has other approval rules and other approvers: it waits for a second administrator's consent.
    Raises NotAllowed, Invalid, Stale.
    """
    permissions.require(by, Role.ADMIN, cluster.scopes, f"change {cluster}")
    fields = _checked(changes)
    if fields.get("environment", cluster.environment) != cluster.environment:
        # Moving a cluster moves it out of one environment's rules and into another's: the person must hold both.
        scope = f"env:{fields['environment']}"
        permissions.require_person(by, Role.ADMIN, ("*", scope), f"move {cluster} there")
        if not bootstrap.needs_no_consent(by):
            return _propose_move(cluster, by, version, fields)
    return _update(cluster, by, version, fields)


@transaction.atomic
def _propose_move(cluster: Cluster, by: User, version: int | None, fields: Mapping[str, Any]) -> Proposed:
    if version is not None and version != cluster.version:
        raise Stale(f"{cluster} was changed meanwhile. Reload it and try again.")
    also = [name for name, value in fields.items() if name != "environment" and value != getattr(cluster, name)]
    if also:
        problem = "Change it by itself: another environment waits for a second administrator's consent."
        raise Invalid("Nothing was changed.", fields={"environment": [problem]})
    to = fields["environment"]
    about = f"{cluster} moves from {cluster.environment} to {to}: other approval rules, and other people's roles, hold."
    # Of both environments, so that the administrators of one environment cannot take over a cluster of another.
    wanted = {"from": cluster.environment, "to": to, "by": f"env:{to}"}
    return pending.propose(kind=MOVE, by=by, about=about, target=f"cluster:{cluster.pk}", wanted=wanted)


def _consented_move(row: PendingChange, by: User) -> None:
    cluster = Cluster.objects.filter(pk=row.target.removeprefix("cluster:")).first()
    if cluster is None or cluster.environment != row.wanted["from"]:
        raise WrongState("The cluster is gone, or in another environment by now: refuse this.")
    _update(cluster, by, None, {"environment": row.wanted["to"]})


MOVE = "cluster.environment"
pending.KINDS[MOVE] = _consented_move


def _update(cluster: Cluster, by: User, version: int | None, fields: Mapping[str, Any]) -> Cluster:
    as_read = cluster.version if version is None else version
    before = audit_records.facts(cluster)
    try:
        with transaction.atomic():
            row = Cluster.objects.select_for_update().get(pk=cluster.pk)
            mark = {"mac": row.mark_with(**fields)} if row.covers(fields) else {}
            if not Cluster.objects.filter(pk=cluster.pk, version=as_read).update(**fields, **mark, version=as_read + 1):
                raise Stale(f"{cluster} was changed meanwhile. Reload it and try again.")
            cluster.refresh_from_db()
            audit_records.record(cluster, "cluster.update", by, before)
    except IntegrityError as error:
        raise _taken(str(fields.get("name"))) from error
    return cluster


def recheck(cluster: Cluster, *, by: User) -> PreflightResult:
    """The verdict on the stored credential, and with it fresh rows. Raises NotAllowed, WrongState (unreadable)."""
    may_refresh(cluster, by)
    try:
        verdict = test_connection(registry.credentials(cluster))
    except registry.CredentialUnreadable as error:
        raise WrongState(str(error)) from error
    if verdict.uid == cluster.uid and verdict.equipment:
        observed: dict[str, Any] = {"kubernetes_version": verdict.version[:40], **inspection.ownership(verdict.mark)}
        observed["equipment"] = inspection.equipment_json(verdict.equipment)
        Cluster.objects.filter(pk=cluster.pk).update(**observed)
    return verdict


# ── shared ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def _seal(cluster: Cluster, credential: Credentials) -> None:
    sealed = registry.sealed(cluster.pk, credential)
    cluster.credential, cluster.credential_key = sealed.data, sealed.key
    cluster.credential_set_at, cluster.credential_expires_at = now(), credential.expires_at()
    cluster.credential_renews, cluster.renewal_error = token_renewal.is_renewable(credential), ""
    cluster.authority_expires_at = certificates.last_not_after(credential.ca)


def _checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    problems: dict[str, list[str]] = {}
    if "name" in fields and not (isinstance(fields["name"], str) and _NAME.fullmatch(fields["name"])):
        problems["name"] = ["Small letters, digits and '-', at most 63 characters."]
    if "environment" in fields and fields["environment"] not in Cluster.Environment.values:
        problems["environment"] = [f"One of {', '.join(Cluster.Environment.values)}."]
    budget = fields.get("budget", 1)
    if isinstance(budget, bool) or not isinstance(budget, int) or not 1 <= budget <= MOST_BUDGET:
        problems["budget"] = [f"A whole number of nodes, 1 to {MOST_BUDGET:,}."]
    if unknown := sorted(set(fields) - {"name", "environment", "budget"}):
        problems |= {name: ["This cannot be changed."] for name in unknown}
    if problems:
        raise Invalid("Some values cannot be used.", fields=problems)
    return dict(fields)


def _taken(name: str) -> Invalid:
    return Invalid(f"There is a cluster {name} already.", fields={"name": [f"There is a cluster {name} already."]})


def _foreign(mark: str) -> Foreign:
    return Foreign(
        f"This cluster belongs to the Setpoint installation {mark[:64]}. "
        "Disconnect it there, or take it over explicitly.",
        fields={"take_over": ["Taking over makes the other installation stop writing to this cluster."]},
    )
