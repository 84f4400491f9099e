"""Response to OPTIONS."""

from __future__ import annotations

from typing import Any

from rest_framework.metadata import BaseMetadata
from rest_framework.request import Request


class Methods(BaseMetadata):
    """The methods of this address, as in the header Allow. What a body holds is in the OpenAPI document."""

    def determine_metadata(self, request: Request, view: Any) -> dict[str, list[str]]:
        return {"methods": list(view.allowed_methods)}
