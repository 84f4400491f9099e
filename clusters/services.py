"""What people do to clusters. Every call to the network is made outside transactions."""

from __future__ import annotations

from clusters.pools import create_pool, delete_pool, matching, preview, update_pool

__all__ = ["create_pool", "delete_pool", "matching", "preview", "update_pool"]
