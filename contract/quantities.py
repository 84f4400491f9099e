"""Amounts as Kubernetes writes them: `8`, `500m`, `64Gi`, `1e3`. The one place that reads them."""

from __future__ import annotations

import re
from decimal import Context, Decimal
from typing import Any

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([eE][+-]?[0-9]{1,2})|([KMGTPE]i|[numkMGTPE]))?")
_UNITS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
"""Powers of two."""
MAX_LENGTH = 32
MOST = Decimal(2**63 - 1)
"""Kubernetes counts in 64 bits."""


_EXACT = Context(prec=64)
"""Digits enough for any text of MAX_LENGTH in any unit: the usual 28 would round."""


class BadQuantity(ValueError):
    pass


def read(raw: Any, *, whole: bool = False) -> Decimal:
    """The amount, which is never negative. Raises BadQuantity with what would be right."""
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise BadQuantity("must be an amount, such as 8, 500m or 64Gi")
    text = str(raw)
    match = _QUANTITY.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if not match:
        raise BadQuantity(f"{text[:40]!a} is not an amount, such as 8, 500m or 64Gi")
    number, exponent, unit = match.groups()
    amount = Decimal(number + (exponent or ""))
    if unit:
        factor = Decimal(2 ** BINARY[unit]) if unit in BINARY else Decimal(1).scaleb(_UNITS[unit])
        amount = _EXACT.multiply(amount, factor)
    if amount < 0:
        raise BadQuantity(f"{text} is negative")
    if amount > MOST:
        raise BadQuantity(f"{text} is more than Kubernetes can count")
    if whole and amount != amount.to_integral_value():
        raise BadQuantity(f"{text} is not a whole number, and this is counted in whole ones")
    return amount


def count(raw: Any) -> int:
    """Return the amount in whole units, rounded down; 0 for none: objects that others wrote cannot be refused."""
    try:
        return int(read(raw))
    except BadQuantity:
        return 0
