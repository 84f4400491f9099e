"""Permissions by role and scope."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from accounts.permissions import ANYWHERE, GLOBAL, Role, check_scope, may, require, restrict, visible_scopes
from clusters.models import Cluster
from common.errors import Invalid, NotAllowed
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db

HERE = UUID("6b2f0c1e-9a54-4d1b-8a77-2f3f6f1e0a01")
SCOPES = ("*", "env:production", f"cluster:{HERE}")
"""Those of a production cluster."""


@pytest.mark.parametrize("held", Role.values)
@pytest.mark.parametrize("needed", Role.values)
@pytest.mark.parametrize(
    ("scope", "reaches"),
    [
        ("*", True),
        ("env:production", True),
        (f"cluster:{HERE}", True),
        ("env:staging", False),
        ("cluster:6b2f0c1e-9a54-4d1b-8a77-2f3f6f1e0a02", False),
    ],
)
def test_a_role_counts_in_its_scope_and_includes_only_viewer(held: str, needed: str, scope: str, reaches: bool) -> None:
    user = UserFactory(roles=[f"{held}@{scope}"])
    assert may(user, needed, SCOPES) is (reaches and needed in (held, "viewer"))


@pytest.mark.parametrize("role", Role.values)
def test_a_scoped_role_is_not_a_global_one_but_counts_for_what_all_share(role: str) -> None:
    user = UserFactory(roles=[f"{role}@env:staging"])
    assert not may(user, role, GLOBAL)
    assert may(user, role, ANYWHERE)
    assert not may(UserFactory(), role, ANYWHERE)


def test_nobody_inactive_or_anonymous_may_anything() -> None:
    from django.contrib.auth.models import AnonymousUser

    gone = UserFactory(roles=["admin"], is_active=False, is_superuser=True)
    for user in (gone, AnonymousUser(), None):
        assert not may(user, "viewer", SCOPES)


def test_a_superuser_holds_every_role_but_the_one_to_start_without_approval() -> None:
    boss = UserFactory(is_superuser=True)
    assert {role for role in Role.values if not may(boss, role, SCOPES)} == {Role.BREAK_GLASS}
    assert visible_scopes(boss) == {"*"}


def test_a_service_account_never_approves_whatever_roles_it_was_given() -> None:
    machine = UserFactory(is_service=True, roles=["approver", "operator"])
    assert may(machine, "operator", SCOPES)
    assert not may(machine, "approver", SCOPES)
    assert not may(UserFactory(is_service=True, is_superuser=True), "approver", SCOPES)
    with pytest.raises(NotAllowed, match="service account never is"):
        require(machine, "approver", SCOPES, "approve a plan")


@pytest.mark.parametrize(
    ("scopes", "role", "allowed"),
    [
        (["read"], "viewer", True),
        (["apply"], "viewer", True),
        (["read"], "operator", False),
        (["plan"], "operator", True),
        (["apply"], "operator", True),
        (["read", "plan", "apply", "admin"], "approver", False),
        (["approve"], "approver", True),
        (["read", "plan", "apply", "approve"], "admin", False),
        (["admin"], "admin", True),
    ],
)
def test_a_token_narrows_its_owner_and_never_widens(scopes: list[str], role: str, allowed: bool) -> None:
    user = UserFactory(roles=Role.values)
    user.acting_token = TokenClient(user, scopes).token
    assert may(user, role, GLOBAL) is allowed
    stranger = UserFactory()
    stranger.acting_token = user.acting_token
    assert not may(stranger, role, GLOBAL)


def test_a_refusal_names_the_deed_the_role_and_the_scopes() -> None:
    with pytest.raises(NotAllowed) as refused:
        require(UserFactory(), "operator", SCOPES, "start a rollout")
    for word in ("start a rollout", "operator", "env:production", f"cluster:{HERE}"):
        assert word in str(refused.value)


def test_a_refusal_says_when_only_the_token_is_too_weak() -> None:
    user = UserFactory(roles=["operator"])
    user.acting_token = TokenClient(user, ["read"]).token
    with pytest.raises(NotAllowed, match="token scope apply or plan"):
        require(user, "operator", SCOPES, "start a rollout")


def test_lists_show_only_clusters_that_some_role_covers() -> None:
    made = {
        name: Cluster.objects.create(uid=name, name=name, environment=environment, server="https://x", credential=b"")
        for name, environment in (("p", "production"), ("s", "staging"), ("d", "development"), ("d2", "development"))
    }
    everything = Cluster.objects.all()

    def seen(*roles: str) -> list[str]:
        return sorted(restrict(everything, UserFactory(roles=list(roles)), "").values_list("name", flat=True))

    assert seen() == []
    assert seen("viewer@env:production") == ["p"]
    assert seen("approver@env:staging", f"viewer@cluster:{made['d'].pk}") == ["d", "s"]
    assert seen("operator") == ["d", "d2", "p", "s"]


def test_asking_about_many_objects_costs_one_query(django_assert_num_queries) -> None:
    user = type(UserFactory()).objects.get(pk=UserFactory(roles=["operator@env:staging", "viewer"]).pk)
    with django_assert_num_queries(1):
        for _ in range(50):
            may(user, "operator", ("*", "env:staging", f"cluster:{uuid4()}"))
            may(user, "viewer", SCOPES)


@pytest.mark.parametrize("scope", ["", "production", "env:", "env:prod", "env:*", "cluster:", "cluster:x", "*,*", "**"])
def test_a_scope_that_is_none_is_refused_with_what_would_be(scope: str) -> None:
    with pytest.raises(Invalid, match="is not a scope") as refused:
        check_scope(scope)
    assert "env:<" in refused.value.fields["scope"][0]


def test_a_scope_is_kept_in_one_spelling() -> None:
    assert check_scope(f"cluster:{str(HERE).upper()}") == f"cluster:{HERE}"


def test_environments_are_those_of_clusters() -> None:
    from accounts.permissions import ENVIRONMENTS

    assert set(ENVIRONMENTS) == set(Cluster.Environment.values)
