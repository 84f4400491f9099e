"""The whole report: which checks there are, which need the database, and how many problems they found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import DatabaseError

from clusters.models import Cluster
from common.clock import now
from config.doctor import certificates, charts, findings, fleets, forwarding, keys, mappings, network, stores
from config.doctor.findings import Check, Finding
from contract import names

SECONDS = 20.0
"""For a check of rows."""
CLUSTER_SECONDS = 45.0
"""For a cluster: a handful of calls in sequence, each bounded by SETPOINT_CALL_TIMEOUT_SECONDS."""
DATABASE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Report:
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> int:
        return sum(finding.state == "problem" for finding in self.findings)

    @property
    def warnings(self) -> int:
        return sum(finding.state == "warning" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "version": names.RELEASE,
            "at": now().isoformat(),
            "problems": self.problems,
            "warnings": self.warnings,
            "findings": [finding.to_json() for finding in self.findings],
        }


def make() -> Report:
    """Carry out all checks. Waits on the network; takes about as long as the slowest of them, and is bounded."""
    first = findings.run([Check(stores.DATABASE, "the database", DATABASE_SECONDS, lambda: [stores.reachable()])])
    if any(finding.state == "problem" for finding in first):
        rest = findings.run(_without_database())
        rest.append(
            findings.warning(
                stores.DATABASE,
                "Stored secrets, clusters, agents, rollouts, charts and channels were not checked.",
                "Run it again when the database answers.",
            )
        )
    else:
        rest = findings.run([*_without_database(), *_of_rows(), *_of_clusters()])
    return Report((*first, *rest))


def _without_database() -> list[Check]:
    return [
        Check(stores.BROKER, "broker and workers", SECONDS, stores.broker),
        Check(keys.KEYS, "the configured keys", SECONDS, keys.configured),
        Check(charts.CHARTS, "the program helm", SECONDS, charts.helm),
        Check(certificates.SIGN_ON, "the certificates of SAML providers", SECONDS, certificates.configured),
        *network.checks(network.configured()),
    ]


def _of_rows() -> list[Check]:
    checks: Iterable[tuple[str, str, Callable[[], Iterable[Finding]]]] = (
        (stores.DATABASE, "the database's state", stores.database),
        (stores.PROCESSES, "processes", stores.processes),
        (keys.KEYS, "stored secrets", keys.opened),
        (keys.KEYS, "the audit key", keys.audit),
        (certificates.SIGN_ON, "roles by groups", mappings.scopes_there),
        (forwarding.FORWARDING, "destinations of the audit record", forwarding.destinations),
        (network.TIME, "the database's clock", network.database_clock),
        (fleets.CLUSTERS, "the ends of credentials", fleets.endings),
        (fleets.AGENTS, "agents", fleets.agents),
        (fleets.ROLLOUTS, "rollouts", fleets.rollouts),
        (charts.CHARTS, "chart archives", charts.charts),
    )
    return [Check(area, about, SECONDS, function) for area, about, function in checks]


def _not_read() -> Finding:
    return findings.problem(
        fleets.CLUSTERS,
        "The rows of clusters, channels and sources cannot be read, so none of them was checked.",
        "See what is wrong with the database: above all its migrations, and the rights of this role.",
    )


def _of_clusters() -> list[Check]:
    """One check for each cluster, and for each destination: what hangs delays no other."""
    try:
        destinations = network.stored()
        clusters = list(Cluster.objects.order_by("name").values_list("pk", "name"))
    except DatabaseError:  # tables are not as this version knows them
        return [Check(fleets.CLUSTERS, "clusters", SECONDS, lambda: [_not_read()])]
    of_clusters = [
        Check(fleets.CLUSTERS, f"cluster {name}", CLUSTER_SECONDS, partial(fleets.cluster, pk)) for pk, name in clusters
    ]
    return [*network.checks(destinations), *of_clusters]
