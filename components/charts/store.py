"""Charts from repositories: HTTP ones with an index.yaml, and OCI registries.

What comes is bounded, judged as an archive and checked against every digest that is known. Downloads are https only and
follow redirects only to hosts that the catalog or the administrator named; a password goes to the repository's own
host and, for a registry, to a named host that it sends us to for a token. A chart that is stored is not fetched again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django.conf import settings
from django.db.models import Q

from clusters.connection import encryption
from clusters.fleet import FleetError, FleetUnavailable, WrongCertificate
from clusters.kube.http import HttpClient
from clusters.net.egress import Policy
from components.catalog.entry import ChartReference
from components.catalog.versions import same_version
from components.charts import archives, fetching
from components.charts.fetching import ChartSource, Unfetchable
from components.models import Archive, Repository

__all__ = ["ChartSource", "Unfetchable", "asking", "fetch", "source", "stored", "versions"]

SECONDS = 60.0
"""For everything that one chart takes: index or token, manifest, archive."""
UPLOADED = "uploaded"


def source(chart: ChartReference) -> ChartSource:
    """The administrator's repository or mirror of it, else the catalog's own. Raises Unfetchable."""
    url = chart.url.rstrip("/")
    rows = Repository.objects.filter(Q(stands_for__in=[url, f"{url}/"]) | Q(url__in=[url, f"{url}/"]))
    row = max(rows, key=lambda candidate: bool(candidate.stands_for), default=None)  # a mirror goes before the original
    if row is None:
        return ChartSource(url, chart.chart, chart.hosts)
    if not row.is_enabled:
        raise Unfetchable(f"repository {row.name}, which serves {url}, is not enabled")
    try:
        password = row.open_secret()
    except (encryption.CannotOpen, encryption.KeyUnusable) as error:
        raise Unfetchable(f"the password of repository {row.name} cannot be read: {error}") from error
    hosts = tuple(row.hosts) if row.stands_for else (*chart.hosts, *row.hosts)
    return ChartSource(
        row.url.rstrip("/"), chart.chart, hosts, row.username, password, row.ca, row.name, tuple(row.authors)
    )


def stored(chart: ChartReference, version: str) -> Archive | None:
    """The archive of this chart and version that is here already; an uploaded one goes before one that was fetched."""
    known = Archive.objects.filter(name=chart.chart, origin__in=[UPLOADED, chart.reference]).defer("content")
    same = [archive for archive in known.order_by("-stored_at", "-pk") if same_version(archive.version, version)]
    return min(same, key=lambda archive: archive.origin != UPLOADED, default=None)


def fetch(chart: ChartReference, version: str, *, sha256: str = "") -> Archive:
    """The archive, fetched unless it is stored. Waits on the network: hold no transaction.

    `sha256`: the only archive that will do. Raises Unfetchable, archives.BadArchive.
    """
    if sha256:
        if pinned := Archive.objects.filter(pk=sha256).defer("content").first():
            return pinned
    elif here := stored(chart, version):
        return here
    chart_source = source(chart)
    with asking(chart_source) as (door, deadline):
        downloaded = fetching.download(door, chart_source, version, deadline)
    return archives.store(
        downloaded.content,
        origin=chart.reference,
        fetched_from=downloaded.sent_by,
        authors=chart_source.authors,
        name=chart.chart,
        version=version,
        sha256=sha256,
    )


def versions(chart: ChartReference) -> Sequence[str]:
    """List the versions that the repository offers of this chart, in its order.

    Waits on the network. Raises Unfetchable.
    """
    chart_source = source(chart)
    with asking(chart_source) as (door, deadline):
        return fetching.offered(door, chart_source, deadline)


@contextmanager
def asking(chart_source: ChartSource) -> Iterator[tuple[HttpClient, float]]:
    """A door to it, and when to end. Raises Unfetchable in place of every error of the network."""
    try:
        door = HttpClient(Policy.of(settings.SETPOINT_ALLOW_NETWORKS), ca=chart_source.ca)
        try:
            yield door, time.monotonic() + SECONDS
        finally:
            door.close()
    except FleetError as error:
        raise Unfetchable(f"{chart_source}: {error}", is_final=_is_final(error)) from error


def _is_final(error: FleetError) -> bool:
    """Return whether asking again is of no use.

    A mirror's certificate is no credential of a cluster's that is replaced.
    """
    return isinstance(error, WrongCertificate) or not isinstance(error, FleetUnavailable)
