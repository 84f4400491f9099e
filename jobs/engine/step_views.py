"""Conversion of rows to views and back: what a stage may see, and what its writes returned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from django.conf import settings

from clusters.fleet import Fleet
from clusters.inventory import inspection, store
from clusters.models import Cluster, NodeTuning
from common import hooks
from common.clock import now
from compliance.models import NodeExpectation
from compliance.services import expectations
from compliance.services.expectations import Desired, Expected
from jobs.diffs import restore_check
from jobs.diffs.changes import ChangeKind, Changes
from jobs.diffs.node_diff import NOTHING, Target
from jobs.engine.outcome import NodeView, StepOutcome
from jobs.forecast.strategy import Strategy
from jobs.models import ChangeSet, Rollout, Step
from jobs.planning import digests
from profiles.catalog import known_settings
from profiles.models import Revision

WRITE_SPEC = (Step.Status.APPLYING, Step.Status.RESTARTING)
"""Their stages write a spec, which names originals; what went back is held against them at the end."""


def refresh_if_stale(cluster: Cluster, fleet: Fleet) -> None:
    """Read the cluster itself when the watch's rows are too old to decide upon (law 11). Raises FleetError."""
    if cluster.observed_at and now() - cluster.observed_at < timedelta(seconds=settings.SETPOINT_FRESH_SECONDS):
        return
    inspection.refresh(cluster, fleet)
    cluster.refresh_from_db()


def views(rollout: Rollout, steps: Sequence[Step], fleet: Fleet, strategy: Strategy, until: datetime) -> list[NodeView]:
    """Build the views of node steps."""
    node_ids = [s.node_key for s in steps]
    forward, altered = _target(rollout.plan.revision.digest)
    tunings: dict[int, NodeTuning | None] = {s.node_key: getattr(s.node, "tuning", None) for s in steps}
    goes_back = {s.direction for s in steps if s.status == Step.Status.VERIFYING} & {Step.Direction.REVERT}
    writes = bool(goes_back) or any(s.status in WRITE_SPEC for s in steps)
    originals = expectations.originals(tunings) if writes else {}
    begun = {s.node_key for s in steps if s.status == Step.Status.QUEUED}
    unknown = restore_check.unknown_steps(t.spec_step for pk, t in tunings.items() if t and pk in begun)
    busy = dict(hooks.node_work(sorted(begun))) if begun else {}
    ran = _ran_before(rollout, node_ids)
    differences = _changes(steps)
    observe = tuple(known_settings.observable_keys())
    joins_after = digests.newest_key_when_planned(rollout.plan)
    out = []
    for step in steps:
        is_back = step.direction == Step.Direction.REVERT
        assert step.node is not None
        assert step.plan_node is not None
        earlier = ran.get(step.node_key)
        before, altered_before = _target(earlier) if earlier else (NOTHING, "")
        unfit = altered or altered_before
        tuning = tunings[step.node_key]
        if tuning and tuning.spec_step in unknown:
            unfit = restore_check.unknown_step_sentence(step.node_name, tuning.spec_step)
        elif tuning and restore_check.is_row_behind(step, tuning):
            unfit = restore_check.behind_sentence(step.node_name)
        digest = earlier if is_back else rollout.plan.revision.digest
        out.append(
            NodeView(
                step=step,
                node=step.node,
                planned=step.plan_node,
                tuning=tuning,
                changes=differences[step.plan_node.change_set_id],
                target=before if is_back else forward,
                before=forward if is_back else before,
                originals=originals.get(step.node_key, {}),
                strategy=strategy,
                fleet=fleet,
                owner=f"{settings.SETPOINT_INSTALLATION}/{step.pk}",
                revision_digest=digest or "",
                rollout=str(rollout.pk),
                observe=observe,
                lease_until=until,
                call_timeout=settings.SETPOINT_CALL_TIMEOUT_SECONDS,
                silent_since=tuning.silence(rollout.cluster) if tuning else None,
                selector=rollout.plan.selector,
                busy=busy.get(step.node_key, ""),
                joins_after=joins_after,
                unfit=unfit,
            )
        )
    return out


def _changes(steps: Sequence[Step]) -> dict[str | None, Changes]:
    """Return changes by digest of the change set, which nodes that differ alike share; None: of a node without."""
    sets = ChangeSet.objects.filter(pk__in={s.plan_node.change_set_id for s in steps if s.plan_node} - {None})
    by_digest: dict[str | None, Changes] = {None: Changes(())}
    by_digest.update({pk: Changes.from_json(content) for pk, content in sets.values_list("pk", "content")})
    return by_digest


def _ran_before(rollout: Rollout, node_ids: Sequence[int]) -> dict[int, str]:
    """Digest of the revision that each node was expected to run before this rollout touched it."""
    columns = ("node_id", "rollout_id", "previous__digest", "revision__digest")
    out = {}
    for node_id, rollout_id, previous, present in NodeExpectation.objects.filter(node_id__in=node_ids).values_list(
        *columns
    ):
        if earlier := previous if rollout_id == rollout.pk else present:
            out[node_id] = earlier
    return out


@lru_cache(maxsize=64)
def target_of(digest: str) -> Target:
    """Revisions are immutable, so this never goes stale. Raises Altered."""
    for content in Revision.objects.filter(digest=digest).order_by("pk").values_list("content", flat=True):
        if digests.is_intact(digest, content):
            return Target.of(content)
    raise RevisionAltered(f"The revision {digest[:19]}… is not what was published: its content has another digest.")


class RevisionAltered(Exception):
    """No revision of this digest has the content that it was approved with."""


def _target(digest: str) -> tuple[Target, str]:
    try:
        return target_of(digest), ""
    except RevisionAltered as error:
        return NOTHING, str(error)


def expected_record(view: NodeView, rollout: Rollout) -> Expected:
    """Targets and originals to record before this step writes (law 7)."""
    observed: dict[str, Any] = dict(view.tuning.observed) if view.tuning else {}
    never = expectations.untouched(view.tuning)
    desired = tuple(
        Desired(key, operator, value, observed.get(key), is_untouched=key in never)
        for key, operator, value, _ in view.target.settings
        if key not in view.changes.unsupported
    )
    revision: Revision | None = rollout.plan.revision
    if view.is_revert:
        now_expected = NodeExpectation.objects.select_related("previous").get(node_id=view.step.node_key)
        revision = now_expected.previous
    return Expected(view.step.node_key, revision, desired, tuple(dropped_keys(view)))


def dropped_keys(view: NodeView) -> list[str]:
    """Keys that this step puts back to their originals, and of which nothing is wanted afterwards."""
    if not view.is_revert:
        return [c.key for c in view.changes.items if c.kind == ChangeKind.RESTORE]
    kept = {key for key, *_ in view.target.settings}
    return [key for key, *_ in view.before.settings if key not in kept]


def store_answers(cluster: Cluster, outcomes: Iterable[StepOutcome]) -> None:
    """Objects that writes returned, into their rows: the next stage need not wait for the watch to say it again."""
    outcomes = list(outcomes)
    nodes = [out.raw_node for out in outcomes if out.raw_node]
    tunings = [out.raw_tuning for out in outcomes if out.raw_tuning]
    if nodes:
        store.observe_nodes(cluster, nodes, complete=False, at=now())
    if tunings:
        store.observe_tunings(cluster, tunings, complete=False, at=now())
