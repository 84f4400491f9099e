"""What of the node's memory huge pages would keep after a step: those that it asks for, with those that are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.gate import key_of
from agent.node import Node
from contract import fitness
from contract.nodetuning import Operator, Spec

POOLS = ("hugepages-2Mi", "hugepages-1Gi")
AT_BOOT = ("cmdline.hugepages", "cmdline.hugepagesz", "cmdline.default_hugepagesz")

Asked = Mapping[str, tuple[str, str]]
"""Operator and value by key."""


def too_much(node: Node, spec: Spec, key: str) -> str:
    """Why huge pages leave the node unusable after this step, which writes `key`; empty when they do not."""
    if key.startswith("hugepages-"):
        after, now = {}, {}
        for name, count, before in _pools(node, _asked(spec)):
            after[name], now[name] = count, before
        if all(count <= now[name] for name, count in after.items()):
            return ""  # others took too much, and this step takes no more
        return fitness.together([(name, Operator.EQUALS, str(count)) for name, count in after.items()], node.machine())
    if key in AT_BOOT:
        return fitness.together(list(_arguments(node, _asked(spec))), node.machine())
    return ""


def _asked(spec: Spec) -> Asked:
    wishes = {w.key: (str(w.operator), w.value) for w in spec.settings}
    return wishes | {r.key: (Operator.EQUALS, r.original) for r in spec.restore if r.original is not None}


def _pools(node: Node, asked: Asked) -> Iterator[tuple[str, int, int]]:
    """Key, pages after the step and pages now: of each size the whole node's where that is asked for, or the parts."""
    for size in POOLS:
        parts = {key_of(path) or size: int(count) for path, count in node.places(size).items()}
        if size in asked:
            total = sum(parts.values())
            yield size, _after(asked, size, total), total
        if size not in asked or asked.keys() & (parts.keys() - {size}):
            for part, count in parts.items():
                if part != size:
                    yield part, _after(asked, part, count), count
                elif size not in asked:
                    yield size, count, count


def _after(asked: Asked, key: str, now: int) -> int:
    operator, value = asked.get(key, (Operator.EQUALS, ""))
    if not (value.isascii() and value.isdecimal()):
        return now  # not asked for, or refused by itself
    match operator:
        case Operator.AT_LEAST:
            return max(now, int(value))
        case Operator.AT_MOST:
            return min(now, int(value))
        case _:
            return int(value)


def _arguments(node: Node, asked: Asked) -> Iterator[tuple[str, str, str]]:
    """The arguments of the next boot: asked for now, or written and not booted yet, or there."""
    entries = node.journal.content.entries
    for key in AT_BOOT:
        entry = entries.get(key)
        _, value = asked.get(key, ("", entry.written if entry and entry.written is not None else node.answer(key)))
        if value is not None:
            yield key, Operator.EQUALS, value
