"""Prometheus client, for an address or the API server's proxy; the number of queries does not depend on the GPUs'.

Instant queries by a list of allowed names, one after the other: only one answer is in memory at a time, and none is
ever made into one tree of objects. Times are taken from Prometheus' own clock, so that a clock that is wrong makes no
sample look old; the skew is reported.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import datetime, timedelta
from sys import intern
from typing import Any, NamedTuple

from clusters.fleet import FleetError, Reply
from common.clock import now
from gpus.metrics.findings import Findings
from gpus.metrics.nvidia import Labeled
from gpus.metrics.samples import Code, Metric, Series
from gpus.metrics.vendors import NAMES
from gpus.telemetry.exposition import MAX_LABEL, MAX_SERIES
from gpus.telemetry.source import Gathering, Unreadable

Ask = Callable[[str, Mapping[str, str], int, float], Reply]
"""From a path, a query, most bytes and seconds to what Prometheus answered. Raises FleetError."""

MEANINGS_A_QUERY = 2
"""Both names of as many metrics in one query: 40,000 GPUs are 46 MB of JSON then."""
MOST_LABEL_SETS = 200_000
"""Taken apart once; of more GPUs than there are, each series is taken apart by itself."""
POINTS_A_LOOK = 1_000
"""After so many, the time is looked at: reading a large answer takes longer than getting it."""
MOST_BYTES = 160 * 1024 * 1024
CALL_SECONDS = 20.0
_WITNESSES = (
    Metric.TEMPERATURE,
    Metric.BUSY,
    Metric.ENGINE,
    Metric.SM,
    Metric.TENSOR,
    Metric.MEMORY_USED,
    Metric.POWER,
)
"""Any of them tells of a GPU and of its exporter: lists of counters of an exporter's own leave some out."""
SKEW_SECONDS = 30.0
"""Clocks further apart are worth a sentence."""
_START = re.compile(r'"result"\s*:\s*\[')
_DECODER = json.JSONDecoder()
_BETWEEN = " \t\r\n,"
_FIRST, _NAMED, _MIDDLE = '{"metric":{', '"__name__":"', '},"value":['


def queries(selector: str = "") -> list[str]:
    """PromQL of one reading. Their number does not depend on the fleet."""
    meanings: dict[Metric | Labeled, list[str]] = defaultdict(list)
    for name in NAMES.values():
        if name.means is not Labeled.TARGET:
            meanings[name.means].append(name.raw)
    groups = list(meanings.values())
    parts = [groups[at : at + MEANINGS_A_QUERY] for at in range(0, len(groups), MEANINGS_A_QUERY)]
    selected = [_selected([raw for group in part for raw in group], selector) for part in parts]
    # Which pod an exporter's target is, for its own labels can pass for a workload's.
    return [*selected, f"up and on (instance, job) {_selected(_witnessing(), selector)}"]


def ages(selector: str = "") -> str:
    """Return the query for when each target was last scraped: an instant query dates everything to its own moment.

    By the temperature, a name at a time, for `timestamp` takes the names away; by `up` where a target has none.
    """
    names = [name.raw for name in NAMES.values() if name.means is Metric.TEMPERATURE]
    each = [f"max by (instance) (timestamp({_selected([raw], selector)}))" for raw in names]
    of_target = f"timestamp(up) and on (instance, job) {_selected(_witnessing(), selector)}"
    return " or ".join([*each, f"max by (instance) ({of_target})"])


def census(selector: str = "") -> str:
    """Return the query for how many GPUs it has series of now."""
    return f"count(count by (UUID, serial_number, gpu_id) ({_selected(_witnessing(), selector)}))"


def _witnessing() -> list[str]:
    return [name.raw for metric in _WITNESSES for name in NAMES.values() if name.means is metric]


def _selected(names: list[str], selector: str) -> str:
    return f'{{__name__=~"{"|".join(names)}"{f",{selector}" if selector else ""}}}'


class InstantSample(NamedTuple):
    name: str
    """Empty where an expression took it away."""
    labels: Mapping[str, str]
    """Without `__name__`; shared by all points that have the same ones."""
    at: float
    value: float


class Prometheus:
    """Fills gpus.telemetry.source.Telemetry."""

    def __init__(
        self,
        ask: Ask,
        *,
        title: str,
        selector: str = "",
        learn: Callable[[Gathering], None] = lambda _: None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """`learn` tells a reading which pods are exporters."""
        self._ask, self._title, self._selector, self._learn, self.close = ask, title, selector, learn, close

    def count(self, into: Gathering) -> int:
        """GPUs that it has series of. One query. Raises Unreadable."""
        try:
            return sum(int(point.value) for point in self._points(census(self._selector), into))
        except (FleetError, NoQuery, NotThisOne, ValueError, OverflowError) as error:
            raise Unreadable(_sentence(self._title, error)) from error

    def series(self, into: Gathering) -> Iterator[Series]:
        self._learn(into)
        all_queries, left = queries(self._selector), MAX_SERIES
        into.asked = len(all_queries)
        labels = _Labels(into.findings)
        scraped = self._scraped(into)
        for number, query in enumerate(all_queries):
            title = f"query {number + 1} of {len(all_queries)}"
            try:
                for name, known, _at, value in self._points(query, into, labels, title):
                    if (left := left - 1) < 0:
                        into.findings.add(Code.SERIES_OVER_LIMIT, name)
                        return
                    yield Series(name or "up", known, value, scraped.get(known.get("instance", "")))
            except NotThisOne as error:
                into.missed(title, str(error))
            except (FleetError, NoQuery) as error:
                if not number:
                    raise Unreadable(_sentence(self._title, error)) from error
                into.missed(title, str(error))
                into.unanswered = len(all_queries) - number  # it is not asked on
                return

    def _scraped(self, into: Gathering) -> Mapping[str, datetime]:
        """Return by `instance` when each target was scraped, by our clock. Empty where the query is refused."""
        try:
            before = now()
            points = {p.labels.get("instance", ""): p for p in self._points(ages(self._selector), into)}
        except (FleetError, NoQuery, NotThisOne):
            return {}  # what the queries themselves answer decides
        if points:
            middle = before + (now() - before) / 2
            into.skew_seconds = round(next(iter(points.values())).at - middle.timestamp(), 1)
        return {
            instance: _before(into.when, point.at - point.value)
            for instance, point in points.items()
            if math.isfinite(point.value)
        }

    def _points(
        self, query: str, into: Gathering, labels: _Labels | None = None, title: str = ""
    ) -> Iterator[InstantSample]:
        """`title`: a part of its answer counts as such. Raises FleetError, NoQuery, NotThisOne."""
        if not into.left:
            raise NoQuery("It was not asked: the time for one reading was over.")
        reply = self._ask("api/v1/query", {"query": query}, MOST_BYTES, min(CALL_SECONDS, into.left))
        if reply.status != 200:
            raise refusal(reply)
        text = reply.body.decode(errors="replace")
        del reply  # it is large, and its text is as large
        points = _vector(text, labels or _Labels(into.findings), lambda: into.left > 0)
        if (warnings := (yield from points)) and title:
            into.partial += 1
            into.note_reason(title, f"Prometheus warns: {printable(warnings[0])}")


class _Labels:
    """Labels of one reading: a GPU's stand again in each of its series, so they are taken apart once and shared."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._by_text: dict[str, tuple[Mapping[str, str], str]] = {}

    def of_text(self, text: str) -> Mapping[str, str]:
        """Return the labels of `text`, a JSON object with any names. Raises ValueError, AttributeError."""
        known = self._by_text.get(text)
        if known is None:
            known = self._taken(json.loads(text))
            if len(self._by_text) < MOST_LABEL_SETS:
                self._by_text[text] = known
        labels, too_long = known
        if too_long:
            self._findings.add(Code.LABELS_TOO_LONG, too_long)
        return labels

    def of_object(self, raw: Any) -> tuple[str, Mapping[str, str]]:
        """Name and labels. Raises AttributeError."""
        labels, too_long = self._taken(raw)
        if too_long:
            self._findings.add(Code.LABELS_TOO_LONG, too_long)
        return str(raw.get("__name__", "")), labels

    @staticmethod
    def _taken(raw: Any) -> tuple[Mapping[str, str], str]:
        """Return the labels, and the name of one that is too long or "".

        Texts that many GPUs share are in memory once.
        """
        labels = {
            intern(str(name)): intern(str(text))
            for name, text in raw.items()
            if name != "__name__" and len(text) <= MAX_LABEL
        }
        return labels, next((str(name) for name, text in raw.items() if len(text) > MAX_LABEL), "")

    def refuse(self, raw: Any) -> None:
        self._findings.add(Code.LINES_REFUSED, json.dumps(raw)[:100])


class NoQuery(Exception):
    """No query would be answered now."""


class NotThisOne(Exception):
    """This query failed for itself; others may not."""


def _sentence(title: str, error: Exception) -> str:
    text = str(error).rstrip(".")
    return f"{title} could not be read: {text}."


def refusal(reply: Reply) -> Exception:
    status, message = reply.status, _error_text(reply.body)
    if status in (401, 403):
        return NoQuery(f"It does not accept the credentials ({status}). Give them again in the source's settings.")
    if status == 404:
        return NoQuery("There is no Prometheus at this address (404). Give it without /api/v1.")
    if 300 <= status < 400:
        return NoQuery(f"It answers with a redirect ({status}), which is not followed. Give the address it leads to.")
    if status in (400, 422):
        return NotThisOne(f"Prometheus could not carry the query out ({status}){message}.")
    if status in (429, 502, 503, 504):
        return NoQuery(f"Prometheus is overloaded, or is just starting ({status}){message}.")
    return NoQuery(f"It answered {status}{message}.")


def _error_text(body: bytes) -> str:
    """Prometheus' own words for an error, with a colon; empty when it is not Prometheus that speaks."""
    try:
        text = json.loads(body[:100_000]).get("error")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return f": {printable(text)}" if text else ""


def printable(text: Any) -> str:
    """Return the beginning of a source's own words, without line breaks and other controls."""
    return "".join(c if c.isprintable() else " " for c in str(text)[:200])


def _vector(
    text: str, labels: _Labels, has_time: Callable[[], bool] = lambda: True
) -> Generator[InstantSample, None, list[Any]]:
    """The points of an answer, one by one, and behind the last one the answer's warnings.

    Raises NoQuery when the time is over or it is something else, NotThisOne when it breaks off.

    Prometheus prints without a space, so an element can be cut up in place: no quotation mark inside of a JSON
    string follows a comma or a colon, so none of the marks looked for can be part of a label. An answer that looks
    different is read as any JSON is.
    """
    start = _START.search(text[:10_000])
    if start is None:
        raise NoQuery("What answers there is not Prometheus.")
    at, end, number = start.end(), len(text), 0
    while True:
        number += 1
        if not number % POINTS_A_LOOK and not has_time():
            raise NoQuery("Its answers are larger than the time for one reading.")
        while at < end and text[at] in _BETWEEN:
            at += 1
        if at < end and text[at] == "]":
            return _warnings(text[: start.end()] + text[at:])
        printed = _printed(text, at, labels) if text.startswith(_FIRST, at) else None
        sample, at = printed or _decoded(text, at, labels)
        if sample is not None:
            yield sample


def _warnings(answer: str) -> list[Any]:
    """Return by which words an answer without its series calls itself incomplete, as Thanos and Mimir do."""
    try:
        warnings = json.loads(answer).get("warnings")
    except (ValueError, AttributeError, RecursionError):
        return []  # the series were whole
    return warnings if isinstance(warnings, list) else []


def _printed(text: str, at: int, labels: _Labels) -> tuple[InstantSample, int] | None:
    """An element as Prometheus itself prints it, and where it ends; None where it is printed in another way."""
    middle = text.find(_MIDDLE, at)
    over = text.find("]}", middle)
    named = text.find(_NAMED, at, middle) + len(_NAMED)
    if middle < 0 or over < 0 or named < len(_NAMED):
        return None
    ends = text.index('"', named)
    when, _, value = text[middle + len(_MIDDLE) : over].partition(',"')
    try:
        # Without the name: all series of a GPU then have the same text.
        known = labels.of_text(text[at + len(_FIRST) - 1 : named] + text[ends : middle + 1])
        return InstantSample(text[named:ends], known, float(when), float(value[:-1])), over + 2
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None


def _decoded(text: str, at: int, labels: _Labels) -> tuple[InstantSample | None, int]:
    """None where it is no series, which is counted. Raises NotThisOne."""
    try:
        raw, over = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        raise NotThisOne("The answer breaks off in the middle.") from error
    try:
        name, known = labels.of_object(raw["metric"])
        when, value = raw["value"]
        return InstantSample(name, known, float(when), float(value)), over
    except (KeyError, TypeError, ValueError, AttributeError):
        labels.refuse(raw)
        return None, over


def _before(when: datetime, seconds: float) -> datetime:
    try:
        return when - timedelta(seconds=max(0.0, seconds))
    except OverflowError:
        return datetime.min.replace(tzinfo=when.tzinfo)
