"""Laws of address ranges in log-ins by single sign-on: from outside nothing begins, and nothing is changed."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts.models import RoleBinding, User
from audit.models import Record
from tests.accounts.signon.conftest import LogIn

pytestmark = pytest.mark.django_db

OUTSIDE = "198.51.100.9"


def is_in(client: Client) -> bool:
    return client.get("/api/v1/me").status_code == 200


def test_a_person_who_is_limited_comes_in_from_inside_alone(log_in: LogIn) -> None:
    log_in()
    ada = User.objects.get()
    assert ada.networks == "", "an account that a log-in makes has no ranges"
    ada.put_marked(networks="192.0.2.0/24")

    client = Client(REMOTE_ADDR=OUTSIDE)
    refused = log_in(client, groups=["ops", "admins"])
    assert refused.status_code == 403
    assert OUTSIDE in refused.context["refusal"]["message"]
    assert not is_in(client)
    assert not RoleBinding.objects.filter(role="admin").exists(), "nothing of a refused log-in stays"
    assert OUTSIDE in Record.objects.get(action="session.refuse").message

    inside = Client(REMOTE_ADDR="192.0.2.7")
    assert log_in(inside, groups=["ops"]).status_code == 302
    assert is_in(inside)


def test_the_roles_that_the_groups_give_now_are_judged(settings, log_in: LogIn) -> None:
    settings.SETPOINT_POWER_NETWORKS = "192.0.2.0/24"
    client = Client(REMOTE_ADDR=OUTSIDE)
    assert log_in(client).status_code == 403
    assert not User.objects.exists(), "no account is made for it"
    assert log_in(Client(REMOTE_ADDR="192.0.2.7")).status_code == 302


def roles() -> set[str]:
    return set(RoleBinding.objects.values_list("role", flat=True))


def test_from_outside_roles_are_taken_and_none_are_given(log_in: LogIn) -> None:
    log_in(Client(REMOTE_ADDR="192.0.2.7"), groups=["ops", "admins"])
    both = roles()
    log_in(Client(REMOTE_ADDR="192.0.2.7"), groups=["admins"])
    admins_alone = roles()
    log_in(Client(REMOTE_ADDR="192.0.2.7"), groups=["ops", "admins"])
    assert roles() == both > admins_alone
    User.objects.get().put_marked(networks="192.0.2.0/24")

    client = Client(REMOTE_ADDR=OUTSIDE)
    assert log_in(client, groups=["admins"]).status_code == 403
    assert not is_in(client)
    assert roles() == admins_alone
    assert log_in(client, groups=["ops", "admins"]).status_code == 403
    assert roles() == admins_alone


def test_a_log_in_that_began_inside_does_not_end_outside(log_in: LogIn, issuer) -> None:
    log_in()
    User.objects.get().put_marked(networks="127.0.0.0/8")
    client = Client()
    begun = client.get("/login/with/corp/")
    back = client.get(f"/login/with/corp/back/?{issuer.authorize(begun['Location'])}", REMOTE_ADDR=OUTSIDE)
    assert back.status_code == 403
    assert not is_in(client)
