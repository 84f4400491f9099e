"""Wording and numbers of a rollout's effects, for its page and the profile's; no other module words an effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from accounts.models import User
from accounts.permissions import restrict
from gpus.effects import arms, host_readings, measures, windows
from gpus.effects.estimation import EffectVerdict
from gpus.effects.measures import Measure
from gpus.effects.planned import MeasureForecast, StudyForecast
from gpus.models import Study, StudyEffect
from jobs.models import Rollout
from profiles.models import Profile

STAYED = {
    arms.UNFINISHED: "did not take the change",
    arms.PUT_BACK: "got the earlier state back",
    arms.GONE: "left the cluster",
}
"""Deviations of nodes as the verb of a sentence, for one and for several."""
SHOWN = 10
"""Studies on a profile's page."""
MINUS, DASH = "\N{MINUS SIGN}", "–"
LEAST_SCALE, MOST_SCALE = 0.05, 1.0
"""Of the drawn axis, to each side: 5 % and 100 %."""


def visible(user: User) -> QuerySet[Study]:
    related = ("rollout__cluster", "rollout__plan__revision__profile", "rollout__plan__pool")
    return restrict(Study.objects.select_related(*related), user, prefix="rollout__cluster__")


@dataclass(frozen=True, slots=True)
class Bar:
    """An interval on the axis, in percent of its width; `is_cut` where it reaches over the edge."""

    low: float
    width: float
    dot: float
    is_cut: bool


@dataclass(frozen=True, slots=True)
class EffectLine:
    """One measure as the page shows it: every number a text with its unit."""

    measure: Measure
    effect: StudyEffect
    look: str
    """Of the axis `effect` in common.look."""
    before: str
    after: str
    expected: str
    change: str
    interval: str
    bar: Bar | None
    day_before: str
    """Level in the same hours of the day before."""
    since_day_before: str
    """Change from that; empty where it is not known."""
    rest: str
    """Change of the rest of the fleet in the same windows; empty where it is not known."""

    @property
    def confidence(self) -> str:
        return f"{self.effect.confidence:.0%}".replace("%", " %")

    @property
    def adjusted(self) -> str:
        """`adjusted by the past, 23 % narrower; unadjusted +5.1 %`; empty where it is not."""
        if self.effect.narrower is None:
            return ""
        share = round(100 * self.effect.narrower)
        width = f"{abs(share)} % {'narrower' if share > 0 else 'wider'}" if share else "as wide"
        by_points = self.measure.by_points or self.effect.ratio is None
        plain = (points if by_points else _percent)(self.measure, self.effect.unadjusted)
        return f"adjusted by the past, {width}; unadjusted {plain}"

    @property
    def n_of_rest(self) -> str:
        return _subjects(self.measure, self.effect.rest_devices)

    @property
    def n(self) -> str:
        e = self.effect
        own = f"{_subjects(self.measure, e.devices)}, {_several(e.clusters)}"
        return f"{own}; control {e.control_devices}, {_several(e.control_clusters)}" if e.control_devices else own


def _subjects(measure: Measure, count: int) -> str:
    return f"{count} {'host' if measure.of_host else 'GPU'}{'s' if count != 1 else ''}"


def _several(count: int) -> str:
    return "1 node or job" if count == 1 else f"{count} nodes or jobs"


def lines(effects: Iterable[StudyEffect]) -> list[EffectLine]:
    rows = [row for row in effects if row.measure in measures.BY_NAME]
    # A latency changes by far more than activity does: on one axis the intervals of GPUs would be dots.
    scales = {of_host: _scale(row for row in rows if _measure(row).of_host is of_host) for of_host in (False, True)}
    return [_line(row, scales[_measure(row).of_host]) for row in rows]


def _measure(row: StudyEffect) -> Measure:
    return measures.BY_NAME[row.measure]


def _scale(rows: Iterable[StudyEffect]) -> float:
    ends = [
        abs(end)
        for row in rows
        for end in (row.ratio_low, row.ratio_high)
        if end is not None and not _measure(row).by_points
    ]
    return min(MOST_SCALE, max([LEAST_SCALE, *ends]) * 1.1)


def _line(row: StudyEffect, scale: float) -> EffectLine:
    measure = _measure(row)
    by_points = measure.by_points or row.ratio is None
    value, low, high = (
        (row.points, row.points_low, row.points_high) if by_points else (row.ratio, row.ratio_low, row.ratio_high)
    )
    as_text = points if by_points else _percent
    return EffectLine(
        measure, row, _look(measure, row.verdict), level(measure, row.before), level(measure, row.after),
        level(measure, row.expected), as_text(measure, value),
        f"{as_text(measure, low)} to {as_text(measure, high)}" if low is not None and high is not None else "",
        None if by_points or value is None or low is None or high is None else _bar(value, low, high, scale),
        level(measure, row.day_before),
        "" if row.day_before_change is None else (points if measure.by_points else _percent)(
            measure, row.day_before_change
        ),
        "" if row.rest_change is None else (points if measure.by_points else _percent)(measure, row.rest_change),
    )  # fmt: skip


def _look(measure: Measure, verdict: str) -> str:
    """A rise of tensor activity is good, one of throttling is not; of power it depends."""
    way = {EffectVerdict.ROSE: 1, EffectVerdict.FELL: -1}.get(EffectVerdict(verdict))
    if way is None or not measure.good:
        return verdict
    return f"{verdict}-{'good' if way == measure.good else 'bad'}"


def _bar(value: float, low: float, high: float, scale: float) -> Bar:
    def at(number: float) -> float:
        return round(50 + 50 * max(-scale, min(scale, number)) / scale, 2)

    return Bar(at(low), round(max(0.5, at(high) - at(low)), 2), at(value), low < -scale or high > scale)


def level(measure: Measure, value: float | None) -> str:
    """`41.2 %`, `1,935 MHz`"""
    if value is None:
        return DASH
    return f"{value * 100:.1f} %" if measure.unit == "%" else f"{value:,.{measure.digits}f} {measure.unit}"


def points(measure: Measure, value: float | None) -> str:
    """A difference in the measure's own unit; of shares in percentage points: `+3.1 pp`."""
    if value is None:
        return DASH
    return _signed(value * 100, 1, "pp") if measure.unit == "%" else _signed(value, measure.digits, measure.unit)


def _percent(measure: Measure, value: float | None) -> str:
    return DASH if value is None else _signed(value * 100, 1, "%")


def _signed(value: float, digits: int, unit: str) -> str:
    text = f"{abs(value):,.{digits}f}"
    sign = "" if float(text.replace(",", "")) == 0 else "+" if value > 0 else MINUS
    return f"{sign}{text} {unit}"


def left_out(study: Study) -> list[str]:
    """List what is left out and why, one sentence each."""
    counts: Mapping[str, Any] = study.counts
    out = []
    for why, count in sorted((counts.get("nodes_left_out") or {}).items()):
        out.append(f"{count} node{'s' if count != 1 else ''}: {why}.")
    for why, count in sorted((counts.get("devices_left_out") or {}).items()):
        out.append(f"{count} GPU{'s' if count != 1 else ''}: {windows.WHY.get(why, why)}.")
    for why, count in sorted((counts.get("hosts_left_out") or {}).items()):
        words = "node has no figures of its host" if count == 1 else "nodes have no figures of their hosts"
        out.append(f"{count} {words}: {host_readings.WHY.get(why, why)}.")
    if count := counts.get("on_both"):
        out.append(
            f"{count} GPUs of jobs that run on changed and on control nodes count, and blur the difference: where "
            "nodes of a job wait for each other, it hides an effect."
        )
    return out


def attrition(study: Study) -> list[str]:
    """Sentences on nodes without figures by arm, and on those that stay in their arm although their change failed."""
    counts = study.counts.get("attrition")
    if not counts:
        return []
    by_arm = [("changed", counts["treated"]), ("control", counts["control"])]
    shares = " and ".join(f"{arm['lost']} of {arm['nodes']} {name} nodes" for name, arm in by_arm)
    out = [f"Without figures: {shares} ({_p(counts['p'])}, Fisher's exact test)."]
    for name, arm in by_arm:
        for why, count in sorted(arm["deviations"].items()):
            out.append(
                f"{count} {name} node{'s' if count != 1 else ''} {STAYED.get(why, why)} and "
                f"stay{'s' if count == 1 else ''} in {'its' if count == 1 else 'their'} arm."
            )
    return out


def caution(study: Study) -> str:
    """Return what else than the change is in the difference; empty: nothing that is known."""
    count = study.counts.get("drained") or 0
    if not study.is_causal or not count:
        return ""
    which = f"{count} changed node{'s were' if count != 1 else ' was'} drained; the control was not"
    return f"{which}: what emptying a node does to its jobs is part of this difference."


def _p(p: float) -> str:
    return "p < 0.01" if p < 0.005 else f"p = {p:.2f}"


def of_rollout(user: User, rollout: Rollout) -> dict[str, Any] | None:
    """Two queries, and one until it is measured; None where there is nothing to tell."""
    study = visible(user).filter(rollout=rollout).first()
    if study is None:
        return None
    shown = lines(study.effects.order_by("position")) if study.measured_at else []
    return {
        "study": study,
        "lines": shown,
        "left_out": left_out(study),
        "attrition": attrition(study),
        "is_uneven": bool((study.counts.get("attrition") or {}).get("is_uneven")),
        "why_no_lines": why_no_lines(study),
        "primary": next((row.measure.title for row in shown if row.effect.is_primary), ""),
        "caution": caution(study),
        "is_adjusted": any(row.adjusted for row in shown),
        "is_interim": study.is_causal and study.state != Study.State.DONE,
    }


def why_no_lines(study: Study) -> str:
    """Return the reason why a study has no figures yet, or will have none."""
    if study.state == Study.State.DONE:
        return "No GPU had readings, and work, in both windows: no result."
    if study.state != Study.State.WAITING:
        return "No GPU has readings in both windows yet; the first figures come 30 minutes after a change has settled."
    if study.is_causal:
        return f"Measured once the last changed node is done and has settled for {study.settle_minutes} min."
    return f"Measured from {study.settle_minutes} min after each node's change."


def of_profile(user: User, profile: Profile) -> list[dict[str, Any]]:
    """The newest rollouts of any of its revisions that have a study. Two queries."""
    studies = visible(user).filter(rollout__plan__revision__profile=profile).order_by("-rollout__number")
    rows = list(studies.prefetch_related("effects")[:SHOWN])
    return [{"study": row, "lines": lines(sorted(row.effects.all(), key=lambda e: e.position))} for row in rows]


# ── before it began ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ForecastLine:
    """One measure of a planned study, every number a text with its unit."""

    forecast: MeasureForecast
    level: str
    detectable: str
    """`+9.2 % or −8.4 %`, `±0.2 %` or `under 0.1 %`; empty where it cannot be computed."""
    usual: str
    """`−10.1 % to +11.2 %`; empty where there are too few windows."""

    @property
    def measure(self) -> Measure:
        return self.forecast.measure

    @property
    def confidence(self) -> str:
        return f"{self.forecast.confidence:.0%}".replace("%", " %")

    @property
    def narrower(self) -> int:
        """Percent by which the adjustment by the past makes it smaller; 0: it makes no difference, or there is none."""
        return round(100 * (self.forecast.detectable.narrower or 0.0))


def of_forecast(forecast: StudyForecast) -> dict[str, Any]:
    shown = [_forecast_line(row) for row in forecast.measures]
    first = forecast.measures[0] if forecast.measures else None
    return {
        "forecast": forecast,
        "lines": shown,
        "primary": next((line for line in shown if line.forecast.is_primary), None),
        "arms": first.detectable if first and forecast.is_causal else None,
    }


def _forecast_line(row: MeasureForecast) -> ForecastLine:
    as_text = points if row.measure.by_points else _percent
    rise, fall, high, low = (
        "" if value is None else as_text(row.measure, value)
        for value in (row.detectable.rise, row.detectable.fall, row.usual_high, row.usual_low)
    )
    usual = f"{low} to {high}" if high else ""
    return ForecastLine(row, level(row.measure, row.level), _either(rise, fall), usual)


def _either(rise: str, fall: str) -> str:
    """Return the smallest effects in both directions as one text. What rounds to zero is no effect of zero."""
    size = rise.removeprefix("+")
    if not rise or size != fall.removeprefix(MINUS):
        return rise and f"{rise} or {fall}"
    if rise == size:
        number, unit = size.split(" ", 1)
        return f"under {number[:-1]}1 {unit}"  # one of the last digit that is shown
    return f"±{size}"
