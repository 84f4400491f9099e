"""Attributes of the node's network cards that may be set, by class of interface and never by name.

A card is in exactly one class, so that no two settings are of one place: `default-route` where the node's default route
leaves through it, also beneath a bond, a VLAN or a bridge; else `rdma` where it has an RDMA device; else `other`, such
as the cards of a storage network.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

DEFAULT_ROUTE, RDMA, OTHER = "default-route", "rdma", "other"
CLASSES = (DEFAULT_ROUTE, RDMA, OTHER)

SWITCHES = frozenset({"gro", "gso", "tso"})
"""Offloads: 0 or 1. Without LRO: a node forwards its pods' packets, and what LRO merged cannot be forwarded, so the
kernel turns it off where forwarding is on (dev_disable_lro in net/core/dev.c)."""
LEAST: Mapping[str, int] = {"combined_channels": 1, "mtu": 1280, "rx_ring": 64, "tx_ring": 64}
"""Attributes that are numbers, with the least that a node works with. The MTU: IPv6 needs 1280 (RFC 8200), and the
kernel takes its addresses away below. A ring: a judgment, half of the smallest that drivers come with."""
MOST = 65536
"""Of any card. Each driver has its own maximum, which the agent reads and names."""
ATTRIBUTES = frozenset(SWITCHES | LEAST.keys())

DRAINED = frozenset({"combined_channels", "gro", "mtu", "rx_ring", "tx_ring"})
"""Attributes for which some driver stops and starts its queues, so that the link is gone for a moment."""

KEYS = frozenset(f"nic.{of}.{attribute}" for of in CLASSES for attribute in ATTRIBUTES)
_WHOLE = re.compile(r"0|[1-9][0-9]{0,4}")


def attribute_of(key: str) -> str:
    return key.rpartition(".")[2]


def bad_value(key: str, value: str) -> str:
    """Return why no card takes this value, as half a sentence; empty when some may."""
    if attribute_of(key) in SWITCHES:
        return "" if value in ("0", "1") else "must be 0 (off) or 1 (on)"
    return "" if _WHOLE.fullmatch(value) and int(value) <= MOST else f"must be a whole number of at most {MOST}"
