"""The checks of an independent project (scim2-tester) against the endpoints: what any client of RFC 7644 sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.test.client import ClientHandler
from scim2_client.engines.wsgi import WSGISCIMClient
from scim2_models import ComplexAttribute
from scim2_tester import CheckResult, Status, check_server

from accounts.models import ScimGroup, ScimUser
from tests.accounts.scim.conftest import Directory
from tests.factories import UserFactory

WRONG = {Status.ERROR, Status.CRITICAL, Status.DEVIATION}
OURS = {"display", "type", "primary", "formatted"}
"""Parts of `emails`, `members` and `name` that the service writes: the checker expects back what it sent of them."""


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Serve in the test's own transaction, as Django's test client does."""
    response: Any = ClientHandler()(environ)
    start_response(f"{response.status_code} {response.reason_phrase}", list(response.items()))
    return [response.content]


def is_of_ours_alone(result: CheckResult) -> bool:
    data = result.data if isinstance(result.data, dict) else {}
    sent, kept = data.get("expected"), data.get("modify_actual")
    return data.get("urn") in ("emails", "members", "name") and bool(sent) and without_ours(sent) == without_ours(kept)


def without_ours(value: list[ComplexAttribute] | ComplexAttribute) -> list[dict[str, Any]]:
    parts = value if isinstance(value, list) else [value]
    return [{name: value for name, value in part.model_dump().items() if name not in OURS} for part in parts]


def test_an_independent_checker_of_scim_finds_nothing_wrong(corp: Directory) -> None:
    admin = UserFactory(roles=["admin"])
    headers = {"Authorization": f"Bearer {corp.text}"}
    results = check_server(WSGISCIMClient(application, base_url="http://testserver/scim/v2", headers=headers))
    wrong = [f"{row.resource_type} {row.title}: {row.reason}" for row in results
             if row.status in WRONG and not is_of_ours_alone(row)]  # fmt: skip
    assert wrong == []
    carried_out = {row.title for row in results if row.status == Status.SUCCESS}
    assert {"object_creation", "object_query", "object_replacement", "object_deletion", "check_remove_attribute"} <= (
        carried_out
    )
    assert not ScimUser.objects.filter(deleted_at=None).exists()
    assert not ScimGroup.objects.exists()
    admin.refresh_from_db()
    assert admin.is_active
