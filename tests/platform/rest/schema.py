"""The schema of the API as the code has it now: made once for each process, because that takes a second."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

from drf_spectacular.generators import SchemaGenerator


@cache
def _made() -> dict[str, Any]:
    generated: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return generated


def schema() -> dict[str, Any]:
    """A copy of its own for each caller."""
    return deepcopy(_made())
