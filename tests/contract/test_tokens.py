"""Tokens that expire, asked for by the account itself: on the simulated door and on a real API server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clusters.connection import registry
from clusters.fleet import FleetRefused, Forbidden
from clusters.kube import tokens
from clusters.kube.apiserver import Call
from clusters.net.credentials import Credentials
from contract import names
from simfleet.apiserver.callers import Caller
from tests.contract.door import DoorWorld

COMPONENTS = Path(__file__).resolve().parents[2] / "deploy" / "setpoint-components.yaml"
MINE, HELM, ISSUER = names.CONTROLLER_SERVICE_ACCOUNT, names.HELM_SERVICE_ACCOUNT, names.HELM_ISSUER_SERVICE_ACCOUNT


class Accounts:
    def __init__(self, some: Credentials, given: dict[str, str]) -> None:
        self.some, self.given = some, given

    def of(self, account: str) -> Credentials:
        return tokens.with_token(self.some, self.given[account])


@pytest.fixture(params=["door", pytest.param("real", marks=pytest.mark.full)])
def accounts(request: pytest.FixtureRequest, settings: Any) -> Iterator[Accounts]:
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    if request.param == "door":
        world = DoorWorld()
        for account in (HELM, ISSUER):
            user = f"system:serviceaccount:{names.NAMESPACE}:{account}"
            world.entrance.door.tokens[account] = Caller(user, names.FIELD_MANAGER)
        yield Accounts(world.entrance.credentials(), {MINE: "setpoint", HELM: HELM, ISSUER: ISSUER})
        world.clean()
        return
    plane, admin = request.getfixturevalue("deployed"), request.getfixturevalue("cluster_admin")
    plane.kubectl("apply", "-f", str(COMPONENTS))
    yield Accounts(plane.admin, {account: admin.token(account) for account in (MINE, HELM, ISSUER)})
    plane.kubectl("delete", "-f", str(COMPONENTS))


def issued_token(credentials: Credentials, account: str, seconds: float = 3600) -> str:
    """Roles just applied are read by the API server a moment later."""
    deadline = time.monotonic() + 30
    while True:
        try:
            with registry.server_of(credentials) as server:
                return tokens.request(server, account, seconds)
        except Forbidden:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)


@pytest.mark.parametrize(("by", "account"), [(MINE, MINE), (ISSUER, ISSUER), (ISSUER, HELM)])
def test_a_token_that_was_asked_for_is_the_accounts_and_ends(accounts, by, account):
    token = issued_token(accounts.of(by), account)
    assert tokens.account_of(token) == f"system:serviceaccount:{names.NAMESPACE}:{account}"
    since, until = tokens.lifetime(token) or pytest.fail("it does not end")
    assert 3600 <= (until - since).total_seconds() <= 3700
    with registry.server_of(replace(accounts.of(by), token=token)) as server:
        assert server.get(Call("get", "version"), "/version")["gitVersion"]


def test_no_token_is_given_for_less_than_ten_minutes(accounts):
    since, until = tokens.lifetime(issued_token(accounts.of(MINE), MINE, seconds=5)) or pytest.fail("it does not end")
    assert (until - since).total_seconds() >= tokens.SHORTEST


@pytest.mark.parametrize(
    ("by", "account"), [(MINE, HELM), (MINE, ISSUER), (ISSUER, MINE), (HELM, HELM), (HELM, ISSUER), (HELM, MINE)]
)
def test_no_account_asks_for_anothers_token(accounts, by, account):
    issued_token(accounts.of(ISSUER), HELM)  # the roles are in force
    with registry.server_of(accounts.of(by)) as server, pytest.raises(FleetRefused):
        tokens.request(server, account, 600)
