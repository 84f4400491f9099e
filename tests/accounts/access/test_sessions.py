from __future__ import annotations

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from accounts.access import sessions
from accounts.browsers import described
from accounts.models import LiveSession, User
from audit.models import Record
from tests.conftest import Clock
from tests.factories import PASSWORD, TokenClient, UserFactory

pytestmark = pytest.mark.django_db
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
CHROME = "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Safari/537.36"


def logged_in(user: User, agent: str = FIREFOX, address: str = "192.0.2.7") -> Client:
    client = Client(HTTP_USER_AGENT=agent, REMOTE_ADDR=address)
    assert client.post("/login/", {"email": user.email, "password": PASSWORD}).status_code == 302
    return client


def is_in(client: Client) -> bool:
    return client.get("/account/").status_code == 200


def test_the_account_page_lists_ones_own_sessions_with_device_address_and_time() -> None:
    user = UserFactory()
    here, _ = logged_in(user), logged_in(user, CHROME, "198.51.100.1")
    logged_in(UserFactory(), address="203.0.113.9")
    text = here.get("/account/").content.decode()
    for shown in ("Firefox on Linux", "Chrome on Windows", "192.0.2.7", "198.51.100.1", "this browser"):
        assert shown in text
    assert "203.0.113.9" not in text


def test_one_session_is_ended_and_that_browser_is_out_at_once() -> None:
    user = UserFactory()
    here, there = logged_in(user), logged_in(user, CHROME)
    row = LiveSession.objects.get(browser=CHROME)
    assert here.post(f"/account/sessions/{row.pk}/end/").status_code == 302
    assert (is_in(here), is_in(there)) == (True, False)
    assert not LiveSession.objects.filter(pk=row.pk).exists()
    assert Record.objects.get(action="session.revoke").actor == user.email


def test_what_the_tables_hold_opens_no_session() -> None:
    """A copy of the database, or of one row, is no log-in."""
    here = logged_in(UserFactory())
    held = {*Session.objects.values_list("pk", flat=True), *LiveSession.objects.values_list("key", flat=True)}
    assert held
    assert here.cookies["sessionid"].value not in held
    for key in held:
        thief = Client()
        thief.cookies["sessionid"] = key
        assert not is_in(thief)
    assert is_in(here)


def test_all_others_are_ended_and_this_one_goes_on() -> None:
    user = UserFactory()
    here, there, elsewhere = (logged_in(user) for _ in range(3))
    here.post("/account/sessions/end-others/")
    assert [is_in(client) for client in (here, there, elsewhere)] == [True, False, False]
    assert Record.objects.get(action="session.revoke").after == {"sessions": 2}


def test_another_persons_session_is_not_there_but_an_administrator_ends_it() -> None:
    user, admin = UserFactory(), UserFactory(roles=["admin"])
    theirs = logged_in(user)
    row = LiveSession.objects.get()
    assert logged_in(UserFactory(roles=["operator"])).post(f"/account/sessions/{row.pk}/end/").status_code == 404
    assert is_in(theirs)
    page = logged_in(admin)
    assert page.post(f"/people/{user.pk}/sessions/end/").status_code == 302
    assert not is_in(theirs)
    assert page.post(f"/people/{admin.pk}/sessions/end/").status_code == 302
    assert is_in(page)
    assert logged_in(user).post(f"/people/{admin.pk}/sessions/end/").status_code == 403


def test_deactivating_and_resetting_a_password_end_sessions() -> None:
    admin, user = UserFactory(roles=["admin"]), UserFactory()
    api = TokenClient(admin)
    client = logged_in(user)
    api.post(f"/api/v1/users/{user.pk}/actions/reset-password")
    assert not is_in(client)
    user.set_password(PASSWORD)
    user.save()
    client = logged_in(user)
    api.patch(f"/api/v1/users/{user.pk}", {"is_active": False})
    assert not Session.objects.exists()
    assert not LiveSession.objects.exists()


def test_changing_ones_password_keeps_this_session_in_the_list() -> None:
    user = UserFactory()
    here, there = logged_in(user), logged_in(user, CHROME)
    here.post("/account/password/", {"old": PASSWORD, "new": "another long password"})
    assert (is_in(here), is_in(there)) == (True, False)
    assert [row.browser for row in sessions.own(user)] == [FIREFOX]


def test_last_seen_is_written_once_a_minute_with_the_newest_address(clock, django_assert_num_queries) -> None:
    client = logged_in(UserFactory())
    at = LiveSession.objects.get().seen_at
    clock.forward(59)
    client.get("/account/", REMOTE_ADDR="198.51.100.2")
    assert LiveSession.objects.get().seen_at == at
    clock.forward(2)
    client.get("/account/", REMOTE_ADDR="198.51.100.2")
    row = LiveSession.objects.get()
    assert (row.seen_at, row.address) == (clock.at, "198.51.100.2")


def test_a_session_from_before_the_list_was_kept_appears_in_it_and_an_ended_one_never_again(clock) -> None:
    user, client = UserFactory(), Client(HTTP_USER_AGENT=FIREFOX)
    client.force_login(user)
    assert "Firefox on Linux" in client.get("/account/").content.decode()
    sessions.end(pk=LiveSession.objects.get().pk, by=user)
    clock.forward(61)
    assert not is_in(client)
    assert not LiveSession.objects.exists()


def test_a_session_that_is_over_is_not_listed_and_is_forgotten(clock) -> None:
    user = UserFactory()
    logged_in(user)
    assert sessions.own(user).count() == 1
    clock.forward(hours=13)
    assert not sessions.own(user).exists()
    assert sessions.forget_old() == 2
    assert not LiveSession.objects.exists()


def test_over_rest_one_lists_and_ends_ones_own_and_administrators_everybodys() -> None:
    user, admin = UserFactory(), UserFactory(roles=["admin"])
    here, there, api, all_of_it = logged_in(user), logged_in(user, CHROME), TokenClient(user), TokenClient(admin)
    listed = here.get("/api/v1/sessions").json()["results"]
    assert [(row["device"], row["is_this"]) for row in listed] == [
        ("Chrome on Windows", False),
        ("Firefox on Linux", True),
    ]
    assert not {"key", "session_key"} & set(listed[0])
    assert api.delete(f"/api/v1/sessions/{listed[0]['id']}").status_code == 204
    assert (is_in(here), is_in(there)) == (True, False)
    assert all_of_it.get(f"/api/v1/sessions?user__email={user.email}").json()["count"] == 1
    assert api.post("/api/v1/sessions/actions/end-others", {"user": admin.email}).status_code == 403
    assert api.post("/api/v1/sessions/actions/end-others", {"user": "nobody@example.com"}).status_code == 403
    assert all_of_it.post("/api/v1/sessions/actions/end-others", {"user": "nobody@example.com"}).status_code == 422
    assert all_of_it.post("/api/v1/sessions/actions/end-others", {"user": user.email}).json() == {"ended": 1}
    assert not is_in(here)


def test_a_token_without_the_scope_admin_ends_no_session() -> None:
    user = UserFactory()
    client = logged_in(user)
    answer = TokenClient(user, ["read"]).post("/api/v1/sessions/actions/end-others")
    assert answer.status_code == 403
    assert is_in(client)


@pytest.mark.parametrize(
    ("user_agent", "words"),
    [
        (FIREFOX, "Firefox on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/126 Safari/537 Edg/126.0", "Edge on Windows"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 17) AppleWebKit Version/17 Mobile Safari/604", "Safari on an iPhone"),
        ("Mozilla/5.0 (Linux; Android 14) Chrome/126 Mobile Safari/537", "Chrome on Android"),
        ("curl/8.5.0", "curl"),
        ("", "Unknown browser"),
        ("<script>", "Unknown browser"),
    ],
)
def test_a_browser_is_named_as_a_person_would(user_agent: str, words: str) -> None:
    assert described(user_agent) == words


def test_a_session_ends_after_twelve_hours_however_much_it_is_used(clock: Clock) -> None:
    user, browser = UserFactory(), Client()
    browser.post("/login/", {"email": user.email, "password": PASSWORD})
    for _ in range(11):
        clock.forward(hours=1)
        assert browser.get("/api/v1/me").status_code == 200
        session = browser.session
        session["used"] = str(clock.at)  # anything that is written to it
        session.save()
    clock.forward(hours=1, seconds=1)
    assert browser.get("/api/v1/me").status_code == 401
