from __future__ import annotations

from typing import Any

import pytest

from accounts.models import User
from tests.accounts.passkeys.security_key import SITE
from tests.factories import UserFactory


@pytest.fixture(autouse=True)
def _site(settings: Any) -> None:
    settings.BASE_URL = SITE


@pytest.fixture
def user() -> User:
    return UserFactory(roles=["viewer"])
