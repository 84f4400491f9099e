"""Target revision of each pool, and whether its agents repair drift.

A target and `enforce` come only from an approved plan, when its rollout starts. Only weakening needs none: to stop
repairing writes nothing to a host, and may be urgent when two writers fight.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from accounts.models import User
from audit import services as audit
from clusters.connection import registry
from clusters.fleet import Fleet, FleetError, FleetRefused
from clusters.inventory import store
from clusters.models import Cluster, NodeTuning, Pool
from clusters.services import pools as pool_services
from common import hooks
from common.clock import now
from common.errors import NotAllowed, WrongState
from compliance.models import Assignment
from contract.nodetuning import Malformed, Mode, Spec, Wanted
from profiles.models import Revision

log = logging.getLogger(__name__)
AT_ONCE = 300
"""Nodes of one slice; at 16 calls at once and 10 s each at worst, three minutes."""


def assign(pool: Pool, revision: Revision, *, enforce: bool, rollout_id: UUID, by: User | None) -> Assignment:
    """A rollout starts: this is the pool's target now. In the caller's transaction; then `standings.renew_pool`."""
    before = Assignment.objects.select_for_update().filter(pool=pool).first()
    fields: dict[str, Any] = {
        "revision": revision,
        "mode": Assignment.Mode.ENFORCE if enforce else Assignment.Mode.APPLY,
        "rollout_id": rollout_id,
        "set_by": by,
        "set_at": now(),
    }
    if before is None or before.rollout_id != rollout_id:
        fields["previous"] = before.revision if before else None
        fields["previous_mode"] = before.mode if before else Assignment.Mode.APPLY
    return Assignment.objects.update_or_create(pool=pool, defaults=fields)[0]


def take_back(rollout_id: UUID) -> None:
    """A rollout was reverted whole: the pool's target is again what it was. Nothing, if another came since."""
    for row in Assignment.objects.select_for_update().filter(rollout_id=rollout_id):
        if row.previous is None:
            row.delete()
            continue
        row.revision, row.mode, row.rollout_id, row.set_at = row.previous, row.previous_mode, None, now()
        row.previous = None
        row.save(update_fields=["revision", "mode", "rollout_id", "set_at", "previous"])


# ── from enforce to observe ───────────────────────────────────────────────────────────────────────────────────────────
def why_not_weaken(assignment: Assignment, live: Iterable[hooks.WorkRef] | None = None) -> str:
    """Return why its agents cannot be told to stop repairing now; empty when they can."""
    if assignment.mode == Assignment.Mode.APPLY:
        return "Its agents only observe drift already."
    live = hooks.rollouts_of_pools([assignment.pool_id]) if live is None else live
    working = [f"R-{ref.number}" for ref in live if ref.pool_id == assignment.pool_id]
    if working:
        return f"{working[0]} works on this pool and would switch it on again: wait until it ends, or abort it."
    return ""


def may_weaken(user: User, assignment: Assignment) -> bool:
    return not reason_against(user, assignment)


def reason_against(user: User, assignment: Assignment) -> str:
    """Return why this person may not stop the repairs; empty where they may."""
    pool = assignment.pool
    return pool_services.reason_against(pool, user) or pool_services.reason_of_shared(pool, user)


def weaken(assignment: Assignment, *, by: User, reason: str = "") -> Assignment:
    """Stop repairing drift in this pool; agents are told by `soften`. Raises NotAllowed, WrongState."""
    cluster = assignment.pool.cluster
    pool_services.require_operator(assignment.pool, by, f"stop repairs in {assignment.pool}")
    if refused := pool_services.reason_of_shared(assignment.pool, by):
        raise NotAllowed(f"You may not stop repairs in {assignment.pool}. {refused}")
    if refused := why_not_weaken(assignment):
        raise WrongState(refused)
    with transaction.atomic():
        enforcing = Assignment.objects.filter(pk=assignment.pk, mode=Assignment.Mode.ENFORCE)
        if not enforcing.update(mode=Assignment.Mode.APPLY):
            raise WrongState("Its agents were told to stop repairing a moment ago.")
        audit.record(
            by=by,
            action="assignment.observe",
            target=f"pool:{assignment.pool_id}",
            target_name=str(assignment.pool),
            cluster_id=cluster.pk,
            message=reason,
            before={"mode": str(Assignment.Mode.ENFORCE)},
            after={"mode": str(Assignment.Mode.APPLY)},
        )
    assignment.refresh_from_db()
    return assignment


def repairing() -> dict[UUID, list[NodeTuning]]:
    """Return by cluster the agents that still repair although their pool only observes. The row is the queue."""
    rows = NodeTuning.objects.filter(
        mode=Mode.ENFORCE,
        node__gone_at=None,
        node__standing__pool__assignment__mode=Assignment.Mode.APPLY,
        node__cluster__reach=Cluster.Reach.REACHABLE,
        node__cluster__ownership=Cluster.Ownership.OURS,
    )
    pools = {pk for pk in rows.order_by().values_list("node__standing__pool", flat=True).distinct() if pk is not None}
    if not pools:
        return {}
    free = pools - {ref.pool_id for ref in hooks.rollouts_of_pools(pools)}  # a live rollout would switch it on again
    out: dict[UUID, list[NodeTuning]] = defaultdict(list)
    rows = rows.filter(node__standing__pool__in=free).select_related("node").defer("status", "observed")
    for row in rows.order_by("pk")[:AT_ONCE]:
        out[row.node.cluster_id].append(row)
    return out


def soften(cluster: Cluster, tunings: Iterable[NodeTuning]) -> int:
    """Tell these agents to observe only; returns how many were told. Calls the cluster: hold no transaction."""
    fleet = registry.connect(cluster)
    names = [tuning.node.name for tuning in tunings]
    with ThreadPoolExecutor(max_workers=settings.SETPOINT_PARALLEL_CALLS) as threads:
        raws = [raw for raw in threads.map(lambda name: _soften_one(fleet, name), names) if raw is not None]
    store.observe_tunings(cluster, raws, complete=False)
    return len(raws)


def _soften_one(fleet: Fleet, name: str) -> Mapping[str, Any] | None:
    """Read and write under one resourceVersion, so that no step's spec is ever written over. None: not this time."""
    try:
        raw = fleet.tuning(name)
        softer = softened(Spec.from_json(raw.get("spec") or {}))
        return fleet.tune(name, softer, version=str(raw["metadata"]["resourceVersion"]))
    except FleetRefused as error:  # gone, or another writer was first: the next look decides again
        log.info("the agent of %s was not told to stop repairing: %s", name, error)
    except (FleetError, Malformed) as error:
        log.warning("the agent of %s could not be told to stop repairing: %s", name, error)
    return None


def softened(spec: Spec) -> Spec:
    """The same spec in mode apply, worded so that no agent writes because of it.

    A new generation makes the agent look at every key once more, and it writes what is as `expect` says: with the
    wanted value as `expect`, a value that drifted meanwhile is reported as Moved and left. Restores and the restart
    grant were this step's, which is over.
    """
    wanted = tuple(Wanted(w.key, w.operator, w.value, w.value) for w in spec.settings)
    return dataclasses.replace(spec, mode=Mode.APPLY, settings=wanted, restore=(), restart=None)
