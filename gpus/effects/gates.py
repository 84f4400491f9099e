"""GPU health gates of rollouts: a signal that all is well, or a closed gate with its reason."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Max

from common.clock import now
from gpus.effects import arms, estimation, measures, windows
from gpus.effects.estimation import Pair
from gpus.metrics import xids
from gpus.metrics.buckets import Device
from gpus.metrics.samples import XidEvidence
from gpus.models import GpuDevice, Study, TelemetrySource
from gpus.storage import history
from jobs.forecast.strategy import Strategy
from jobs.models import Rollout, Step
from jobs.rollouts import engine_signals

STANDS = timedelta(hours=24)
"""A gate, and a look: as long as the engine waits for a decision at most. Both are written again as readings come."""
NEWEST_NODES = 64
SILENT = timedelta(minutes=15)
"""Without a reading at the end of the time watched. Earlier, a node's exporter may be on its way up still."""


def due() -> list[UUID]:
    """Running ones whose strategy has a gate."""
    rows = Rollout.objects.filter(status=Rollout.Status.RUNNING).order_by("number")
    strategies = rows.values_list("pk", "plan__strategy")
    return [pk for pk, strategy in strategies if Strategy.from_json(strategy).is_gated]


def find(pk: UUID) -> Rollout | None:
    return Rollout.objects.filter(pk=pk, status=Rollout.Status.RUNNING).select_related("plan").first()


def refresh(rollout: Rollout) -> None:
    """Says nothing where telemetry does not: the engine waits then, and says for what."""
    study = Study.objects.filter(rollout=rollout).first()
    source = TelemetrySource.objects.filter(cluster=rollout.cluster_id).first()
    if study is None or source is None or not source.is_current:
        return
    strategy = Strategy.from_json(rollout.plan.strategy)
    _remember_xids(study, rollout)
    steps = rollout.steps.of_nodes().filter(status=Step.Status.SUCCEEDED, direction=Step.Direction.FORWARD)
    last: datetime | None = steps.aggregate(last=Max("entered_at"))["last"]
    if last is None:
        return
    why = _new_xids(study, steps.values_list("node_id", flat=True)) if strategy.gate_xids else []
    judged: list[str] = []
    ready = last + timedelta(minutes=strategy.gate_minutes)
    is_ready = ready + windows.STEP <= now()  # the last five minutes are written then
    if is_ready:
        fresh = steps.filter(entered_at__gt=rollout.went_on_at) if rollout.went_on_at else steps
        judged = _judged(rollout, fresh.order_by("-entered_at", "pk")[:NEWEST_NODES], strategy, last)
    if why or judged:
        value = {"of": last.isoformat(), **({"judged": judged} if is_ready else {})}
        reason = " ".join(why + judged)
        engine_signals.send_signal(rollout, engine_signals.GATE, value=value, reason=reason, expires_at=now() + STANDS)
        return
    if engine_signals.newest_signal(rollout, engine_signals.GATE):
        engine_signals.withdraw_signal(rollout, engine_signals.GATE)
    if is_ready:
        engine_signals.send_signal(
            rollout, engine_signals.LOOK, value={"of": last.isoformat()}, expires_at=now() + STANDS
        )


def _remember_xids(study: Study, rollout: Rollout) -> None:
    """Record the XIDs present when the rollout is first checked, and again when an operator continues it."""
    if study.xids_at and (rollout.went_on_at is None or study.xids_at >= rollout.went_on_at):
        return
    nodes = rollout.steps.of_nodes().values("node")
    seen = {
        _name(uuid, instance): {str(code): count for code, count, *_ in codes}
        for uuid, instance, codes in GpuDevice.objects.filter(node__in=nodes)
        .exclude(xids=[])
        .values_list("uuid", "instance", "xids")
    }
    study.xids, study.xids_at = seen, now()
    study.save(update_fields=["xids", "xids_at"])


def _name(uuid: str, instance: str) -> str:
    return f"{uuid}/{instance}" if instance else uuid


def _new_xids(study: Study, nodes: Iterable[int | None]) -> list[str]:
    new_errors = []
    rows = GpuDevice.objects.filter(node__in=list(nodes)).exclude(xids=[]).order_by("node_name", "index", "instance")
    for device in rows:
        known = study.xids.get(_name(device.uuid, device.instance), {})
        evidence = {code: (count, kind) for code, count, kind, *_ in device.xids}
        for xid in xids.reported(device.xids):
            count, kind = evidence[xid.code]
            before = known.get(str(xid.code))
            is_new = before is None or (kind == XidEvidence.TOTAL and count > before)
            if is_new and xid.advice.severity != "ok":
                new_errors.append(f"XID {xid.code} on {device.node_name}, GPU {device.index}")
    if not new_errors:
        return []
    more = f" and {len(new_errors) - 1} more" if len(new_errors) > 1 else ""
    return [f"New since it began: {new_errors[0]}{more}."]


def _judged(rollout: Rollout, steps: Iterable[Step], strategy: Strategy, last: datetime) -> list[str]:
    """Return why the gate closes: changed GPUs that are silent, do less, or are throttled more. Judged once a batch."""
    gate, seen = (
        engine_signals.newest_signal(rollout, engine_signals.GATE),
        engine_signals.newest_signal(rollout, engine_signals.LOOK),
    )
    of = last.isoformat()
    if seen and seen.value.get("of") == of:
        return []
    if gate and gate.value.get("of") == of and (kept := gate.value.get("judged")) is not None:
        return list(kept)
    pairs, silent = _pairs(rollout, list(steps), timedelta(minutes=strategy.gate_minutes))
    why = []
    if silent:
        nodes = sorted({device.node_name for device in silent})
        more = f" and {len(nodes) - 1} more node{'s' if len(nodes) > 2 else ''}" if len(nodes) > 1 else ""
        gpus = f"{len(silent)} GPU{' has' if len(silent) == 1 else 's have'}"
        why.append(f"{gpus} no readings since their node's change: {nodes[0]}{more}.")
    falling = measures.primary({name for name, known in pairs.items() if known})
    if falling and strategy.gate_fall_percent:
        effect = estimation.before_and_after(pairs[falling])
        if effect.ratio is not None and effect.ratio * 100 <= -strategy.gate_fall_percent:
            title = measures.BY_NAME[falling].title
            why.append(
                f"{title} fell by {-effect.ratio * 100:.1f} % ({strategy.gate_fall_percent} % are allowed) "
                f"on {_n(effect)} after their change."
            )
    if strategy.gate_throttled_points and pairs.get("throttled"):
        effect = estimation.before_and_after(pairs["throttled"], by_points=True)
        if effect.points is not None and effect.points * 100 >= strategy.gate_throttled_points:
            why.append(
                f"GPUs are throttled {effect.points * 100:.1f} % of the time more than before "
                f"({strategy.gate_throttled_points} % are allowed), {_n(effect)}."
            )
    return why


def _n(effect: estimation.Effect) -> str:
    nodes = f"{effect.clusters} node{'s' if effect.clusters != 1 else ''}"
    return f"{effect.devices} GPU{'s' if effect.devices != 1 else ''} of {nodes}"


def _pairs(rollout: Rollout, steps: list[Step], length: timedelta) -> tuple[dict[str, list[Pair]], list[Device]]:
    """Return pairs by measure, and boards that reported before their node changed and not since.

    A missing MIG instance is not reported: it may have been removed on purpose.
    """
    spans: dict[str, tuple[windows.Window, windows.Window]] = {}
    for step in steps:
        began, ended = arms.first_touch(step), step.entered_at
        span = windows.matched(began, ended, settle=timedelta(), length=length, until=now())
        if span:
            spans[step.node_name] = span
    out: dict[str, list[Pair]] = {}
    silent: list[Device] = []
    if not spans:
        return out, silent
    start, end = min(b.start for b, _ in spans.values()), max(a.end for _, a in spans.values())
    for device, buckets in history.buckets(rollout.cluster_id, start, end, nodes=set(spans)).items():
        if device.node_name not in spans:
            continue
        before, after = spans[device.node_name]
        lately = windows.Window(after.end - SILENT, after.end)
        if not device.instance and before.of(buckets) and not lately.of(buckets):
            silent.append(device)
        compared: dict[str, Any] = windows.compare(buckets, before, after, device.model)
        for name, (first, second) in compared["figures"].items():
            out.setdefault(name, []).append(Pair(first, second, device.node_name))
    return out, silent
