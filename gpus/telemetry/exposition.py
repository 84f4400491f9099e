"""Prometheus' text format, as an exporter's pod answers it, into `Series`.

Not prometheus_client's parser: that one raises at the first bad line and loses the rest, puts `_total` behind counters'
names, and needs 70 µs a line, which is more than a minute for 40,000 GPUs. Here a line that is cut off or garbled is
counted and left out, nothing else; and as an exporter prints the same labels under each of its families, each set of
labels is taken apart once (6 µs a line).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from gpus.metrics.findings import Findings
from gpus.metrics.samples import Code, Series

MAX_SERIES = 2_000_000
"""40,000 GPUs with 50 families: what answers more is no fleet of exporters."""
MAX_LINE = 65_536
MAX_LABEL = 1_024
"""Kubernetes' longest name has 253 characters. A longer label is left out, its series stays."""
_LABEL_SETS = 4_096

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf|infinity|nan)", re.IGNORECASE)
_NO_LABELS: Mapping[str, str] = MappingProxyType({})


class _Refused(Exception):
    """This line is not in the format."""


def parse(text: str, *, findings: Findings, exporter: str = "", limit: int = MAX_SERIES) -> Iterator[Series]:
    """The series of one answer, in its order. Never raises for what the text contains: `findings` has what was refused.

    `exporter` is `namespace/pod` of the pod that answered. The last line must end: `… 9` may have been `… 98`.
    """
    reader = _Reader(exporter, findings)
    *lines, rest = text.split("\n")
    for line in lines:
        series = reader.read(line)
        if series is None:
            continue
        if limit <= 0:
            findings.add(Code.SERIES_OVER_LIMIT, series.name)
            return
        limit -= 1
        yield series
    if rest.strip() and not rest.startswith("#"):
        findings.add(Code.LINES_REFUSED, rest)


class _Reader:
    def __init__(self, exporter: str, findings: Findings) -> None:
        self._exporter = exporter
        self._findings = findings
        self._label_sets: dict[str, Mapping[str, str]] = {}
        self._names: set[str] = set()

    def read(self, line: str) -> Series | None:
        line = line.strip()
        if not line or line[0] == "#":
            return None
        try:
            return self._series(line)
        except _Refused:
            self._findings.add(Code.LINES_REFUSED, line)
            return None

    def _series(self, line: str) -> Series:
        if len(line) > MAX_LINE:
            raise _Refused
        opening, closing = line.find("{"), line.rfind("}")
        if opening >= 0:
            if closing < opening:
                raise _Refused
            name, labels, rest = line[:opening].rstrip(), self._labels(line[opening + 1 : closing]), line[closing + 1 :]
        else:
            name, _, rest = line.partition(" ")
            labels = _NO_LABELS
        if name not in self._names:
            if not _NAME.fullmatch(name):
                raise _Refused
            self._names.add(name)
        value, time = _value_and_time(rest)
        return Series(name, labels, value, time, self._exporter)

    def _labels(self, text: str) -> Mapping[str, str]:
        known = self._label_sets.get(text)
        if known is not None:
            return known
        labels: dict[str, str] = {}
        position = 0
        while position < len(text):
            match = _LABEL.match(text, position)
            if match is None:
                raise _Refused
            name, value = match[1], match[2]
            if name in labels:
                raise _Refused
            if len(value) > MAX_LABEL:
                self._findings.add(Code.LABELS_TOO_LONG, name)
            else:
                labels[name] = _ESCAPE.sub(_unescaped, value) if "\\" in value else value
            position = match.end()
        if len(text) <= MAX_LABEL * 2:
            if len(self._label_sets) >= _LABEL_SETS:
                self._label_sets.clear()
            self._label_sets[text] = labels
        return labels


def _unescaped(escape: re.Match[str]) -> str:
    return {"n": "\n"}.get(escape[1], escape[1])


def _value_and_time(rest: str) -> tuple[float, datetime | None]:
    words = rest.split()
    if not 1 <= len(words) <= 2 or not _NUMBER.fullmatch(words[0]):
        raise _Refused
    value = float(words[0])
    if len(words) == 1:
        return value, None
    try:
        return value, datetime.fromtimestamp(int(words[1]) / 1000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise _Refused from error
