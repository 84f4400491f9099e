from __future__ import annotations

import pytest
from django.test import Client

from accounts.models import ApiToken, RoleBinding, User
from tests.factories import PASSWORD, UserFactory

pytestmark = pytest.mark.django_db


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_a_token_made_on_the_page_is_shown_once_and_works() -> None:
    client = browser(UserFactory(roles=["viewer"]))
    answer = client.post("/account/tokens/", {"name": "ci", "scopes": ["read"], "days": 7})
    text = answer.context["new_token"]["text"]
    assert text in answer.content.decode()
    assert text not in client.get("/account/").content.decode()
    assert Client().get("/api/v1/me", headers={"Authorization": f"Bearer {text}"}).status_code == 200


def test_a_refused_wish_stands_beside_its_field_and_nothing_typed_is_lost() -> None:
    client = browser(UserFactory(roles=["approver"]))
    answer = client.post("/account/tokens/", {"name": "my phone", "scopes": ["approve"], "days": 90})
    assert answer.status_code == 422
    assert "at most" in str(answer.context["form"].fields["days"].help_text)
    assert answer.context["form"].errors["days"] == ["Its lifetime can be 1 to 30 days because it may approve, not 90."]
    assert "my phone" in answer.content.decode()
    assert not ApiToken.objects.exists()


def test_a_token_is_revoked_on_the_page_but_not_another_persons() -> None:
    owner = UserFactory()
    client = browser(owner)
    client.post("/account/tokens/", {"name": "ci", "scopes": ["read"], "days": 7})
    token = ApiToken.objects.get()
    assert browser(UserFactory()).post(f"/account/tokens/{token.pk}/revoke/").status_code == 404
    assert client.post(f"/account/tokens/{token.pk}/revoke/").status_code == 302
    token.refresh_from_db()
    assert token.revoked_at


def test_changing_the_password_keeps_this_session_and_ends_the_others() -> None:
    user = UserFactory()
    here, elsewhere = browser(user), browser(user)
    wrong = here.post("/account/password/", {"old": "no", "new": "another long password"})
    weak = here.post("/account/password/", {"old": PASSWORD, "new": "short"})
    assert (wrong.status_code, weak.status_code) == (422, 422)
    right = here.post("/account/password/", {"old": PASSWORD, "new": "another long password"})
    assert right.status_code == 302
    assert here.get("/account/").status_code == 200
    assert elsewhere.get("/account/").status_code == 302
    assert User.objects.get().check_password("another long password")


def test_a_stolen_session_guesses_no_password_and_locks_nobody_out(clock) -> None:
    user = UserFactory()
    here = browser(user)
    wish = {"new": "another long password"}
    answers = [here.post("/account/password/", {"old": "wrong", **wish}) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [422] * 5 + [429]
    assert answers[-1].context["password_form"].errors["old"]
    assert here.post("/account/password/", {"old": PASSWORD, **wish}).status_code == 429
    assert Client().post("/login/", {"email": user.email, "password": PASSWORD}).status_code == 302
    clock.forward(61)
    for weak in ("short", "password", "12345", "qwerty", "letmein", "secret"):
        assert here.post("/account/password/", {"old": PASSWORD, "new": weak}).status_code == 422, "no guess"
    assert here.post("/account/password/", {"old": PASSWORD, **wish}).status_code == 302


def test_the_theme_is_kept_and_one_returns_to_where_one_was() -> None:
    user = UserFactory()
    answer = browser(user).post("/account/theme/", {"theme": "dark", "next": "/audit/?page=2"})
    assert answer["Location"] == "/audit/?page=2"
    assert User.objects.get().theme == "dark"
    browser(user).post("/account/theme/", {"theme": "pink", "next": "https://evil.test/"})
    assert User.objects.get().theme == "dark"


def test_logging_out_ends_the_session_and_needs_a_post() -> None:
    client = browser(UserFactory())
    assert client.get("/logout/").status_code == 405
    assert client.post("/logout/")["Location"] == "/login/"
    assert client.get("/account/").status_code == 302


def test_only_administrators_of_everything_see_people() -> None:
    assert browser(UserFactory(roles=["operator", "admin@env:staging"])).get("/people/").status_code == 403
    assert browser(UserFactory(roles=["admin"])).get("/people/").status_code == 200


def test_an_administrator_adds_people_and_gives_and_takes_roles() -> None:
    client = browser(UserFactory(roles=["admin"]))
    assert "/link/" in client.post("/people/", {"email": "new@example.com"}).content.decode()
    new = User.objects.get(email="new@example.com")
    wish = {"user": new.pk, "role": "operator", "scope": "env:staging"}
    assert client.post("/people/roles/", wish).status_code == 302
    refused = client.post("/people/roles/", wish | {"scope": "env:moon"})
    assert refused.status_code == 422
    assert refused.context["binding_form"].errors["scope"]
    binding = RoleBinding.objects.get(user=new)
    assert client.post(f"/people/roles/{binding.pk}/revoke/").status_code == 302
    assert not RoleBinding.objects.filter(user=new).exists()
    client.post(f"/people/{new.pk}/", {"is_active": "0"})
    new.refresh_from_db()
    assert not new.is_active


def test_a_person_added_without_a_password_has_none_not_an_empty_one() -> None:
    browser(UserFactory(roles=["admin"])).post("/people/", {"email": "new@example.com", "password": ""})
    new = User.objects.get(email="new@example.com")
    assert not new.has_usable_password()
    assert not new.check_password("")


def test_taking_the_last_administrator_away_is_refused_on_a_clear_page() -> None:
    admin = UserFactory(roles=["admin"])
    answer = browser(admin).post(f"/people/roles/{admin.bindings.get().pk}/revoke/")
    assert answer.status_code == 409
    assert "last active administrator" in answer.content.decode()


@pytest.mark.parametrize("rows", [1, 60])
def test_the_people_page_costs_the_same_however_many(rows: int, django_assert_max_num_queries) -> None:
    client = browser(UserFactory(roles=["admin"]))
    for user in UserFactory.create_batch(rows):
        RoleBinding.objects.create(user=user, role="viewer")
    with django_assert_max_num_queries(19):
        client.get("/people/")


@pytest.mark.parametrize("rows", [1, 120])
def test_the_audit_page_costs_the_same_however_many(rows: int, django_assert_max_num_queries) -> None:
    from audit.services import record

    client = browser(UserFactory(roles=["viewer"]))
    for n in range(rows):
        record(by="x", action="test.made", target=f"test:{n}", before={"n": n}, after={"n": n + 1})
    with django_assert_max_num_queries(15):
        answer = client.get("/audit/")
    assert answer.status_code == 200
    assert len(answer.context["listing"].page.rows) == min(rows, 50)
