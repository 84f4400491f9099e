"""One answer that is posted twice at once, in the browser that it belongs to."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from accounts.models import LiveSession, UsedAssertion, User
from accounts.signon.saml import requests
from tests.accounts.signon.saml import idp
from tests.accounts.signon.saml.idp import Answer


@pytest.mark.django_db(transaction=True)
def test_two_posts_of_one_answer_at_once_log_in_once(corp: None, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=30)
    take = requests.take

    def take_together(*args: Any) -> requests.Begun:
        begun = take(*args)
        both.wait()
        return begun

    monkeypatch.setattr(requests, "take", take_together)
    browser = Client()
    form = idp.form(browser.get("/login/saml/corp/")["Location"], Answer())
    twins = [Client(), Client()]
    for twin in twins:
        twin.cookies = browser.cookies.copy()
    codes: list[int] = []

    def post(twin: Client) -> None:
        codes.append(twin.post("/login/saml/corp/acs/", form).status_code)
        connections.close_all()

    threads = [threading.Thread(target=post, args=(twin,)) for twin in twins]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert codes.count(302) == 1, codes
    assert (User.objects.count(), LiveSession.objects.count()) == (1, 1)
    assert UsedAssertion.objects.count() == 2, "the assertion, and the request"
