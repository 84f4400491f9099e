"""Which passwords are accepted."""

from __future__ import annotations

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError

from accounts.models import User


def check_password(password: str, user: User) -> dict[str, list[str]]:
    """What is wrong with it, under `password`; empty when it will do."""
    if len(password) > 1024:
        return {"password": ["At most 1,024 characters."]}
    try:
        validate_password(password, user)
    except ValidationError as error:
        return {"password": list(error.messages)}
    return {}
