"""Sentences about alerts, for pages."""

from __future__ import annotations

from notices.models import Alert


def acknowledging(alert: Alert, *, may_act: bool) -> str:
    """Return the consequence of acknowledging an alert, or the reason against it."""
    if alert.acknowledged_at:
        return f"Not possible: {alert.acknowledged_by} has acknowledged it."
    if not may_act:
        return "Not possible: you need the role operator here."
    return "Marks it as being handled: it no longer counts as unacknowledged."
