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

from gpus.alerts import hardware, heat, hosts, idle, links, links_exported, nodes, rules
from gpus.alerts.subjects import COUNTED_MINUTES
from gpus.metrics import states, xids
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
    Metric.TENSOR: "setpoint:gpu_tensor:ratio",
    Metric.TEMPERATURE: "setpoint:gpu_temperature:celsius",
    Metric.POWER: "setpoint:gpu_power:watts",
    Metric.ROW_REMAP_FAILED: "setpoint:gpu_row_remap_failed:bool",
    Metric.THERMAL_THROTTLED: "setpoint:gpu_thermal_throttled:seconds_total",
    Metric.ROW_REMAP_PENDING: "setpoint:gpu_row_remap_pending:bool",
    Metric.THERMAL_MARGIN: "setpoint:gpu_thermal_margin:celsius",
    Metric.SLOWDOWN_TEMPERATURE: "setpoint:gpu_slowdown_temperature:celsius",
    Metric.MEMORY_TEMPERATURE: "setpoint:gpu_memory_temperature:celsius",
    Metric.MEMORY_TEMPERATURE_LIMIT: "setpoint:gpu_memory_temperature_limit:celsius",
    Metric.PCIE_LINK_WIDTH: "setpoint:gpu_pcie_link_width:lanes",
    Metric.PCIE_LINK_WIDTH_LIMIT: "setpoint:gpu_pcie_link_width_limit:lanes",
    Metric.PCIE_LINK_GENERATION: "setpoint:gpu_pcie_link_generation:number",
    Metric.PCIE_LINK_GENERATION_LIMIT: "setpoint:gpu_pcie_link_generation_limit:number",
    Metric.DCGM_HEALTH: "setpoint:gpu_dcgm_health:status",
}
COUNTED = f"{COUNTED_MINUTES}m"
INCREASED: Mapping[Metric, str] = {
    Metric.ECC_UNCORRECTED_VOLATILE: f"setpoint:gpu_ecc_uncorrected:increase{COUNTED}",
    Metric.NVLINK_REPLAYS: f"setpoint:gpu_nvlink_replays:increase{COUNTED}",
    Metric.NVLINK_CRC_ERRORS: f"setpoint:gpu_nvlink_crc_errors:increase{COUNTED}",
    Metric.PCIE_REPLAYS: f"setpoint:gpu_pcie_replays:increase{COUNTED}",
}
"""Counters, recorded as rises: added up over links first, they would seem to start again whenever one is gone."""
MOST_INCREASE = 1e9
"""Of a counter in COUNTED: from a value to one of DCGM's blanks it is more."""
BOARDS = "setpoint:gpu_boards:count"
BEFORE = "1d"
"""How far back a node's own number of boards is looked for."""
LAST_XID = "setpoint:gpu_last_xid:code"
XIDS = "setpoint:gpu_xids:count"
XIDS_TOTAL = "setpoint:gpu_xids:total"
HEAT = "setpoint:gpu_thermal_events:count"
SLOWDOWN = "setpoint:gpu_hardware_slowdown_events:count"
WORKS = tuple(RECORDED[metric] for metric in links.WORKS)


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
            ("node", "Hostname"), ("node", "hostname"), ("UUID", "gpu_uuid"), ("modelName", "model_name"),
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


def payload(way: ScrapeSettings) -> str:
    """Return what NVLink sent and received, added: series of two names that a device has once each."""
    most = plausibility.LIMITS[Metric.NVLINK_PAYLOAD][1]
    names = [name.raw for name in NVIDIA.values() if name.means is Metric.NVLINK_PAYLOAD]
    return f"({' + '.join(way.folded(f'{way.selected(raw)} <= {most:g}') for raw in names)})"


def rise_of(metric: Metric, way: ScrapeSettings) -> str:
    """Return how much a counter rose in COUNTED, by both generations' names; of several links and errors the sum."""
    parts = []
    for name in NVIDIA.values():
        if name.means is metric:
            risen = f"increase({way.selected(name.raw)}[{COUNTED}])"
            kind = name.raw.removeprefix("DCGM_FI_DEV_").replace("_COUNT_TOTAL", "_TOTAL")
            parts.append(f'label_replace({risen}, "kind", "{kind}", "", "")' if name.adds else risen)
    each = way.folded(f"({' or '.join(parts)}) <= {MOST_INCREASE:g}", f"{BY}, nvlink, kind")
    return f"sum by ({BY}) ({each})" if any(name.adds for name in NVIDIA.values() if name.means is metric) else each


def of_labeled(means: Labeled, way: ScrapeSettings, *matchers: str, by: str = BY) -> str:
    names = [name.raw for name in NVIDIA.values() if name.means is means]
    return way.folded(" or ".join(way.selected(raw, *matchers) for raw in names), by)


def fatal() -> list[int]:
    return sorted(code for code, advice in xids.ADVICE.items() if advice.severity == "bad")


def recordings(way: ScrapeSettings) -> Iterator[dict[str, str]]:
    for metric, record in RECORDED.items():
        yield {"record": record, "expr": of_metric(metric, way)}
    for metric, record in INCREASED.items():
        yield {"record": record, "expr": rise_of(metric, way)}
    moved = f"{payload(way)} or {of_metric(Metric.NVLINK_TRAFFIC, way)}"
    yield {"record": links_exported.TRAFFIC, "expr": moved}
    yield from links_exported.recordings(RECORDED[Metric.TEMPERATURE], WORKS, HELD, BOARD)
    yield {"record": BOARDS, "expr": f"count by (node) (group by (node, UUID) ({RECORDED[Metric.TEMPERATURE]}))"}
    codes = f'xid=~"{"|".join(map(str, fatal()))}"'
    yield {"record": LAST_XID, "expr": of_labeled(Labeled.XID_LAST, way)}
    for record, means in ((XIDS, Labeled.XID_WINDOW), (XIDS_TOTAL, Labeled.XID_TOTAL)):
        yield {"record": record, "expr": of_labeled(means, way, codes, by=f"{BOARD}, xid")}
    reasons = "|".join(heat.HEAT)
    yield {"record": HEAT, "expr": of_labeled(Labeled.CLOCK_EVENTS, way, f'clock_event=~"{reasons}"')}
    brake = of_labeled(Labeled.CLOCK_EVENTS, way, f'clock_event="{heat.BRAKE}"')
    slowed = of_labeled(Labeled.CLOCK_EVENTS, way, f'clock_event="{heat.SLOWED}"')
    hot = of_labeled(Labeled.CLOCK_EVENTS, way, 'clock_event="hw_thermal"')
    yield {"record": SLOWDOWN, "expr": f"({brake} > 0) or ({slowed} > 0 unless on (UUID) {hot} > 0)"}


def xid_alerts() -> str:
    """Boards by fatal XID: what a window counts, a counter that rose or appeared, and a gauge that nothing counts."""
    window = _promql(xids.LASTS)
    last = " or ".join(f'label_replace({LAST_XID} == {code}, "xid", "{code}", "", "")' for code in fatal())
    parts = (
        f"{XIDS} > 0",
        f"({XIDS_TOTAL} > 0) != {XIDS_TOTAL} offset {window}",  # less than before: the exporter started again
        f"({XIDS_TOTAL} > 0 unless {XIDS_TOTAL} offset {window})",
        f"(({last}) unless on (UUID, xid) {XIDS_TOTAL})",
    )
    return f"max by ({BOARD}, xid) ({' or '.join(parts)})"


def held_idle(below: float, lasting: timedelta) -> str:
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
def _expression(holding: EffectiveRule, way: ScrapeSettings) -> str:
    """Return a rule's PromQL expression, equivalent to its `look`."""
    name, limit = holding.rule.name, holding.threshold or 0.0
    there, boards = RECORDED[Metric.TEMPERATURE], f"max by ({BOARD})"
    if name == idle.IDLE:
        # All of a pod's devices, so that a job with one rank ahead is none.
        pods = "count by (workload_namespace, workload_pod)"
        held = f'({RECORDED[Metric.BUSY]}{{GPU_I_ID="",{HELD}}} or {RECORDED[Metric.ENGINE]}{{GPU_I_ID!="",{HELD}}})'
        return f"{pods} ({held_idle(limit / 100, holding.opens_after)}) == {pods} ({held})"
    if name == rules.XID:
        return xid_alerts()
    if name == rules.LOST:
        return f"absent({there})"
    if name == links.TRAFFIC:
        return links_exported.lagging(limit / 100, HELD, BOARD)
    if name == nodes.LOST:
        return f"{BOARDS} < max_over_time({BOARDS}[{BEFORE}])"
    if name == nodes.SILENT:
        lately = f"group by (node) (last_over_time({there}[{MISSED}]))"
        down = way.selected("kube_node_status_condition", 'condition="Ready"', 'status="true"')
        silent = f"{lately} unless group by (node) ({there}) unless on (node) {down} == 0"
        return f"({silent}) and on () group({there})"
    if (expression := _of_board(name, limit)) is not None:
        return f"{boards} ({expression})"
    # What no exporter knows, Setpoint's own metrics say.
    return f'sum by (cluster) (setpoint_alerts{{rule="{name}",status="open"}}) > 0'


def _of_board(name: str, limit: float) -> str | None:
    """Return which series of boards, instances and pods are wrong; None for rules of other things."""
    recorded = {**RECORDED, **INCREASED}
    degrees, margin = recorded[Metric.TEMPERATURE], recorded[Metric.THERMAL_MARGIN]
    slowdown, memory = recorded[Metric.SLOWDOWN_TEMPERATURE], recorded[Metric.MEMORY_TEMPERATURE]
    most, busy = recorded[Metric.MEMORY_TEMPERATURE_LIMIT], recorded[Metric.BUSY]
    lanes = f"{recorded[Metric.PCIE_LINK_WIDTH]} < {recorded[Metric.PCIE_LINK_WIDTH_LIMIT]}"
    slower = f"{recorded[Metric.PCIE_LINK_GENERATION]} < {recorded[Metric.PCIE_LINK_GENERATION_LIMIT]}"
    minutes, seconds = COUNTED_MINUTES, 60 * COUNTED_MINUTES
    own = f"({degrees} >= {slowdown} - {heat.NEAR:g} unless on (UUID) {margin})"
    for_all = f"({degrees} >= {limit:g} unless on (UUID) {margin} unless on (UUID) {slowdown})"
    expressions = {
        heat.HOT: f"{margin} <= {heat.NEAR:g} or {own} or {for_all} or {HEAT} > 0",
        heat.HELD_BACK: f"rate({recorded[Metric.THERMAL_THROTTLED]}[{COUNTED}]) >= {limit / 100:g}",
        heat.MEMORY: f"{memory} >= {most} or ({memory} >= {limit:g} unless on (UUID) {most})",
        heat.SLOWDOWN: f"{SLOWDOWN} > 0",
        hardware.ECC: f"{recorded[Metric.ECC_UNCORRECTED_VOLATILE]} > 0",
        hardware.REMAP: f"{recorded[Metric.ROW_REMAP_FAILED]} >= 1",
        hardware.PENDING: f"{recorded[Metric.ROW_REMAP_PENDING]} >= 1",
        hardware.NVLINK: f"{recorded[Metric.NVLINK_REPLAYS]} > 0 or "
        f"{recorded[Metric.NVLINK_CRC_ERRORS]} / {seconds} >= {limit:g}",
        hardware.REPLAYS: f"{recorded[Metric.PCIE_REPLAYS]} / {minutes} > {limit:g}",
        hardware.LINK: f"{lanes} or ({slower} and on (UUID) {busy} >= {states.IDLE_BELOW:g})",
        hardware.HEALTH: f"{recorded[Metric.DCGM_HEALTH]} >= {limit:g}",
    }
    return expressions.get(name)


def _alert(holding: EffectiveRule, way: ScrapeSettings) -> dict[str, Any]:
    name, waits = holding.rule.name, holding.opens_after
    if name == idle.IDLE or not _is_of_exporters(name):
        waits = timedelta(0)  # the window of its expression, or Setpoint itself, has waited
    if name in (rules.LOST, nodes.SILENT):
        waits += STALE
    alert: dict[str, Any] = {"alert": f"Setpoint{''.join(part.capitalize() for part in name.split('-'))}"}
    alert["expr"] = _expression(holding, way)
    if waits:
        alert["for"] = _promql(waits)
    alert["labels"] = {"severity": holding.severity.value, "setpoint_rule": name}
    alert["annotations"] = {"summary": f"{holding.rule.title}: {_subject(name)}", "description": holding.about}
    return alert


def _is_of_exporters(name: str) -> bool:
    return any(rule.name == name for rule in rules.rules())


def _subject(name: str) -> str:
    if name == idle.IDLE:
        return "{{ $labels.workload_namespace }}/{{ $labels.workload_pod }} holds {{ $value }} GPUs and uses none"
    if name == rules.LOST:
        return "no exporter is scraped"
    if name == nodes.SILENT:
        return "the exporter of {{ $labels.node }} is not scraped"
    if name == nodes.LOST:
        return "{{ $labels.node }} reports {{ $value }} GPUs, fewer than before"
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
        {
            "name": "setpoint-alerts",
            "rules": [_alert(rule, way) for rule in holding if rule.rule.name not in hosts.NAMES],
        },
        {
            "name": "setpoint-hosts",
            "rules": list(hosts.alerts(way, BOARDS, {rule.rule.name: rule for rule in holding})),
        },
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
        *(Chart(alert.rule.title, _expression(alert, way)) for alert in alerts),
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
