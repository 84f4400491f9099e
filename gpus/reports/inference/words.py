"""Figures of inference servers as pages show them."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

from django.utils.safestring import SafeString

from gpus.reports import charts
from gpus.reports.inference.deployments import Deployment, Serving
from gpus.reports.inference.figures import Figures
from gpus.reports.inference.quantiles import Quantile

NONE = "–"
CHARTS = (
    ("tokens_out", "Output tokens per second"),
    ("running", "Requests running"),
    ("waiting", "Requests waiting"),
    ("kv_cache", "KV cache in use"),
    ("ttft_p95", "Time to first token, p95"),
)


def number(value: float | None) -> str:
    """Return it with three digits or so: 0.04, 3.2, 1,240."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def share(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.0f} %"


def seconds(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.1f} s" if value >= 10 else f"{value:.2f} s" if value >= 1 else f"{1000 * value:.0f} ms"


def quantile(value: Quantile | None) -> str:
    if value is None:
        return NONE
    return f"> {seconds(value.value)}" if value.is_least else seconds(value.value)


def money(value: Decimal | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.2f}" if value >= Decimal("0.1") else f"{value:.4f}"


class Cell(NamedTuple):
    name: str
    title: str
    text: str
    more: str = ""


def cells(figures: Figures) -> list[Cell]:
    """Return what every server has a place for, in the order of the columns."""
    ttft, tpot = figures.ttft, figures.tpot
    preemptions = "" if not figures.preemptions else f"{round(figures.preemptions):,} preempted"
    waits = "" if figures.queue_wait is None else f"{seconds(figures.queue_wait)} each"
    return [
        Cell("running", "Running", number(figures.running), preemptions),
        Cell("waiting", "Waiting", number(figures.waiting), waits),
        Cell("tokens_out", "Tokens/s out", number(figures.tokens_out), f"{number(figures.tokens_in)} in"),
        Cell("ttft", "First token p50", quantile(ttft.get(0.5)), f"p95 {quantile(ttft.get(0.95))}"),
        Cell("tpot", "Per token p50", quantile(tpot.get(0.5)), f"p95 {quantile(tpot.get(0.95))}"),
        Cell("kv_cache", "KV cache", share(figures.kv_cache), f"most {share(figures.kv_most)}"),
    ]


def gpu_cells(deployment: Deployment, currency: str) -> list[Cell]:
    figures = deployment.figures
    per_million = deployment.cost_per_million
    unit = f"{currency} in all {money(deployment.cost)}" if deployment.cost is not None else ""
    return [
        Cell("gpus", "GPUs", number(figures.gpus), f"{number(figures.tokens_per_gpu)} tokens/s each"),
        Cell("busy", "GPUs busy", share(deployment.busy)),
        Cell("cost", "Cost per million out", money(per_million), unit),
    ]


class ChartLine(NamedTuple):
    name: str
    title: str
    most: str
    drawn: SafeString


def lines(serving: Serving) -> Iterator[ChartLine]:
    """Yield those that have a value in any step."""
    steps = serving.steps
    for name, title in CHARTS if steps is not None else ():
        values = steps.values[name] if steps else []
        known = [value for value in values if value is not None]
        if not known:
            continue
        worded = {"kv_cache": share, "ttft_p95": seconds}.get(name, number)
        top = 1.0 if name == "kv_cache" else max(known) or 1.0
        label = f"{title}: least {worded(min(known))}, most {worded(max(known))}, in {len(values)} steps"
        yield ChartLine(name, title, worded(max(known)), charts.sparkline(values, top, label))
