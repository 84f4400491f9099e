"""NoExecute taints as they are carried out: only whom they evict is drained, and none that the plan did not count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters import objects
from clusters.tolerations import EVICTS
from jobs.diffs import evictions
from jobs.engine.outcome import NodeView


def is_drained(view: NodeView, pod: Mapping[str, Any]) -> bool:
    """Return whether this step's drain takes the pod off its node.
    One that tolerates the taint stays, where taints are the only reason to drain the node.
    """
    if not evictions.spares_tolerant_pods(view.changes):
        return True
    return evictions.is_evicted(pod, evictions.new_evicting_taints(view.changes, is_revert=view.is_revert))


def unplanned_evictions(view: NodeView) -> str:
    """Explain, in a sentence, which pods a taint would evict from a node that is not drained; empty: none.

    The approvers saw that it evicts no pod there. A pod may have come since, or before a way back (law 2).
    """
    if view.worst.drains:
        return ""
    there = {(t["key"], t["value"]) for t in view.node.taints if t["effect"] == EVICTS}
    coming = [
        taint
        for taint in evictions.new_evicting_taints(view.changes, is_revert=view.is_revert)
        if (taint["key"], taint["value"]) not in there
    ]
    if not coming:
        return ""
    hit = [pod for pod in view.fleet.pods_on(view.step.node_name) if evictions.is_evicted(pod, coming)]
    if not hit:
        return ""
    first = f"{objects.meta(hit[0]).get('namespace')}/{objects.meta(hit[0]).get('name')}"
    more = f" and {len(hit) - 1} more" if len(hit) > 1 else ""
    taint = f"{coming[0]['key']}:{EVICTS}"
    return (
        f"The taint {taint} would evict {first}{more} from {view.step.node_name}, which the plan did not count. "
        "Retry once they are gone, give them a toleration, or plan again."
    )
