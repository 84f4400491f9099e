"""Password rules."""

from __future__ import annotations

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError

from accounts.models import User


def check_password(password: str, user: User) -> dict[str, list[str]]:
    """Return the reasons to refuse this password, under `password`; empty when it is accepted."""
    if len(password) > 1024:
        return {"password": ["At most 1,024 characters."]}
    try:
        validate_password(password, user)
    except ValidationError as error:
        return {"password": list(error.messages)}
    return {}
