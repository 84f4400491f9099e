"""Conclusions of a study from its pairs: the effect of each measure, and what does not count and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction

from common.clock import now
from gpus.effects import arms, attrition, estimation, host_readings, measures, windows
from gpus.effects.estimation import FEWEST_CLUSTERS, Effect, Pair
from gpus.effects.measures import Measure
from gpus.models import Study, StudyEffect, StudyNode
from gpus.reports.hosts.figures import NOT_EXPORTED


@dataclass(slots=True)
class Counts:
    """Nodes and devices of a study, and why some do not count."""

    nodes: int = 0
    """With pairs that count."""
    control_nodes: int = 0
    nodes_left_out: dict[str, int] | None = None
    devices_left_out: dict[str, int] | None = None
    on_both: int = 0
    """Devices of jobs that ran on treated and control nodes at once: the slower half holds back the other."""
    rest_nodes: int = 0
    """Of the rest of the fleet, with pairs that count."""
    attrition: dict[str, Any] | None = None
    """As `gpus.effects.attrition.Attrition`; of a study with a control."""
    drained: int = 0
    """Treated nodes that were emptied for the change, of a study with a control, which was not."""
    hosts: int = 0
    """Nodes whose host has figures."""
    hosts_left_out: dict[str, int] | None = None
    host_lacks: dict[str, dict[str, int]] | None = None
    """Of nodes whose host was found: by measure, why it has no value."""

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def pairs(rows: Iterable[StudyNode]) -> tuple[dict[str, list[Pair]], Counts]:
    """Return the pairs of all nodes that count, by measure; every figure of a study's effects is computed from them."""
    counts, figures_by_device, figures_by_host = Counts(), [], []
    nodes_out: Counter[str] = Counter()
    devices_out: Counter[str] = Counter()
    for row in rows:
        if row.left_out:
            nodes_out[row.left_out] += 1
            continue
        if row.until is None:
            continue
        counts.nodes += row.is_treated
        counts.control_nodes += not row.is_treated
        if not row.devices:
            nodes_out[windows.NO_READINGS] += 1
        of_node = {"node": row.node_name, "stratum": row.stratum, "is_treated": row.is_treated}
        for device in row.devices:
            if device["left_out"]:
                devices_out[device["left_out"]] += 1
            else:
                figures_by_device.append(device | of_node)
        if row.host:
            figures_by_host.append(row.host | of_node)
    arms_of: dict[str, set[bool]] = defaultdict(set)
    out: dict[str, list[Pair]] = defaultdict(list)
    names = windows.clusters(figures_by_device)
    for device, cluster in zip(figures_by_device, names, strict=True):
        arms_of[cluster].add(device["is_treated"])
        _add_pairs(out, device, cluster)
    clusters_of: dict[str, Counter[str]] = defaultdict(Counter)
    for device, cluster in zip(figures_by_device, names, strict=True):
        clusters_of[device["node"]][cluster] += 1
    for host in figures_by_host:
        # A host varies with the job that most of its GPUs are of.
        of_gpus = clusters_of.get(host["node"]) or {f"node {host['node']}": 1}
        _add_pairs(out, host, max(sorted(of_gpus), key=lambda name: of_gpus[name]))
    counts.on_both = sum(len(arms_of[cluster]) == 2 for cluster in names)
    counts.nodes_left_out, counts.devices_left_out = dict(nodes_out), dict(devices_out)
    _count_hosts(counts, figures_by_host)
    return out, counts


def _add_pairs(out: dict[str, list[Pair]], row: Mapping[str, Any], cluster: str) -> None:
    for measure, (before, after) in row["figures"].items():
        earlier = row.get("day_before", {}).get(measure)
        past = row.get("past", {}).get("figures", {}).get(measure)
        out[measure].append(Pair(before, after, cluster, row["stratum"], row["is_treated"], earlier, past))


def _count_hosts(counts: Counts, hosts: Collection[Mapping[str, Any]]) -> None:
    counts.hosts = sum(bool(host["figures"]) for host in hosts)
    counts.hosts_left_out = dict(Counter(host["why"] for host in hosts if host["why"]))
    lacks: dict[str, Counter[str]] = defaultdict(Counter)
    for host in hosts:
        for measure, why in host["lacks"].items():
            lacks[measure][why] += 1
    counts.host_lacks = {measure: dict(by_why) for measure, by_why in lacks.items()}


# ── Effects ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def conclude(study: Study, *, is_over: bool) -> None:
    """Make the effects again from all stored pairs."""
    rows_of_study = study.nodes.order_by("node_name", "pk")
    pairs_by_measure, counts = pairs(rows_of_study.filter(is_context=False).iterator(500))
    rest, of_rest = pairs(rows_of_study.filter(is_context=True))
    counts.rest_nodes = of_rest.nodes
    main, others = _family(study, pairs_by_measure)
    if study.is_causal:
        of_arms = rows_of_study.filter(is_context=False).iterator(500)
        counts.drained = arms.drained(study.rollout)
        counts.attrition = attrition.of_rows(of_arms, main).to_json()
    rows = []
    for position, measure in enumerate(measures.MEASURES if pairs_by_measure else ()):
        own = pairs_by_measure.get(measure.name, [])
        if not own and not _is_missed(measure, main, counts):
            continue
        confidence = estimation.confidence_of(measure.name == main, others)
        effect = _effect(study, measure, own, confidence, is_over=is_over)
        if not own:
            effect = replace(effect, why=_why_no_data(measure, counts)[:200])
        row = _row(study, position, measure.name, effect)
        row.is_primary = measure.name == main
        row.day_before, row.day_before_change = _day_before(own, by_points=measure.by_points)
        _add_rest(row, rest.get(measure.name, ()), by_points=measure.by_points)
        rows.append(row)
    _store(study, rows, counts)


def _family(study: Study, pairs_by_measure: Mapping[str, Collection[Pair]]) -> tuple[str, int]:
    """Return the primary measure, and how many others are judged beside it.

    What has figures of too few nodes or jobs in an arm gets no verdict that could be wrong, so it makes no other
    stricter. A primary measure that the plan names stays the primary one also without figures: none takes its place.
    """
    main = study.primary_measure or measures.primary(pairs_by_measure)
    judged = {name for name, own in pairs_by_measure.items() if not study.is_causal or _fewest(own) >= FEWEST_CLUSTERS}
    return main, len(judged - {main})


def _fewest(own: Collection[Pair]) -> int:
    """Return how many clusters the smaller arm has."""
    return min(len({pair.cluster for pair in own if pair.is_treated is arm}) for arm in (True, False))


def _effect(study: Study, measure: Measure, own: Collection[Pair], confidence: float, *, is_over: bool) -> Effect:
    subject = "nodes" if measure.of_host else "GPUs"
    if not study.is_causal:
        return estimation.before_and_after(own, by_points=measure.by_points, subject=subject)
    effect = estimation.difference_in_differences(
        own, by_points=measure.by_points, confidence=confidence, subject=subject
    )
    # A verdict at every look would be wrong far more often than one at the end.
    return effect if is_over else estimation.without_verdict(effect, by_points=measure.by_points)


def _is_missed(measure: Measure, main: str, counts: Counts) -> bool:
    """Return whether a measure without figures is shown: the primary one, and those of hosts where any was read."""
    return measure.name == main or (measure.of_host and bool(counts.hosts or counts.host_lacks))


def _why_no_data(measure: Measure, counts: Counts) -> str:
    if not measure.of_host:
        return "No GPU has it in both windows: it is not exported, or nothing was at work."
    lacks = (counts.host_lacks or {}).get(measure.name)
    if lacks:
        why = max(sorted(lacks), key=lambda text: lacks[text])
        metric = host_readings.METRICS[host_readings.SOURCES[measure.name][0]]
        return f"Prometheus has no {metric} of these nodes." if why == NOT_EXPORTED else f"Not read: {why}"
    if not counts.hosts and counts.hosts_left_out:
        why = max(sorted(counts.hosts_left_out), key=lambda text: (counts.hosts_left_out or {})[text])
        return f"No host was read: {host_readings.WHY.get(why, why)}."
    return "No node has 15 minutes of figures in both windows."


def _store(study: Study, rows: Sequence[StudyEffect], counts: Counts) -> None:
    with transaction.atomic():
        StudyEffect.objects.filter(study=study).exclude(measure__in=[row.measure for row in rows]).delete()
        StudyEffect.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["study", "measure"],
            update_fields=[
                f.name for f in StudyEffect._meta.concrete_fields if f.name not in ("id", "study", "measure")
            ],
        )
        Study.objects.filter(pk=study.pk).update(counts=counts.to_json(), measured_at=now() if rows else None)


def _day_before(pairs_of_measure: Iterable[Pair], *, by_points: bool) -> tuple[float | None, float | None]:
    """Return the mean of the same hours of the day before, and the change from it: a ratio less 1, or points."""
    figures = [(p.day_before, p.after) for p in pairs_of_measure if p.day_before is not None]
    if not figures:
        return None, None
    earlier, after = (sum(column) / len(figures) for column in zip(*figures, strict=True))
    if by_points:
        return earlier, after - earlier
    return earlier, after / earlier - 1 if earlier else None


def _add_rest(row: StudyEffect, pairs_of_rest: Iterable[Pair], *, by_points: bool) -> None:
    """Set the change of the rest of the fleet in the same windows: what happened where nothing was done."""
    effect = estimation.before_and_after(pairs_of_rest, by_points=by_points)
    row.rest_change = effect.points if by_points else effect.ratio
    row.rest_devices, row.rest_clusters = effect.devices, effect.clusters


def _row(study: Study, position: int, measure: str, effect: Effect) -> StudyEffect:
    row = StudyEffect(
        study=study, measure=measure, position=position, verdict=effect.verdict, why=effect.why, ratio=effect.ratio,
        points=effect.points, before=effect.before, after=effect.after, expected=effect.expected,
        devices=effect.devices, clusters=effect.clusters, control_devices=effect.control_devices,
        control_clusters=effect.control_clusters, left_out=effect.left_out, confidence=effect.confidence,
    )  # fmt: skip
    if adjustment := effect.adjustment:
        row.past_weight, row.narrower, row.unadjusted = adjustment.weight, adjustment.narrower, adjustment.unadjusted
        row.past_clusters, row.past_control_clusters = adjustment.clusters, adjustment.control_clusters
    if effect.ratio_interval:
        row.ratio_low, row.ratio_high = effect.ratio_interval.low, effect.ratio_interval.high
    if effect.points_interval:
        row.points_low, row.points_high = effect.points_interval.low, effect.points_interval.high
    return row
