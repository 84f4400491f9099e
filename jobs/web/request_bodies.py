"""Bodies of REST requests, as their serializers read them."""

from __future__ import annotations

from typing import Any

from common.requests import UserApiRequest


def read_body(serializer: type[Any], request: UserApiRequest) -> dict[str, Any]:
    form = serializer(data=request.data)
    form.is_valid(raise_exception=True)
    return dict(form.validated_data)
