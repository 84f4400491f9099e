"""A cluster's telemetry source as an administrator keeps it: seen, changed, tried. No secret is read back."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from accounts.models import User
from accounts.permissions import Role, require
from audit import services as audit
from clusters.connection import remotes
from clusters.models import Cluster
from clusters.net import certificates
from common import addresses, hooks
from common.clock import now
from gpus.models import TelemetrySource
from gpus.reports import data_quality
from gpus.services import polling
from gpus.telemetry import exporter_pods, hosts
from gpus.telemetry.factory import SERVICE

Kind, Auth = TelemetrySource.Kind, TelemetrySource.Auth
FIELDS = ("is_enabled", "kind", "namespace", "url", "service", "selector", "auth", "username", "certificate", "ca")
LONGEST_SECRET = 16_384
TRY_SECONDS = 20.0
"""A person waits for it."""
_NAMESPACE = re.compile(r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?")
_MATCHER = re.compile(r'[a-zA-Z_][a-zA-Z0-9_]*\s*(=~|!~|!=|=)\s*"([^"\\]|\\.)*"')


def of_cluster(cluster: Cluster) -> TelemetrySource:
    """Each cluster has one; that of a new cluster is made a few seconds early."""
    source, _ = TelemetrySource.objects.select_related("cluster").get_or_create(cluster=cluster)
    return source


def may_change(user: User, cluster: Cluster) -> None:
    require(user, Role.ADMIN, cluster.scopes, f"set up the telemetry of {cluster}")


def update(source: TelemetrySource, *, by: User, version: int, secret: str | None = None, **changes: Any) -> None:
    """`secret` None: the stored one stays; empty: it is forgotten. Raises NotAllowed, Invalid, Stale.

    A reading under way loses its claim, so nothing of the source before is stored after this.
    """
    may_change(by, source.cluster)
    changed = filled(source, secret=secret, **changes)
    at, title = now(), f"the telemetry of {source.cluster}"
    reset: dict[str, Any] = {"chosen": "", "chosen_because": "", "chosen_at": None}
    reset |= {"claimed_until": None, "due_at": at, "state": TelemetrySource.State.NEVER, "sentence": "", "since": at}
    with transaction.atomic():
        remotes.write(changed, FIELDS, by=by, version=version, title=title, **reset)
        audit.record(
            by=by,
            action="telemetry.update",
            target=f"cluster:{source.cluster_id}",
            target_name=source.cluster.name,
            cluster_id=source.cluster_id,
            before=record_fields(source),
            after=record_fields(changed) | remotes.new_secret(changed, secret),
        )
    exporter_pods.forget(source.cluster_id)
    hosts.forget(source.cluster_id)
    source.refresh_from_db()


def record_fields(source: TelemetrySource) -> dict[str, Any]:
    """Return the source's fields for records, without its secret."""
    return remotes.recorded_fields(source, FIELDS)


def stored_secrets() -> Iterator[hooks.StoredSecret]:
    for source in TelemetrySource.objects.select_related("cluster").order_by("cluster__name"):
        yield remotes.stored_secret(
            source,
            title=f"the telemetry of {source.cluster.name}",
            action="telemetry.reseal",
            target=f"cluster:{source.cluster_id}",
            target_name=source.cluster.name,
            cluster_id=source.cluster_id,
        )


# ── Judging what was given ────────────────────────────────────────────────────────────────────────────────────────────
def filled(source: TelemetrySource, *, secret: str | None = None, **changes: Any) -> TelemetrySource:
    """A copy with these fields, judged and not saved: for saving, and for trying it first. Raises Invalid."""
    changed = copy.copy(source)
    for name, value in changes.items():
        setattr(changed, name, value.strip() if isinstance(value, str) else value)
    changed.url = changed.url.rstrip("/")
    objections, moved = _objections(changed, secret), ""
    if remotes.is_carried_off(changed, source.url, secret):
        if changed.auth == Auth.NONE:
            secret = ""
        else:
            moved = "Give it again: the stored one was given for another host."
    remotes.refuse("The telemetry cannot be set up so", [*objections, ("secret", moved)])
    remotes.seal(changed, secret)
    return changed


def _objections(source: TelemetrySource, secret: str | None) -> list[tuple[str, str]]:
    out = [
        ("namespace", "" if _NAMESPACE.fullmatch(source.namespace) else "Is not the name of a namespace."),
        ("url", _bad_url(source) if source.kind == Kind.PROMETHEUS or source.url else ""),
        ("service", _bad_service(source) if source.kind == Kind.SERVICE or source.service else ""),
        ("selector", "" if _is_selector(source.selector) else 'Label matchers only, such as cluster="a", zone=~"b.*".'),
        ("ca", certificates.objection_to_ca(source.ca, now())),
        ("secret", f"At most {LONGEST_SECRET} characters." if secret and len(secret) > LONGEST_SECRET else ""),
    ]
    if source.auth != Auth.NONE:
        has = bool(secret) if secret is not None else bool(source.secret)
        out.append(("secret", "" if has else f"Is needed for: {Auth(source.auth).label}."))
        out.append(("auth", "" if source.kind == Kind.PROMETHEUS else "Only a Prometheus at an address takes one."))
    if source.auth == Auth.BASIC:
        is_name = source.username and source.username.isprintable() and ":" not in source.username
        out.append(("username", "" if is_name else "Is needed, without ':'."))
    if source.auth == Auth.BEARER and secret and not (secret.isascii() and secret.isprintable()):
        out.append(("secret", "Visible ASCII characters only."))
    if source.auth == Auth.CERTIFICATE and secret:
        names = {"client_key": "secret", "client_certificate": "certificate"}
        objections = certificates.objections_to_client(source.certificate, secret, now())
        out += [(names[name], reason) for name, reason in objections]
    return out


def _bad_url(source: TelemetrySource) -> str:
    advice = "Write https://host:port of a Prometheus, without /api/v1."
    parts = addresses.parted(source.url)
    if parts is None or not addresses.is_bare(parts) or parts.scheme not in ("https", "http"):
        return advice
    if addresses.names_a_person(parts):
        return "Put user name and password into their own fields, not into the address."
    if parts.scheme == "http" and source.auth != Auth.NONE:
        return "Must be https: a secret is never sent in the clear."
    return ""


def _bad_service(source: TelemetrySource) -> str:
    return "" if SERVICE.fullmatch(source.service) else "Write namespace/name:port, or namespace/https:name:port."


def _is_selector(text: str) -> bool:
    """Return whether the text is a list of label matchers that cannot end the braces it is put into."""
    at = 0
    while at < len(text):
        match = _MATCHER.match(text, at)
        if match is None:
            return False
        rest = text[match.end() :].lstrip()
        if rest and not rest.startswith(","):
            return False
        at = len(text) - len(rest.removeprefix(",").lstrip()) if rest else len(text)
    return True


# ── Trying ────────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of one test reading, which is not stored."""

    state: str
    sentence: str
    devices: int
    series: int
    asked: int
    unanswered: int
    reads: str
    """What was read, in words, and for the automatic kind why."""
    points: list[data_quality.QualityPoint]
    """What there is to know of it, the worst first, each with its mend."""


def probe(source: TelemetrySource, *, by: User) -> ProbeResult:
    """Read it once, saved or not; nothing is stored. Waits on the network: hold no transaction. Raises NotAllowed."""
    may_change(by, source.cluster)
    exporter_pods.forget(source.cluster_id)
    outcome = polling.read(source, now(), seconds=TRY_SECONDS)
    seen = copy.copy(source)
    for name, value in polling.row_fields(outcome).items():
        setattr(seen, name, value)
    return ProbeResult(
        state=outcome.state,
        sentence=outcome.sentence,
        devices=seen.devices if outcome.reading else 0,
        series=seen.series if outcome.reading else 0,
        asked=outcome.gathering.asked,
        unanswered=outcome.gathering.unanswered,
        reads=data_quality.reads(seen),
        points=data_quality.of_reading(seen) if outcome.reading else [],
    )
