"""Laws of owned pools: a role in the team adds no right, and without one an operator may not change what it owns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from accounts.people import owners
from audit.models import Record
from clusters.inventory import store
from clusters.models import Cluster, Pool
from clusters.services import pools
from common import hooks
from common.errors import Invalid, NotAllowed, Stale, WrongState
from compliance.models import Assignment
from compliance.services import assignments
from gpus.models import Team
from gpus.showback import teams
from profiles.models import Profile, Revision
from tests.clusters.factories import ClusterFactory, PoolFactory, raw_node
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db
WAYS: list[dict[str, Any]] = [
    {"name": "mine"},
    {"selector": "pool=other"},
    {"description": "mine"},
    {"hold_minutes": 5},
]


@pytest.fixture
def team() -> Team:
    return Team.objects.create(name="Speech")


@pytest.fixture
def others() -> Team:
    return Team.objects.create(name="Vision")


@pytest.fixture
def pool(team: Team) -> Pool:
    return PoolFactory(name="train", owner_team=team.pk)


def member(team: Team, *roles: str) -> User:
    return UserFactory(roles=[f"viewer@team:{team.pk}", *roles])


@pytest.mark.parametrize("changes", WAYS)
def test_an_operator_without_a_role_in_the_team_changes_nothing_of_its_pool(
    pool: Pool, changes: dict[str, Any]
) -> None:
    with pytest.raises(NotAllowed) as refused:
        pools.update_pool(pool, by=UserFactory(roles=["operator"]), **changes)
    assert "Speech owns it" in str(refused.value)
    pool.refresh_from_db()
    assert (pool.version, pool.name, pool.selector) == (1, "train", {"matchLabels": {"pool": "train"}})


@pytest.mark.parametrize("changes", WAYS)
def test_an_operator_with_a_role_in_the_team_changes_it(pool: Pool, team: Team, changes: dict[str, Any]) -> None:
    pools.update_pool(pool, by=member(team, "operator"), **changes)
    assert pool.version == 2


@pytest.mark.parametrize("changes", WAYS)
def test_a_role_in_the_team_alone_is_no_right(pool: Pool, team: Team, changes: dict[str, Any]) -> None:
    for roles in ((), ("viewer",), ("approver",)):
        with pytest.raises(NotAllowed):
            pools.update_pool(pool, by=member(team, *roles), **changes)
    elsewhere = ClusterFactory()
    with pytest.raises(NotAllowed):
        pools.update_pool(pool, by=member(team, f"operator@cluster:{elsewhere.pk}"), **changes)


def test_the_right_ends_at_the_clusters_of_the_operators_role(pool: Pool, team: Team) -> None:
    mine = member(team, f"operator@cluster:{pool.cluster_id}")
    theirs = PoolFactory(cluster=ClusterFactory(name="elsewhere"), owner_team=team.pk)
    pools.update_pool(pool, by=mine, description="ours")
    with pytest.raises(NotAllowed):
        pools.update_pool(theirs, by=mine, description="ours")
    answer = TokenClient(mine).get("/api/v1/pools?owner=Speech").json()
    assert [row["id"] for row in answer["results"]] == [pool.pk], "a pool of one's team elsewhere is not shown"
    assert TokenClient(mine).get(f"/api/v1/pools/{theirs.pk}").status_code == 404


@pytest.mark.parametrize("owner", ["Vision", "Speech", None])
def test_no_operator_says_who_owns_a_pool(pool: Pool, team: Team, others: Team, owner: str | None) -> None:
    """Neither takes it over, nor gives it away, nor frees it before planning."""
    free = PoolFactory(cluster=pool.cluster, name="free")
    for by in (member(team, "operator"), member(others, "operator"), UserFactory(roles=["operator", "approver"])):
        for row in (pool, free):
            if owner != owners.shown(row.owner_team):
                with pytest.raises(NotAllowed):
                    pools.update_pool(row, by=by, owner=owner)
        with pytest.raises(NotAllowed):
            pools.create_pool(pool.cluster, by=by, name="new", selector="pool=train", owner="Speech")
    assert list(Pool.objects.order_by("name").values_list("name", "owner_team")) == [("free", None), ("train", team.pk)]


def test_an_administrator_of_the_cluster_says_so_and_it_is_on_record(pool: Pool, others: Team) -> None:
    admin = UserFactory(roles=[f"admin@cluster:{pool.cluster_id}"])
    pools.update_pool(pool, by=admin, owner="Vision", version=1)
    kept = Record.objects.get(action="pool.update")
    assert (pool.owner_team, pool.version, kept.before, kept.after) == (
        others.pk, 2, {"owner": "Speech"}, {"owner": "Vision"},
    )  # fmt: skip
    with pytest.raises(Stale):
        pools.update_pool(pool, by=admin, owner=None, version=1)
    with pytest.raises(NotAllowed):  # a role in a team replaces no role, and admin is not operator
        pools.update_pool(pool, by=admin, name="renamed")
    elsewhere = UserFactory(roles=["admin@cluster:00000000-0000-4000-8000-000000000009"])
    with pytest.raises(NotAllowed):
        pools.update_pool(pool, by=elsewhere, owner=None)
    pools.update_pool(pool, by=admin, owner=None)
    assert pool.owner_team is None


def test_a_team_that_is_not_there_is_refused_by_name(pool: Pool) -> None:
    admin = UserFactory(roles=["admin", "operator"])
    for name in ("Nobody", "speech", str(pool.owner_team), f"team:{pool.owner_team}"):
        with pytest.raises(Invalid) as refused:
            pools.update_pool(pool, by=admin, owner=name)
        assert "there are Speech" in refused.value.fields["owner"][0]
    answer = TokenClient(admin).patch(f"/api/v1/pools/{pool.pk}", {"owner": "Nobody"}, HTTP_IF_MATCH='"1"')
    assert (answer.status_code, [error["field"] for error in answer.json()["errors"]]) == (422, ["owner"])


def test_a_pool_given_to_a_team_meanwhile_is_not_changed_by_who_no_longer_may(pool: Pool, team: Team) -> None:
    """The right was judged by the owner that was read; a guessed version must not carry it over."""
    Pool.objects.filter(pk=pool.pk).update(owner_team=None)
    read = Pool.objects.get(pk=pool.pk)
    Pool.objects.filter(pk=pool.pk).update(owner_team=team.pk, version=2)
    operator = UserFactory(roles=["operator"])
    with pytest.raises(Stale):
        pools.update_pool(read, by=operator, version=2, selector="pool=mine")
    with pytest.raises(Stale):
        pools.delete_pool(read, by=operator)
    assert Pool.objects.get(pk=pool.pk).selector == {"matchLabels": {"pool": "train"}}


def test_only_its_people_and_administrators_who_are_operators_delete_it(pool: Pool, team: Team, others: Team) -> None:
    for by in (UserFactory(roles=["operator"]), member(others, "operator"), member(team)):
        with pytest.raises(NotAllowed):
            pools.delete_pool(pool, by=by)
    pools.delete_pool(pool, by=member(team, "operator"))
    assert Record.objects.get(action="pool.delete").before["owner"] == "Speech"


def test_a_team_that_owns_something_stays_and_says_what(pool: Pool, team: Team) -> None:
    admin = UserFactory(roles=["admin"])
    with pytest.raises(WrongState) as refused:
        teams.remove(team, by=admin)
    assert f"the pool train in {pool.cluster}" in str(refused.value)
    for number in range(6):
        PoolFactory(cluster=pool.cluster, name=f"more-{number}", owner_team=team.pk)
    with pytest.raises(WrongState) as refused:
        teams.remove(team, by=admin)
    assert "and 2 more" in str(refused.value)
    Pool.objects.update(owner_team=None)
    teams.remove(team, by=admin)
    assert not Team.objects.exists()


def test_a_team_is_not_removed_where_it_cannot_be_said_what_it_owns(team: Team, monkeypatch: Any) -> None:
    def broken(key: int) -> list[str]:
        raise RuntimeError("unreadable")

    monkeypatch.setattr(hooks.team_holdings, "_subscribers", [broken])
    with pytest.raises(RuntimeError):
        teams.remove(team, by=UserFactory(roles=["admin"]))
    assert Team.objects.exists()


def test_a_pool_of_a_team_that_is_gone_is_an_administrators(pool: Pool, team: Team) -> None:
    """A later team that got the key would be another; roles in a team that is gone open nothing."""
    person = member(team, "operator")
    Team.objects.all().delete()  # around Setpoint, which refuses it
    with pytest.raises(NotAllowed):
        pools.update_pool(pool, by=person, description="mine")
    admin = UserFactory(roles=["admin", "operator"])
    shown = TokenClient(admin).get(f"/api/v1/pools/{pool.pk}").json()
    assert shown["owner"] == f"team {team.pk}, which is gone"
    pools.update_pool(pool, by=admin, owner=shown["owner"], description="kept")  # the page sends it back as it was
    pools.update_pool(pool, by=admin, owner=None)
    assert (pool.owner_team, pool.description) == (None, "kept")


def test_rest_says_the_owner_filters_by_it_and_needs_the_scope_admin(pool: Pool, team: Team, others: Team) -> None:
    admin = UserFactory(roles=["admin", "operator"])
    client = TokenClient(admin)
    PoolFactory(cluster=pool.cluster, name="free")
    assert client.get(f"/api/v1/pools/{pool.pk}").json()["owner"] == "Speech"
    for query, names in (("Speech", ["train"]), ("Vision", [])):
        assert [row["name"] for row in client.get(f"/api/v1/pools?owner={query}").json()["results"]] == names
    assert client.get("/api/v1/pools?owner=Nobody").status_code == 422
    weak = TokenClient(admin, ["read", "plan"])
    answer = weak.patch(f"/api/v1/pools/{pool.pk}", {"owner": "Vision"}, HTTP_IF_MATCH='"1"')
    assert (answer.status_code, "token scope admin" in answer.json()["detail"]) == (403, True)
    answer = client.patch(f"/api/v1/pools/{pool.pk}", {"owner": "Vision"}, HTTP_IF_MATCH='"1"')
    assert (answer.json()["owner"], answer["ETag"]) == ("Vision", '"2"')
    assert client.patch(f"/api/v1/pools/{pool.pk}", {"owner": None}, HTTP_IF_MATCH='"1"').status_code == 412
    stranger = TokenClient(UserFactory(roles=["operator"])).get(f"/api/v1/pools/{pool.pk}").json()["permissions"]
    assert stranger == {"update": False, "change_selector": False, "delete": False, "change_owner": False}


def test_the_owned_list_reads_names_once(pool: Pool, team: Team, django_assert_max_num_queries: Any) -> None:
    for person in (UserFactory(roles=["viewer"]), member(team, "operator"), UserFactory(roles=["operator"])):
        client = TokenClient(person)
        client.get("/api/v1/pools")
        Pool.objects.exclude(pk=pool.pk).delete()
        for number in range(12):
            PoolFactory(cluster=pool.cluster, name=f"more-{number}", owner_team=team.pk)
        with django_assert_max_num_queries(10):
            assert client.get("/api/v1/pools").json()["count"] == 13


def test_the_pages_show_it_narrow_by_it_and_ask_administrators_alone(pool: Pool, team: Team, others: Team) -> None:
    browser, cluster = Client(), pool.cluster
    PoolFactory(cluster=cluster, name="free")
    browser.force_login(UserFactory(roles=["operator"]))
    page = browser.get(f"/pools/{pool.pk}/").content.decode()
    assert "Owner: <b>Speech</b>" in page
    assert "Speech owns it" in page
    assert 'name="owner"' not in page
    sent = {"name": "train", "selector": "pool=mine", "version": 1, "intent": "save", "owner": "Vision"}
    refused = browser.post(f"/pools/{pool.pk}/", sent)
    pool.refresh_from_db()
    assert (refused.status_code, pool.version, pool.owner_team) == (422, 1, team.pk)
    admin = UserFactory(roles=["admin"])
    browser.force_login(admin)
    assert 'name="owner"' in browser.get(f"/pools/{pool.pk}/").content.decode()
    saved = browser.post(f"/pools/{pool.pk}/", sent | {"selector": "pool=train", "description": ""})
    pool.refresh_from_db()
    assert (saved.status_code, pool.owner_team) == (302, others.pk)
    narrowed = browser.get(f"/clusters/{cluster.pk}/?owner=Vision").content.decode()
    assert f'href="/pools/{pool.pk}/"' in narrowed
    assert ">free</a>" not in narrowed
    assert "No pool of this owner" in browser.get(f"/clusters/{cluster.pk}/?owner=Speech").content.decode()


def test_clusters_of_an_installation_without_teams_look_as_before() -> None:
    cluster: Cluster = ClusterFactory()
    PoolFactory(cluster=cluster)
    browser = Client()
    browser.force_login(UserFactory(roles=["admin"]))
    assert 'name="owner"' not in browser.get(f"/clusters/{cluster.pk}/").content.decode()
    assert 'name="owner"' not in browser.get(f"/clusters/{cluster.pk}/pools/new/").content.decode()


def test_an_operator_outside_the_team_cannot_stop_the_repairs_of_its_pool(pool: Pool, team: Team) -> None:
    profile = Profile.objects.create(name="gpu")
    revision = Revision.objects.create(profile=profile, number=1, digest="sha256:" + "0" * 64, source="", content={})
    row = Assignment.objects.create(pool=pool, revision=revision, mode=Assignment.Mode.ENFORCE)
    stranger, ours = UserFactory(roles=["operator"]), member(team, "operator")
    with pytest.raises(NotAllowed):
        assignments.weaken(row, by=stranger)
    assert not assignments.may_weaken(stranger, row)
    assert assignments.weaken(row, by=ours).mode == Assignment.Mode.APPLY


def test_a_team_draws_no_nodes_of_another_into_its_pool(pool: Pool, team: Team, others: Team) -> None:
    """Else the team would get a say in the other's plans; nodes that no team owns, and an administrator, are free."""
    raws = [raw_node(name, labels={"pool": of}) for name, of in (("t1", "train"), ("v1", "vision"), ("f1", "free"))]
    store.observe_nodes(pool.cluster, raws, complete=True)
    PoolFactory(cluster=pool.cluster, name="vision", selector={"matchLabels": {"pool": "vision"}}, owner_team=others.pk)
    by = member(team, "operator")
    for selector in ("pool in (train,vision)", "pool", "pool=vision"):
        with pytest.raises(NotAllowed) as refused:
            pools.update_pool(pool, by=by, selector=selector)
        assert "a pool of Vision" in str(refused.value)
        answer = TokenClient(by).patch(f"/api/v1/pools/{pool.pk}", {"selector": selector}, HTTP_IF_MATCH='"1"')
        assert answer.status_code == 403
    pools.update_pool(pool, by=by, selector="pool in (train,free)")
    pools.update_pool(pool, by=UserFactory(roles=["operator", "admin"]), selector="pool")


def test_a_team_narrows_a_pool_that_shares_nodes_and_takes_no_others_selector(
    pool: Pool, team: Team, others: Team
) -> None:
    raws = [raw_node(name, labels={"pool": "train", "half": half}) for name, half in (("t1", "a"), ("t2", "b"))]
    store.observe_nodes(pool.cluster, raws, complete=True)
    PoolFactory(cluster=pool.cluster, name="beside", selector={"matchLabels": {"half": "a"}}, owner_team=others.pk)
    theirs = {"matchLabels": {"pool": "not-yet"}}
    PoolFactory(cluster=pool.cluster, name="empty", selector=theirs, owner_team=others.pk)
    by = member(team, "operator")
    pools.update_pool(pool, by=by, selector="pool=train,half=a")
    assert pool.version == 2, "narrowed to nodes that it shared already"
    with pytest.raises(NotAllowed) as refused:
        pools.update_pool(pool, by=by, selector="pool=not-yet")
    assert "a pool of Vision" in str(refused.value)


def test_repairs_of_shared_nodes_are_stopped_by_who_may_change_each_pool_of_them(pool: Pool, team: Team) -> None:
    """Every operator may make an unowned pool over a team's nodes, and plan a target for it."""
    around = PoolFactory(cluster=pool.cluster, name="around", selector={"matchLabels": {"pool": "train"}})
    profile = Profile.objects.create(name="gpu")
    revision = Revision.objects.create(profile=profile, number=1, digest="sha256:" + "0" * 64, source="", content={})
    row = Assignment.objects.create(pool=around, revision=revision, mode=Assignment.Mode.ENFORCE)
    stranger = UserFactory(roles=["operator"])
    assert assignments.may_weaken(stranger, row), "no node is shared yet"
    store.observe_nodes(pool.cluster, [raw_node("t1", labels={"pool": "train"})], complete=True)
    assert "shares nodes with train. Speech owns it" in assignments.reason_against(stranger, row)
    with pytest.raises(NotAllowed):
        assignments.weaken(row, by=stranger)
    assert assignments.weaken(row, by=member(team, "operator")).mode == Assignment.Mode.APPLY


@pytest.mark.parametrize("way", ["create", "update"])
def test_a_team_that_is_removed_meanwhile_becomes_no_owner(
    pool: Pool, others: Team, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is read first; another request removes the team before this one holds it."""
    looked_up = owners.team_id

    def and_then_removed(name: str | None) -> int | None:
        key = looked_up(name)
        Team.objects.filter(pk=key).delete()
        return key

    monkeypatch.setattr(owners, "team_id", and_then_removed)
    admin = UserFactory(roles=["admin", "operator"])
    given: dict[str, Callable[[], Pool]] = {
        "create": lambda: pools.create_pool(pool.cluster, by=admin, name="new", selector="pool=x", owner="Vision"),
        "update": lambda: pools.update_pool(pool, by=admin, owner="Vision"),
    }
    with pytest.raises(Invalid) as refused:
        given[way]()
    assert refused.value.fields == {"owner": ["This team was removed just now. Choose another."]}
    assert list(Pool.objects.values_list("name", "version")) == [("train", 1)]


def test_a_token_without_the_scope_admin_is_told_so(pool: Pool) -> None:
    for person in (UserFactory(roles=["admin", "operator"]), UserFactory(is_superuser=True)):
        client = TokenClient(person, ["read", "plan"])
        answer = client.patch(f"/api/v1/pools/{pool.pk}", {"description": "q"}, HTTP_IF_MATCH='"1"')
        assert (answer.status_code, "token scope admin" in answer.json()["detail"]) == (403, True)
    answer = TokenClient(UserFactory(roles=["operator"])).patch(
        f"/api/v1/pools/{pool.pk}", {"description": "q"}, HTTP_IF_MATCH='"1"'
    )
    assert "Speech owns it: you also need a role in that team, or the role admin." in answer.json()["detail"]
