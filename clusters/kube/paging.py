"""Lists in pages: the one place that follows `continue`, so that a page which expired is no refusal anywhere.

Pages of one list are of one moment, which etcd forgets when it compacts. A list that is still being read then starts
again; where that happens again and again, the API server counts as away, for the list is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from clusters import objects
from clusters.fleet import FleetUnavailable, Gone, Page, Untrusted
from clusters.kube.apiserver import JSON, ApiServer, Call

MAX_PAGES = 2000
"""A million objects: twice what five thousand nodes full of pods are. A server may say `continue` for ever."""
TRIES = 3


def listed(
    server: ApiServer,
    call: Call,
    path: str,
    *,
    limit: int,
    query: Mapping[str, str] | None = None,
    accept: str = JSON,
    keep: Callable[[dict[str, Any]], Any] = dict,
) -> Page:
    """All pages; of each object what `keep` returns, and nothing but its UID where that is None.

    One page is decoded at a time, and dropped before the next is asked for. Raises FleetUnavailable, Untrusted,
    FleetRefused.
    """
    first = {**(query or {}), "limit": str(limit)}

    def ask(query: Mapping[str, str]) -> dict[str, Any]:
        return server.ask(call, "GET", path, query=query, accept=accept).object()

    for _ in range(TRIES):
        try:
            return _all_pages(call, ask, first, keep)
        except Gone:
            continue
    raise FleetUnavailable(f"{call}: its pages expire before they are read, {TRIES} times in a row")


def _all_pages(
    call: Call,
    ask: Callable[[Mapping[str, str]], dict[str, Any]],
    first: Mapping[str, str],
    keep: Callable[[dict[str, Any]], Any],
) -> Page:
    """Read all pages of one consistent list. Raises Gone once the server has forgotten its version."""
    items: list[Any] = []
    left_out: set[str] = set()
    query = first
    for _ in range(MAX_PAGES):
        meta = _take(call, ask(query), keep, items, left_out)
        if not (token := meta.get("continue")):
            return Page(items, str(meta.get("resourceVersion", "")), frozenset(left_out))
        query = {**first, "continue": str(token)}
    raise Untrusted(f"{call}: the list has no end")


def _take(
    call: Call,
    page: dict[str, Any],
    keep: Callable[[dict[str, Any]], Any],
    items: list[Any],
    left_out: set[str],
) -> Mapping[str, Any]:
    """Add what is kept of one page. Returns its metadata: the page itself ends here."""
    items_of_page, meta = page.get("items"), page.get("metadata")
    if not str(page.get("kind")).endswith("List") or not isinstance(meta, dict):
        raise Untrusted(f"{call}: the answer is not a list")
    if not isinstance(items_of_page := items_of_page or [], list) or not all(
        isinstance(item, dict) for item in items_of_page
    ):
        raise Untrusted(f"{call}: the list holds something other than objects")
    for item in items_of_page:
        if (kept := keep(item)) is not None:
            items.append(kept)
        elif uid := objects.uid(item):
            left_out.add(uid)
    return meta
