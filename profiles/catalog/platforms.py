"""Managed platforms: what their own node configuration has a place for, from platforms.yaml beside this module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common import yaml
from contract.keys import KeyKind, kind_of
from profiles.catalog import known_settings
from profiles.catalog.known_settings import PlatformLimit, SettingCitation

ANY, LISTED = "any", "listed"
_FIELDS = frozenset({"title", "how", "kinds", "sources"})


@dataclass(frozen=True, slots=True)
class Platform:
    key: str
    title: str
    how: str
    """How a setting gets into the platform's own configuration, in sentences."""
    kinds: Mapping[KeyKind, str | frozenset[str]]
    """ANY, LISTED, or the keys that have a place; a kind that is absent has none."""
    sources: tuple[SettingCitation, ...]

    def limit(self, key: str) -> PlatformLimit | None:
        """Return the limit that the catalog knows for a key here; None: none is published."""
        info = known_settings.get(key)
        return next((limit for limit in info.platforms if limit.platform == self.key), None) if info else None

    def has_place_for(self, key: str) -> bool:
        rule = self.kinds.get(kind_of(key), frozenset())
        if isinstance(rule, frozenset):
            return key in rule
        return rule == ANY or self.limit(key) is not None


class BadPlatforms(ValueError):
    """An entry is wrong: a mistake of this project's, found when the module is imported."""


def read(raw: Mapping[str, Any]) -> dict[str, Platform]:
    """Raises BadPlatforms."""
    sources, out = known_settings.load_sources(), {}
    for key, entry in raw.items():
        if entry.keys() != _FIELDS:
            raise BadPlatforms(f"{key}: has the fields {sorted(entry)}, and needs {sorted(_FIELDS)}")
        if unknown := [name for name in entry["sources"] if name not in sources]:
            raise BadPlatforms(f"{key}: unknown sources {unknown}")
        kinds = {}
        for kind, rule in entry["kinds"].items():
            kinds[KeyKind(kind)] = _rule(f"{key}: {kind}", KeyKind(kind), rule)
        out[key] = Platform(key, entry["title"], entry["how"], kinds, tuple(sources[name] for name in entry["sources"]))
    return out


def _rule(where: str, kind: KeyKind, rule: Any) -> str | frozenset[str]:
    if rule in (ANY, LISTED):
        return str(rule)
    if not isinstance(rule, list):
        raise BadPlatforms(f"{where}: {rule} is neither {ANY}, {LISTED} nor a list of keys")
    if strangers := [key for key in rule if known_settings.get(key) is None or kind_of(key) is not kind]:
        raise BadPlatforms(f"{where}: {strangers} are no keys of this kind")
    return frozenset(rule)


KNOWN = read(yaml.load((known_settings.HERE / known_settings.PLATFORMS_FILE).read_bytes()).data["platforms"])
"""By key; limits in the catalog's entries name these keys."""
