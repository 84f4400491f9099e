"""Versions of charts: where each runs, and which steps between them their makers support."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_NUMBERS = re.compile(r"\d+")
_BOUND = re.compile(r"(>=|<=|>|<)(\d{1,9}(?:\.\d{1,9}){0,2}(?:-[0-9A-Za-z.-]+)?)")
_SEMANTIC = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?(?:-([0-9A-Za-z.-]+))?")


@dataclass(frozen=True, slots=True)
class Citation:
    """Source of a sentence, so that a reader can judge it."""

    text: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Tested:
    """A chart's version whose own values the presets were checked against, and where it runs."""

    version: str
    kubernetes_from: str = ""
    kubernetes_to: str = ""
    """Minor versions (`1.33`), both included; empty: the component's makers name no bound."""
    note: str = ""
    sources: tuple[Citation, ...] = ()

    @property
    def kubernetes(self) -> str:
        """`1.33 to 1.36`, `1.25 or newer`, or empty."""
        low, high = self.kubernetes_from, self.kubernetes_to
        if low and high:
            return f"{low} to {high}"
        return f"{low} or newer" if low else f"{high} or older" if high else ""

    def permits(self, kubernetes: str) -> bool:
        """Return whether it runs on this server version (`v1.35.4-eks-1`); an unreadable version is permitted."""
        have = numbers(kubernetes)[:2]
        if len(have) < 2:
            return True
        low, high = numbers(self.kubernetes_from), numbers(self.kubernetes_to)
        return (not low or have >= low) and (not high or have <= high)


UPGRADE_RULES = ("any", "one-minor", "one-major", "lines")


@dataclass(frozen=True, slots=True)
class Upgrades:
    """Steps between versions that its makers support, up and down."""

    rule: str = "any"
    lines: tuple[str, ...] = ()
    """For `lines`: the release lines (`26.3`) in their order; a step reaches the next one."""
    why: str = ""
    sources: tuple[Citation, ...] = ()

    def refuses(self, before: str, after: str) -> str:
        """Explain why a step from one version to the other is not supported, in one sentence.

        Empty when it is supported.
        """
        steps = self._distance(numbers(before), numbers(after))
        if steps is None or abs(steps) <= 1:
            return ""
        unit = {"one-minor": "minor versions", "one-major": "major versions", "lines": "release lines"}[self.rule]
        return f"{before} to {after} is {abs(steps)} {unit} in one step. {self.why}".strip()

    def _distance(self, before: tuple[int, ...], after: tuple[int, ...]) -> int | None:
        if self.rule == "any" or len(before) < 2 or len(after) < 2:
            return None
        if self.rule == "one-major":
            return after[0] - before[0]
        if self.rule == "one-minor":
            # A new major version follows the last minor one, whose number is not known here.
            return after[1] - before[1] if after[0] == before[0] else after[0] - before[0]
        known = [numbers(line) for line in self.lines]
        if before[:2] not in known or after[:2] not in known:
            return None
        return known.index(after[:2]) - known.index(before[:2])


def numbers(version: str) -> tuple[int, ...]:
    """`v26.7.0-rc.1` as (26, 7, 0): enough to tell lines apart. The part behind + or - is left out."""
    return tuple(int(number) for number in _NUMBERS.findall(re.split(r"[-+]", version)[0])[:3])


def is_older(version: str, other: str) -> bool:
    """Return whether a version comes before the other, pre-releases before their release.

    False where one is no version.
    """
    left, right = _ordered(version), _ordered(other)
    return bool(left and right and left < right)


def bounds(text: str) -> tuple[tuple[str, str], ...]:
    """Return sign and version of each bound of `>=26.3.0 <26.3.3`; none of an empty text. Raises ValueError."""
    matches = [_BOUND.fullmatch(word) for word in text.split()]
    if not all(matches):
        raise ValueError(f"{text!r} is not a range of versions such as '>=26.3.0 <26.3.3'")
    return tuple((match[1], match[2]) for match in matches if match)


def is_within(version: str, text: str) -> bool:
    """Return whether a version is in a range. An unreadable one is in every range: it may be meant."""
    if not _ordered(version):
        return True
    holds = {
        ">=": lambda bound: not is_older(version, bound),
        ">": lambda bound: is_older(bound, version),
        "<=": lambda bound: not is_older(bound, version),
        "<": lambda bound: is_older(version, bound),
    }
    return all(holds[sign](bound) for sign, bound in bounds(text))


_WORDS = {">=": "{} or newer", ">": "newer than {}", "<=": "up to {}", "<": "before {}"}


def range_text(text: str) -> str:
    """Return `26.3.0 or newer, before 26.3.3`."""
    return ", ".join(_WORDS[sign].format(bound) for sign, bound in bounds(text))


def _ordered(version: str) -> tuple[Any, ...]:
    """Return the sort key of a semantic version: build metadata behind a + does not count."""
    match = _SEMANTIC.fullmatch(version.removeprefix("v").partition("+")[0])
    if not match:
        return ()
    core = tuple(int(part or 0) for part in match.groups()[:3])
    parts = match[4].split(".") if match[4] else []
    return (*core, not parts, [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts])


def same_version(version: str, other: str) -> bool:
    """Charts write `v1.2.3` or `1.2.3`, and people the other one."""
    return version.removeprefix("v") == other.removeprefix("v")
