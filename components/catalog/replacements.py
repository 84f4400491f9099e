"""Work of the cluster's own that a component does instead, and the preset that has its former doer removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.catalog.versions import Citation
from components.values.clauses import Clause, look_up

REPLACEABLE = ("kube-proxy",)
"""What Setpoint knows how to find, to remove and to put back (components.release.kube_proxy)."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """One such doer. It is removed only where a profile names `preset`."""

    of: str
    preset: str
    why: str
    when: tuple[Clause, ...]
    """One that holds of the values: the component does this work."""
    needs: Mapping[str, str]
    """Values, by path, without which the former doer must stay: why."""
    sources: tuple[Citation, ...] = ()

    def is_done(self, values: Mapping[str, Any]) -> bool:
        """Return whether the component does the work; `true` and `"true"` mean the same to charts."""
        return any(_text(look_up(values, clause.path)) == _text(clause.equals) for clause in self.when)

    def lacking(self, values: Mapping[str, Any]) -> Mapping[str, str]:
        """Return what is missing of the needed values, with the reason for each."""
        return {path: why for path, why in self.needs.items() if not look_up(values, path)}


def _text(value: Any) -> str:
    return str(value).lower()
