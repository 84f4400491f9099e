"""Checks of each cluster: what the connect page tests, agents, and what is newer there than this database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from uuid import UUID

from django.conf import settings
from django.db.models import F

from clusters.connection import expiry, preflight, registry
from clusters.fleet import CredentialsRefused
from clusters.models import Cluster, Node, NodeTuning, unheard
from config.doctor import network
from config.doctor.findings import Finding, State, ok, problem, warning
from contract import names
from jobs.diffs import restore_check
from jobs.models import Freeze, Rollout

CLUSTERS, AGENTS, ROLLOUTS = "clusters", "agents", "rollouts"
NAMED = 5
"""Nodes that a sentence names."""
_STATES: dict[preflight.CheckState, State] = {"ok": "ok", "warn": "warning", "bad": "problem", "unknown": "warning"}


def cluster(cluster_id: UUID) -> Iterator[Finding]:
    """Reach a cluster, and ask it what the connect page asks: nothing that it keeps."""
    row = Cluster.objects.get(pk=cluster_id)
    try:
        credentials = registry.credentials(row)
    except CredentialsRefused as error:
        yield problem(CLUSTERS, str(error), "Put the key back, or rotate the cluster's credential.")
        return
    yield from network.api_server(row.name, row.server, credentials.ca)
    result = preflight.test_connection(credentials)
    if result.uid and result.uid != row.uid:
        yield problem(
            CLUSTERS,
            f"{row}: another cluster answers at {row.server}: its kube-system namespace is {result.uid}.",
            "Give the cluster's right address: rotate its credential.",
        )
    if result.is_foreign:
        yield problem(
            CLUSTERS,
            f"{row} belongs to another installation of Setpoint.",
            "Disconnect it in one of them; is SETPOINT_INSTALLATION that of this database?",
        )
    fine = 0
    for check in result.checks:
        if check.name == preflight.KNOWN or (check.name == "Ownership" and result.is_foreign):
            continue
        if check.state == "ok":
            fine += 1
        else:
            advice = check.fix or "Test the connection on the cluster's page."
            yield Finding(CLUSTERS, _STATES[check.state], f"{row}: {check.text}", advice)
    if fine:
        yield ok(CLUSTERS, f"{row}: {fine} of the connect page's tests are passed.")


def endings() -> Iterator[Finding]:
    for row, ends in expiry.of_clusters(Cluster.objects.defer("credential")).items():
        for end in ends:
            if end.is_due():
                yield warning(CLUSTERS, f"{row}: {end.sentence}", "Rotate it before it ends.")


def agents() -> Iterator[Finding]:
    for row in Cluster.objects.defer("credential").order_by("name"):
        if not row.is_current:
            yield problem(AGENTS, f"{row}: {row.why_unknown}", "See what the cluster's check says, or start the watch.")
            continue
        yield from _agents_of(row)


def _agents_of(row: Cluster) -> Iterator[Finding]:
    present = Node.objects.present().filter(cluster=row)
    nodes = present.count()
    answering = present.filter(tuning__protocol__gt=0)
    silent = sorted(answering.filter(unheard()).values_list("name", flat=True))
    absent = sorted(present.exclude(tuning__protocol__gt=0).values_list("name", flat=True))
    versions = Counter(answering.values_list("tuning__protocol", "tuning__agent_version"))
    apart = {v: n for (protocol, v), n in versions.items() if abs(protocol - names.PROTOCOL) > names.MAX_SKEW}
    other = {v: n for (_, v), n in versions.items() if v != names.RELEASE and v not in apart}
    if absent:
        yield warning(
            AGENTS,
            f"{row}: no agent has answered on {listed(absent)}.",
            "See the pods of the DaemonSet setpoint-agent.",
        )
    if silent:
        yield problem(
            AGENTS,
            f"{row}: agents have been silent for more than {settings.SETPOINT_AGENT_SILENT_SECONDS:g} s on "
            f"{listed(silent)}.",
            "See the pods of the DaemonSet setpoint-agent there, and the nodes' clocks.",
        )
    if apart:
        yield problem(
            AGENTS,
            f"{row}: agents of version {', '.join(sorted(apart))} and this control plane are too far apart: "
            f"{sum(apart.values())} of {nodes} nodes are not tuned.",
            "Apply the deploy/ of this version.",
        )
    if other:
        yield warning(
            AGENTS,
            f"{row}: {sum(other.values())} of {nodes} agents are of version {', '.join(sorted(other))}, this is "
            f"{names.RELEASE}.",
            "They work together; apply the deploy/ of this version.",
        )
    if not (absent or silent or apart or other):
        yield ok(AGENTS, f"{row}: all {nodes} agents are of version {names.RELEASE} and heard.")


# ── After a restore ───────────────────────────────────────────────────────────────────────────────────────────────────
def rollouts() -> Iterator[Finding]:
    """Name what holds all rollouts, and each node whose objects are newer than this database (law 12)."""
    for freeze in Freeze.in_effect().filter(cluster=None).order_by("created_at", "pk"):
        yield warning(ROLLOUTS, f"All rollouts are held by a freeze: {freeze.reason}", "Lift it on the page Freezes.")
    is_clean = True
    for row in Cluster.objects.defer("credential").order_by("name"):
        for finding in _newer(row):
            is_clean = False
            yield finding
    if is_clean:
        live = Rollout.objects.live().count()
        yield ok(ROLLOUTS, f"{live} rollouts are live, and no node's object is newer than the database.")


def _newer(row: Cluster) -> Iterator[Finding]:
    advice = f"An admin opens Take over on the cluster's page (/clusters/{row.pk}/takeover/); a second person approves."
    for step in restore_check.steps_behind(row.pk):
        yield problem(
            ROLLOUTS,
            f"{row}: the NodeTuning of {step.node_name} is newer than the row of its step in {step.rollout}.",
            f"Skip it in {step.rollout} or abort that; then plan again: what is done needs no change.",
        )
    present = NodeTuning.objects.filter(node__cluster=row, node__gone_at=None)
    by_step = restore_check.naming_unknown_steps(present).annotate(name=F("node__name")).order_by("name")
    for name, unknown in by_step.values_list("name", "spec_step"):
        yield problem(
            ROLLOUTS,
            f"{row}: the NodeTuning of {name} names step {unknown[:8]}, unknown to this database.",
            advice,
        )
    cordoned = restore_check.cordoned_by_unknown_steps(Node.objects.present().filter(cluster=row)).order_by("name")
    for name in cordoned.values_list("name", flat=True):
        yield problem(ROLLOUTS, f"{row}: {name} is cordoned by a step that is not in this database.", advice)


def listed(node_names: list[str]) -> str:
    more = len(node_names) - NAMED
    return ", ".join(node_names[:NAMED]) + (f" and {more} more nodes" if more > 0 else "")
