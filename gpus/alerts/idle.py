"""The alert rule over pods that hold GPUs idle: one alert for the pods of one owner, not one for each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.urls import reverse

from clusters.models import GpuPod
from common.alerting import AlertCondition, AlertMember, AlertRule, RuleResult, Severity, SubjectKind, Threshold
from common.clock import now
from gpus.alerts.subjects import of_current_samples
from gpus.metrics import mig, states
from gpus.metrics.samples import Metric
from gpus.models import GpuDevice, IdleHolding
from gpus.showback import periods, prices
from gpus.storage import node_snapshot
from notices.alerts import rulebook

IDLE = "held-idle"
STOPPED = "no reading"
Pod = tuple[str, str]
"""Namespace and name."""
Owner = tuple[str, str]
"""Kind and name; both empty where a pod has none."""
Cause = tuple[str, str, str]
"""Namespace, and the owner's kind and name."""


def rules() -> Iterator[AlertRule]:
    yield AlertRule(
        IDLE,
        "GPUs held idle",
        "A pod holds GPUs, and on all of them utilization and engine activity are both below {limit}{lasting}. Pods of "
        "one owner, and those of one namespace without an owner, are one alert. A pod younger than that is exempt, and "
        "so are GPUs whose telemetry contradicts itself.",
        Severity.WARNING,
        held_idle,
        opens_after=timedelta(minutes=30),
        closes_after=timedelta(minutes=5),
        threshold=Threshold(100 * states.IDLE_BELOW, 1, 50, "%", "below which a GPU counts as idle"),
        order=10,
    )


@dataclass(slots=True)
class _PodHolding:
    """GPUs that one pod holds, by the last reading."""

    node_id: int | None
    node_name: str
    model: str
    states: list[str] = field(default_factory=list)
    share: float = 0.0
    """In whole GPUs."""
    watts: list[float] = field(default_factory=list)
    since: datetime | None = None
    """Since when it holds them idle, as the GPU pages show it; None: not recorded yet."""
    price: Decimal | None = None
    """Of one GPU and hour, by today's price of its model in its cluster; None: it has none."""


_COLUMNS = (
    "holders", "instance", "node_id", "node_name", "node__gpu_product", "model", "profile", "is_suspect",
    "missing_since", "values__busy", "values__engine", "values__power",
)  # fmt: skip


@of_current_samples
def held_idle(cluster_id: UUID, threshold: float) -> RuleResult:
    """Report pods all of whose GPUs are idle; a pod with a GPU that cannot be judged is not judged."""
    pods = _pods(cluster_id, threshold)
    judged = {key: pod for key, pod in pods.items() if STOPPED not in pod.states and states.NONE not in pod.states}
    idle = {key: pod for key, pod in judged.items() if set(pod.states) == {states.HELD}}
    # Busy on one GPU is busy, even where others are unknown.
    busy = {key for key, pod in pods.items() if {states.LOW, states.EFFECTIVE} & set(pod.states)}
    unclear = pods.keys() - judged.keys() - busy
    owners, since = _owners(cluster_id, sorted({name for _, name in idle.keys() | unclear})), _since(cluster_id)
    causes: dict[Cause, dict[Pod, _PodHolding]] = defaultdict(dict)
    book, day = prices.book(), periods.today()
    for key, pod in sorted(idle.items()):
        pod.since, pod.price = since.get(key), book.gpu(pod.model, cluster_id, day)
        causes[key[0], *owners[key]][key] = pod
    lasting = next(rule.opens_after for rule in rulebook.of_cluster(cluster_id) if rule.rule.name == IDLE)
    conditions = [_condition(cluster_id, cause, members, lasting) for cause, members in causes.items()]
    unknown = frozenset(_subject((namespace, *owners[namespace, name])) for namespace, name in unclear)
    return RuleResult(conditions, unknown)


def _pods(cluster_id: UUID, threshold: float) -> dict[Pod, _PodHolding]:
    pods: dict[Pod, _PodHolding] = {}
    rows = GpuDevice.objects.holdable().filter(cluster=cluster_id).exclude(holders=[]).order_by()
    for holders, instance, node_id, node_name, *about, suspect, missing, busy, engine, power in rows.values_list(
        *_COLUMNS
    ).iterator(5000):
        product, model, profile = about
        values = {str(m): v for m, v in ((Metric.BUSY, busy), (Metric.ENGINE, engine)) if v is not None}
        state = states.of_held(values, is_suspect=suspect, is_instance=bool(instance), idle_below=threshold / 100)
        holding = {(holder[0], holder[1]) for holder in holders}
        for key in holding:
            pod = pods.setdefault(
                key, _PodHolding(node_id, node_name, node_snapshot.model_name(product) if product else model)
            )
            pod.states.append(STOPPED if missing else state)
            pod.share += mig.part_of(profile, model) / len(holding)
            if power is not None and not missing and len(holders) == 1:
                pod.watts.append(float(power))
    return pods


def _since(cluster_id: UUID) -> dict[Pod, datetime]:
    """Return since when each pod has held GPUs idle, the same times as the GPU pages show."""
    rows = IdleHolding.objects.filter(cluster=cluster_id, is_seen=True)
    return {(namespace, pod): since for namespace, pod, since in rows.values_list("namespace", "pod", "since")}


def _owners(cluster_id: UUID, names: Sequence[str]) -> Mapping[Pod, Owner]:
    owners: dict[Pod, Owner] = defaultdict(lambda: ("", ""))
    for start in range(0, len(names), 500):
        rows = GpuPod.objects.filter(cluster=cluster_id, name__in=names[start : start + 500])
        for namespace, name, kind, owner in rows.values_list("namespace", "name", "owner_kind", "owner_name"):
            owners[namespace, name] = (kind, owner)
    return owners


# ── One condition for a cause ─────────────────────────────────────────────────────────────────────────────────────────
def _subject(cause: Cause) -> str:
    """Return the identity of a cause: it stays while pods of it come and go."""
    return "/".join(cause)


def _condition(cluster_id: UUID, cause: Cause, pods: Mapping[Pod, _PodHolding], lasting: timedelta) -> AlertCondition:
    """Build the condition of a cause from the pods that have been idle for long enough, or of all while none has."""
    at = now()
    old = {key: pod for key, pod in pods.items() if pod.since is not None and at - pod.since >= lasting}
    listed = old or pods
    namespace, kind, owner = cause
    ordered = sorted(listed.items(), key=lambda item: (-len(item[1].states), item[1].since or at, item[0]))
    held = [pod for _, pod in ordered]
    begun = [pod.since for pod in held if pod.since is not None]
    nodes = {pod.node_id for pod in held}
    return AlertCondition(
        SubjectKind.WORKLOAD,
        _subject(cause),
        f"{namespace}/{owner}" if owner else f"{namespace}: pods without an owner",
        _sentence(f"{kind} {owner}".strip(), ordered),
        mend="Ask its owner whether it is needed; delete it, or let the queue give its GPUs to a waiting job.",
        link=reverse("gpus:cluster", args=[cluster_id]),
        node=next(iter(nodes)) if len(nodes) == 1 else None,
        namespace=namespace,
        since=min(begun) if len(begun) == len(held) else None,
        figures={"owner": f"{kind} {owner}".strip(), "pods": len(held), **dict(_figures(held))},
        members=[_member(key, pod, f"{kind} {owner}".strip()) for key, pod in ordered],
    )


def _sentence(owner: str, pods: Sequence[tuple[Pod, _PodHolding]]) -> str:
    gpus = sum(len(pod.states) for _, pod in pods)
    watts = sum(sum(pod.watts) for _, pod in pods)
    count = f"{gpus:,} GPU{'' if gpus == 1 else 's'}"
    draws = f", and draw{'s' if len(pods) == 1 else ''} {watts:,.0f} W" if watts else ""
    of_owner = f" of {owner}" if owner else ""
    if len(pods) == 1:
        (_, name), pod = pods[0]
        them = "and does not use it" if gpus == 1 else "and uses none of them"
        return f"{name}{of_owner} holds {count} on {pod.node_name or 'an unknown node'} {them}{draws}."
    names = [name for (_, name), _ in pods[:3]]
    more = f" and {len(pods) - 3:,} more" if len(pods) > 3 else ""
    return f"{len(pods):,} pods{of_owner} hold {count} and use none of them{draws}: {', '.join(names)}{more}."


def _member(key: Pod, pod: _PodHolding, owner: str) -> AlertMember:
    figures: dict[str, float | str] = {"owner": owner, "node": pod.node_name, **dict(_figures([pod]))}
    if pod.price is not None:
        figures["price"] = float(pod.price)
    return AlertMember("/".join(key), pod.since, figures)


def _figures(pods: Sequence[_PodHolding]) -> Iterable[tuple[str, float]]:
    """Yield figures of pods together; those not reported, or implied by the others, are absent."""
    gpus = sum(len(pod.states) for pod in pods)
    yield "gpus", gpus
    if any(pod.watts for pod in pods):
        yield "watts", round(sum(sum(pod.watts) for pod in pods))
    if (share := round(sum(pod.share for pod in pods), 4)) != gpus:
        yield "share", share
