"""The picker of a time range, as every page with history has it (templates/gpus/_range.html)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlencode
from zoneinfo import ZoneInfo

from common.errors import Invalid
from gpus.reports import ranges
from gpus.reports.ranges import History, TimeRange

MOST_TEXT = 64


@dataclass(frozen=True, slots=True)
class TimeField:
    """A time of the form: as the form writes it, and the instant for the browser, which shows it in its own zone."""

    name: str
    label: str
    value: str
    instant: int | None
    errors: Sequence[str]


@dataclass(frozen=True, slots=True)
class RangePicker:
    history: History
    range: TimeRange
    """The default where the address asks for none that there is."""
    anchor: str
    kept: Sequence[tuple[str, str]] = ()
    """What the address has besides."""
    typed: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def status(self) -> int:
        return Invalid.status if self.errors else 200

    @property
    def problems(self) -> list[tuple[str, str]]:
        return [(name.capitalize(), " ".join(reasons)) for name, reasons in self.errors.items()]

    @property
    def presets(self) -> list[tuple[str, str, bool]]:
        """Words, address, and whether it is shown."""
        chosen = [(name, self.history.preset(name, compares=self.range.compares)) for name in self.history.presets]
        return [(preset.words, self._address(preset.query), name == self.range.name) for name, preset in chosen]

    @property
    def neighbors(self) -> list[tuple[str, str]]:
        """Words and address; no address where there is no such range."""
        near = ranges.neighbors(self.range, self.history)
        return [(words, self._address(other.query) if other else "") for words, other in near]

    @property
    def exact(self) -> str:
        return self._address(self.range.exact)

    @property
    def comparison(self) -> str:
        """Return the address that turns the comparison on, or off."""
        bare = self.range.query.removesuffix(f"&compare={ranges.BEFORE}")
        return self._address(bare if self.range.compares else f"{bare}&compare={ranges.BEFORE}")

    @property
    def zone(self) -> str:
        return self.typed.get("zone") or "UTC"

    @property
    def fields(self) -> list[TimeField]:
        shown = {"from": self.range.start, "to": min(self.range.end, ranges.up_to())}
        return [self._field(name, label, shown[name]) for name, label in (("from", "From"), ("to", "to"))]

    @property
    def is_open(self) -> bool:
        return bool(self.errors) or not self.range.name

    def _field(self, name: str, label: str, shown: datetime) -> TimeField:
        """Return the field with what was typed where it was refused, as far as a field of a time can show it."""
        text, reasons = self.typed.get(name, ""), self.errors.get(name, ())
        if self.errors and text:
            typed = None if "zone" in self.errors else ranges.instant(text, self.zone)
            if typed is None:
                return TimeField(name, label, text, None, reasons)
            shown = typed
        local = shown.astimezone(UTC if "zone" in self.errors else ZoneInfo(self.zone))
        return TimeField(name, label, f"{local:%Y-%m-%dT%H:%M}", round(shown.timestamp()), reasons)

    def _address(self, query: str) -> str:
        kept = urlencode(self.kept)
        return f"?{kept}{'&' if kept else ''}{query}#{self.anchor}"

    @property
    def beside(self) -> str:
        """Return the range as links and forms of other parts of the page keep it: nothing for the default."""
        is_default = self.range.name == self.history.default and not self.range.compares
        return "" if is_default else f"&{self.range.query}"

    @property
    def hidden(self) -> list[tuple[str, str]]:
        return parse_qsl(self.beside)


def read(
    params: Mapping[str, str], history: History, *, anchor: str, kept: Sequence[tuple[str, str]] = ()
) -> RangePicker:
    """Return the picker of an address. What cannot be shown is refused beside the default, and kept as it was typed."""
    typed = {name: params.get(name, "").strip()[:MOST_TEXT] for name in ranges.NAMES}
    try:
        return RangePicker(history, history.parse(params), anchor, kept, typed)
    except Invalid as refusal:
        return RangePicker(history, history.preset(), anchor, kept, typed, refusal.fields)
