"""Taints that a pod tolerates and for how long, as Kubernetes' taint manager decides. Pure; standard library only.

As Kubernetes does it: ToleratesTaint in k8s.io/api/core/v1/toleration.go, and processPodOnNode, GetMatchingTolerations
and getMinTolerationTime around it in pkg/controller/tainteviction and pkg/apis/core/v1/helper; described on
https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

EVICTS = "NoExecute"
"""The effect of taints that take running pods off a node."""
KEEPS_AWAY = ("NoSchedule", EVICTS)
"""Effects with which no new pod comes that does not tolerate the taint."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")

Raw = Mapping[str, Any]


def suits(toleration: Raw, taint: Raw) -> bool:
    """Return whether a toleration tolerates a taint. An empty effect or key means all; no operator means Equal."""
    effect, key = toleration.get("effect"), toleration.get("key")
    if (effect and effect != taint.get("effect")) or (key and key != taint.get("key")):
        return False
    value, there = str(toleration.get("value") or ""), str(taint.get("value") or "")
    operator = toleration.get("operator") or "Equal"
    if operator in ("Lt", "Gt"):
        return _compares(operator, value, there)
    return operator == "Exists" or (operator == "Equal" and value == there)


def lasts(tolerations: Sequence[Raw], taints: Iterable[Raw]) -> int | None:
    """Seconds that a pod with these stays on a node that gets these taints: 0 where it goes at once; None: for good.

    Of each taint the first toleration that suits decides, and of all of them the shortest time.
    """
    shortest: int | None = None
    for taint in taints:
        if taint.get("effect") != EVICTS:
            continue
        used = next((toleration for toleration in tolerations if suits(toleration, taint)), None)
        if used is None:
            return 0
        seconds = used.get("tolerationSeconds")
        if isinstance(seconds, int):
            shortest = max(0, seconds) if shortest is None else min(shortest, max(0, seconds))
    return shortest


def of_pod(pod: Raw) -> list[Raw]:
    """Never raises: pods are strangers' input."""
    spec = pod.get("spec")
    raw = spec.get("tolerations") if isinstance(spec, Mapping) else None
    return [toleration for toleration in raw if isinstance(toleration, Mapping)] if isinstance(raw, list) else []


def _compares(operator: str, value: str, there: str) -> bool:
    """Lt: the taint's number is less than the toleration's (Kubernetes 1.35 and later)."""
    if not (_INTEGER.fullmatch(value) and _INTEGER.fullmatch(there)):
        return False
    return int(there) < int(value) if operator == "Lt" else int(there) > int(value)


MOST, LONGEST = 64, 317
"""Tolerations kept of one pod, and characters of one field: a taint's key has no more."""
_FOREIGN = "node.kubernetes.io/"
"""Taints of Kubernetes' own, which no profile sets; the API server has every pod tolerate two of them for a while."""


def brief(pod: Raw) -> list[dict[str, Any]]:
    """Return the tolerations that decide whether a NoExecute taint evicts the pod: of most pods none at all.

    What does not fit is left out, so that the pod counts as evicted rather than not.
    """
    out: list[dict[str, Any]] = []
    for toleration in of_pod(pod):
        texts = {name: toleration.get(name) or "" for name in ("key", "operator", "value", "effect")}
        if any(not isinstance(text, str) or len(text) > LONGEST for text in texts.values()):
            continue
        if texts.pop("effect") not in ("", EVICTS) or texts["key"].startswith(_FOREIGN):
            continue
        seconds = toleration.get("tolerationSeconds")
        kept: dict[str, Any] = {name: text for name, text in texts.items() if text}
        out.append(kept | ({"tolerationSeconds": seconds} if isinstance(seconds, int) else {}))
    return out[:MOST]
