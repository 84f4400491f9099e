"""Disks that a plan formats, node by node, as its page shows them."""

from __future__ import annotations

from typing import Any

from clusters.models import NodeTuning
from contract import disks
from jobs.models import Plan
from jobs.planning import consents

SHOWN = 500
"""Disks on a page; the API has the change of every node."""


def disks_of_plan(plan: Plan) -> dict[str, Any]:
    """Return the page's part; nothing, and no query, where the plan formats none.

    Serial numbers are those that the digest covers. Model and size are what the agent reports of them now.
    """
    if not plan.summary.get("formatted_disks"):
        return {}
    serials = consents.disks_to_format(plan)
    tunings = NodeTuning.objects.filter(node__cluster=plan.cluster_id, node__name__in=list(serials)[:SHOWN])
    known = {
        name: {disk.serial: disk for disk in disks.of_node(observed or {})}
        for name, observed in tunings.values_list("node__name", "observed")
    }
    rows = [
        {"node": name, "serial": serial, "disk": known.get(name, {}).get(serial)}
        for name, of_node in serials.items()
        for serial in of_node
    ]
    return {"formats": rows[:SHOWN], "formats_left_out": len(rows[SHOWN:])}
