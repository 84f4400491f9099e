"""Log-ins by single sign-on: the account that each leads to, its roles, and the end of both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from accounts.access import tokens
from accounts.models import ApiToken, Identity, LiveSession, PendingChange, RoleBinding, User
from accounts.people import pending, services
from accounts.people.pending import Proposed
from audit.models import Record
from common.errors import WrongState
from tests.accounts.signon.conftest import LogIn
from tests.accounts.signon.issuer import Issuer
from tests.factories import PASSWORD, UserFactory

pytestmark = pytest.mark.django_db


def roles(email: str = "ada@example.com") -> set[tuple[str, str]]:
    return set(User.objects.get(email=email).grants)


def is_in(client: Client) -> bool:
    return client.get("/api/v1/me").status_code == 200


def test_a_new_person_gets_an_account_with_the_roles_of_their_groups(log_in: LogIn) -> None:
    client = Client()
    answer = log_in(client)

    assert (answer.status_code, answer["Location"]) == (302, "/")
    me = client.get("/api/v1/me").json()
    assert me["email"] == "ada@example.com"
    assert roles() == {("operator", "env:staging")}
    user = User.objects.get()
    assert not user.has_usable_password()
    assert LiveSession.objects.get().user == user
    assert user.is_genuine
    assert user.identity.is_genuine
    made = dict(Record.objects.values_list("action", "actor"))
    assert made["session.start"] == "ada@example.com"
    assert {made[name] for name in ("user.create", "user.link-identity", "role.grant")} == {"single sign-on (corp)"}
    assert "Example Corp" in Record.objects.get(action="session.start").message


def test_each_log_in_takes_and_gives_roles_and_keeps_the_time_of_what_stays(log_in: LogIn) -> None:
    log_in(groups=["ops", "admins"])
    since = RoleBinding.objects.get(role="operator").created_at
    assert log_in(groups=["approvers", "ops"]).status_code == 302

    assert roles() == {("operator", "env:staging"), ("approver", "*")}
    assert RoleBinding.objects.get(role="operator").created_at == since
    revoked = Record.objects.get(action="role.revoke")
    assert revoked.before == {"role": "admin", "scope": "*"}
    assert User.objects.count() == 1


@pytest.mark.parametrize(
    "groups",
    [[], ["unmapped"], None, "ops", {"ops": True}, ["ops", 7], ["ops"] * 20_001, ["o" * 1001, "ops"], 0],
    ids=["none", "unmapped", "missing", "text", "mapping", "mixed", "endless", "long", "number"],
)
def test_a_person_without_a_group_is_out_with_their_sessions_and_tokens(log_in: LogIn, groups: Any) -> None:
    before = Client()
    log_in(before)
    ada = User.objects.get()
    token, _ = tokens.issue(user=ada, name="mine", scopes=["read"], days=300, by=ada)
    assert is_in(before)

    client = Client()
    refused = log_in(client, groups=groups)

    assert refused.status_code == 403
    assert refused.context["refusal"]["advice"]
    assert not is_in(client)
    assert not is_in(before)
    token.refresh_from_db()
    assert not token.is_live
    assert roles() == set()
    assert Record.objects.filter(action="user.shut-out", target=f"user:{ada.pk}").exists()
    assert log_in(groups=["ops"]).status_code == 302
    assert roles() == {("operator", "env:staging")}


def test_a_stranger_without_a_mapped_group_leaves_no_account(log_in: LogIn) -> None:
    assert log_in(groups=["x"]).status_code == 403
    assert not User.objects.exists()
    assert Record.objects.get(action="session.refuse").target_name == "ada-1"


def test_thousands_of_groups_are_read(log_in: LogIn) -> None:
    assert log_in(groups=[f"team-{number}" for number in range(5000)] + ["ops"]).status_code == 302
    assert roles() == {("operator", "env:staging")}


def test_a_link_in_place_of_groups_says_what_to_change(log_in: LogIn) -> None:
    refused = log_in(groups=None, _claim_names={"groups": "src1"})
    assert refused.status_code == 403
    assert "too many" in refused.context["refusal"]["advice"]


# ── An address proves nothing ─────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("verified", [True, False, None, "true", 1])
@pytest.mark.parametrize("email", ["root@example.com", "ROOT@example.com "])
def test_an_address_like_an_administrators_takes_nothing_over(log_in: LogIn, verified: Any, email: str) -> None:
    admin = UserFactory(email="root@example.com", roles=["admin"])
    client = Client()

    refused = log_in(client, sub="mallory", email=email, email_verified=verified, groups=["ops", "admins"])

    assert refused.status_code == 403
    assert not is_in(client)
    assert list(User.objects.all()) == [admin]
    assert not Identity.objects.exists()
    assert Client().post("/login/", {"email": admin.email, "password": PASSWORD}).status_code == 302


@pytest.mark.parametrize(
    "claims",
    [{"email_verified": False}, {"email_verified": "true"}, {"email_verified": None}, {"email": None}, {"email": 7},
     {"email": "nobody"}, {"email": "a@" + "b" * 250}],
)  # fmt: skip
def test_an_address_that_may_be_invented_names_no_account(log_in: LogIn, claims: dict[str, Any]) -> None:
    assert log_in(**claims).status_code == 403
    assert not User.objects.exists()


def test_a_directory_that_assigns_addresses_needs_no_verification(log_in: LogIn, settings: Any) -> None:
    given = settings.SETPOINT_OIDC[0]
    settings.SETPOINT_OIDC = (replace(given, trusts_email=True),)
    UserFactory(email="root@example.com", roles=["admin"])
    assert log_in(email_verified=None).status_code == 302
    assert log_in(sub="other", email="root@example.com", email_verified=None).status_code == 403, "not even then"


def test_the_subject_is_who_it_is_and_the_address_follows(log_in: LogIn) -> None:
    log_in()
    UserFactory(email="taken@example.com")
    assert log_in(email="ada.byron@example.com").status_code == 302
    assert roles("ada.byron@example.com")
    assert log_in(email="taken@example.com").status_code == 302
    assert User.objects.filter(email="ada.byron@example.com").exists(), "another account's address is not taken"
    assert log_in(email="unverified@example.com", email_verified=False).status_code == 302
    assert User.objects.filter(email="ada.byron@example.com", username="ada.byron@example.com").exists()
    assert User.objects.get(email="ada.byron@example.com").is_genuine

    assert log_in(sub="another-ada", email="ada@example.com", email_verified=True).status_code == 302
    assert User.objects.count() == 3, "the address is free again, and the account is another one"


def test_a_subject_of_another_issuer_is_another_person(log_in: LogIn, issuer: Issuer, settings: Any) -> None:
    log_in()
    Identity.objects.get().put_marked(issuer="https://id.example.com")
    assert log_in().status_code == 403, "its address is taken"
    assert Identity.objects.get().issuer == "https://id.example.com"


# ── Rows of power ─────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("column", ["user_id", "subject", "issuer"])
def test_an_identity_changed_in_the_table_lets_nobody_in(log_in: LogIn, issuer: Issuer, column: str) -> None:
    log_in()
    root = UserFactory(email="root@example.com", roles=["admin"])
    values = {"user_id": root.pk, "subject": "mallory", "issuer": issuer.url}
    if column == "issuer":
        Identity.objects.update(issuer="https://elsewhere.example.com", mac="")
    Identity.objects.update(**{column: values[column]})
    client = Client()
    refused = log_in(client, sub=Identity.objects.get().subject)
    assert refused.status_code == 403
    assert not is_in(client)
    with pytest.raises(CommandError):
        call_command("mark_rows")


def test_a_deactivated_person_stays_out(log_in: LogIn) -> None:
    log_in()
    admin = UserFactory(roles=["admin"])
    services.change_user(user=User.objects.get(email="ada@example.com"), by=admin, is_active=False)
    assert log_in().status_code == 403


def test_an_administrator_gives_neither_role_nor_password_to_an_account_of_single_sign_on(log_in: LogIn) -> None:
    log_in()
    ada, admin, second = User.objects.get(), UserFactory(roles=["admin"]), UserFactory(roles=["admin"])
    for act in (
        lambda: services.bind(user=ada, role="viewer", scope="*", by=admin),
        lambda: services.bind(user=ada, role="approver", scope="*", by=admin),
        lambda: services.reset_password(user=ada, by=admin),
        lambda: services.set_password(user=ada, password="a new long password", by=ada),
        lambda: services.set_password(user=ada, password="a new long password", by="command line"),
    ):
        with pytest.raises(WrongState):
            act()
    assert not PendingChange.objects.exists()

    client = Client()
    client.force_login(second)
    page = client.get("/people/").content.decode()
    assert f"/people/{ada.pk}/reset-password/" not in page
    assert f"/people/{admin.pk}/reset-password/" in page


def test_a_role_proposed_before_an_account_was_linked_is_not_consented_to(settings: Any, issuer: Issuer) -> None:
    admin, second, bob = (
        UserFactory(roles=["admin"]),
        UserFactory(roles=["admin"]),
        UserFactory(email="bob@example.com"),
    )
    proposed = services.bind(user=bob, role="approver", scope="*", by=admin)
    assert isinstance(proposed, Proposed)
    call_command("link_identity", email=bob.email, provider="corp", subject="bob-1")
    with pytest.raises(WrongState):
        pending.consent(pk=proposed.change.pk, by=second)
    assert not RoleBinding.objects.filter(user=bob).exists()


# ── Local accounts ────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_linked_account_leaves_password_and_tokens_and_gets_its_groups_roles(log_in: LogIn) -> None:
    bob = UserFactory(email="bob@example.com", roles=["viewer", "operator@env:production"])
    tokens.issue(user=bob, name="old", scopes=["read"], days=3, by=bob)
    browser = Client()
    assert browser.login(username=bob.email, password=PASSWORD)
    call_command("link_identity", email="Bob@example.com", provider="corp", subject="bob-1")

    assert not ApiToken.objects.live().exists()
    assert not is_in(browser)
    assert Client().post("/login/", {"email": bob.email, "password": PASSWORD}).status_code == 401
    assert log_in(sub="bob-1", email="b@example.com").status_code == 302
    bob.refresh_from_db()
    assert (bob.email, roles(bob.email)) == ("b@example.com", {("operator", "env:staging")})


@pytest.mark.parametrize(
    ("make", "subject"),
    [({"is_service": True}, "s"), ({"is_superuser": True}, "s"), ({"email": "emergency@example.com"}, "s"), ({}, ""),
     ({}, "ada-1"), ({}, "x" * 256), ({}, "a\nb")],
)  # fmt: skip
def test_what_cannot_be_linked_is_refused_and_left_as_it_is(
    log_in: LogIn, settings: Any, make: dict[str, Any], subject: str
) -> None:
    log_in()
    settings.SETPOINT_LOCAL_ACCOUNTS = frozenset({"emergency@example.com"})
    user = UserFactory(**make)
    with pytest.raises(CommandError):
        call_command("link_identity", email=user.email, provider="corp", subject=subject)
    with pytest.raises(CommandError):
        call_command("link_identity", email=user.email, provider="other", subject="s")
    user.refresh_from_db()
    assert user.has_usable_password()
    assert Identity.objects.count() == 1


def test_passwords_can_be_for_an_emergency_account_alone(issuer: Issuer, settings: Any) -> None:
    settings.SETPOINT_LOCAL_ACCOUNTS = frozenset({"emergency@example.com"})
    emergency, other = UserFactory(email="emergency@example.com"), UserFactory()

    def log_in(email: str) -> Any:
        return Client().post("/login/", {"email": email, "password": PASSWORD})

    known, unknown = log_in(other.email), log_in("nobody@example.com")
    assert known.status_code == unknown.status_code == 403
    assert known.context["error"] == unknown.context["error"]
    assert log_in(emergency.email.upper()).status_code == 302
