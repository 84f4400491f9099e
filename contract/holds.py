"""The longest time that a new node holds pods off: the value of its taint `setpoint.dev/untuned`, such as `30m`.

Setpoint writes there what its pool decides, and a kubelet may register with a value of its own. The node's agent goes
by it where Setpoint does not come back in time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contract.names import UNTUNED_TAINT

EFFECT = "NoSchedule"
MOST_MINUTES = 1440
"""A day: a node that is not tuned by then needs attention, not more time."""


def is_hold(taint: Mapping[str, Any]) -> bool:
    return (taint.get("key"), taint.get("effect")) == (UNTUNED_TAINT, EFFECT)


def value_of(minutes: int) -> str:
    return f"{minutes}m"


def minutes_of(value: object) -> int | None:
    """Return the minutes; None where the value sets no limit, or none that Setpoint would write."""
    number = value.removesuffix("m") if isinstance(value, str) else ""
    if not (number.isascii() and number.isdigit() and len(number) <= 4 and value == f"{number}m"):
        return None
    return int(number) if 0 < int(number) <= MOST_MINUTES else None
