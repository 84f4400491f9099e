"""Calls of the REST API of plans and rollouts, for tests."""

from __future__ import annotations

from typing import Any

from accounts.models import User
from tests.factories import TokenClient
from tests.jobs.conftest import World

API = "/api/v1"


def api(user: User, *scopes: str) -> TokenClient:
    return TokenClient(User.objects.get(pk=user.pk), list(scopes) or None)


def plan_at(client: TokenClient, world: World, **body: Any) -> Any:
    return client.post(f"{API}/plans", {"pool": world.pool.pk, "revision": world.revision().digest} | body)


def act(client: TokenClient, where: str, verb: str, **body: Any) -> Any:
    return client.post(f"{where}/actions/{verb}", body)


def problem(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == status
    assert document["detail"]
    return document


def fields_of(answer: Any, status: int = 422) -> set[str]:
    return {error["field"] for error in problem(answer, status)["errors"]}
