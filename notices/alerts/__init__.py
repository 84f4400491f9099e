"""Alerts as they are evaluated, opened, closed, acknowledged, silenced; their rules, digests and events."""
