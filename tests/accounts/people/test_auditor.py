"""An auditor reads what only administrators of everything see, and no service lets one change it."""

from __future__ import annotations

import pytest

from accounts.access import tokens
from accounts.models import PendingChange, RoleBinding
from accounts.people import pending, services
from common.errors import Invalid, NotAllowed
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin():
    UserFactory(roles=["admin"])  # so that consent is asked
    return UserFactory(roles=["admin"])


@pytest.fixture
def auditor():
    return UserFactory(roles=["auditor"])


def test_an_auditor_reads_people_roles_tokens_and_proposals_and_their_pages_offer_nothing(admin, auditor, client):
    other = UserFactory(roles=["viewer"])
    token, _text = tokens.issue(user=other, name="theirs", scopes=["read"], days=1, by=other)
    services.bind(user=other, role="approver", scope="*", by=admin)
    api = TokenClient(auditor, ["read"])
    assert other.email in {row["email"] for row in api.get("/api/v1/users").json()["results"]}
    assert other.email in {row["email"] for row in api.get("/api/v1/role-bindings").json()["results"]}
    assert token.pk in {row["id"] for row in api.get("/api/v1/tokens").json()["results"]}
    assert api.get("/api/v1/pending-changes").json()["count"] == 1
    assert TokenClient(other).get("/api/v1/pending-changes").json()["count"] == 0
    client.force_login(auditor)
    for page in ("/people/", "/workloads/"):
        shown = client.get(page).content.decode()
        main = shown[shown.index("<main") :]
        assert 'method="post"' not in main, page
        assert page in shown[: shown.index("<main")], "the menu leads there"
    client.force_login(other)
    assert "/people/" not in client.get("/account/").content.decode()


def test_an_auditor_decides_no_change_ends_no_token_and_makes_no_account(admin, auditor):
    other = UserFactory(roles=["viewer"])
    token, _text = tokens.issue(user=other, name="theirs", scopes=["read"], days=1, by=other)
    services.bind(user=other, role="approver", scope="*", by=admin)
    change = PendingChange.objects.get()
    with pytest.raises(NotAllowed):
        pending.refuse(pk=change.pk, by=auditor)
    with pytest.raises(NotAllowed):
        pending.consent(pk=change.pk, by=auditor)
    with pytest.raises(NotAllowed):
        tokens.revoke(token=token, by=auditor)
    with pytest.raises(NotAllowed):
        services.bind(user=auditor, role="operator", scope="*", by=auditor)
    change.refresh_from_db()
    assert change.status == "waiting"


def test_an_auditor_is_one_of_everything_and_the_token_must_read(admin, auditor):
    with pytest.raises(Invalid) as error:
        services.bind(user=UserFactory(), role="auditor", scope="env:staging", by=admin)
    assert list(error.value.fields) == ["scope"]
    binding = services.bind(user=UserFactory(), role="auditor", scope="*", by=admin)
    assert isinstance(binding, RoleBinding), "it gives no power, so no second administrator is asked"
    RoleBinding.objects.create(user=(part := UserFactory()), role="auditor", scope="env:staging")
    assert TokenClient(part).get("/api/v1/users").status_code == 403
    assert TokenClient(auditor, ["plan"]).get("/api/v1/users").status_code == 403
