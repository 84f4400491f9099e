"""A viewer may be limited to a team; no other role may, and every way to give a role says so."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts.models import RoleBinding, User
from accounts.people import identities, services
from accounts.permissions import ANYWHERE, Role, check_role_scope, has_role, may, restrict, teams_of, visible_scopes
from audit.models import Record
from clusters.models import Cluster
from common.errors import Invalid
from gpus.models import Team
from tests.clusters.factories import ClusterFactory
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def team() -> Team:
    return Team.objects.create(name="Speech")


@pytest.fixture
def admin() -> User:
    UserFactory(roles=["admin"])
    return UserFactory(roles=["admin"])


@pytest.mark.parametrize("role", Role.values)
def test_only_viewer_is_limited_to_a_team(admin: User, team: Team, role: str) -> None:
    person = UserFactory()
    if role == Role.VIEWER:
        services.bind(user=person, role=role, scope=f"team:{team.pk}", by=admin)
        assert teams_of(person) == {team.pk}
        return
    with pytest.raises(Invalid) as refused:
        services.bind(user=person, role=role, scope=f"team:{team.pk}", by=admin)
    assert list(refused.value.fields) == ["scope"]
    assert "viewer" in refused.value.fields["scope"][0]
    answer = TokenClient(admin).post(
        "/api/v1/role-bindings", {"user": person.email, "role": role, "scope": f"team:{team.pk}"}
    )
    assert (answer.status_code, [error["field"] for error in answer.json()["errors"]]) == (422, ["scope"])
    assert not RoleBinding.objects.filter(user=person).exists()


@pytest.mark.parametrize("scope", ["team:", "team:0", "team:07", "team:x", "team:-1", "team:1 ", "team:" + "9" * 30])
def test_a_scope_of_a_team_has_one_spelling(scope: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_role_scope("viewer", scope)
    assert "team:<id>" in refused.value.fields["scope"][0]


def test_what_a_scope_may_be_is_named_with_the_team_for_a_viewer_alone() -> None:
    for role, is_named in (("viewer", True), ("operator", False)):
        with pytest.raises(Invalid) as refused:
            check_role_scope(role, "nothing")
        assert ("team:<id>" in refused.value.fields["scope"][0]) is is_named


def test_it_is_no_role_for_anything_else(team: Team) -> None:
    ClusterFactory()
    person = UserFactory(roles=[f"viewer@team:{team.pk}"])
    for role in Role.values:
        assert not may(person, role, ANYWHERE)
        assert not may(person, role, (f"team:{team.pk}", "*"))
    assert not has_role(person)
    assert visible_scopes(person) == frozenset()
    assert not restrict(Cluster.objects.all(), person, "").exists()


def test_an_account_that_does_not_count_has_no_team(team: Team) -> None:
    person = UserFactory(roles=[f"viewer@team:{team.pk}"], is_active=False)
    assert teams_of(person) == frozenset()
    assert teams_of(None) == frozenset()
    forged = UserFactory(roles=[f"viewer@team:{team.pk}"])
    RoleBinding.objects.filter(user=forged).update(mac="x")
    assert teams_of(forged) == frozenset(), "written around Setpoint"


def test_a_team_that_is_not_there_is_refused_where_people_type_it_and_left_out_where_groups_do(admin: User) -> None:
    person = UserFactory()
    with pytest.raises(Invalid) as refused:
        services.bind(user=person, role="viewer", scope="team:999", by=admin)
    assert list(refused.value.fields) == ["scope"]
    identities.set_roles(person, {("viewer", "team:999")}, "single sign-on (corp)")
    assert teams_of(person) == frozenset()


def test_page_rest_and_record_name_it(admin: User, team: Team) -> None:
    person, browser = UserFactory(), Client()
    browser.force_login(admin)
    scope = f"team:{team.pk}"
    offered = browser.get("/people/").content.decode()
    assert f'value="{scope}"' in offered
    assert "One team, viewer only" in offered
    sent = {"user": person.pk, "role": "operator", "scope": scope}
    refused = browser.post("/people/roles/", sent)
    assert (refused.status_code, "Assign viewer in it" in refused.content.decode()) == (422, True)
    done = browser.post("/people/roles/", sent | {"role": "viewer"}, follow=True).content.decode()
    assert "viewer of the team Speech" in done
    kept = Record.objects.get(action="role.grant", target=f"user:{person.pk}")
    assert kept.after == {"role": "viewer", "scope": scope}
    browser.force_login(person)
    assert "of the team Speech" in browser.get("/account/").content.decode()
    assert TokenClient(person).get("/api/v1/me").json()["bindings"][0]["scope"] == scope


def test_its_side_bar_has_only_what_it_opens(team: Team) -> None:
    browser = Client()
    browser.force_login(UserFactory(roles=[f"viewer@team:{team.pk}"]))
    shown = browser.get(f"/team/{team.pk}/").content.decode()
    for address in ("/clusters/", "/nodes/", "/gpus/", "/plans/", "/audit/", "/search/"):
        assert f'href="{address}"' not in shown, address
    assert 'href="/team/"' in shown
    browser.force_login(UserFactory())
    shown = browser.get("/account/").content.decode()
    assert 'href="/team/"' not in shown
    assert 'href="/nodes/"' not in shown
    assert "has no role" in browser.get("/nodes/").content.decode()
    browser.force_login(UserFactory(roles=["viewer"]))
    assert 'href="/nodes/"' in browser.get("/account/").content.decode()


def test_a_group_of_a_team_that_is_not_there_opens_no_later_team(team: Team) -> None:
    person, later = UserFactory(), team.pk + 1
    roles = {("viewer", f"team:{later}"), ("viewer", f"team:{team.pk}")}
    identities.set_roles(person, roles, "single sign-on (corp)")
    assert set(RoleBinding.objects.filter(user=person).values_list("scope", flat=True)) == {f"team:{team.pk}"}
    assert Team.objects.create(name="Secret").pk == later
    assert teams_of(User.objects.get(pk=person.pk)) == {team.pk}
    identities.set_roles(person, roles, "single sign-on (corp)")
    assert teams_of(User.objects.get(pk=person.pk)) == {team.pk, later}, "the next log-in gives it"
