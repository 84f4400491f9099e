"""Memory that huge pages would keep after a step: the pages that it asks for, with those that are there."""

from __future__ import annotations

from agent.gate import key_of
from agent.node import Node
from contract import fitness
from contract.nodetuning import Operator, Spec

POOLS = ("hugepages-2Mi", "hugepages-1Gi")


def too_much(node: Node, spec: Spec, key: str) -> str:
    """Return why huge pages leave the node unusable after this step, which writes `key`; empty if they do not."""
    if not key.startswith("hugepages-") and key not in fitness.AT_BOOT:
        return ""
    desired = {w.key: (str(w.operator), w.value) for w in spec.settings}
    desired |= {r.key: (str(Operator.EQUALS), r.original) for r in spec.restore if r.original is not None}
    return fitness.after(desired, _standing(node), node.machine())


def _standing(node: Node) -> dict[str, str]:
    present: dict[str, str] = {}
    for size in POOLS:
        places = node.places(size)
        present |= {key: count for path, count in places.items() if (key := key_of(path))}
        present[size] = str(sum(map(int, places.values())))
    entries = node.journal.content.entries
    for name in fitness.AT_BOOT:
        entry = entries.get(name)  # written and not booted yet
        value = entry.written if entry and entry.written is not None else node.answer(name)
        if value is not None:
            present[name] = value
    return present
