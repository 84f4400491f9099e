"""Managed platforms on a revision: values that they refuse, settings that their node configuration has no place for.

What is known of them is in profiles/catalog/platforms.yaml. Setpoint's agent writes past their limits, but a node pool
made with such a value is refused, and an upgrade of the platform's image brings its own values back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from profiles.catalog import platforms
from profiles.catalog.known_settings import PlatformLimit
from profiles.catalog.platforms import Platform
from profiles.content.content import Content, WantedSetting


@dataclass(frozen=True, slots=True)
class PlatformReport:
    platform: Platform
    outside: tuple[tuple[WantedSetting, PlatformLimit], ...]
    """Wanted values that the platform refuses."""
    without: tuple[WantedSetting, ...]
    """Settings that its node configuration has no place for: written on the host, or not at all."""
    settings: int

    @property
    def is_unsafe(self) -> bool:
        return bool(self.outside)

    @property
    def placed(self) -> int:
        return self.settings - len(self.without)


def platform_reports(content: Content) -> list[PlatformReport]:
    return [_platform_report(platform, content.settings) for platform in platforms.KNOWN.values()]


def _platform_report(platform: Platform, settings: Iterable[WantedSetting]) -> PlatformReport:
    wanted = tuple(settings)
    outside = [(w, limit) for w in wanted if (limit := platform.limit(w.key)) and not _permits(limit, w.value)]
    without = tuple(w for w in wanted if not platform.has_place_for(w.key))
    return PlatformReport(platform, tuple(outside), without, len(wanted))


def _permits(limit: PlatformLimit, value: str) -> bool:
    return all(limit.permits(int(number)) for number in value.split() if number.lstrip("-").isdigit())
