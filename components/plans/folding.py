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
    for compared_object in compared:
        result = _with_old_labels(compared_object)
        if result is None:
            out.append(compared_object)
            continue
        touched += 1
        others += (is_same := cleaned(compared_object.live) == cleaned(result))
        if not is_same:
            out.append(dataclasses.replace(compared_object, result=result))
    if not touched:
        return out, []
    title = f"The labels of chart and version change on {touched} object{'' if touched == 1 else 's'}"
    detail = f"Left out of the differences below; {others} of them change in nothing else."
    return out, [PlanNote(INFO, "version-labels", title, detail)]


def _with_old_labels(compared: Compared) -> Mapping[str, Any] | None:
    """None: these labels do not change."""
    if compared.change != "changed" or compared.live is None or compared.result is None:
        return None
    before, after = (((raw.get("metadata") or {}).get("labels") or {}) for raw in (compared.live, compared.result))
    moved = {name: before[name] for name in LABELS if name in before and name in after and before[name] != after[name]}
    if not moved:
        return None
    copy: dict[str, Any] = json.loads(json.dumps(compared.result))
    copy["metadata"]["labels"] |= moved
    return copy
