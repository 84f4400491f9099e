from __future__ import annotations

import re
import threading
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import Client

from accounts.models import RoleBinding, Setup, User
from accounts.people import setup
from audit.models import Record
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db
GOOD = {"email": "First@example.com", "password": "a first long passphrase", "again": "a first long passphrase"}


def make(token: str, client: Client | None = None, **changes: str):
    return (client or Client()).post("/setup/", {"token": token, **GOOD, **changes})


def test_the_printed_link_makes_an_administrator_who_is_logged_in_and_led_to_the_first_cluster() -> None:
    out = StringIO()
    call_command("setuptoken", url="http://127.0.0.1:8000", stdout=out)
    path = re.search(r"http://127\.0\.0\.1:8000(/setup/\?token=\S+)", out.getvalue())[1]
    client = Client()
    page = client.get(path)
    token = path.partition("=")[2]
    assert page.status_code == 200
    assert f'value="{token}"' in page.content.decode()

    made = make(token, client, also_operates="on")

    assert (made.status_code, made["Location"]) == (302, "/clusters/connect/")
    assert client.get("/clusters/connect/").status_code == 200
    assert client.get("/api/v1/me").json()["email"] == "first@example.com"
    assert set(RoleBinding.objects.values_list("role", "scope")) == {("admin", "*"), ("operator", "*")}
    assert Record.objects.get(action="user.create").actor == setup.BY
    assert Record.objects.filter(action="session.start", actor="first@example.com").exists()


def test_the_page_asks_for_the_token_when_the_link_is_lost_and_log_in_leads_there() -> None:
    token = setup.prepare()
    assert 'href="/setup/"' in Client().get("/login/").content.decode()
    page = Client().get("/setup/").content.decode()
    assert 'name="token"' in page
    assert 'name="password"' not in page
    assert 'name="password"' in Client().post("/setup/", {"token": token}).content.decode()


def test_once_somebody_exists_it_is_closed_for_ever(capsys) -> None:
    token = setup.prepare()
    assert make(token).status_code == 302
    for answer in (Client().get("/setup/"), Client().get(f"/setup/?token={token}"), make(token, email="b@example.com")):
        assert answer.status_code == 410
        assert 'href="/login/">Log in</a>' in answer.content.decode(), "the way on"
    assert "/setup/" not in Client().get("/login/").content.decode()
    with pytest.raises(CommandError, match="set-up is closed"):
        call_command("setuptoken")
    User.objects.all().delete()  # even then
    assert setup.prepare() is None
    assert Client().get("/setup/").status_code == 410
    assert make(token).status_code == 410
    assert not User.objects.exists()


def test_an_administrator_from_the_command_line_closes_it_too() -> None:
    token = setup.prepare()
    UserFactory(roles=["admin"])
    assert make(token).status_code == 410
    assert setup.prepare() is None
    assert Setup.objects.get().closed_at


def test_every_start_prints_a_new_token_and_the_old_one_is_worth_nothing() -> None:
    old, new = setup.prepare(), setup.prepare()
    assert make(old).status_code == 403
    assert Setup.objects.get().token_hash not in ("", new)
    assert make(new).status_code == 302


def test_without_a_token_ever_printed_nothing_opens_the_page() -> None:
    for guess in ("", "0" * 64, "\0", "x"):
        assert make(guess).status_code != 302
    Setup.objects.create(token_hash="")
    assert make("x").status_code == 403
    assert not User.objects.exists()


def test_five_wrong_tokens_pause_for_a_minute_even_the_right_one(clock) -> None:
    token = setup.prepare()
    texts = [Client().get(f"/setup/?token=wrong{n}").content.decode() for n in range(5)]
    assert "4 more tries" in texts[0]
    assert re.search(r'value="wrong0"[^>]*aria-invalid="true"[^>]*aria-describedby="id_token-error', texts[0])
    assert "last try" in texts[4]
    assert make(token).status_code == 429
    clock.forward(61)
    assert make(token).status_code == 302


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"again": "another long passphrase"}, "again"),
        ({"password": "short", "again": "short"}, "password"),
        ({"email": "nobody"}, "email"),
    ],
)
def test_what_is_wrong_stands_beside_its_field_and_set_up_stays_open(changes: dict[str, str], field: str) -> None:
    token = setup.prepare()
    answer = make(token, **changes)
    assert answer.status_code == 422
    assert answer.context["form"].errors[field]
    assert setup.is_open()
    assert make(token).status_code == 302


def test_from_outside_of_the_ranges_of_power_nothing_is_made_and_set_up_stays_open(settings) -> None:
    settings.SETPOINT_POWER_NETWORKS = "192.0.2.0/24"
    token = setup.prepare()
    outside = Client(REMOTE_ADDR="198.51.100.9")
    refused = make(token, outside)
    assert refused.status_code == 422
    assert "You come from 198.51.100.9, which is outside of SETPOINT_POWER_NETWORKS" in refused.content.decode()
    assert not User.objects.exists()
    assert setup.is_open()
    inside = Client(REMOTE_ADDR="192.0.2.7")
    assert make(token, inside).status_code == 302
    assert inside.get("/api/v1/me").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_of_eight_that_hold_the_token_at_once_one_becomes_administrator(monkeypatch) -> None:
    token, codes, barrier = setup.prepare(), [], threading.Barrier(8)
    check = setup.check

    def checked_then_together(request, given: str) -> None:
        check(request, given)
        barrier.wait(timeout=30)  # the token was right for each of them

    monkeypatch.setattr(setup, "check", checked_then_together)

    def try_it(number: int) -> None:
        client = Client(REMOTE_ADDR=f"192.0.2.{number}")
        codes.append(make(token, client, email=f"person{number}@example.com").status_code)
        connections.close_all()

    threads = [threading.Thread(target=try_it, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [302] + [410] * 7
    assert User.objects.count() == 1
