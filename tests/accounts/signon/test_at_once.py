"""Two log-ins of one person at once: the first ones, which both find no account."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, connections
from django.test import Client

from accounts.models import Identity, LiveSession, User
from accounts.signon import arrival, exchange
from tests.accounts.signon.issuer import Issuer


@pytest.mark.django_db(transaction=True)
def test_two_first_log_ins_at_once_lead_to_one_account(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    both, inside = threading.Barrier(2, timeout=30), threading.Barrier(2, timeout=30)
    finish, make = exchange.finish, arrival._new_account

    def finish_together(*args: Any) -> exchange.Verified:
        verified = finish(*args)
        both.wait()
        return verified

    def make_together(*args: Any) -> User:
        if connection.vendor == "postgresql":  # SQLite lets the second transaction begin when the first has ended
            inside.wait()
        return make(*args)

    monkeypatch.setattr(exchange, "finish", finish_together)
    monkeypatch.setattr(arrival, "_new_account", make_together)
    browsers = [Client(), Client()]
    ways = [issuer.authorize(browser.get("/login/with/corp/")["Location"]) for browser in browsers]
    codes: list[int] = []

    def arrive(browser: Client, way: str) -> None:
        codes.append(browser.get(f"/login/with/corp/back/?{way}").status_code)
        connections.close_all()

    threads = [threading.Thread(target=arrive, args=pair) for pair in zip(browsers, ways, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert codes == [302, 302]
    assert (User.objects.count(), Identity.objects.count(), LiveSession.objects.count()) == (1, 1, 2)
    assert User.objects.get().grants == {("operator", "env:staging")}
