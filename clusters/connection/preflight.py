"""Preflight test of a credential: run before a cluster is connected, and on request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from django.conf import settings

from accounts.models import User
from accounts.permissions import Role, may
from clusters.connection import registry
from clusters.fleet import CredentialsRefused, Equipment, Fleet, FleetError, Forbidden, Review, WrongCertificate
from clusters.kube.permissions import REQUIRED_PERMISSIONS
from clusters.models import Cluster
from clusters.net.credentials import Credentials

OLDEST = (1, 30)
"""ValidatingAdmissionPolicy is stable since Kubernetes 1.30; without it agents could not be confined."""
APPLY_COMMAND = "kubectl apply -f deploy/setpoint.yaml"
DELETE_COMMANDS = (
    "kubectl delete validatingadmissionpolicybinding setpoint-spec-writer setpoint-agent-own-node",
    "kubectl delete -f deploy/setpoint.yaml",
)

CheckState = Literal["ok", "warn", "bad", "unknown"]


KNOWN = "Not connected yet"
"""The check that a cluster which is connected already fails."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a verdict. `bad` prevents connecting, `warn` does not, `unknown` could not be asked."""

    name: str
    state: CheckState
    text: str
    fix: str = ""
    """A command to run, or a sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class PreflightResult:
    server: str
    uid: str = ""
    version: str = ""
    checks: tuple[Check, ...] = ()
    permissions: tuple[Review, ...] = ()
    equipment: Equipment | None = None
    mark: str | None = None
    """The installation that owns the cluster."""
    is_known: bool = False
    """Whether a cluster here has this identity, at any URL."""
    known_as: str = ""
    """Its name, where the caller may see it."""

    @property
    def is_connectable(self) -> bool:
        return bool(self.uid) and not self.is_known and not any(check.state == "bad" for check in self.checks)

    @property
    def is_fine(self) -> bool:
        """Return whether there is nothing to mend, though the cluster may be connected already."""
        return self.is_connectable or (self.is_known and len(self.problems) <= 1)

    @property
    def headline(self) -> str:
        if self.is_connectable:
            return f"{self.server} can be connected."
        if self.is_known:
            known = f"as {self.known_as}" if self.known_as else "already"
            return f"{self.server} answers; it is connected {known}."
        return f"{self.server} cannot be connected yet."

    @property
    def is_foreign(self) -> bool:
        return bool(self.mark) and self.mark != settings.SETPOINT_INSTALLATION

    @property
    def problems(self) -> list[str]:
        return [check.text for check in self.checks if check.state == "bad"]


def test_connection(credential: Credentials, by: User | None = None) -> PreflightResult:  # noqa: PT028  no test
    """Ask the cluster. Never raises for what the cluster says or fails to say; makes calls, so hold no transaction.

    The verdict names no cluster that `by` may not see; None is Setpoint itself.
    """
    server = credential.server
    try:
        with registry.trying(credential) as fleet:
            return _ask(server, fleet, credential, by)
    except WrongCertificate as error:
        fix = "Give the authority that signed it, as PEM."
        return PreflightResult(server, checks=(Check("Reachable", "bad", f"{server} does not answer: {error}", fix),))
    except (CredentialsRefused, Forbidden) as error:
        fix = "Create a new token of the service account setpoint-controller, or check that the manifest was applied."
        return PreflightResult(
            server, checks=(Check("Reachable", "bad", f"{server} answers, and refuses: {error}", fix),)
        )
    except FleetError as error:
        fix = "Check the address, and that this server can reach it."
        return PreflightResult(server, checks=(Check("Reachable", "bad", f"{server} does not answer: {error}", fix),))


test_connection.__test__ = False  # type: ignore[attr-defined]  # pytest would take it for a test


def _ask(server: str, fleet: Fleet, credential: Credentials, by: User | None) -> PreflightResult:
    """Raises FleetError when the server does not even identify itself."""
    identity = fleet.identify()
    checks = [
        Check("Reachable", "ok", f"{server} answers; its kube-system namespace is {identity.uid}."),
        _version(identity.version),
    ]
    known = Cluster.objects.filter(uid=identity.uid).first()
    is_seen = known is not None and (by is None or may(by, Role.VIEWER, known.scopes))
    if known:
        checks.append(_known(known, is_seen=is_seen))
    reviews: list[Review] = []
    try:
        reviews = fleet.review(REQUIRED_PERMISSIONS)
        checks.append(_permissions(reviews))
    except FleetError as error:
        checks.append(Check("Permissions", "bad", f"Permissions could not be reviewed: {error}"))
    equipment: Equipment | None = None
    try:
        equipment = fleet.equipment()
        checks += _equipment(equipment)
    except FleetError as error:
        checks.append(Check("Equipment", "bad", f"What is installed could not be read: {error}", APPLY_COMMAND))
    mark: str | None = None
    try:
        mark = fleet.installation()
        checks.append(_ownership(mark))
    except FleetError as error:
        checks.append(Check("Ownership", "bad", f"The ownership mark could not be read: {error}", APPLY_COMMAND))
    if credential.client_certificate and equipment and equipment.spec_policy:
        text = (
            "The admission policy lets only the account setpoint-controller write NodeTunings; this is a certificate."
        )
        checks.append(Check("Account", "warn", text, "Use that account's token."))
    return PreflightResult(
        server,
        identity.uid,
        identity.version,
        tuple(checks),
        tuple(reviews),
        equipment,
        mark,
        known is not None,
        known.name if known and is_seen else "",
    )


def _known(cluster: Cluster, *, is_seen: bool) -> Check:
    if is_seen:
        text = f"This cluster is connected already, as {cluster.name} ({cluster.server})."
        fix = "To give it another URL or credential, rotate its credential."
    else:
        text = "This cluster is connected already, under a name that you have no role for."
        fix = "Ask an administrator of all clusters."
    return Check(KNOWN, "bad", text, fix)


def _version(version: str) -> Check:
    numbers = re.match(r"v?(\d{1,4})\.(\d{1,4})", version)
    oldest = f"{OLDEST[0]}.{OLDEST[1]}"
    if not numbers:
        return Check(
            "Version", "bad", f"The server calls its version {version[:40]!r}; Kubernetes {oldest} or newer is needed."
        )
    if (int(numbers[1]), int(numbers[2])) < OLDEST:
        return Check("Version", "bad", f"This is Kubernetes {version[:40]}; {oldest} or newer is needed.")
    return Check("Version", "ok", f"Kubernetes {version[:40]}.")


def _permissions(reviews: Sequence[Review]) -> Check:
    denied = [r for r in reviews if not r.allowed]
    if not denied:
        return Check("Permissions", "ok", f"All {len(reviews)} permissions are there.")
    listed = "; ".join(f"{r.permission.verb} {r.permission.resource} ({r.permission.why})" for r in denied)
    state: CheckState = "warn" if all(r.permission.is_optional for r in denied) else "bad"
    return Check(
        "Permissions", state, f"{len(denied)} of {len(reviews)} permissions are missing: {listed}.", APPLY_COMMAND
    )


def _equipment(equipment: Equipment) -> list[Check]:
    checks = []
    if equipment.crd:
        checks.append(Check("NodeTuning resource", "ok", "The NodeTuning resource is installed."))
    else:
        checks.append(Check("NodeTuning resource", "bad", "The NodeTuning resource is not installed.", APPLY_COMMAND))
    absent = [
        what
        for there, what in (
            (equipment.agent_policy, "agents to their own node"),
            (equipment.spec_policy, "requests to Setpoint"),
        )
        if not there
    ]
    if absent:
        text = f"No admission policy confines {' and '.join(absent)}."
        checks.append(Check("Admission policies", "warn", text, APPLY_COMMAND))
    else:
        checks.append(Check("Admission policies", "ok", "Both admission policies are in force."))
    if not equipment.agent_desired:
        checks.append(Check("Agent", "warn", "No agent is deployed: nodes cannot be observed or tuned.", APPLY_COMMAND))
    else:
        state: CheckState = "ok" if equipment.agent_ready == equipment.agent_desired else "warn"
        checks.append(Check("Agent", state, f"{equipment.agent_ready} of {equipment.agent_desired} agents are ready."))
    return checks


def _ownership(mark: str | None) -> Check:
    if not mark:
        return Check("Ownership", "ok", "No installation owns this cluster; connecting marks it as this one's.")
    if mark == settings.SETPOINT_INSTALLATION:
        return Check("Ownership", "ok", "The cluster carries this installation's mark.")
    return Check(
        "Ownership",
        "warn",
        f"The cluster belongs to the Setpoint installation {mark[:64]}.",
        "Disconnect it there, or take it over explicitly: then that installation must not write to it any more.",
    )


def manifest() -> str:
    """The objects a cluster needs, as YAML for kubectl."""
    return (Path(settings.BASE_DIR) / "deploy" / "setpoint.yaml").read_text()
