"""Noise of an upgrade: labels of the chart and its version, which change on every object and mean nothing.

Only an object's own labels are folded. Those of a pod template stay in sight: they restart pods.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from components.plans.diff import Compared, cleaned
from components.plans.prepared import INFO, PlanNote

LABELS = ("helm.sh/chart", "chart", "app.kubernetes.io/version")


def folded(compared: Sequence[Compared]) -> tuple[list[Compared], list[PlanNote]]:
    """The comparison with these labels as they are, and what was left out of it."""
    out, touched, others = [], 0, 0
    for one in compared:
        result = _with_old_labels(one)
        if result is None:
            out.append(one)
            continue
        touched += 1
        others += (is_same := cleaned(one.live) == cleaned(result))
        if not is_same:
            out.append(dataclasses.replace(one, result=result))
    if not touched:
        return out, []
    title = f"The labels of chart and version change on {touched} object{'' if touched == 1 else 's'}"
    detail = f"Left out of the differences below; {others} of them change in nothing else."
    return out, [PlanNote(INFO, "version-labels", title, detail)]


def _with_old_labels(one: Compared) -> Mapping[str, Any] | None:
    """None: these labels do not change."""
    if one.change != "changed" or one.live is None or one.result is None:
        return None
    before, after = (((raw.get("metadata") or {}).get("labels") or {}) for raw in (one.live, one.result))
    moved = {name: before[name] for name in LABELS if name in before and name in after and before[name] != after[name]}
    if not moved:
        return None
    copy: dict[str, Any] = json.loads(json.dumps(one.result))
    copy["metadata"]["labels"] |= moved
    return copy
