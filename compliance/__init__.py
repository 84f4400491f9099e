"""Compliance: expected state of each node and component, its actual state, and since when they differ."""
