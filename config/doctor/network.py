"""Checks of what Setpoint connects to, under its egress policy, and of clocks. Connections carry no request, except
the one for an API server's version, without a credential, whose answer has its time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection

from accounts.models import WorkloadRule
from clusters.fleet import FleetError
from clusters.kube.http import HttpClient
from clusters.kube.transport import shake_hands
from clusters.net.egress import EgressRefused, Policy
from common.clock import now
from components.models import Repository
from config.doctor.findings import Check, Finding, ok, problem, warning
from gpus.models import TelemetrySource
from notices.channels import incidents
from notices.forwarding.destinations import SYSLOG, SYSLOG_PORT
from notices.models import Channel

TIME, EGRESS = "time", "egress"
SECONDS = 5.0
"""For one connection."""
LARGEST_ANSWER = 64 * 1024
NOTICED = timedelta(seconds=5)
"""Skew that is worth a warning: more than any network explains, and the Date header counts whole seconds."""
ADVICE_TIME = "Let NTP set the clocks, of this machine first."
ADVICE_EGRESS = "See name, firewall and certificate; docs/security.md has what the egress policy refuses."


@dataclass(frozen=True, slots=True)
class Destination:
    """A server that Setpoint connects to. `title` names it without its address's path, which may be a secret."""

    title: str
    url: str
    ca: str = ""


# ── Time ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def judged(whose: str, skew: timedelta) -> Finding:
    """Judge a clock that is ahead of Setpoint's by `skew`, negative: behind."""
    seconds = skew.total_seconds()
    way = "ahead of" if seconds > 0 else "behind"
    if abs(skew) < NOTICED:
        return ok(TIME, f"The clock of {whose} agrees with this one within {NOTICED.total_seconds():g} s.")
    text = f"The clock of {whose} is {abs(seconds):,.0f} s {way} this one."
    if abs(seconds) < settings.SETPOINT_FRESH_SECONDS:
        return warning(TIME, text, ADVICE_TIME)
    return problem(TIME, f"{text} Agents may count as silent, and windows end at a wrong time.", ADVICE_TIME)


def database_clock() -> Iterator[Finding]:
    if connection.vendor != "postgresql":
        return  # the same machine's
    with connection.cursor() as cursor:
        before = now()
        cursor.execute("SELECT clock_timestamp()")
        theirs: datetime = cursor.fetchone()[0]
    yield judged("the database", theirs - (before + (now() - before) / 2))


def api_server(cluster: str, server: str, ca: str) -> Iterator[Finding]:
    """Reach an API server, and compare its clock: it puts the time into each answer, a refusal included."""
    client = HttpClient(Policy.of(settings.SETPOINT_ALLOW_NETWORKS), ca=ca, allows_http=True, timeout=SECONDS)
    try:
        before = now()
        answer = client.get(
            f"{server.rstrip('/')}/version", headers={}, limit=LARGEST_ANSWER, deadline=time.monotonic() + SECONDS
        )
        middle = before + (now() - before) / 2
    except FleetError as error:
        yield problem(EGRESS, f"The API server of {cluster} cannot be reached: {error}.", ADVICE_EGRESS)
        return
    finally:
        client.close()
    yield ok(EGRESS, f"The API server of {cluster} can be reached.")
    theirs = _date(answer.headers)
    if theirs is None:
        yield warning(
            TIME, f"The API server of {cluster} does not tell its time.", "See whether a proxy answers in its place."
        )
    else:  # cut to whole seconds: on average half of one is missing
        yield judged(f"{cluster}'s API server", theirs + timedelta(seconds=0.5) - middle)


def _date(headers: Mapping[str, str]) -> datetime | None:
    try:
        at = parsedate_to_datetime(headers.get("date", ""))
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


# ── Egress ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def configured() -> list[Destination]:
    """Destinations that settings name, which are known without the database."""
    destinations = [Destination(f"Single sign-on of {row.name}", row.issuer) for row in settings.SETPOINT_OIDC]
    if settings.EMAIL_HOST:
        # TLS after STARTTLS would need SMTP to be spoken; that a connection is accepted is what can be seen here.
        scheme = "https" if settings.EMAIL_USE_SSL else "http"
        host = f"[{settings.EMAIL_HOST}]" if ":" in settings.EMAIL_HOST else settings.EMAIL_HOST
        destinations.append(Destination("The mail server", f"{scheme}://{host}:{settings.EMAIL_PORT}"))
    if settings.SETPOINT_AUDIT_HEADS_WEBHOOK:
        destinations.append(Destination("The receiver of audit heads", settings.SETPOINT_AUDIT_HEADS_WEBHOOK))
    for row in settings.SETPOINT_AUDIT_FORWARD:
        # The same handshake: what comes after it is not sent.
        url = f"https://{row.url.removeprefix('tls://')}" if row.kind == SYSLOG else row.url
        url = url if row.kind != SYSLOG or urlsplit(row.url).port else f"{url}:{SYSLOG_PORT}"
        destinations.append(Destination(f"The receiver of audit records {row.name}", url, row.ca))
    return destinations


def stored() -> list[Destination]:
    """Destinations that people entered: channels, chart repositories, issuers of workloads, Prometheus by address."""
    destinations = [
        Destination(f"The receiver of channel {row.name}", row.url or incidents.URL, row.ca)
        for row in Channel.objects.filter(is_enabled=True).exclude(kind=Channel.Kind.MAIL)
    ]
    destinations += [
        Destination(f"The chart repository {row.name}", row.url.replace("oci://", "https://", 1), row.ca)
        for row in Repository.objects.filter(is_enabled=True)
    ]
    issuers = WorkloadRule.objects.filter(is_enabled=True, keys={}).order_by("issuer").values_list("issuer", flat=True)
    destinations += [Destination(f"The issuer of workloads {issuer}", issuer) for issuer in issuers.distinct()]
    destinations += [
        Destination(f"Prometheus of {row.cluster}", row.url, row.ca)
        for row in TelemetrySource.objects.filter(is_enabled=True, kind=TelemetrySource.Kind.PROMETHEUS).select_related(
            "cluster"
        )
    ]
    return destinations


def reach(destination: Destination) -> Iterator[Finding]:
    try:
        shake_hands(destination.url, Policy.of(settings.SETPOINT_ALLOW_NETWORKS), ca=destination.ca, timeout=SECONDS)
    except (FleetError, EgressRefused) as error:
        yield problem(EGRESS, f"{destination.title} cannot be reached: {error}.", ADVICE_EGRESS)
    else:
        yield ok(EGRESS, f"{destination.title} can be reached.")


def checks(destinations: list[Destination]) -> list[Check]:
    return [Check(EGRESS, destination.title, 3 * SECONDS, partial(reach, destination)) for destination in destinations]
