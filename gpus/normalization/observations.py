"""Claims of each exporter about each device, gathered series by series; judged only when complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import isfinite

from gpus.metrics import amd
from gpus.metrics.findings import Findings
from gpus.metrics.nvidia import Labeled, Name, is_unknown
from gpus.metrics.samples import (
    MAX_INSTANCE,
    MAX_UUID,
    Code,
    DeviceKey,
    Generation,
    Holder,
    Metric,
    Series,
    XidEvidence,
)
from gpus.metrics.vendors import NAMES
from gpus.normalization.plausibility import LEAST_BLANK, is_blank
from gpus.normalization.scaling import Evidence
from gpus.telemetry.exposition import MAX_LABEL, MAX_SERIES

MAX_AGE = timedelta(minutes=5)
"""Prometheus' own look-back: what is older is no news of now."""
CLOCK_SKEW = timedelta(minutes=1)
_MOST_DEVICES = 200_000
_MOST_PER_DEVICE = 128
"""Holders, XIDs, clock reasons: more of any is no GPU."""
_MOST_NAMES = 1_000
_MOST_XID = 1_023

_EVIDENCE = {
    Labeled.XID_LAST: XidEvidence.LAST,
    Labeled.XID_WINDOW: XidEvidence.WINDOW,
    Labeled.XID_TOTAL: XidEvidence.TOTAL,
}
LinkedName = tuple[Name, str]
"""A raw name, and which link of the GPU where each has a series of its own."""


@dataclass(slots=True, eq=False)
class Claim:
    device: DeviceKey
    origin: str
    """Which exporter: its pod if asked directly, else Prometheus' `instance`."""
    direct: bool
    time: datetime
    labels: Mapping[str, str] | None = None
    """Of the series heard last: most of a device's series have the same ones, and need no second look."""
    hostname: str = ""
    node_label: str = ""
    index: str = ""
    model: str = ""
    profile: str = ""
    driver: str = ""
    values: dict[LinkedName, float] = field(default_factory=dict)
    """Raw."""
    said: dict[LinkedName, int] = field(default_factory=dict)
    """How often, where more than once."""
    vgpus: set[str] = field(default_factory=set)
    """Labels of time slices, of values said again: one pod may have several."""
    plain: dict[Holder, bool] = field(default_factory=dict)
    """By `namespace`, `pod`, `container`: whether the pod is surely the exporter's own.

    It is where Prometheus renamed another pod to make room for it, and where it is of the service's DaemonSet.
    """
    renamed: dict[Holder, None] = field(default_factory=dict)
    """By `exported_namespace` and its kin."""
    xids: dict[tuple[int, XidEvidence], int] = field(default_factory=dict)
    clock_events: dict[str, int] | None = None
    generations: set[Generation] = field(default_factory=set)


class Claims:
    """All claims of one reading, and what is known of each exporter."""

    def __init__(self, when: datetime, findings: Findings) -> None:
        self.when = when
        self.findings = findings
        self.by_device: dict[DeviceKey, dict[str, Claim]] = {}
        self.evidence: dict[str, Evidence] = {}
        self.targets: dict[str, set[Holder]] = {}
        """By origin, what Prometheus itself says the exporter's pod is (`up`)."""
        self._is_up: dict[str, bool] = {}
        """By origin, whether one of its scrape jobs reaches it."""
        self.heard = 0
        self._claims: dict[tuple[str, str, str], Claim] = {}
        self._by_labels: dict[int, Claim] = {}
        """By the identity of their labels, as long as a claim's are those: sources share what many series have."""
        self._names: dict[str, Name | None] = {}
        self._translated: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}

    def hear(self, series: Iterable[Series], limit: int = MAX_SERIES) -> None:
        for item in series:
            if self.heard >= limit:
                self.findings.add(Code.SERIES_OVER_LIMIT, item.name)
                return
            self.heard += 1
            try:
                name = self._names[item.name]
            except KeyError:
                name = self._learn(item.name)
            if name is not None:
                self._take(item, name)

    def drop_unreached(self) -> None:
        """Forget what exporters said that cannot be scraped now: a source without staleness markers still has it."""
        for origin in sorted(origin for origin, is_up in self._is_up.items() if not is_up):
            self.findings.add(Code.TARGET_DOWN, origin)
            self.evidence.pop(origin, None)
        for key in [key for key in self._claims if not self._is_up.get(key[0], True)]:
            claim = self._claims.pop(key)
            del self.by_device[claim.device][claim.origin]
            if not self.by_device[claim.device]:
                del self.by_device[claim.device]

    def generations(self) -> frozenset[Generation]:
        return frozenset[Generation]().union(*(claim.generations for claim in self._claims.values()))

    def _learn(self, raw: str) -> Name | None:
        if len(self._names) >= _MOST_NAMES:
            return NAMES.get(raw)
        if is_unknown(raw):
            self.findings.add(Code.UNKNOWN_NAMES, raw)
        self._names[raw] = NAMES.get(raw)
        return self._names[raw]

    def _take(self, series: Series, name: Name) -> None:
        raw, labels, value, at, exporter = series
        if not isfinite(value):
            self.findings.add(Code.NOT_FINITE, raw)
            return
        if value >= LEAST_BLANK and is_blank(value, name):
            self.findings.add(Code.BLANK, raw)
            return
        if name.generation is Generation.AMD:
            translated = self._of_amd(series, name)
            if translated is None:
                return
            series, name = translated
            labels = series.labels
        time = self.when if at is None else self._time(at, raw)
        if time is None:
            return
        if name.means is Labeled.TARGET:
            origin = exporter or labels.get("instance", "")
            self._is_up[origin] = self._is_up.get(origin, False) or bool(value)
            self._target(origin, labels)
            return
        claim = self._by_labels.get(id(labels))
        if claim is None or claim.labels is not labels:
            claim = self._claim(exporter or labels.get("instance", ""), series, time)
            if claim is None:
                return
            self._by_labels[id(labels)] = claim
            if labels != claim.labels:
                self._describe(claim, labels)
                self._hold(claim, labels)
            claim.labels = labels
        if time is not claim.time:
            claim.time = max(claim.time, time)
        if name.generation is not None:
            claim.generations.add(name.generation)
        if isinstance(name.means, Metric):
            self._value(claim, name, series)
        else:
            self._labeled(claim, name.means, series)

    def _of_amd(self, series: Series, name: Name) -> tuple[Series, Name] | None:
        """Translate an AMD series into NVIDIA's labels; None for a series that carries no information."""
        meant = amd.clock(series.name, series.labels) if name.means is Labeled.CLOCK else name
        labels = amd.translated(series.labels) if meant else None
        if meant is None or labels is None:
            return None
        if not amd.is_applicable(meant, series.value, labels):
            self.findings.add(Code.NOT_THERE, series.name)
            return None
        # One object for all series of a device: they are compared by identity first
        labels = self._translated.setdefault(tuple(labels.items()), labels)
        return Series(series.name, labels, series.value, series.time, series.exporter), meant

    def _time(self, timestamp: datetime, name: str) -> datetime | None:
        if timestamp > self.when:
            if timestamp > self.when + CLOCK_SKEW:
                self.findings.add(Code.FROM_THE_FUTURE, name)
            return self.when
        if timestamp < self.when - MAX_AGE:
            self.findings.add(Code.STALE, name)
            return None
        return timestamp

    def _claim(self, origin: str, series: Series, time: datetime) -> Claim | None:
        labels = series.labels
        uuid = labels.get("UUID") or labels.get("gpu_uuid") or ""
        instance = labels.get("GPU_I_ID", "")
        claim = self._claims.get((origin, uuid, instance))
        if claim is not None:
            return claim
        if not uuid or not _names_one(uuid, instance) or len(origin) > MAX_LABEL:
            self.findings.add(Code.NO_DEVICE, series.name)
            return None
        if len(self._claims) >= _MOST_DEVICES:
            self.findings.add(Code.SERIES_OVER_LIMIT, series.name)
            return None
        claim = Claim(DeviceKey(uuid, instance), origin, bool(series.exporter), time)
        self._claims[origin, uuid, instance] = claim
        self.by_device.setdefault(claim.device, {})[origin] = claim
        return claim

    def _describe(self, claim: Claim, labels: Mapping[str, str]) -> None:
        """Take the device's description from the labels.

        Where two series disagree, the smaller text, in any order.
        """
        get = labels.get
        hostname = get("hostname") or get("Hostname") or ""
        if hostname != claim.hostname:
            claim.hostname = self._lesser(claim.hostname, hostname)
        if (model := get("modelName") or get("model_name") or "") != claim.model:
            claim.model = self._lesser(claim.model, model)
        if (index := get("gpu", "")) != claim.index:
            claim.index = self._lesser(claim.index, index)
        if (profile := get("GPU_I_PROFILE", "")) != claim.profile:
            claim.profile = self._lesser(claim.profile, profile)
        driver = get("DCGM_FI_DRIVER_VERSION") or get("DCGM_FI_SYSTEM_DRIVER_VERSION") or ""
        if driver != claim.driver:
            claim.driver = self._lesser(claim.driver, driver)
        if (node := get("node", "")) != claim.node_label:
            claim.node_label = self._lesser(claim.node_label, node)

    def _lesser(self, known: str, text: str) -> str:
        if len(text) > MAX_LABEL:
            self.findings.add(Code.LABELS_TOO_LONG, text)
            return known
        return min(known, text) if known and text else known or text

    def _hold(self, claim: Claim, labels: Mapping[str, str]) -> None:
        get = labels.get
        renamed = get("exported_pod")
        if renamed:
            holder = Holder(get("exported_namespace", ""), renamed, get("exported_container", ""))
            if self._is_sane(holder, claim.renamed):
                claim.renamed[holder] = None
        pod = get("pod")
        if pod:
            holder = Holder(get("namespace", ""), pod, get("container", ""))
            if self._is_sane(holder, claim.plain):
                own = bool(renamed) or _is_of_daemon_set(pod, get("service", ""))
                claim.plain[holder] = claim.plain.get(holder, False) or own

    def _is_sane(self, holder: Holder, known: Mapping[Holder, object]) -> bool:
        if max(len(holder.namespace), len(holder.pod), len(holder.container)) > MAX_LABEL:
            self.findings.add(Code.LABELS_TOO_LONG, holder.pod)
            return False
        return holder in known or len(known) < _MOST_PER_DEVICE

    def _value(self, claim: Claim, name: Name, series: Series) -> None:
        part = (name, series.labels.get("nvlink", "")) if name.adds else name.part
        raw = series.value
        known = claim.values.get(part)
        if known is None:
            claim.values[part] = raw
        else:
            if not name.is_highest and name.generation is not Generation.AMD:  # AMD's clocks have one a domain
                claim.said[part] = claim.said.get(part, 1) + 1
            if (vgpu := series.labels.get("vgpu", "")) and len(claim.vgpus) < _MOST_PER_DEVICE:
                claim.vgpus.add(vgpu)
            claim.values[part] = max(known, raw)
        if name.guard is None and not name.proves_units:
            return
        evidence = self.evidence.get(claim.origin)
        if evidence is None:
            evidence = self.evidence[claim.origin] = Evidence()
        if name.guard is not None:
            evidence.hear(name, raw)
        if name.proves_units and name.generation is not None:
            evidence.units.add(name.generation)

    def _labeled(self, claim: Claim, means: Labeled, series: Series) -> None:
        if not 0 <= series.value < 1e15:
            self.findings.add(Code.ABSURD, f"{series.name} {series.value}")
            return
        if means is Labeled.CLOCK_EVENTS:
            claim.clock_events = {} if claim.clock_events is None else claim.clock_events
            reason = series.labels.get("clock_event", "")
            if reason and series.value and len(reason) <= MAX_LABEL and len(claim.clock_events) < _MOST_PER_DEVICE:
                claim.clock_events[reason] = max(claim.clock_events.get(reason, 0), int(series.value))
            return
        code, count = str(int(series.value)), 1
        if means is not Labeled.XID_LAST:
            code, count = series.labels.get("xid", "0"), int(series.value)
        if not code.isdecimal() or len(code) > 9 or int(code) > _MOST_XID:
            self.findings.add(Code.ABSURD, f"{series.name} {code}")
        elif int(code) and count and len(claim.xids) < _MOST_PER_DEVICE:
            key = (int(code), _EVIDENCE[means])
            claim.xids[key] = max(claim.xids.get(key, 0), count)

    def _target(self, origin: str, labels: Mapping[str, str]) -> None:
        pod = labels.get("pod", "")
        if pod and len(pod) <= MAX_LABEL:
            self.targets.setdefault(origin, set()).add(Holder(labels.get("namespace", ""), pod))


def _names_one(uuid: str, instance: str) -> bool:
    """Cut short, two devices would be one."""
    return len(uuid) <= MAX_UUID and len(instance) <= MAX_INSTANCE and f"{uuid}{instance}".isprintable()


def _is_of_daemon_set(pod: str, name: str) -> bool:
    """Return whether the pod's name is one of this DaemonSet's; services share its name by custom."""
    suffix = pod.removeprefix(f"{name}-") if name else pod
    return suffix != pod and len(suffix) == 5 and suffix.isalnum()
