"""Laws of limiting an account: narrower is done at once, wider takes two administrators where power is opened."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from accounts.access.networks import MOST
from accounts.models import Identity, PendingChange, ScimUser, User
from accounts.people import limits, pending, services
from accounts.people.pending import Proposed
from audit.models import Record
from common.errors import Invalid, NotAllowed, WrongState
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db

HERE = "127.0.0.1"
OFFICE = "192.0.2.0/24"


@pytest.fixture
def admins() -> tuple[User, User]:
    return UserFactory(roles=["admin"]), UserFactory(roles=["admin"])


def page_of(admin: User) -> Client:
    client = Client()
    client.force_login(admin)
    return client


def path(user: User) -> str:
    return f"/people/{user.pk}/address-ranges/"


def ranges(user: User) -> str:
    return User.objects.get(pk=user.pk).networks


@pytest.mark.parametrize(
    ("wanted", "present", "is_narrower"),
    [
        ("10.0.0.0/8", "", True),
        ("", "10.0.0.0/8", False),
        ("", "", True),
        ("10.1.0.0/16", "10.0.0.0/8", True),
        ("10.0.0.0/8", "10.1.0.0/16", False),
        ("10.0.0.0/8", "10.0.0.0/9 10.128.0.0/9", True),
        ("10.0.0.0/7", "10.0.0.0/8 11.0.0.0/9", False),
        ("10.1.0.0/16 192.0.2.0/24", "10.0.0.0/8", False),
        ("2001:db8:1::/48", "10.0.0.0/8 2001:db8::/32", True),
        ("2001:db8::/32", "10.0.0.0/8", False),
        ("10.0.0.0/8", "fe80::%a b/64", False),
    ],
)
def test_what_is_narrower(wanted, present, is_narrower) -> None:
    assert limits.is_within(wanted, present) is is_narrower


def test_narrower_is_done_at_once_also_for_one_with_power(admins) -> None:
    user = UserFactory(roles=["approver"])
    assert page_of(admins[0]).post(path(user), {"networks": f"{OFFICE}\n10.0.0.0/8"}).status_code == 302
    assert ranges(user) == f"{OFFICE} 10.0.0.0/8"
    assert page_of(admins[0]).post(path(user), {"networks": OFFICE}).status_code == 302
    assert ranges(user) == OFFICE
    kept = Record.objects.filter(action="user.networks").order_by("at", "pk").last()
    assert kept
    assert (kept.before, kept.after) == ({"networks": [OFFICE, "10.0.0.0/8"]}, {"networks": [OFFICE]})
    shown = page_of(admins[0]).get("/people/").content.decode()
    assert f"from {OFFICE}" in shown
    assert OFFICE in page_of(admins[0]).get(path(user)).content.decode()


@pytest.mark.parametrize("wanted", ["", "192.0.2.0/23", f"{OFFICE}\n10.0.0.0/8", "10.0.0.0/8"])
def test_wider_for_one_with_power_takes_another_administrator(admins, wanted) -> None:
    admin, other = admins
    user = UserFactory(roles=["approver@env:staging"], networks=OFFICE)
    assert page_of(admin).post(path(user), {"networks": wanted}).status_code == 302
    assert ranges(user) == OFFICE
    change = PendingChange.objects.get(kind=limits.KIND)
    shown = page_of(other).get("/people/").content.decode()
    assert (wanted.split() or ["every address"])[0] in shown
    for by in (admin, user, UserFactory(roles=["operator"])):
        with pytest.raises(Exception, match=r"another administrator|no such change"):
            pending.consent(pk=change.pk, by=by)
    assert ranges(user) == OFFICE
    pending.consent(pk=change.pk, by=other)
    assert ranges(user) == " ".join(wanted.split())
    assert User.objects.get(pk=user.pk).is_genuine


def test_a_proposal_does_not_undo_what_was_changed_since(admins) -> None:
    admin, other = admins
    user = UserFactory(roles=["approver"], networks=OFFICE)
    done = limits.limit(user=user, networks=[], by=admin, address=HERE)
    assert isinstance(done, Proposed)
    with pytest.raises(WrongState, match="proposed this already"):
        limits.limit(user=user, networks=[], by=other, address=HERE)
    limits.limit(user=user, networks=["192.0.2.0/25"], by=admin, address=HERE)
    with pytest.raises(WrongState, match="changed since"):
        pending.consent(pk=done.change.pk, by=other)
    assert ranges(user) == "192.0.2.0/25"


def test_one_without_power_is_freed_at_once(admins) -> None:
    user = UserFactory(roles=["operator"], networks=OFFICE)
    assert page_of(admins[0]).post(path(user), {"networks": ""}).status_code == 302
    assert ranges(user) == ""


@pytest.mark.parametrize("kind", ["linked", "directory"])
def test_one_whose_groups_may_give_power_is_not_freed_by_one_administrator(admins, kind) -> None:
    """Else: take the roles away, widen, log in again, and the groups give the roles back."""
    admin, other = admins
    user = UserFactory(networks=OFFICE)
    if kind == "linked":
        Identity.objects.create(user=user, issuer="https://id.example.com", subject="1")
    else:
        ScimUser.objects.create(user=user, issuer="https://id.example.com", user_name="x", user_name_key="x")
    assert page_of(admin).post(path(user), {"networks": ""}).status_code == 302
    assert ranges(user) == OFFICE
    change = PendingChange.objects.get(kind=limits.KIND)
    assert change.about == f"{user.email}, of single sign-on, is accepted from other addresses."
    pending.consent(pk=change.pk, by=other)
    assert ranges(user) == ""


def test_the_most_ranges_of_the_longest_form_fit_the_column(admins) -> None:
    user = UserFactory()
    longest = [f"2001:1db8:1111:1111:1111:1111:1111:11{n:02}/128" for n in range(10, 10 + MOST)]
    assert page_of(admins[0]).post(path(user), {"networks": "\n".join(longest)}).status_code == 302
    assert ranges(user) == " ".join(longest)
    assert len(ranges(user)) <= User._meta.get_field("networks").max_length


def test_the_only_administrator_needs_nobody_and_a_token_of_theirs_does() -> None:
    admin = UserFactory(roles=["admin"], networks="127.0.0.0/8")
    over_rest = TokenClient(admin).patch(f"/api/v1/users/{admin.pk}", {"networks": []})
    assert over_rest.status_code == 202
    done = limits.limit(user=admin, networks=["126.0.0.0/7"], by=User.objects.get(pk=admin.pk), address=HERE)
    assert isinstance(done, User)
    assert ranges(admin) == "126.0.0.0/7"


@pytest.mark.parametrize("address", ["198.51.100.9", "", "::1", "unknown"])
def test_administrators_do_not_lock_themselves_out(admins, address) -> None:
    with pytest.raises(Invalid) as refused:
        limits.limit(user=admins[0], networks=[OFFICE], by=admins[0], address=address)
    assert (address or "an unknown address") in refused.value.fields["networks"][0]
    assert ranges(admins[0]) == ""


def test_the_form_names_the_address_that_is_missing(admins) -> None:
    client = page_of(admins[0])
    refused = client.post(path(admins[0]), {"networks": OFFICE}, REMOTE_ADDR="198.51.100.9")
    assert refused.status_code == 422
    assert "You come from 198.51.100.9: add a range" in refused.content.decode()
    done = client.post(path(admins[0]), {"networks": f"{OFFICE}\n198.51.100.0/24"}, REMOTE_ADDR="198.51.100.9")
    assert done.status_code == 302


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (["10.0.0.1/8"], "Did you mean 10.0.0.0/8?"),
        (["0.0.0.0/0"], "is every address: leave it out."),
        (["::/0"], "is every address: leave it out."),
        (["fe80::%a b/64"], "has a zone: leave it out."),
        (["fe80::%eth0/64"], "has a zone: leave it out."),
        (["::ffff:10.0.0.0/104"], "write it as IPv4."),
        (["::ffff:192.0.2.7"], "write it as IPv4."),
        (["office"], "Write it as 10.0.0.0/8 or 2001:db8::/32."),
        ([f"10.{n}.0.0/16" for n in range(MOST + 1)], f"At most {MOST} address ranges."),
    ],
)
def test_rubbish_is_refused_as_for_tokens(admins, wanted, why) -> None:
    user, client = UserFactory(), TokenClient(admins[0])
    refused = client.patch(f"/api/v1/users/{user.pk}", {"networks": wanted})
    of_token = client.post("/api/v1/tokens", {"name": "x", "scopes": ["read"], "days": 1, "networks": wanted})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "networks")
    assert why in refused.json()["errors"][0]["message"]
    assert refused.json()["errors"] == of_token.json()["errors"]
    assert page_of(admins[0]).post(path(user), {"networks": "\n".join(wanted)}).status_code == 422
    assert ranges(user) == ""


def test_over_rest_it_is_the_same(admins) -> None:
    client = TokenClient(admins[0])
    user, approver = UserFactory(roles=["operator"]), UserFactory(roles=["approver"], networks=OFFICE)
    done = client.patch(f"/api/v1/users/{user.pk}", {"networks": [OFFICE, OFFICE]})
    assert (done.status_code, done.json()["networks"]) == (200, [OFFICE])
    waits = client.patch(f"/api/v1/users/{approver.pk}", {"networks": []})
    assert (waits.status_code, waits.json()["kind"]) == (202, limits.KIND)
    assert waits.json()["wanted"] == {"networks": "", "was": OFFICE}
    both = client.patch(f"/api/v1/users/{user.pk}", {"networks": [], "is_active": False})
    assert (both.status_code, both.json()["errors"][0]["field"]) == (422, "networks")
    assert ranges(user) == OFFICE
    own = client.patch(f"/api/v1/users/{admins[0].pk}", {"networks": [OFFICE]})
    assert (own.status_code, own.json()["errors"][0]["field"]) == (422, "networks")


def test_only_administrators_of_everything_limit(admins) -> None:
    user = UserFactory(networks=OFFICE)
    machine = UserFactory(is_service=True, roles=["admin"])
    for by in (UserFactory(roles=["admin@env:staging"]), UserFactory(roles=["operator"]), user, machine):
        with pytest.raises(NotAllowed):
            limits.limit(user=user, networks=[], by=by, address=HERE)
    assert page_of(UserFactory(roles=["auditor"])).get(path(user)).status_code == 403
    assert ranges(user) == OFFICE


def test_new_accounts_have_no_ranges(admins) -> None:
    made = services.create_user(email="new@example.com", by=admins[0])
    assert ranges(made) == ""


def test_the_command_is_the_way_back(admins) -> None:
    for admin in admins:
        admin.put_marked(networks=OFFICE)
    output = StringIO()
    call_command("limit_account", admins[0].email.upper(), stdout=output)
    assert output.getvalue() == f"{admins[0].email} is accepted from every address.\n"
    assert ranges(admins[0]) == ""
    assert User.objects.get(pk=admins[0].pk).is_genuine
    assert Record.objects.get(action=limits.KIND).actor == "command line"
    call_command("limit_account", admins[0].email, "10.0.0.0/8", "::1/128", stdout=output)
    assert ranges(admins[0]) == "10.0.0.0/8 ::1/128"
    for given in (["nobody@example.com"], [admins[0].email, "0.0.0.0/0"]):
        with pytest.raises(CommandError):
            call_command("limit_account", *given)
