"""Reading of SETPOINT_OIDC_*: providers are whole, or the process does not start and names the variable."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from accounts.models import RoleBinding
from accounts.permissions import ENVIRONMENTS, check_role_scope, check_scope
from common.errors import Invalid
from config import env, oidc
from config.doctor import mappings
from config.env import BadEnvironment
from gpus.models import Team
from tests.clusters.factories import ClusterFactory

ROLES = "[{group: ops, role: operator, scope: 'env:staging'}, {group: 'CN=admins,OU=x', role: admin, scope: '*'}]"
CORP = {
    "SETPOINT_OIDC_PROVIDERS": "corp",
    "SETPOINT_OIDC_CORP_ISSUER": "https://id.example.com/realms/x",
    "SETPOINT_OIDC_CORP_CLIENT_ID": "setpoint",
    "SETPOINT_OIDC_CORP_CLIENT_SECRET": "hush",
    "SETPOINT_OIDC_CORP_ROLES": ROLES,
}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Read the settings of an environment: those of CORP with these changes; None takes one away."""

    def read(**changes: str | None) -> Any:
        for name, value in (CORP | changes).items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        return oidc.providers(env.words("SETPOINT_OIDC_PROVIDERS"))

    return read


def test_nothing_set_is_no_single_sign_on() -> None:
    assert oidc.providers([]) == ()
    assert oidc.local_accounts([], ()) == frozenset()


def test_a_provider_is_read_whole_and_its_secret_not_shown(read: Any, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from a file\n")
    (tmp_path / "roles").write_text(ROLES)
    corp, other = read(
        SETPOINT_OIDC_PROVIDERS="corp, other",
        SETPOINT_OIDC_CORP_NAME="Example Corp",
        SETPOINT_OIDC_CORP_CLIENT_SECRET=None,
        SETPOINT_OIDC_CORP_CLIENT_SECRET_FILE=str(tmp_path / "secret"),
        SETPOINT_OIDC_CORP_ROLES=None,
        SETPOINT_OIDC_CORP_ROLES_FILE=str(tmp_path / "roles"),
        SETPOINT_OIDC_CORP_SCOPES="openid email groups",
        SETPOINT_OIDC_CORP_TRUST_EMAIL="yes",
        SETPOINT_OIDC_OTHER_ISSUER="https://login.example.net",
        SETPOINT_OIDC_OTHER_CLIENT_ID="x",
        SETPOINT_OIDC_OTHER_CLIENT_SECRET="y",
        SETPOINT_OIDC_OTHER_ROLES='[{"group": "all", "role": "viewer", "scope": "*"}]',
    )
    assert (corp.name, corp.client_secret, corp.scopes) == (
        "Example Corp",
        "from a file",
        ("openid", "email", "groups"),
    )
    assert (corp.trusts_email, other.trusts_email) == (True, False)
    assert corp.roles_of(["CN=admins,OU=x", "else"]) == {("admin", "*")}
    assert corp.roles_of(["ops"]) == {("operator", "env:staging")}
    assert other.roles_of(["ops"]) == set()
    assert "from a file" not in repr(corp)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"SETPOINT_OIDC_CORP_ISSUER": None}, "SETPOINT_OIDC_CORP_ISSUER"),
        ({"SETPOINT_OIDC_CORP_CLIENT_ID": ""}, "SETPOINT_OIDC_CORP_CLIENT_ID"),
        ({"SETPOINT_OIDC_CORP_CLIENT_SECRET": None}, "SETPOINT_OIDC_CORP_CLIENT_SECRET"),
        ({"SETPOINT_OIDC_CORP_CLIENT_SECRET_FILE": "/nowhere"}, "SETPOINT_OIDC_CORP_CLIENT_SECRET"),
        ({"SETPOINT_OIDC_CORP_ROLES": None}, "SETPOINT_OIDC_CORP_ROLES"),
        ({"SETPOINT_OIDC_CORP_ISUER": "https://x.example.com"}, "SETPOINT_OIDC_CORP_ISUER"),
        ({"SETPOINT_OIDC_OTHER_ISSUER": "https://x.example.com"}, "SETPOINT_OIDC_OTHER_ISSUER"),
        ({"SETPOINT_OIDC_PROVIDERS": None}, "SETPOINT_OIDC_CORP_"),
        ({"SETPOINT_OIDC_PROVIDERS": "corp,corp"}, "SETPOINT_OIDC_PROVIDERS"),
        ({"SETPOINT_OIDC_PROVIDERS": "corp,Corp-2"}, "SETPOINT_OIDC_PROVIDERS"),
        ({"SETPOINT_OIDC_CORP_ISSUER": "http://id.example.com"}, "SETPOINT_OIDC_CORP_ISSUER"),
        ({"SETPOINT_OIDC_CORP_ISSUER": "id.example.com"}, "SETPOINT_OIDC_CORP_ISSUER"),
        ({"SETPOINT_OIDC_CORP_ISSUER": "https://[::1"}, "SETPOINT_OIDC_CORP_ISSUER"),
        ({"SETPOINT_OIDC_CORP_ISSUER": "https://u:p@id.example.com"}, "SETPOINT_OIDC_CORP_ISSUER"),
        ({"SETPOINT_OIDC_CORP_ISSUER": "https://id.example.com/.well-known/x"}, "SETPOINT_OIDC_CORP_ISSUER"),
        ({"SETPOINT_OIDC_CORP_SCOPES": "email groups"}, "SETPOINT_OIDC_CORP_SCOPES"),
        ({"SETPOINT_OIDC_CORP_SCOPES": "openid \u201cgroups\u201d"}, "SETPOINT_OIDC_CORP_SCOPES"),
        ({"SETPOINT_OIDC_CORP_TRUST_EMAIL": "maybe"}, "SETPOINT_OIDC_CORP_TRUST_EMAIL"),
        ({"SETPOINT_OIDC_CORP_AUTH_METHOD": "none"}, "SETPOINT_OIDC_CORP_AUTH_METHOD"),
    ],
)
def test_a_provider_that_is_half_set_or_misspelled_does_not_start(
    read: Any, changes: dict[str, str | None], names: str
) -> None:
    with pytest.raises(BadEnvironment, match=names) as refused:
        read(**changes)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "roles",
    ["", "[]", "{}", "ops", "[ops]", "[{group: ops}]", "[{group: ops, role: operator}]", "[[",
     "[{group: 7, role: viewer, scope: '*'}]",
     "[{group: ops, role: owner, scope: '*'}]", "[{group: ops, role: operator, scope: 'env:prod'}]",
     "[{group: '', role: operator, scope: '*'}]", "[{group: ops, role: operator, scope: '**'}]",
     "[{group: ops, role: operator, scope: 'cluster:atlas'}]", "[{group: ops, role: operator, scope: '*', when: now}]",
     "[{group: ops, role: operator, scope: 'team:7'}]", "[{group: ops, role: viewer, scope: 'team:Speech'}]",
     "[{group: ops, role: operator, scope: '*'}, {group: ops, role: operator, scope: '*'}]"],
)  # fmt: skip
def test_a_mapping_that_is_not_understood_does_not_start(read: Any, roles: str) -> None:
    with pytest.raises(BadEnvironment, match="SETPOINT_OIDC_CORP_ROLES"):
        read(SETPOINT_OIDC_CORP_ROLES=roles)


def test_a_group_may_limit_its_viewers_to_a_team(read: Any) -> None:
    (corp,) = read(SETPOINT_OIDC_CORP_ROLES="[{group: speech, role: viewer, scope: 'team:3'}]")
    assert corp.roles_of({"speech"}) == {("viewer", "team:3")}


def test_two_providers_of_one_issuer_do_not_start(read: Any) -> None:
    again = {name.replace("CORP", "OTHER"): value for name, value in CORP.items()}
    with pytest.raises(BadEnvironment, match="ISSUER"):
        read(**again | {"SETPOINT_OIDC_PROVIDERS": "corp,other"})


def test_passwords_are_not_closed_without_another_way_in(read: Any) -> None:
    assert oidc.local_accounts(["Emergency@example.com"], read()) == {"emergency@example.com"}
    with pytest.raises(BadEnvironment, match="SETPOINT_OIDC_PROVIDERS"):
        oidc.local_accounts(["emergency@example.com"], ())
    with pytest.raises(BadEnvironment, match="SETPOINT_LOCAL_ACCOUNTS"):
        oidc.local_accounts(["none"], read())


def test_roles_and_scopes_are_those_of_accounts() -> None:
    assert tuple(RoleBinding.Role.values) == oidc.ROLES
    scopes = ["*", *(f"env:{name}" for name in ENVIRONMENTS), f"cluster:{uuid4()}"]
    for scope in scopes:
        assert oidc.SCOPE.fullmatch(scope)
        assert check_scope(scope) == scope
    for scope in ("env:other", "cluster:", "env:", "", f"cluster:{uuid4().hex}x"):
        assert not oidc.SCOPE.fullmatch(scope)
        with pytest.raises(Invalid):
            check_scope(scope)
    for scope, is_one in (("team:7", True), ("team:0", False), ("team:", False), ("team:07", False)):
        assert bool(oidc.SCOPE.fullmatch(scope)) is is_one
        if is_one:
            assert check_role_scope("viewer", scope) == scope
    assert set(re.findall("[a-z]+", oidc.SCOPE.pattern.split("env:(")[1].split(")")[0])) == set(ENVIRONMENTS)


@pytest.mark.django_db
def test_doctor_names_each_mapped_cluster_and_team_that_is_not_there(read: Any, settings: Any) -> None:
    there = [f"cluster:{ClusterFactory().pk}", f"team:{Team.objects.create(name='A').pk}", "*", "env:staging"]
    gone = [f"cluster:{uuid4()}", "team:999999"]
    rows = ", ".join(f"{{group: g, role: viewer, scope: '{scope}'}}" for scope in (*there, *gone))
    settings.SETPOINT_OIDC = read(SETPOINT_OIDC_CORP_ROLES=f"[{rows}]")

    warned = list(mappings.scopes_there())

    named = [scope for scope in (*there, *gone) if any(f" in {scope}," in finding.text for finding in warned)]
    assert named == gone
    assert {finding.state for finding in warned} == {"warning"}
