"""Running and waiting objects of a scheduler: Volcano's PodGroups by phase, Kueue's Workloads by condition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from clusters.fleet import FleetRefused
from clusters.kube.apiserver import ApiServer, Call
from clusters.kube.discovery import Resource

RUNNING, WAITING, FINISHED = "running", "waiting", "finished"
_PAGE, _PAGES = 500, 40
"""Twenty thousand gangs; of more, the first so many are told apart."""


def state(raw: Mapping[str, Any]) -> str:
    """Empty for an object that says nothing of the kind.

    Volcano's phases are Pending, Inqueue, Running, Unknown (a part of its pods runs) and Completed; Kueue's conditions
    QuotaReserved, Admitted and Finished.
    """
    status = raw.get("status") if isinstance(raw.get("status"), Mapping) else {}
    assert isinstance(status, Mapping)
    if phase := status.get("phase"):
        return {"Running": RUNNING, "Unknown": RUNNING, "Completed": FINISHED}.get(str(phase), WAITING)
    raw_conditions = status.get("conditions")
    conditions = (
        [condition for condition in raw_conditions if isinstance(condition, Mapping)]
        if isinstance(raw_conditions, list)
        else []
    )
    true = {condition.get("type") for condition in conditions if condition.get("status") == "True"}
    return FINISHED if "Finished" in true else RUNNING if "Admitted" in true else WAITING


def states(server: ApiServer, resource: Resource) -> Counter[str] | None:
    """Count all objects of a resource by state; None: they may not be listed. Raises FleetUnavailable."""
    counted: Counter[str] = Counter()
    query = {"limit": str(_PAGE)}
    for _ in range(_PAGES):
        try:
            page = server.ask(Call("list", resource.plural), "GET", resource.path(), query=query).object()
        except FleetRefused:
            return None
        counted.update(state(item) for item in page.get("items") or () if isinstance(item, Mapping))
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return counted
        query = {"limit": str(_PAGE), "continue": str(token)}
    return counted
