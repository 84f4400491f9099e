"""Construction of a telemetry reader from a source's row: the connection, and the secrets it takes."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import urlencode

from django.conf import settings

from clusters.connection import encryption, registry
from clusters.fleet import Backend, Fleet, FleetError, Forbidden, NotFound, Reply
from clusters.kube.http import HttpClient
from clusters.net.egress import Policy
from gpus.models import TelemetrySource
from gpus.telemetry import autodetect, exporter_pods, hosts
from gpus.telemetry.exporters import MEND, Scraping
from gpus.telemetry.expressions import AT_ONCE, Expressions
from gpus.telemetry.prometheus import Ask, Prometheus
from gpus.telemetry.source import Telemetry, Unreadable

Kind, Auth = TelemetrySource.Kind, TelemetrySource.Auth
SERVICE = re.compile(
    r"(?P<namespace>[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)/(?:(?P<scheme>https?):)?"
    r"(?P<name>[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?):(?P<port>[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?)"
)
"""namespace/name:port, or namespace/https:name:port."""


def telemetry(source: TelemetrySource) -> Telemetry:
    """Makes no call; the caller closes it. Raises Unreadable."""
    try:
        if source.kind == Kind.PROMETHEUS:
            return _addressed(source)
        fleet = registry.connect(source.cluster)
        if source.kind == Kind.SERVICE:
            return _served(source, fleet, source.service)
        if source.kind == Kind.EXPORTERS:
            return _scraped(source, fleet)
        return autodetect.Automatic(
            autodetect.remembered(source),
            service=lambda name: _served(source, fleet, name),
            exporters=lambda: _scraped(source, fleet),
        )
    except FleetError as error:
        raise Unreadable(str(error)) from error
    except (encryption.CannotOpen, encryption.KeyUnusable) as error:
        raise Unreadable(f"The source's stored secret cannot be read: {error}. Give it again.") from error


def expressions(source: TelemetrySource, *, seconds: float) -> Expressions:
    """Return the Prometheus that tells of the cluster's hosts; the caller closes it. Raises Unreadable.

    That is the source's own. Where the automatic kind reads exporters, a Prometheus at a usual place may still know
    the hosts: the network is waited for, until one that does is known.
    """
    deadline = time.monotonic() + seconds
    try:
        if source.kind == Kind.PROMETHEUS:
            ask, close = _asking(source, connections=AT_ONCE)
            return Expressions(ask, "Prometheus", source.selector, deadline, close)
        if source.kind == Kind.EXPORTERS:
            raise Unreadable(
                "This cluster's telemetry is read from exporters of GPUs alone, and the host's figures are in a "
                "Prometheus: name it in the settings of the source."
            )
        fleet = registry.connect(source.cluster)

        def served(service: str) -> Expressions:
            return Expressions(_through(fleet, service), f"Prometheus at {service}", source.selector, deadline)

        if source.kind == Kind.SERVICE:
            return served(source.service)
        chosen = "" if source.chosen == TelemetrySource.EXPORTERS else source.chosen
        return served(chosen) if chosen else hosts.choose(source, served)
    except FleetError as error:
        raise Unreadable(f"The cluster could not be asked: {str(error).rstrip('.')}.") from error
    except (encryption.CannotOpen, encryption.KeyUnusable) as error:
        raise Unreadable(f"The source's stored secret cannot be read: {error}. Give it again.") from error


def _scraped(source: TelemetrySource, fleet: Fleet) -> Scraping:
    return Scraping(fleet, at_once=settings.SETPOINT_PARALLEL_CALLS, namespace=source.namespace)


def _served(source: TelemetrySource, fleet: Fleet, service: str) -> Prometheus:
    """Raises Unreadable when it is not a service's name."""
    return Prometheus(
        _through(fleet, service),
        title=f"Prometheus at {service}",
        selector=source.selector,
        learn=partial(exporter_pods.learn, source.cluster_id, lambda: fleet, source.namespace),
    )


def _addressed(source: TelemetrySource) -> Prometheus:
    """Raises FleetError, crypto.CannotOpen, crypto.KeyUnusable."""

    def connect() -> Fleet:
        return registry.connect(source.cluster)

    ask, close = _asking(source)
    learn = partial(exporter_pods.learn, source.cluster_id, connect, source.namespace)
    return Prometheus(ask, title="Prometheus", selector=source.selector, learn=learn, close=close)


def _asking(source: TelemetrySource, *, connections: int = 1) -> tuple[Ask, Callable[[], None]]:
    """Return the way to the Prometheus at the source's address, and what closes it.

    Raises FleetError, crypto.CannotOpen, crypto.KeyUnusable.
    """
    secret, headers, key = source.open_secret(), {}, ""
    if source.auth == Auth.BEARER:
        headers["Authorization"] = f"Bearer {secret}"
    elif source.auth == Auth.BASIC:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{source.username}:{secret}".encode()).decode()
    elif source.auth == Auth.CERTIFICATE:
        key = secret
    certificate = source.certificate if key else ""
    policy = Policy.of(settings.SETPOINT_ALLOW_NETWORKS)
    # A secret is never sent in the clear, also where the row says so.
    allows_http = source.auth == Auth.NONE
    door = HttpClient(
        policy, ca=source.ca, certificate=certificate, key=key, allows_http=allows_http, connections=connections
    )
    base = source.url.rstrip("/")

    def ask(path: str, query: Mapping[str, str], limit: int, seconds: float) -> Reply:
        url, deadline = f"{base}/{path}?{urlencode(query)}", time.monotonic() + seconds
        answer = door.get(url, headers=headers, limit=limit, deadline=deadline)
        return Reply(answer.status, answer.body)

    return ask, door.close


def _through(fleet: Fleet, service: str) -> Ask:
    """Raises Unreadable when it is not a service's name."""
    match = SERVICE.fullmatch(service)
    if match is None:
        raise Unreadable(f"{service[:100]!r} is not namespace/name:port of a service.")
    scheme = match["scheme"]
    backend = Backend(
        "services", match["namespace"], match["name"], match["port"], "https" if scheme == "https" else "http"
    )

    def ask(path: str, query: Mapping[str, str], limit: int, seconds: float) -> Reply:
        try:
            return fleet.through(backend, path, query, limit=limit, timeout=seconds)
        except Forbidden as error:
            raise Forbidden(f"Setpoint {error}: {MEND}") from error
        except NotFound as error:
            raise NotFound(f"there is no service {service}") from error

    return ask
