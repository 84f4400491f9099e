"""The same alerts for people's own Prometheus and Grafana: a PrometheusRule and a dashboard, for both generations of
NVIDIA's names and both `honorLabels` modes. Raw names and scales are those of `gpus.metrics.nvidia`; limits are the
rules' own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

import yaml

from gpus.alerts import rules
from gpus.metrics import xids
from gpus.metrics.nvidia import NVIDIA, Labeled
from gpus.metrics.samples import Metric
from gpus.normalization import plausibility
from notices.alerts import rulebook
from notices.alerts.rulebook import EffectiveRule

INTERVAL = timedelta(seconds=30)
"""Of the recording rules: as often as exporters collect."""
SURE = 55 / 60
"""Share of the samples that must be there before a pod counts as idle: a younger one is exempt."""
STALE = timedelta(minutes=3)
MISSED = "1h"
"""How long an exporter that is scraped no more is told of: a node that was taken away is silent for good."""
BOARD = "node, UUID, gpu, modelName"
"""What is a board's, however many instances or pods share it: one alert, and its power once."""
BY = f"{BOARD}, GPU_I_ID, workload_namespace, workload_pod"
HELD = 'workload_pod!="",workload_pod!~".*dcgm-exporter.*"'
RECORDED: Mapping[Metric, str] = {
    Metric.BUSY: "setpoint:gpu_busy:ratio",
    Metric.ENGINE: "setpoint:gpu_engine:ratio",
    Metric.TEMPERATURE: "setpoint:gpu_temperature:celsius",
    Metric.POWER: "setpoint:gpu_power:watts",
    Metric.ROW_REMAP_FAILED: "setpoint:gpu_row_remap_failed:bool",
    Metric.THERMAL_THROTTLED: "setpoint:gpu_thermal_throttled:seconds_total",
}
LAST_XID = "setpoint:gpu_last_xid:code"
XIDS = "setpoint:gpu_xids:count"
XIDS_TOTAL = "setpoint:gpu_xids:total"
HEAT = "setpoint:gpu_thermal_events:count"


@dataclass(frozen=True, slots=True)
class ScrapeSettings:
    """Scrape settings of the Prometheus that will evaluate the exported rules."""

    honors_labels: bool = False
    """`honorLabels` of the scrape: with it the workload's labels are `namespace` and `pod`, else `exported_*`."""
    matchers: str = ""
    """Label matchers, such as `cluster="a"`, put into every selector."""

    def selected(self, raw: str, *more: str) -> str:
        inside = ",".join(part for part in (*more, self.matchers) if part)
        return f"{raw}{{{inside}}}" if inside else raw

    def folded(self, expression: str, by: str = BY) -> str:
        """Aggregate to one value per device and workload, under common names. `max` drops duplicates of an upgrade."""
        prefix = "" if self.honors_labels else "exported_"
        for new, old in (
            ("node", "Hostname"), ("node", "hostname"),
            ("workload_namespace", f"{prefix}namespace"), ("workload_pod", f"{prefix}pod"),
        ):  # fmt: skip
            expression = f'label_replace({expression}, "{new}", "$1", "{old}", "(.+)")'
        return f"max by ({by}) ({expression})"


# ── Expressions ───────────────────────────────────────────────────────────────────────────────────────────────────────
def of_metric(metric: Metric, way: ScrapeSettings) -> str:
    """Both generations' names, in the metric's own unit, without values that no hardware has: DCGM's blanks."""
    parts = []
    for name in NVIDIA.values():
        if name.means is metric:
            raw = way.selected(name.raw)
            parts.append(raw if name.scale == 1.0 else f"{raw} * {name.scale:g}")
    return way.folded(f"({' or '.join(parts)}) <= {plausibility.LIMITS[metric][1]:g}")


def of_labeled(means: Labeled, way: ScrapeSettings, *matchers: str, by: str = BY) -> str:
    names = [name.raw for name in NVIDIA.values() if name.means is means]
    return way.folded(" or ".join(way.selected(raw, *matchers) for raw in names), by)


def fatal() -> list[int]:
    return sorted(code for code, advice in xids.ADVICE.items() if advice.severity == "bad")


def recordings(way: ScrapeSettings) -> Iterator[dict[str, str]]:
    for metric, record in RECORDED.items():
        yield {"record": record, "expr": of_metric(metric, way)}
    codes = f'xid=~"{"|".join(map(str, fatal()))}"'
    yield {"record": LAST_XID, "expr": of_labeled(Labeled.XID_LAST, way)}
    for record, means in ((XIDS, Labeled.XID_WINDOW), (XIDS_TOTAL, Labeled.XID_TOTAL)):
        yield {"record": record, "expr": of_labeled(means, way, codes, by=f"{BOARD}, xid")}
    reasons = "|".join(rules.HEAT)
    yield {"record": HEAT, "expr": of_labeled(Labeled.CLOCK_EVENTS, way, f'clock_event=~"{reasons}"')}


def xid_alerts() -> str:
    """Boards by fatal XID: what a window counts, a counter that rose or appeared, and a gauge that nothing counts."""
    window = _promql(rules.XID_LASTS)
    last = " or ".join(f'label_replace({LAST_XID} == {code}, "xid", "{code}", "", "")' for code in fatal())
    parts = (
        f"{XIDS} > 0",
        f"({XIDS_TOTAL} > 0) != {XIDS_TOTAL} offset {window}",  # less than before: the exporter started again
        f"({XIDS_TOTAL} > 0 unless {XIDS_TOTAL} offset {window})",
        f"(({last}) unless on (UUID, xid) {XIDS_TOTAL})",
    )
    return f"max by ({BOARD}, xid) ({' or '.join(parts)})"


def idle(below: float, lasting: timedelta) -> str:
    """Devices that pods held idle throughout. Engine activity vetoes where it is exported; alone it proves nothing."""
    window = _promql(max(lasting, timedelta(minutes=1)))
    enough = max(1, int(max(lasting, timedelta(minutes=1)) / INTERVAL * SURE))
    busy, engine = RECORDED[Metric.BUSY], RECORDED[Metric.ENGINE]
    whole = _idle(busy, 'GPU_I_ID=""', below, window, enough)
    veto = f'max_over_time({engine}{{GPU_I_ID="",{HELD}}}[{window}]) >= {below:g}'
    part = _idle(engine, 'GPU_I_ID!=""', below, window, enough)
    return f"(({whole} unless {veto}) or ({part}))"


def _idle(record: str, matcher: str, below: float, window: str, enough: int) -> str:
    series = f"{record}{{{matcher},{HELD}}}"
    over = f"{series}[{window}]"
    return f"max_over_time({over}) < {below:g} and count_over_time({over}) >= {enough} and {series}"


# ── Alerts ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def _expression(holding: EffectiveRule) -> str:
    """Return a rule's PromQL expression, equivalent to its `look` in gpus.alerts.rules."""
    limit = holding.threshold or 0.0
    if holding.rule.name == rules.IDLE:
        # All of a pod's devices, so that a job with one rank ahead is none.
        pods = "count by (workload_namespace, workload_pod)"
        held = f'({RECORDED[Metric.BUSY]}{{GPU_I_ID="",{HELD}}} or {RECORDED[Metric.ENGINE]}{{GPU_I_ID!="",{HELD}}})'
        return f"{pods} ({idle(limit / 100, holding.opens_after)}) == {pods} ({held})"
    if holding.rule.name == rules.XID:
        return xid_alerts()
    if holding.rule.name == rules.HOT:
        return f"max by ({BOARD}) ({RECORDED[Metric.TEMPERATURE]} >= {limit:g} or {HEAT} > 0)"
    if holding.rule.name == rules.HELD_BACK:
        return f"max by ({BOARD}) (rate({RECORDED[Metric.THERMAL_THROTTLED]}[10m]) >= {limit / 100:g})"
    if holding.rule.name == rules.REMAP:
        return f"max by ({BOARD}) ({RECORDED[Metric.ROW_REMAP_FAILED]} >= 1)"
    if holding.rule.name == rules.LOST:
        there = RECORDED[Metric.TEMPERATURE]
        lately = f"group by (node) (last_over_time({there}[{MISSED}]))"
        return f"absent({there}) or ({lately} unless group by (node) ({there}))"
    # What no exporter knows, Setpoint's own metrics say.
    return f'sum by (cluster) (setpoint_alerts{{rule="{holding.rule.name}",status="open"}}) > 0'


def _alert(holding: EffectiveRule) -> dict[str, Any]:
    name, waits = holding.rule.name, holding.opens_after
    if name == rules.IDLE or not _is_of_exporters(name):
        waits = timedelta(0)  # the window of its expression, or Setpoint itself, has waited
    if name == rules.LOST:
        waits += STALE
    alert: dict[str, Any] = {"alert": f"Setpoint{''.join(part.capitalize() for part in name.split('-'))}"}
    alert["expr"] = _expression(holding)
    if waits:
        alert["for"] = _promql(waits)
    alert["labels"] = {"severity": holding.severity.value, "setpoint_rule": name}
    alert["annotations"] = {"summary": f"{holding.rule.title}: {_subject(name)}", "description": holding.about}
    return alert


def _is_of_exporters(name: str) -> bool:
    return any(rule.name == name for rule in rules.rules())


def _subject(name: str) -> str:
    if name == rules.IDLE:
        return "{{ $labels.workload_namespace }}/{{ $labels.workload_pod }} holds {{ $value }} GPUs and uses none"
    if name == rules.LOST:
        of_node, of_all = "the exporter of {{ $labels.node }} is not scraped", "no exporter is scraped"
        return f"{{{{ if $labels.node }}}}{of_node}{{{{ else }}}}{of_all}{{{{ end }}}}"
    if name == rules.XID:
        return "XID {{ $labels.xid }} on {{ $labels.node }} GPU {{ $labels.gpu }} ({{ $labels.UUID }})"
    if not _is_of_exporters(name):
        return "{{ $value }} in {{ $labels.cluster }}"
    return "{{ $labels.node }} GPU {{ $labels.gpu }} ({{ $labels.UUID }})"


def groups(way: ScrapeSettings, cluster_id: UUID | None = None) -> list[dict[str, Any]]:
    """Return the `groups` of a Prometheus rules file; disabled rules are left out."""
    holding = [rule for rule in rulebook.of_cluster(cluster_id) if rule.is_enabled]
    return [
        {"name": "setpoint-gpus", "interval": _promql(INTERVAL), "rules": list(recordings(way))},
        {"name": "setpoint-alerts", "rules": [_alert(rule) for rule in holding]},
    ]


def prometheus_rule(way: ScrapeSettings, cluster_id: UUID | None = None) -> dict[str, Any]:
    """Return the same groups as a PrometheusRule object for the Prometheus Operator."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "setpoint-gpus", "labels": {"app.kubernetes.io/part-of": "setpoint"}},
        "spec": {"groups": groups(way, cluster_id)},
    }


def as_yaml(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=1000, allow_unicode=True)


def _promql(lasting: timedelta) -> str:
    seconds = round(lasting.total_seconds())
    for size, unit in ((3600, "h"), (60, "m")):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


# ── Grafana ───────────────────────────────────────────────────────────────────────────────────────────────────────────
class Chart(NamedTuple):
    title: str
    expression: str
    legend: str = ""
    """Of each line; empty: a table of what is so now."""
    unit: str = "none"


def dashboard(way: ScrapeSettings, cluster_id: UUID | None = None) -> dict[str, Any]:
    """Return a dashboard to import into Grafana; only its alert queries depend on the recording rules."""
    alerts = [rule for rule in rulebook.of_cluster(cluster_id) if rule.is_enabled]
    busy, engine, hot = (of_metric(metric, way) for metric in (Metric.BUSY, Metric.ENGINE, Metric.TEMPERATURE))
    tensor, power = of_metric(Metric.TENSOR, way), of_metric(Metric.POWER, way)
    last = of_labeled(Labeled.XID_LAST, way)
    ratio, namespace = "percentunit", "workload_namespace"
    charts = [
        Chart("GPUs busy, by node", f"avg by (node) ({busy})", "{{node}}", ratio),
        Chart("Engine active, by node", f"avg by (node) ({engine})", "{{node}}", ratio),
        Chart("Tensor active, by namespace", f"avg by ({namespace}) ({tensor})", f"{{{{{namespace}}}}}", ratio),
        Chart("Power, by node", f"sum by (node) (max by (node, UUID) ({power}))", "{{node}}", "watt"),
        Chart("Hottest GPU, by node", f"max by (node) ({hot})", "{{node}}", "celsius"),
        Chart("Last XID, by GPU", f"{last} > 0", "{{node}} GPU {{gpu}}"),
        *(Chart(alert.rule.title, _expression(alert)) for alert in alerts),
    ]
    return {
        "uid": "setpoint-gpus",
        "title": "Setpoint: GPUs",
        "tags": ["setpoint", "gpu"],
        "timezone": "utc",
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}]
        },
        "panels": [_panel(place, chart) for place, chart in enumerate(charts)],
    }


def _panel(place: int, chart: Chart) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    target: dict[str, Any] = {"refId": "A", "datasource": source, "expr": chart.expression}
    target |= {"legendFormat": chart.legend} if chart.legend else {"instant": True, "format": "table"}
    return {
        "id": place + 1,
        "type": "timeseries" if chart.legend else "table",
        "title": chart.title,
        "datasource": source,
        "gridPos": {"h": 8, "w": 12, "x": 12 * (place % 2), "y": 8 * (place // 2)},
        "fieldConfig": {"defaults": {"unit": chart.unit}, "overrides": []},
        "targets": [target],
    }
