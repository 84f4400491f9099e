"""Rules for values that may be written to a node, the same for every write: a profile's setting, an original that goes
back, a repair, a file that outlives a boot.

The control plane asks when a profile is published, the agent once more on the node, with what that node has.
"""

from __future__ import annotations

from dataclasses import dataclass

from contract import fitness, keys
from contract.fitness import MachineSize
from contract.keys import BadKey, BadValue
from contract.nodetuning import Operator


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """Capacity of a node; 0 where unknown."""

    memory_kib: int = 0


UNKNOWN = NodeCapacity()


def refusal(key: str, value: str, facts: NodeCapacity = UNKNOWN) -> str | None:
    """Return why this value of this key may not be written to such a node, as half a sentence; None if it may."""
    try:
        if keys.normalize(key) != key:
            return f"must be written as {keys.normalize(key)}"
        keys.check_value(key, value)
    except (BadKey, BadValue) as error:
        return str(error)
    return keys.denied_reason(key, value) or _beyond(key, value, facts)


def _beyond(key: str, value: str, facts: NodeCapacity) -> str | None:
    """Return why it would take more than such a node has; None if it would not. `fitness` judges least values."""
    return fitness.unfit(key, Operator.AT_LEAST, value, MachineSize(memory=facts.memory_kib * 1024)) or None
