"""The list of settings on nodes: what its chips count, and its pages, at any depth.

There are a hundred thousand settings in a cluster of 5,000 nodes, and no page reads them all. How many of which state a
node has is rolled up in its standing, in the transaction that writes them; what is narrowed by something of a setting
is counted again. Either way the list is known node by node, so a page reads only the settings of the nodes it shows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import BooleanField, Case, Count, Q, QuerySet, Value, When
from django.http import QueryDict

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Node
from compliance.models import ComplianceState, NodeStanding, SettingState
from compliance.reports import selectors
from compliance.reports.filters import SettingFilter, StandingFilter

WORST_FIRST = tuple(state for state in selectors.RANK if state != selectors.UNASSIGNED)
OF_SETTINGS = tuple(name for name in SettingFilter.base_filters if name not in StandingFilter.base_filters)
"""Filters that look at the settings themselves, and so ask for counting them: key, cause, rollout, since, state."""
FEW = 500
"""Nodes that are asked for by their keys; more are all read."""


class Share(NamedTuple):
    """Number of one node's settings in one state."""

    node_id: int
    name: str
    state: str
    settings: int


class WorstSettings(Sequence[SettingState]):
    """Settings with `shown`, the worst first, then by node and key."""

    def __init__(self, rows: QuerySet[SettingState], shares: Iterable[Share]) -> None:
        """`shares`: of `rows`, in any order. A setting whose state changes meanwhile may be missed or shown twice."""
        self._rows = rows
        self._shares: dict[str, list[Share]] = defaultdict(list)
        for share in sorted(shares, key=lambda share: (share.name, share.node_id)):
            self._shares[share.state].append(share)

    def __len__(self) -> int:
        return sum(share.settings for shares in self._shares.values() for share in shares)

    def __getitem__(self, part: Any) -> Any:
        begin, end, _ = part.indices(len(self))
        states: list[SettingState] = []
        before = 0
        for state in WORST_FIRST:
            shares = self._shares.get(state, ())
            size = sum(share.settings for share in shares)
            first, last = max(0, begin - before), min(size, end - before)
            if first < last:
                states += self._some(state, shares, first, last)
            before += size
        return states

    def _some(self, state: str, shares: Sequence[Share], first: int, last: int) -> list[SettingState]:
        nodes: list[int] = []
        skipped = before = 0
        for share in shares:
            if before + share.settings <= first:
                skipped += share.settings
            elif before < last:
                nodes.append(share.node_id)
            before += share.settings
        rows = self._rows.filter(Q(shown=state), node__in=nodes).order_by("node__name", "node_id", "key")
        return list(rows[first - skipped : last - skipped])


def counts(shares: Iterable[Share]) -> selectors.Counts:
    """Every state is named."""
    out: Counter[str] = Counter()
    for share in shares:
        out[share.state] += share.settings
    return {name: out[name] for name in selectors.SHOWN}


def by_node(user: User, params: QueryDict) -> list[Share]:
    """Return the shares of all settings that the filters leave, except the one by state. Two queries at most."""
    others = params.copy()
    others.pop("state", None)
    if any(others.get(name) for name in OF_SETTINGS):
        return list(_counted(user, others))
    return list(_rolled_up(user, others))


def in_states(shares: Iterable[Share], states: Collection[str]) -> list[Share]:
    """Those in one of these states; without states, all."""
    return [share for share in shares if not states or share.state in states]


def _rolled_up(user: User, params: QueryDict) -> Iterator[Share]:
    standings = restrict(NodeStanding.objects.filter(node__gone_at=None, settings__gt=0), user, "node__cluster__")
    columns = ("node_id", "node__name", "silent", "settings", "drifted", "pending")
    rows = StandingFilter(params, queryset=standings.annotate(silent=_silent("node__"))).qs
    for pk, name, is_silent, every, drifted, pending in rows.order_by().values_list(*columns):
        if is_silent:
            yield Share(pk, name, ComplianceState.UNKNOWN, every)
            continue
        of = {
            ComplianceState.DRIFTED: drifted,
            ComplianceState.PENDING: pending,
            ComplianceState.COMPLIANT: every - drifted - pending,
        }
        yield from (Share(pk, name, state, count) for state, count in of.items() if count)


def _counted(user: User, params: QueryDict) -> Iterator[Share]:
    """Count settings by node and state, reading no node columns: settings are twenty times as many as nodes."""
    every = restrict(SettingState.objects.filter(node__gone_at=None), user, "node__cluster__")
    rows = SettingFilter(params, queryset=every).qs.order_by()
    counted = list(rows.values_list("node_id", "state").annotate(n=Count("pk")))
    heard = _heard({pk for pk, *_ in counted})
    together: Counter[tuple[int, str]] = Counter()
    for pk, state, count in counted:
        if pk in heard:
            together[pk, ComplianceState.UNKNOWN if heard[pk][1] else state] += count
    return (Share(pk, heard[pk][0], state, count) for (pk, state), count in together.items())


def _heard(node_ids: Collection[int]) -> Mapping[int, tuple[str, bool]]:
    """Return by node its name, and whether it is silent."""
    nodes = Node.objects.present().filter(Q(pk__in=node_ids) if len(node_ids) <= FEW else Q())
    rows = nodes.order_by().annotate(silent=_silent()).values_list("pk", "name", "silent")
    return {pk: (name, is_silent) for pk, name, is_silent in rows}


def _silent(prefix: str = "") -> Case:
    is_silent = When(selectors.silent(prefix), then=Value(True))
    return Case(is_silent, default=Value(False), output_field=BooleanField())
