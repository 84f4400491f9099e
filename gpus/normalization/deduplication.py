"""Merging of several claims about one device into one sample.

The newest claim wins, then the newer generation, then the one with more values; others as fresh fill in what it leaves
out. Nothing is ever added up: neither over exporters, nor over the pods that share a device, nor over MIG instances.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import timedelta

from gpus.metrics.findings import Findings
from gpus.metrics.nvidia import PERCENT, Guard, Name, converted
from gpus.metrics.samples import (
    PROFILING,
    SHARED_OUT,
    Code,
    DeviceKey,
    Generation,
    Holder,
    Metric,
    Sample,
    Xid,
    XidEvidence,
)
from gpus.normalization.attribution import Attribution
from gpus.normalization.observations import Claim, Claims
from gpus.normalization.plausibility import plausible

FRESH = timedelta(minutes=1)
"""Two of the exporter's collection intervals: claims further behind the newest say nothing of now."""
BUSY_FOR_SURE = 0.5
"""The two kinds of utilization are taken over different moments: only a wide gap is a contradiction."""
BOTH_WAYS = 2
"""Names that NVLink's payload is the sum of."""
_BEST_EVIDENCE = [XidEvidence.TOTAL, XidEvidence.WINDOW, XidEvidence.LAST]


class Merger:
    def __init__(
        self, attribution: Attribution, scales: Mapping[tuple[str, Name], float | None], findings: Findings
    ) -> None:
        self._attribution = attribution
        self._scales = scales
        self._findings = findings
        for (who, name), scale in scales.items():
            if name.guard is Guard.RATIO and scale == PERCENT:
                findings.add(Code.RATIO_IS_PERCENT, who)
            elif name.guard is Guard.PERCENT and scale == 1.0:
                findings.add(Code.PERCENT_IS_RATIO, who)

    def devices(self, claims: Claims) -> tuple[list[Sample], list[Sample]]:
        """Samples of what can be held, and of the boards that MIG splits; both sorted."""
        split = defaultdict(list)
        for device in claims.by_device:
            if device.instance:
                split[device.uuid].append(device)
        whole = (device for device in claims.by_device if device.instance or device.uuid not in split)
        samples = [self._sample(device, claims.by_device[device].values()) for device in sorted(whole)]
        boards = [self._board(uuid, claims, sorted(split[uuid])) for uuid in sorted(split)]
        self._conclude(samples, boards)
        return samples, boards

    def _sample(self, device: DeviceKey, claims: Iterable[Claim]) -> Sample:
        fresh, late = _by_worth(claims)
        values = self._values(fresh)
        if device.instance:
            values = {metric: value for metric, value in values.items() if metric in SHARED_OUT}
        self._count_duplicates(fresh, late)
        suspect = self._suspect(device, values)
        holders = self._holders(fresh)
        first = fresh[0]
        return Sample(
            device=device,
            node=self._node(fresh),
            index=first.index,
            model=_first(claim.model for claim in fresh),
            profile=_first(claim.profile for claim in fresh),
            driver=_first(claim.driver for claim in fresh),
            holders=holders,
            values=values,
            xids=() if device.instance else _xids(fresh),
            clock_events=None if device.instance else _clock_events(fresh),
            suspect=suspect,
        )

    def _board(self, uuid: str, claims: Claims, instances: list[DeviceKey]) -> Sample:
        """A split GPU as a whole. Exporters print its power and heat once for each instance: the same watts."""
        device = DeviceKey(uuid)
        whole, _late = _by_worth(claims.by_device.get(device, {}).values())
        parts, _late = _by_worth(claim for instance in instances for claim in claims.by_device[instance].values())
        values = {m: value for m, value in self._values(parts, quiet=True).items() if m not in SHARED_OUT}
        values |= self._values(whole)
        everything = [*whole, *parts]
        return Sample(
            device=device,
            node=_first(self._attribution.node(claim) for claim in everything),
            index=everything[0].index,
            model=_first(claim.model for claim in everything),
            profile="",
            driver=_first(claim.driver for claim in everything),
            holders=(),
            values=values,
            xids=_xids(everything),
            clock_events=_clock_events(everything),
        )

    def _values(self, claims: Iterable[Claim], *, quiet: bool = False) -> dict[Metric, float]:
        """Return each metric's value from the first claim that has it.

        `quiet`: another call counts the refused values.
        """
        values: dict[Metric, float] = {}
        for claim in claims:
            for metric, value in self._read(claim, quiet=quiet).items():
                values.setdefault(metric, value)
        return values

    def _read(self, claim: Claim, *, quiet: bool) -> dict[Metric, float]:
        """One claim's values in our units, without what cannot be true. New names before old ones."""
        values: dict[Metric, float] = {}
        names: dict[Metric, Name] = {}
        ways: set[str] = set()
        for (name, _link), raw in claim.values.items():
            metric = name.means
            if not isinstance(metric, Metric):
                continue
            value, code = self._scaled(claim.origin, name, metric, raw)
            if value is None:
                if not quiet:
                    self._findings.add(code, f"{name.raw} {raw:g}")
                continue
            if metric is Metric.NVLINK_PAYLOAD:
                ways.add(name.raw)
            known = names.get(metric)
            if known is None:
                names[metric], values[metric] = name, value
            elif name.adds and name.generation is known.generation:
                values[metric] += value
            elif (name.generation is known.generation and name.rank < known.rank) or (
                name.generation is Generation.BASE_UNITS and known.generation is not Generation.BASE_UNITS
            ):
                names[metric], values[metric] = name, value
        if len(ways) < BOTH_WAYS:
            values.pop(Metric.NVLINK_PAYLOAD, None)  # one direction is not what both are compared with
        return values

    def _scaled(self, origin: str, name: Name, metric: Metric, raw: float) -> tuple[float | None, Code]:
        scale = name.scale if name.guard is None else self._scales.get((origin, name))
        if scale is None:  # 0 is 0 in percent, too
            return (0.0, Code.ABSURD) if raw == 0.0 else (None, Code.RATIO_AMBIGUOUS)
        value = converted(raw, scale)
        if metric is Metric.MEMORY_TEMPERATURE and value == 0.0:
            return None, Code.NOT_THERE  # what boards without the sensor print
        return plausible(metric, value), Code.ABSURD

    def _suspect(self, device: DeviceKey, values: dict[Metric, float]) -> bool:
        """Return whether utilization and profiling contradict each other. Drops silent zeros of profiling."""
        busy, engine = values.get(Metric.BUSY), values.get(Metric.ENGINE)
        if busy is None or engine is None:
            return False
        if busy >= BUSY_FOR_SURE and engine == 0.0:
            for metric in PROFILING & values.keys():
                if values[metric] == 0.0:
                    del values[metric]
        elif not (engine >= BUSY_FOR_SURE and busy == 0.0):
            return False
        self._findings.add(Code.SUSPECT, device.uuid)
        return True

    def _holders(self, claims: Iterable[Claim]) -> tuple[Holder, ...]:
        all_holders: set[Holder] = set()
        exporters: set[Holder] = set()
        for claim in claims:
            holders, own = self._attribution.holders(claim)
            all_holders |= holders
            exporters |= own
        if exporters:
            self._findings.add(Code.EXPORTER_POD, min(exporters).pod)
        named = {(holder.namespace, holder.pod) for holder in all_holders if holder.container}
        return tuple(
            sorted(holder for holder in all_holders if holder.container or (holder.namespace, holder.pod) not in named)
        )

    def _node(self, claims: list[Claim]) -> str:
        nodes = [node for claim in claims if (node := self._attribution.node(claim))]
        misnamed = [claim.hostname for claim in claims if self._attribution.is_misnamed(claim)]
        if misnamed:
            self._findings.add(Code.NODE_MISNAMED, min(misnamed))
        if not nodes:
            self._findings.add(Code.NODE_UNKNOWN, claims[0].device.uuid)
            return ""
        if len(set(nodes)) > 1:
            self._findings.add(Code.TWO_NODES, claims[0].device.uuid)
        return nodes[0]

    def _count_duplicates(self, fresh: list[Claim], late: list[Claim]) -> None:
        seen: set[Metric] = set()
        count = sum(len(claim.values) for claim in late)
        for claim in fresh:
            meant = [
                name.means
                for name, link in claim.values
                if isinstance(name.means, Metric) and not (name.adds or name.rank)
            ]
            count += sum(metric in seen for metric in set(meant)) + len(meant) - len(set(meant))
            seen |= {metric for metric in meant if isinstance(metric, Metric)}
            if claim.said:
                holders, _own = self._attribution.holders(claim)
                slices = max(1, len(holders), len(claim.vgpus) + 1)
                count += sum(max(0, counted_holders - slices) for counted_holders in claim.said.values())
        self._findings.add(Code.DUPLICATES, fresh[0].device.uuid, count)
        generations = frozenset().union(*(claim.generations for claim in fresh))
        if len(generations) > 1:
            self._findings.add(Code.BOTH_GENERATIONS, fresh[0].device.uuid)

    def _conclude(self, samples: list[Sample], boards: list[Sample]) -> None:
        """Count what only finished samples tell."""
        add = self._findings.add
        for sample in samples:
            if PROFILING.isdisjoint(sample.values) and not sample.suspect:
                add(Code.PROFILING_ABSENT, sample.device.uuid)
            if len({(holder.namespace, holder.pod) for holder in sample.holders}) > 1:
                add(Code.SHARED, sample.device.uuid)
        for sample in (*samples, *boards):
            if any(xid.evidence is XidEvidence.LAST for xid in sample.xids):
                add(Code.XID_LAST, sample.device.uuid)
        if samples and not any(sample.holders for sample in samples):
            add(Code.NO_HOLDERS, count=len(samples))


def _by_worth(claims: Iterable[Claim]) -> tuple[list[Claim], list[Claim]]:
    """The claims that count, best first, and those that come too late."""
    ordered = sorted(
        claims,
        key=lambda c: (c.time, Generation.BASE_UNITS in c.generations, len(c.values), c.origin, c.device),
        reverse=True,
    )
    if not ordered:
        return [], []
    oldest = ordered[0].time - FRESH
    return [c for c in ordered if c.time >= oldest], [c for c in ordered if c.time < oldest]


def _xids(claims: Iterable[Claim]) -> tuple[Xid, ...]:
    best: dict[int, Xid] = {}
    for claim in claims:
        for (code, evidence), count in claim.xids.items():
            known, xid = best.get(code), Xid(code, count, evidence)
            if known is None or _worth(xid) > _worth(known):
                best[code] = xid
    return tuple(sorted(best.values()))


def _worth(xid: Xid) -> tuple[int, int]:
    return -_BEST_EVIDENCE.index(xid.evidence), xid.count


def _clock_events(claims: Iterable[Claim]) -> dict[str, int] | None:
    counts = [claim.clock_events for claim in claims if claim.clock_events is not None]
    if not counts:
        return None
    return {
        reason: max(of_claim.get(reason, 0) for of_claim in counts)
        for reason in sorted({r for of_claim in counts for r in of_claim})
    }


def _first(texts: Iterable[str]) -> str:
    return next((text for text in texts if text), "")
