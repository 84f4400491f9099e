"""Settings on nodes that weaken security, wanted or observed: counted and filtered in SQL by one function's judgment.

`profiles.catalog.weakening` judges values, not SQL: the few different values that the keys it knows have anywhere are
read first, and rows are chosen by those that it calls weak.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from compliance.models import Outlier, SettingState
from contract.nodetuning import Operator
from profiles.catalog import weakening

WANTED, OBSERVED = weakening.SIDES
CHOICES = [(WANTED, "The wanted value"), (OBSERVED, "The observed value")]
NOTHING = Q(pk__in=())


def conditions() -> dict[str, Q]:
    """Return conditions on SettingState, by side, for rows whose value weakens security. One query."""
    known = SettingState.objects.filter(key__in=sorted(weakening.KNOWN)).order_by()
    values: dict[str, dict[tuple[str, ...], set[str]]] = {side: defaultdict(set) for side in weakening.SIDES}
    for key, operator, desired, effective in known.values_list("key", "operator", "desired", "effective").distinct():
        weak = weakening.judge(key, operator, desired, effective)
        if weak.wanted:
            values[WANTED][key, operator].add(desired)
        if weak.observed and effective is not None:
            values[OBSERVED][key,].add(effective)
    wanted, observed = NOTHING, NOTHING
    for (key, operator), weak_values in values[WANTED].items():
        wanted |= Q(key=key, operator=operator, desired__in=sorted(weak_values))
    for (key,), weak_values in values[OBSERVED].items():
        observed |= Q(key=key, effective__in=sorted(weak_values))
    return {WANTED: wanted, OBSERVED: observed}


def chosen(sides: Collection[str]) -> Q:
    """Rows of SettingState that weaken security on one of these sides."""
    out = NOTHING
    for side, condition in conditions().items():
        if side in sides:
            out |= condition
    return out


def nodes_with(sides: Collection[str]) -> Q:
    """Nodes that have such a setting."""
    return Q(pk__in=SettingState.objects.filter(chosen(sides)).order_by().values("node"))


def of_nodes(node_ids: Iterable[int]) -> dict[int, int]:
    """Count by node the settings that weaken its security. One query."""
    rows = SettingState.objects.filter(node__in=list(node_ids), key__in=sorted(weakening.KNOWN)).order_by()
    columns = ("node_id", "key", "operator", "desired", "effective")
    return Counter(node for node, *values in rows.values_list(*columns) if weakening.judge(*values))


NUMBERS = ("settings", "nodes", *weakening.SIDES)


class WeakSettings:
    """Weakening settings among some rows. `wanted` and `observed` are nodes; one may be in both."""

    def __init__(self, rows: QuerySet[SettingState]) -> None:
        """One query, which reads only keys that can weaken it."""
        self._nodes: dict[UUID, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._settings: Counter[UUID] = Counter()
        self._values: Counter[tuple[str, str, str, str]] = Counter()
        judge = lru_cache(maxsize=None)(weakening.judge)
        columns = ("node__cluster", "node_id", "key", "operator", "desired", "effective")
        known = rows.filter(key__in=sorted(weakening.KNOWN)).order_by()
        for cluster, node, key, operator, desired, effective in known.values_list(*columns):
            weak = judge(key, operator, desired, effective)
            if weak:
                self._settings[cluster] += 1
                self._nodes[cluster]["nodes"].add(node)
            for side, value in ((WANTED, f"{operator} {desired}"), (OBSERVED, effective)):
                if why := getattr(weak, side):
                    self._nodes[cluster][side].add(node)
                    self._values[key, value, side, why] += 1

    def of(self, cluster: UUID) -> dict[str, int]:
        nodes = self._nodes.get(cluster, {})
        return {name: len(nodes.get(name, ())) for name in NUMBERS} | {"settings": self._settings[cluster]}

    def together(self) -> dict[str, int]:
        """The sums, for a node is in one cluster."""
        return {name: sum(self.of(cluster)[name] for cluster in list(self._nodes)) for name in NUMBERS}

    def values(self) -> list[dict[str, Any]]:
        """Each weak value of each key with the nodes that it is wanted or observed on, the most frequent first."""
        out = [
            {"key": key, "value": value, "side": side, "why": why, "nodes": number}
            for (key, value, side, why), number in self._values.items()
        ]
        return sorted(out, key=lambda row: (-row["nodes"], row["key"], row["side"]))


def of_outliers(rows: Iterable[Outlier]) -> tuple[str, str] | None:
    """The first key in which some nodes answer a value that weakens security, and why; None: there is none."""
    for row in rows:
        for answer in row.values:
            if why := why_of_answer(row, answer):
                return row.key, why
    return None


def why_of_answer(row: Outlier, answer: Mapping[str, Any]) -> str:
    """Return why one of an outlier's values weakens security; empty when it does not."""
    return weakening.reason(row.key, Operator.EQUALS, answer["value"])
