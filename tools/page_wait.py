"""Waiting for something in a browser's page that has a content security policy."""

from __future__ import annotations

import time
from typing import Any


def until(page: Any, expression: str, seconds: float = 10) -> bool:
    """Evaluate a JavaScript expression, or a function without arguments, until it is true.

    Playwright's own `wait_for_function` evaluates its text inside the page once it is not true at first, which a policy
    without 'unsafe-eval' refuses: it works on a quiet machine and fails on a busy one. Return False after `seconds`.
    """
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
