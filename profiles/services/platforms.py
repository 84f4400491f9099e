"""Limits of managed platforms on a revision: values outside them, keys that their node configuration does not offer.

Limits: profiles/catalog, from the AKS and GKE documentation. Setpoint's agent writes past them, but a node pool made
with such a value is refused, and an upgrade of the platform's image brings its own values back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from contract.keys import KeyKind, kind_of
from profiles.catalog import known_settings
from profiles.catalog.known_settings import PlatformLimit
from profiles.content.content import Content, WantedSetting

PLATFORMS = ("AKS", "GKE")


@dataclass(frozen=True, slots=True)
class PlatformReport:
    platform: str
    outside: tuple[tuple[WantedSetting, PlatformLimit], ...]
    """Wanted values that the platform refuses."""
    unlisted: tuple[WantedSetting, ...]
    """Sysctls that its node configuration has no field for."""
    elsewhere: tuple[WantedSetting, ...]
    """What is no sysctl: set on the host, or not at all."""

    @property
    def is_unsafe(self) -> bool:
        return bool(self.outside)


def platform_reports(content: Content) -> list[PlatformReport]:
    return [_platform_report(platform, content.settings) for platform in PLATFORMS]


def _platform_report(platform: str, settings: Iterable[WantedSetting]) -> PlatformReport:
    outside, unlisted, elsewhere = [], [], []
    for setting in settings:
        limit = _limit(platform, setting.key)
        if limit is not None:
            if not all(limit.permits(int(number)) for number in setting.value.split() if number.lstrip("-").isdigit()):
                outside.append((setting, limit))
        elif kind_of(setting.key) is KeyKind.SYSCTL:
            unlisted.append(setting)
        else:
            elsewhere.append(setting)
    return PlatformReport(platform, tuple(outside), tuple(unlisted), tuple(elsewhere))


def _limit(platform: str, key: str) -> PlatformLimit | None:
    info = known_settings.get(key)
    return next((limit for limit in info.platforms if limit.platform == platform), None) if info else None
