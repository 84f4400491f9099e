"""Laws of address ranges in log-ins by passkey: a refusal from outside reads as any other."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts.models import User
from audit.models import Record
from tests.accounts.authenticator import is_in, password_step
from tests.accounts.passkeys.security_key import SecurityKey, enroll, logged_in, options, send
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db

ALONE, AFTER = "/login/passkey/", "/login/code/passkey/"
INSIDE, OUTSIDE = {"REMOTE_ADDR": "192.0.2.7"}, {"REMOTE_ADDR": "198.51.100.9"}


@pytest.fixture
def key(user: User, clock) -> SecurityKey:
    key = enroll(logged_in(user), SecurityKey(counter=0))
    clock.forward(60)
    user.put_marked(networks="192.0.2.0/24")
    return key


def test_a_passkey_alone_logs_in_from_inside_only(user, key) -> None:
    texts = set()
    for tried in (key, SecurityKey(user_handle=b"h" * 32)):
        client = Client(**OUTSIDE)
        answer = send(client, ALONE, tried.proved(options(client, ALONE)))
        assert answer.status_code == 401
        texts.add(answer.context["refusal"]["message"])
        assert not is_in(client)
    assert len(texts) == 1
    assert "198.51.100.9" in Record.objects.get(action="passkey.refuse", target=f"user:{user.pk}").message
    client = Client(**INSIDE)
    assert send(client, ALONE, key.proved(options(client, ALONE))).status_code == 302
    assert is_in(client)


def test_after_the_password_it_ends_a_log_in_that_went_elsewhere(user, key) -> None:
    client = password_step(user, Client(**INSIDE))
    proof = key.proved(options(client, AFTER))
    client.defaults |= OUTSIDE
    assert send(client, AFTER, proof).status_code == 401
    client.defaults |= INSIDE
    assert send(client, AFTER, proof).status_code == 401, "it is over"
    assert not is_in(client)


def test_options_of_the_second_step_name_no_passkey_elsewhere(user, key) -> None:
    client = password_step(user, Client(**INSIDE))
    refused = client.post(f"{AFTER}options/", **OUTSIDE)
    assert refused.status_code == 401
    assert "publicKey" not in refused.json()


def test_the_setting_holds_passkeys_of_roles_of_power(settings) -> None:
    settings.SETPOINT_POWER_NETWORKS = "127.0.0.0/8 192.0.2.0/24"
    key = enroll(logged_in(UserFactory(roles=["approver"])), SecurityKey(counter=0))
    client = Client(**OUTSIDE)
    assert send(client, ALONE, key.proved(options(client, ALONE))).status_code == 401
