from __future__ import annotations

import pytest

from accounts.models import RoleBinding, User


def person(email: str, *roles: str) -> User:
    user = User.objects.create_user(email, email, "correct horse battery")
    for role in roles:
        RoleBinding.objects.create(user=user, role=role, scope="*")
    return user


@pytest.fixture
def olga(db):
    return person("olga@example.com", "operator")


@pytest.fixture
def omar(db):
    return person("omar@example.com", "operator")


@pytest.fixture
def vera(db):
    return person("vera@example.com", "viewer")
