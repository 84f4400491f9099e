"""Runs of checks, carried out slice by slice: wait for the node, start the pod, read its output, remove it.

A rollout has right of way, and the two never work on one node at once. A run writes that it has the node, and only then
looks for steps; a step's row is there long before it asks who works on the node (hooks.node_work). Whichever is later
sees the other: the step waits, the run gives the node up. A run ends only when its pod is gone.

A killed worker costs a claim: every slice looks at the cluster first, the pod's name is the run's, and creating and
deleting it may be repeated.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from clusters.connection import registry
from clusters.fleet import Fleet, FleetError, FleetRefused, NotFound, PodRef
from clusters.models import Cluster
from common.clock import now
from contract import names
from gpus.models import CheckRun
from gpus.services.checks import idleness, pods
from gpus.services.checks.catalog import CHECKS
from gpus.services.checks.parsers import PARSERS
from gpus.services.checks.verdicts import LONGEST, NotUnderstood, Verdict

log = logging.getLogger(__name__)
CLAIM = timedelta(seconds=120)
"""Several times what the calls of one slice may take."""
AGAIN = timedelta(seconds=5)
WAITS_AGAIN = timedelta(seconds=30)
LONGEST_WAIT = timedelta(hours=2)
"""For an idle node. After it the run is given up, so that no check surprises anyone the next day."""
SCHEDULED_WAIT = timedelta(minutes=10)
"""Of a run that a schedule queued: its node was idle, and will be taken when it is idle again."""
PLACING = timedelta(minutes=5)
"""For the scheduler to place the pod, and the kubelet to pull an image that it can pull."""
PULLING = timedelta(minutes=15)
AT_ONCE = 50
APPLY = "Apply deploy/setpoint-checks.yaml to the cluster: Setpoint may not run checks there."
Status, Outcome = CheckRun.Status, CheckRun.Outcome


def due() -> list[UUID]:
    at = now()
    rows = CheckRun.objects.live().filter(_free(at), Q(not_before=None) | Q(not_before__lte=at))
    return list(rows.order_by("created_at", "pk").values_list("pk", flat=True)[:AT_ONCE])


def works_on(node_ids: Collection[int]) -> Iterable[tuple[int, str]]:
    """Answer hooks.node_work."""
    for run in CheckRun.objects.on_node().filter(node__in=node_ids):
        title = CHECKS[run.check_name].title if run.check_name in CHECKS else run.check_name
        yield run.node_id, f"The check “{title}” runs on this node and is being ended."


def blockers(cluster: Cluster) -> Iterable[str]:
    """Answer hooks.disconnect_blockers."""
    if count := CheckRun.objects.live().filter(cluster=cluster).count():
        which = "1 check of its nodes runs or waits" if count == 1 else f"{count} checks of its nodes run or wait"
        yield f"{which}: let it end, or stop it"


def advance(pk: UUID) -> bool:
    """Do one slice, if it is due and unclaimed. Waits on the network: hold no transaction."""
    token, at = str(uuid.uuid4()), now()
    free = CheckRun.objects.live().filter(_free(at), pk=pk)
    if not free.update(claim=token, claimed_until=at + CLAIM):
        return False
    run = CheckRun.objects.select_related("cluster", "node").get(pk=pk)
    try:
        changes = _slice(run)
    except FleetRefused as error:
        log.warning("check %s: %s", run.pk, error)
        changes = {"reason": str(error)[:500], "not_before": now() + WAITS_AGAIN}
    except FleetError as error:
        changes = {"reason": str(error)[:500], "not_before": now() + WAITS_AGAIN}
    return bool(_mine(run, token).update(**changes, claim="", claimed_until=None))


def _slice(run: CheckRun) -> dict[str, Any]:
    if run.status == Status.WAITING:
        return _wait(run)
    fleet = registry.connect(run.cluster)
    if run.status == Status.STARTING:
        return _start(run, fleet)
    if run.status == Status.RUNNING:
        return _watch(run, fleet)
    return _end(run, fleet)


# ── Waiting ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def _wait(run: CheckRun) -> dict[str, Any]:
    at = now()
    if run.stopped_by:
        return _ended(Outcome.NOT_RUN, f"Stopped by {run.stopped_by} before it began.")
    if run.check_name not in CHECKS:
        return _ended(Outcome.NOT_RUN, "The catalog has no such check any more.")
    reason = idleness.objection(run)
    longest, words = (SCHEDULED_WAIT, "10 minutes") if run.schedule_id else (LONGEST_WAIT, "2 hours")
    if at - run.created_at > longest:
        return _ended(Outcome.NOT_RUN, f"Given up after {words}. {reason}".strip())
    if not reason and _takes_slot(run):
        return {"not_before": None}
    return {"reason": reason or "As many checks as may run at once do.", "not_before": at + WAITS_AGAIN}


def _takes_slot(run: CheckRun) -> bool:
    """Give the run its node, if fewer of its cluster have theirs than `at_once` and the cluster's budget allow.

    `at_once` counts runs of the same schedule, or those that people started: else one that allows many would keep one
    that allows few from ever starting. The cluster's row orders those who ask at the same time.
    """
    with transaction.atomic():
        cluster = Cluster.objects.select_for_update().get(pk=run.cluster_id)
        on_node = CheckRun.objects.on_node().filter(cluster=run.cluster_id)
        alike = on_node.filter(schedule=run.schedule_id)
        if alike.count() >= run.at_once or on_node.count() >= cluster.budget:
            return False
        taken = CheckRun.objects.filter(pk=run.pk, status=Status.WAITING)
        return bool(taken.update(status=Status.STARTING, started_at=now(), reason=""))


# ── On its node ───────────────────────────────────────────────────────────────────────────────────────────────────────
def _start(run: CheckRun, fleet: Fleet) -> dict[str, Any]:
    """Create the pod, unless a rollout came: its steps are looked for after this run's own row says `starting`."""
    if why := _must_end(run):
        return _ending(Outcome.NOT_RUN, why)
    check = CHECKS[run.check_name]
    resource, offered = pods.resource_of(check, run.node.allocatable)
    if offered != run.gpus:
        return _ending(Outcome.NOT_RUN, f"The node offers {offered} GPUs that this check can take, not {run.gpus}.")
    try:
        pod = fleet.run_pod(pods.manifest(run, check, node=run.node.name, resource=resource))
    except FleetRefused as error:
        if not error.is_final:
            raise
        return _ending(Outcome.NOT_RUN, f"{APPLY} ({error})"[:500])
    if not pods.is_of(pod, run):
        return _ending(Outcome.NOT_RUN, "A pod of the same name is there that Setpoint did not make.")
    if not CheckRun.objects.filter(pk=run.pk, status__in=(Status.STARTING, Status.RUNNING)).exists():
        # Another worker ended this run while the call was under way, and may have looked before the pod was there.
        fleet.remove_pod(PodRef(names.CHECKS_NAMESPACE, run.pod_name, pods.uid_of(pod)))
    return {"status": Status.RUNNING, "pod_uid": pods.uid_of(pod), "reason": "", "not_before": now() + AGAIN}


def _watch(run: CheckRun, fleet: Fleet) -> dict[str, Any]:
    if why := _must_end(run):
        return _ending(Outcome.UNKNOWN, why)
    try:
        pod = fleet.pod(names.CHECKS_NAMESPACE, run.pod_name)
    except NotFound:
        return _ending(Outcome.UNKNOWN, "Its pod was removed by another party, or for a pod of higher priority.")
    if not pods.is_of(pod, run):
        return _ending(Outcome.UNKNOWN, "Its pod was replaced by another.")
    assert run.started_at is not None
    passed = now() - run.started_at
    if pods.is_finished(pod):
        return _judge(run, pod, fleet)
    phase = str((pod.get("status") or {}).get("phase") or "Pending")
    if phase == "Pending" and passed > PLACING and not pod["spec"].get("nodeName"):
        return _ending(Outcome.NOT_RUN, "The node was busy: the scheduler did not place the check there.")
    if passed > PLACING and (why := pods.stuck(pod)):
        return _ending(Outcome.NOT_RUN, f"Its image does not start. {why}")
    if passed > PULLING + CHECKS[run.check_name].limit:
        return _ending(Outcome.UNKNOWN, "It did not end in time.")
    return {"reason": "" if phase == "Running" else "Its pod is starting.", "not_before": now() + AGAIN}


def _must_end(run: CheckRun) -> str:
    """Return why a run has to give its node up now; empty: it has not."""
    if run.stopped_by:
        return f"Stopped by {run.stopped_by}."
    if run.check_name not in CHECKS:
        return "The catalog has no such check any more."
    return idleness.right_of_way(run.node_id) or idleness.not_ours(run)


def _judge(run: CheckRun, pod: dict[str, Any], fleet: Fleet) -> dict[str, Any]:
    """Turn the pod's output into an outcome. What is not understood is no result, never a pass."""
    code, why = pods.end_of(pod)
    if why:
        return _ending(Outcome.UNKNOWN, f"Kubernetes ended its pod: {why}.")
    if pod["spec"].get("nodeName") != run.node.name:
        return _ending(Outcome.UNKNOWN, "Its pod ran on another node.")
    output = fleet.pod_log(PodRef(names.CHECKS_NAMESPACE, run.pod_name, run.pod_uid), limit=LONGEST + 1)
    try:
        verdict = _parsed(run, output)
    except NotUnderstood as error:
        return _ending(Outcome.UNKNOWN, f"{error} Its program ended with {'no exit code' if code is None else code}.")
    if verdict.is_passed and code != 0:
        return _ending(Outcome.UNKNOWN, f"Its output says passed, and its program ended with {code}.")
    outcome = Outcome.PASSED if verdict.is_passed else Outcome.FAILED
    return _ending(outcome, verdict.summary) | {
        "measures": dict(verdict.measures), "notes": list(verdict.notes), "program_version": verdict.version[:40],
    }  # fmt: skip


def _parsed(run: CheckRun, output: bytes) -> Verdict:
    """Raises NotUnderstood."""
    if len(output) > LONGEST:
        raise NotUnderstood(f"The output is longer than {LONGEST:,} bytes.")
    try:
        text = output.decode()
    except UnicodeDecodeError as error:
        raise NotUnderstood("The output is not text.") from error
    check = CHECKS[run.check_name]
    verdict = PARSERS[check.parser](text)
    if missing := [target for target in run.targets if target not in verdict.covers]:
        raise NotUnderstood(f"The output does not tell of {missing[0]}.")
    if check.measures and verdict.is_passed and not any(m.name in verdict.measures for m in check.measures):
        raise NotUnderstood("The output has none of the figures that nodes are compared by.")
    return verdict


# ── Ending ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def _end(run: CheckRun, fleet: Fleet) -> dict[str, Any]:
    """Remove the pod; only when it is gone has the run ended, and only then may a step have the node."""
    if run.cluster.ownership != Cluster.Ownership.OURS:
        left = f"{run.reason} Its pod is left to end by itself: the cluster belongs to another installation."
        return _ended(run.outcome, left)
    try:
        pod = fleet.pod(names.CHECKS_NAMESPACE, run.pod_name)
    except NotFound:
        return {"status": Status.ENDED, "ended_at": now()}
    if not pods.is_of(pod, run):
        return {"status": Status.ENDED, "ended_at": now()}
    try:
        if "deletionTimestamp" not in pod["metadata"]:
            fleet.remove_pod(PodRef(names.CHECKS_NAMESPACE, run.pod_name, pods.uid_of(pod)))
    except FleetRefused as error:
        if pods.is_finished(pod):
            left = f"{run.reason} Its pod, which has ended, could not be removed: {error}"
            return {"status": Status.ENDED, "ended_at": now(), "reason": left[:500]}
        raise
    return {"not_before": now() + timedelta(seconds=2)}


def _ending(outcome: str, reason: str) -> dict[str, Any]:
    return {"status": Status.ENDING, "outcome": outcome, "reason": reason[:500], "not_before": None}


def _ended(outcome: str, reason: str) -> dict[str, Any]:
    return {"status": Status.ENDED, "outcome": outcome, "reason": reason[:500], "ended_at": now()}


def _free(at: datetime) -> Q:
    return Q(claimed_until=None) | Q(claimed_until__lt=at)


def _mine(run: CheckRun, token: str) -> Any:
    return CheckRun.objects.filter(pk=run.pk, claim=token)
