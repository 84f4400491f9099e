from __future__ import annotations

import pytest

from jobs.approvals.tickets import rulebook
from tests.factories import UserFactory
from tests.jobs.approvals.tickets.ticket_system import TicketSystem


@pytest.fixture
def admin(db):
    return UserFactory(roles=["admin"])


@pytest.fixture
def tickets(admin):
    return TicketSystem(admin)


@pytest.fixture
def rule(admin):
    return rulebook.create(by=admin, environment="staging", pattern=r"CHG\d{7}", must_release=True)
