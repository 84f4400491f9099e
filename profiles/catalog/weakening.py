"""Settings that weaken security, by value: read from weakening.yaml beside this module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from common import yaml
from contract.nodetuning import Operator

FILE = "weakening.yaml"
CODE = "weakens-security"
"""Of the finding and of the caution."""
_FIELDS = frozenset({"values", "below", "above", "why"})
_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")


@dataclass(frozen=True, slots=True)
class Weakness:
    why: str
    values: frozenset[str] = frozenset()
    below: int | None = None
    above: int | None = None

    def is_in(self, operator: str, value: str) -> bool:
        """Return whether a setting of this value is in the range that weakens security.

        A setting that only raises cannot go below, and one that only lowers cannot go above.
        """
        if any(word in self.values for word in value.split(",")):
            return True  # of a list the kernel obeys each word: iommu=pt,off is off
        if not _NUMBER.fullmatch(value):
            return False
        is_low = self.below is not None and int(value) < self.below and operator != Operator.AT_LEAST
        return is_low or (self.above is not None and int(value) > self.above and operator != Operator.AT_MOST)


class BadWeaknesses(ValueError):
    """An entry is wrong: a mistake of this project's, found when the module is imported."""


def read(raw: Mapping[str, Any]) -> dict[str, Weakness]:
    """Raises BadWeaknesses."""
    out = {}
    for key, entry in raw.items():
        if entry.keys() - _FIELDS or not entry.get("why") or not entry.keys() - {"why"}:
            raise BadWeaknesses(f"{key}: needs why, and values, below or above; found {sorted(entry)}")
        out[key] = Weakness(entry["why"], frozenset(entry.get("values", ())), entry.get("below"), entry.get("above"))
    return out


KNOWN = read(yaml.load((Path(__file__).parent / FILE).read_bytes()).data["settings"])


def reason(key: str, operator: str, value: str | None) -> str:
    """Explain in half a sentence why this value weakens security.

    Empty when it does not, or when no value is written.
    """
    known = KNOWN.get(key)
    return known.why if known and value is not None and known.is_in(operator, value) else ""


class Weak(NamedTuple):
    """Reasons why the wanted and the observed value of one key on one node weaken its security; empty: they do not."""

    wanted: str
    observed: str

    def __bool__(self) -> bool:
        return bool(self.wanted or self.observed)

    @property
    def why(self) -> str:
        return self.wanted or self.observed

    @property
    def sides(self) -> list[str]:
        return [name for name in SIDES if getattr(self, name)]


SIDES = Weak._fields


def judge(key: str, operator: str, wanted: str | None, observed: str | None) -> Weak:
    return Weak(reason(key, operator, wanted), reason(key, Operator.EQUALS, observed))
