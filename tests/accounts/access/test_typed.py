"""Form input of an ended session is kept for its author, sent by its author alone, and holds no secret."""

from __future__ import annotations

import importlib
import pkgutil
import re
from html import unescape
from typing import Any

import pytest
from django import forms
from django.contrib.sessions.models import Session
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.test.client import RequestFactory

from accounts.access import typed
from accounts.models import LiveSession, User
from clusters.web.forms import SECRETS
from profiles.models import Profile
from tests.accounts.authenticator import code, enroll, wrong
from tests.factories import PASSWORD, UserFactory

pytestmark = pytest.mark.django_db
PATH = "/profiles/new/"
ORIGIN = "http://testserver"
SOURCE = "# why: a long <thought>\nsettings:\n  vm.swappiness: 10\n"
FORM = {"name": "mine", "view": "yaml", "source": SOURCE, "intent": "save"}
ROOMS = ("accounts", "clusters", "compliance", "components", "gpus", "jobs", "notices", "profiles")


class Browser(Client):
    """Test client like a browser: its token comes from a page, and its cookies stay."""

    def __init__(self, person: User | None = None) -> None:
        super().__init__(enforce_csrf_checks=True)
        self.token = self.token_of("/login/")
        if person:
            assert self.send("/login/", email=person.email, password=PASSWORD).status_code == 302
            self.token = self.token_of(PATH)

    def token_of(self, path: str) -> str:
        return hidden(self.get(path), "csrfmiddlewaretoken")

    def send(self, path: str, headers: dict[str, str] | None = None, **fields: Any) -> Any:
        return self.post(path, {"csrfmiddlewaretoken": self.token, **fields}, headers=headers)


def hidden(answer: Any, name: str) -> str:
    match = re.search(rf'<input type="hidden" name="{name}" value="([^"]*)"', answer.content.decode())
    return unescape(match[1]) if match else ""


def plain(text: str) -> str:
    return text.replace("\r", "").strip()


@pytest.fixture
def author() -> User:
    return UserFactory(roles=["operator@*"])


@pytest.fixture
def browser(author: User) -> Browser:
    return Browser(author)


def logged_in_again(browser: Browser, answer: Any, person: User, password: str = PASSWORD) -> Any:
    browser.token = hidden(answer, "csrfmiddlewaretoken")
    return browser.send("/login/", email=person.email, password=password, kept=hidden(answer, "kept"))


def sent_again(browser: Browser, response: Any) -> Any:
    browser.token = hidden(response, "csrfmiddlewaretoken")
    return browser.send(PATH, **{name: hidden(response, name) for name in FORM})


def test_what_was_typed_survives_the_log_in_and_is_sent_by_a_person(browser: Browser, author: User) -> None:
    Session.objects.update(expire_date="2000-01-01T00:00:00Z")
    ended = browser.send(PATH, **FORM)
    assert ended.status_code == 401
    assert "session has ended" in ended.content.decode()

    response = logged_in_again(browser, ended, author)
    assert response.status_code == 200
    assert not Profile.objects.exists(), "nothing is sent by itself"
    assert unescape(response.content.decode()).count("a long <thought>") == 2, "shown, and in the form"
    assert sent_again(browser, response).status_code == 302
    assert plain(Profile.objects.get().draft) == plain(SOURCE)


def test_a_code_in_between_and_a_wrong_one_lose_nothing(browser: Browser, author: User, clock: Any) -> None:
    key, _ = enroll(author)
    clock.forward(30)
    answer = logged_in_again(browser, browser.send(PATH, **FORM), author)
    for text, status in ((wrong(key), 401), (code(key), 200)):
        kept, browser.token = hidden(answer, "kept"), hidden(answer, "csrfmiddlewaretoken")
        answer = browser.send("/login/code/", code=text, kept=kept)
        assert answer.status_code == status
    assert sent_again(browser, answer).status_code == 302
    assert plain(Profile.objects.get().draft) == plain(SOURCE)


def test_a_wrong_password_loses_nothing(browser: Browser, author: User) -> None:
    Session.objects.all().delete()
    again = logged_in_again(browser, browser.send(PATH, **FORM), author, "wrong")
    assert again.status_code == 401
    assert "thought" in logged_in_again(browser, again, author).content.decode()


@pytest.mark.parametrize("headers", [{}, {"Origin": "https://evil.example"}, {"Origin": "null"}])
@pytest.mark.parametrize("is_in", [True, False])
def test_what_another_site_posts_is_refused_and_arrives_nowhere(
    browser: Browser, headers: dict[str, str], is_in: bool
) -> None:
    if not is_in:
        Session.objects.all().delete()
    browser.token = "x" * 64
    answer = browser.send(PATH, headers, **FORM)
    assert answer.status_code == 403
    text = answer.content.decode()
    assert "thought" not in text
    assert "kept" not in text


def test_a_page_opened_before_the_last_log_in_shows_what_was_typed_there(browser: Browser, author: User) -> None:
    """The state after a log-in in another tab: the page's token is old, and the browser names our origin."""
    old = browser.token
    Session.objects.all().delete()
    logged_in_again(browser, browser.get("/login/"), author)
    browser.token = old
    answer = browser.send(PATH, {"Origin": ORIGIN}, **FORM)
    assert answer.status_code == 403
    assert not Profile.objects.exists()
    assert sent_again(browser, answer).status_code == 302
    assert plain(Profile.objects.get().draft) == plain(SOURCE)


def test_what_one_browser_was_given_no_other_is_shown(browser: Browser, author: User) -> None:
    Session.objects.all().delete()
    kept = hidden(browser.send(PATH, **FORM), "kept")
    assert kept
    for text in (kept, f"{kept[:-2]}xx", "x"):
        answer = Browser()
        answer = answer.send("/login/", email=author.email, password=PASSWORD, kept=text)
        assert answer.status_code == 302, "logged in, and nothing is shown"


def test_another_person_does_not_get_what_was_typed(browser: Browser) -> None:
    Session.objects.update(expire_date="2000-01-01T00:00:00Z")
    response = logged_in_again(browser, browser.send(PATH, **FORM), UserFactory(roles=["operator@*"]))
    text = response.content.decode()
    assert response.status_code == 200
    assert "another person" in text
    assert "thought" not in text


def test_where_it_is_not_known_whose_it_was_the_page_says_so(browser: Browser, author: User) -> None:
    Session.objects.all().delete()
    LiveSession.objects.all().delete()
    response = logged_in_again(browser, browser.send(PATH, **FORM), author)
    assert "owner is no longer known" in response.content.decode()


def test_too_much_is_called_too_much(browser: Browser) -> None:
    Session.objects.all().delete()
    answer = browser.send(PATH, **FORM | {"source": "x" * (typed.MOST_CHARACTERS + 1)})
    assert answer.status_code == 401
    assert "too long" in answer.content.decode()
    assert not hidden(answer, "kept")


def test_a_part_of_a_page_hears_that_the_session_ended_and_swaps_nothing(browser: Browser) -> None:
    Session.objects.all().delete()
    for path in ("/profiles/new/verdict/", PATH):
        answer = browser.send(path, {"HX-Request": "true"}, **FORM)
        assert answer.status_code == 401
        assert answer["Setpoint-Session"] == "ended"
        assert b"<" not in answer.content


def test_the_api_is_as_it_was(browser: Browser) -> None:
    Session.objects.all().delete()
    answer = browser.post("/api/v1/profiles", {"name": "mine"}, content_type="application/json")
    assert answer.status_code == 401
    assert answer["Content-Type"] == "application/problem+json"


def forms_of_the_product() -> list[Any]:
    for room in map(importlib.import_module, ROOMS):
        for module in pkgutil.iter_modules(room.__path__):
            if module.name.endswith(("forms", "views")):
                importlib.import_module(f"{room.__name__}.{module.name}")
    own_forms: list[Any] = []
    waiting: list[Any] = [forms.Form]
    while waiting:
        below = waiting.pop().__subclasses__()
        waiting += below
        own_forms += [form for form in below if form.__module__.partition(".")[0] in ROOMS]
    return own_forms


def test_no_field_that_hides_what_is_typed_is_carried(author: User) -> None:
    """Any form's password fields, files and cluster credentials are left out."""
    hides = {
        name
        for form in forms_of_the_product()
        for name, field in form.base_fields.items()
        if isinstance(field.widget, forms.PasswordInput) or name in SECRETS
    }
    assert {"password", "secret", "token", "kubeconfig"} <= hides, "or this tries too little"
    sent = dict.fromkeys(hides, "opensesame") | {"comment": "plain"}
    request = RequestFactory().post("/plans/P-1/approve/", sent | {"f": SimpleUploadedFile("f", b"opensesame")})
    request.user = author
    typed_fields = typed.read(request)
    assert typed_fields.fields == [("comment", "plain")]
    assert set(typed_fields.left_out) == hides | {"f"}


@pytest.mark.parametrize("path", ["/login/", "/account/password/", "/people/", "/clusters/connect/", "/link/x/"])
def test_nothing_is_carried_of_pages_about_people_and_credentials(path: str, author: User) -> None:
    request = RequestFactory().post(path, {"comment": "opensesame"})
    request.user = author
    assert typed.read(request).is_empty
