"""The one clock. Tests move it with freezegun, so nothing else may read the time for decisions."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone


def now() -> datetime:
    """Aware, UTC."""
    return timezone.now()
