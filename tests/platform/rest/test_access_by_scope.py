"""Consequences of the table of access for narrower roles and weaker tokens; nothing here has a table of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from accounts.models import ApiToken, User
from clusters.models import Cluster
from common.clock import now
from common.scopes import needed_scope
from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import World
from tests.platform.rest.doors import ROLES, WHO, Doors, addresses, cookies_of, expected
from tests.platform.rest.lasting import lasting

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.one_database,
]  # every view asks PostgreSQL in test_access.py, and in our part of the full tier

Key = tuple[str, str]
UNGUARDED = ("api/v1/openapi.json", "api/v1/docs", "api/v1/manifest")
"""Without a role of their own, as test_access.py shows."""
OF_EVERYTHING = {
    "POST components/archives/": 403,
    "POST api/v1/chart-archives": 403,
    "DELETE api/v1/chart-archives": 403,
    "components/repositories/": 403,
    "api/v1/chart-repositories": 403,
    "POST api/v1/chart-repositories": 403,
    "components/site/new/": 403,
    "POST components/site/": 403,
    "POST api/v1/site-entries": 403,
    "PATCH api/v1/site-entries": 403,
    "DELETE api/v1/site-entries": 403,
    "POST approvals/policy/": 403,
    "POST api/v1/policy-versions/<": 404,
    "api/v1/policy-versions/from-rules": 403,
    "api/v1/ticket-connections": 403,
    "api/v1/ticket-connections/<": 403,
    "POST approvals/change-records/connections/<": 403,
    "POST gpus/checks/<slug:name>/image/": 403,
    "PUT api/v1/gpus/checks/<slug:name>/image": 403,
    "POST gpus/prices/": 403,
    "POST gpus/prices/<": 403,
    "POST gpus/teams/": 403,
    "POST gpus/teams/rules/": 403,
    "gpus/teams/<": 403,
    "POST gpus/teams/<": 403,
    "POST api/v1/gpus/prices": 403,
    "POST api/v1/gpus/prices/<": 403,
    "POST api/v1/gpus/teams": 403,
    "PATCH api/v1/gpus/teams/<": 403,
    "DELETE api/v1/gpus/teams/<": 403,
    "PUT api/v1/gpus/team-rules": 403,
    "POST api/v1/gpus/team-rules/preview": 403,
    "alerts/channels/": 403,
    "POST alerts/channels/": 403,
    "alerts/deliveries/": 403,
    "POST alerts/rules/": 403,
    "PATCH api/v1/alert-rules/<": 403,
    "DELETE api/v1/alert-rules/<": 403,
    "api/v1/notice-channels": 403,
    "POST api/v1/notice-channels": 403,
    "api/v1/notice-deliveries": 403,
    "people/": 403,
    "workloads/": 403,
    "provisioning/": 403,
    "api/v1/workload-rules": 403,
    "POST api/v1/workload-rules": 403,
    "PATCH api/v1/workload-rules/<": 403,
    "people/changes/<": 404,
    "api/v1/pending-changes/<": 404,
    "api/v1/users": 403,
    "api/v1/role-bindings/<": 404,
}
"""What an admin of one cluster or environment gets at what belongs to the whole installation; an empty body is still
read first, unless the method is named."""
AS_ADMIN = {
    ("POST", "api/v1/plans/<uuid:pk>/actions/withdraw"),
    ("POST", "api/v1/pending-changes/<uuid:pk>/actions/consent"),
    ("POST", "api/v1/policy-versions/<int:number>/actions/activate"),
}
"""Declared for `plan` and `approve`: authors withdraw their own, and a consent is a signature. Another party's are an
admin's, by a token that may."""


class MoreDoors(Doors):
    """All accounts of the table; besides, roles in one environment or cluster, service accounts, and weaker tokens."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.other = Cluster.objects.create(
            uid="00000000-0000-4000-8000-000000000001",
            name="elsewhere",
            environment=world.cluster.environment,
            server="https://127.0.0.1:2",
            credential=b"-",
            credential_key="-",
        )
        self.scopes = {"environment": f"env:{world.cluster.environment}", "cluster": f"cluster:{world.cluster.pk}"}
        self.everything = UserFactory(roles=list(ROLES))

    def let_in(self, user: User, scopes: list[str] | None = None) -> str:
        """A name to knock with. `scopes` are the token's: all that this kind of account may have, unless given."""
        name = f"{user} {scopes}"
        self.tokens[name] = TokenClient(user, scopes).defaults
        ApiToken.objects.update(last_used_at=now())
        self.cookies[name] = cookies_of(user)
        return name

    def differences(self, who: str, wanted: Mapping[Key, int]) -> dict[Key, tuple[int, int]]:
        """Return the addresses where `who` gets another status than wanted: (that, wanted)."""
        got = {key: self.knock(who, *key) for key in wanted}
        return {key: (got[key], wanted[key]) for key in wanted if got[key] != wanted[key]}


@pytest.fixture(scope="module")
def doors(django_db_setup: None, django_db_blocker: Any) -> Iterator[MoreDoors]:
    with lasting(MoreDoors, django_db_blocker, nodes=1) as made:
        yield made


def column(who: str, *, of: str = "") -> dict[Key, int]:
    """Return the table's statuses for `who` at each address that begins with `of`."""
    answers = expected().items()
    return {key: got[WHO.index(who)] for key, got in answers if key[1].startswith(of) and key[1] not in UNGUARDED}


def needed() -> dict[Key, str]:
    """The token scope that each method of the API declares."""
    out = {}
    for route, callback in addresses():
        if route.startswith("api/") and route not in UNGUARDED:
            view = callback.cls
            offered = {name: None for name in view.http_method_names if name != "options" and hasattr(view, name)}
            for method, action in (getattr(callback, "actions", None) or offered).items():
                view.action = action
                try:
                    out[method.upper(), route] = needed_scope(view, method.upper())
                finally:
                    del view.action
    return {key: scope for key, scope in out.items() if key in expected()}


def is_api(key: Key) -> bool:
    return key[1].startswith("api/")


# ── Roles in a part of the installation ───────────────────────────────────────────────────────────────────────────────
def narrowed(role: str) -> dict[Key, int]:
    """Expected statuses of a role held only for the addresses' cluster: refused for installation-wide objects.
    An auditor of a part is a viewer there."""
    out = column("viewer" if role == "auditor" else role)
    for key, status in out.items() if role == "admin" else ():
        for prefix, refused in OF_EVERYTHING.items():
            of_method = " ".join(key).startswith(prefix)
            if of_method or (key[1].startswith(prefix) and not (status == 422 and is_api(key))):
                out[key] = refused
    return out


@pytest.mark.parametrize("where", ["environment", "cluster"])
def test_a_role_counts_in_its_environment_or_cluster_as_everywhere_but_for_what_belongs_to_all(
    doors: MoreDoors, where: str
) -> None:
    who = doors.let_in(UserFactory(roles=[f"admin@{doors.scopes[where]}"]))

    assert doors.differences(who, narrowed("admin")) == {}


@pytest.mark.full
@pytest.mark.parametrize("where", ["environment", "cluster"])
@pytest.mark.parametrize("role", ROLES)
def test_each_role_counts_so(doors: MoreDoors, role: str, where: str) -> None:
    who = doors.let_in(UserFactory(roles=[f"{role}@{doors.scopes[where]}"]))

    assert doors.differences(who, narrowed(role)) == {}


def test_all_roles_in_another_cluster_of_the_same_environment_are_worth_what_those_of_a_stranger_are(
    doors: MoreDoors,
) -> None:
    who = doors.let_in(UserFactory(roles=[f"{role}@cluster:{doors.other.pk}" for role in ROLES]))

    assert doors.differences(who, column("outside")) == {}


def test_a_role_of_a_team_that_was_removed_opens_no_more_than_none(doors: MoreDoors) -> None:
    """The list of one's own teams opens, and is empty."""
    who = doors.let_in(UserFactory(roles=["viewer@team:999999"]))

    differing = doors.differences(who, column("none"))

    gone = {"team/": 200, "team/<int:pk>/": 404, "api/v1/gpus/teams/<int:pk>/week": 404}
    assert {key[1]: got for key, (got, _) in differing.items()} == gone


@pytest.mark.parametrize("role", [role for role in ROLES if role != "viewer"])
def test_no_other_role_counts_in_a_team(doors: MoreDoors, role: str) -> None:
    """No such role can be given; a row of one, as of a version to come, opens nothing."""
    who = doors.let_in(UserFactory(roles=[f"{role}@team:{doors.values['team/<int:pk>']}"]))

    assert doors.differences(who, column("none")) == {}


# ── Tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("missing", ["plan", "apply", "approve", "admin"])
def test_a_token_without_a_scope_is_refused_exactly_where_that_scope_is_declared(
    doors: MoreDoors, missing: str
) -> None:
    """The owner holds every role, so a refusal is the token's."""
    writes = {key: scope for key, scope in needed().items() if key[0] != "GET"}
    declared = {key for key, scope in writes.items() if scope == missing}
    whole = doors.let_in(doors.everything)
    partial = doors.let_in(doors.everything, [scope for scope in ApiToken.Scope.values if scope != missing])

    refused = {key for key in writes if doors.knock(partial, *key) == 403}

    assert declared <= refused
    others = {key for key in refused - declared if doors.knock(whole, *key) != 403}
    assert others <= (AS_ADMIN if missing == "admin" else set())


def test_a_token_that_only_reads_reads_everything_and_writes_nothing(doors: MoreDoors) -> None:
    reader = doors.let_in(doors.everything, ["read"])

    wrong = {}
    for (method, route), scope in needed().items():
        got = doors.knock(reader, method, route)
        if (got == 403) == (scope == "read"):
            wrong[method, route] = got
    assert wrong == {}


@pytest.mark.parametrize("role", ["operator", "approver"])
def test_a_service_account_gets_what_its_role_gets_but_never_approves(doors: MoreDoors, role: str) -> None:
    """A service account has no use for the role approver: it stays a viewer."""
    never = {key: 403 for key, scope in needed().items() if scope == "approve"}
    wanted = column("viewer" if role == "approver" else role, of="api/") | never

    assert doors.differences(doors.let_in(UserFactory(roles=[role], is_service=True)), wanted) == {}
