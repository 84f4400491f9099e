from __future__ import annotations

import pytest

from accounts.models import RoleBinding, User
from accounts.people import services
from audit.models import Record
from common.errors import Invalid, NotAllowed, WrongState
from tests.factories import PASSWORD, TokenClient, UserFactory

pytestmark = pytest.mark.django_db


def test_people_are_added_with_a_record_that_does_not_hold_the_link() -> None:
    client = TokenClient(UserFactory(roles=["admin"]))
    answer = client.post("/api/v1/users", {"email": "New@Example.com"})
    assert answer.status_code == 201
    assert not User.objects.get(email="new@example.com").has_usable_password()
    record = Record.objects.get(action="user.create")
    secret = answer.json()["link"]["link"].rstrip("/").rpartition("/")[2]
    assert secret not in str(Record.objects.values())
    assert record.actor.endswith(f"(token test, sp_{client.token.pk})")


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({}, "email"),
        ({"email": "no"}, "email"),
        ({"email": "taken@example.com"}, "email"),
        ({"email": "x@example.com", "password": "short"}, "password"),
        ({"email": "x@example.com", "password": PASSWORD}, "password"),
        ({"email": "m@example.com", "is_service": True, "password": PASSWORD}, "password"),
        ({"email": "x" * 200 + "@example.com"}, "email"),
    ],
)
def test_bad_wishes_name_the_field_and_store_nothing(wish: dict[str, object], field: str) -> None:
    client = TokenClient(UserFactory(roles=["admin"]))
    UserFactory(email="taken@example.com")
    before = User.objects.count()
    answer = client.post("/api/v1/users", wish)
    assert answer.status_code == 422
    assert field in [error["field"] for error in answer.json()["errors"]]
    assert User.objects.count() == before


@pytest.mark.parametrize("role", ["viewer", "operator", "approver"])
def test_only_administrators_change_people_and_roles(role: str) -> None:
    client = TokenClient(UserFactory(roles=[role, "admin@env:staging"]))
    assert client.get("/api/v1/users").status_code == 403
    assert client.post("/api/v1/users", {"email": "a@example.com"}).status_code == 403
    wish = {"user": UserFactory().email, "role": "admin", "scope": "*"}
    assert client.post("/api/v1/role-bindings", wish).status_code == 403


def test_an_administrator_of_a_scope_gives_roles_there_only() -> None:
    admin, user = UserFactory(roles=["admin@env:staging"]), UserFactory()
    services.bind(user=user, role="operator", scope="env:staging", by=admin)
    for scope in ("*", "env:production"):
        with pytest.raises(NotAllowed):
            services.bind(user=user, role="operator", scope=scope, by=admin)


def test_a_role_given_twice_is_there_and_recorded_once() -> None:
    admin, user = UserFactory(roles=["admin"]), UserFactory()
    first, again = (services.bind(user=user, role="operator", scope="*", by=admin) for _ in range(2))
    assert first == again
    assert Record.objects.filter(action="role.grant").count() == 1


def test_a_machine_is_never_made_an_approver() -> None:
    with pytest.raises(Invalid):
        services.bind(user=UserFactory(is_service=True), role="approver", scope="*", by=UserFactory(is_superuser=True))


def test_the_last_administrator_stays() -> None:
    admin = UserFactory(roles=["admin"])
    with pytest.raises(WrongState):
        services.unbind(binding=admin.bindings.get(), by=admin)
    with pytest.raises(WrongState):
        services.change_user(user=admin, by=admin, is_active=False)
    assert RoleBinding.objects.filter(user=admin, role="admin").exists()
    assert User.objects.get(pk=admin.pk).is_active
    UserFactory(roles=["admin"])
    services.unbind(binding=admin.bindings.get(), by=admin)
    assert not admin.bindings.exists()


def test_deactivating_ends_sessions_and_tokens() -> None:
    admin, user = UserFactory(roles=["admin"]), UserFactory(roles=["viewer"])
    client = TokenClient(user)
    browser = type(client).__mro__[1]()
    browser.force_login(user)
    services.change_user(user=user, by=admin, is_active=False)
    assert client.get("/api/v1/me").status_code == 401
    assert browser.get("/api/v1/me").status_code == 401
    services.change_user(user=user, by=admin, is_active=True)
    assert client.get("/api/v1/me").status_code == 401


def test_one_sees_ones_own_roles_and_an_administrator_those_of_the_scope() -> None:
    viewer, other = UserFactory(roles=["viewer@env:staging"]), UserFactory(roles=["operator@env:production"])
    admin = UserFactory(roles=["admin@env:production"])

    def seen(user: User) -> set[str]:
        return {row["email"] for row in TokenClient(user).get("/api/v1/role-bindings").json()["results"]}

    assert seen(viewer) == {viewer.email}
    assert seen(admin) == {admin.email, other.email}
