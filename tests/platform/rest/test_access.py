"""One table: every address of the product, and what each kind of person gets there. An address without a line fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from clusters.models import Cluster
from tests.platform.rest.doors import WHO, Doors, addresses, expected
from tests.platform.rest.lasting import lasting


def methods(callback: Any) -> set[str]:
    """Methods to try at every address, and those that its view offers besides."""
    named = {name.upper() for name in getattr(callback, "actions", None) or {}}
    return {"GET", "POST"} | named - {"HEAD"}  # which the framework adds once a view has been called


@pytest.fixture(scope="module")
def lasting_doors(django_db_setup: None, django_db_blocker: Any) -> Iterator[Doors]:
    with lasting(Doors, django_db_blocker, nodes=3) as made:
        yield made


@pytest.fixture
def doors(lasting_doors: Doors, db: None) -> Doors:
    return lasting_doors


def test_every_address_is_in_the_table_and_no_line_is_of_an_address_that_is_gone():
    there = {route for route, _ in addresses()}
    assert {route for _, route in expected()} == there


@pytest.mark.one_database  # what a role may is decided in Python; every address is asked on both by the tests below
def test_everybody_gets_at_every_address_what_the_table_says(doors):
    table, wrong = expected(), {}
    for route, callback in addresses():
        for method in sorted(methods(callback)):
            wanted = dict(zip(WHO, table[method, route], strict=True)) if (method, route) in table else _nothing(route)
            got = {who: doors.knock(who, method, route) for who in wanted}
            if got != wanted:
                wrong[method, route] = f"{got}, not {wanted}"
    assert wrong == {}


def _nothing(route: str) -> dict[str, int]:
    """Expected statuses of a method that no role is offered; the API authenticates first. Two of them suffice."""
    is_open = not route.startswith("api/") or route in ("api/v1/docs", "api/v1/manifest")
    return {"anonymous": 405 if is_open else 401, "admin": 405}


def test_nothing_of_a_cluster_is_given_or_changed_outside_its_scope():
    """The table itself is checked, so that no line can be wrong in this."""
    of_a_cluster = ("plans/", "rollouts/", "clusters/<", "pools/<", "nodes/<", "freezes/<", "audit/<")
    of_a_cluster += ("approval-rules/<", "approvals/rules/<", "calendar-rules/<", "windows/<")
    for (method, route), statuses in expected().items():
        bare = route.removeprefix("api/v1/").removeprefix("^")
        if bare.startswith(of_a_cluster) and ("<" in route):
            leads_back = method == "GET" and set(statuses[: WHO.index("team")]) == {302}
            assert leads_back or statuses[WHO.index("outside")] in (404, 422), (method, route)


def test_an_auditor_changes_what_a_viewer_changes_and_nothing_else():
    """A viewer changes their own account only; the table itself is checked, so that no line can be wrong in this."""
    more: set[str] = set()
    for (method, route), statuses in expected().items():
        viewer, admin, auditor = (statuses[WHO.index(who)] for who in ("viewer", "admin", "auditor"))
        assert auditor in (viewer, admin if method == "GET" else 403), (method, route)
        more |= {route} if method == "GET" and auditor != viewer else set()
    assert {"people/", "api/v1/users", "api/v1/role-bindings/<int:pk>", "api/v1/workload-rules"} <= more


def test_the_anonymous_get_a_log_in_or_a_401_at_all_but_a_few_addresses():
    open_ = {route for (_, route), statuses in expected().items() if statuses[0] not in (302, 401, 405)}
    assert open_ == {
        "healthz", "readyz", "metrics", "login/", "login/with/<slug:key>/", "login/with/<slug:key>/back/", "setup/",
        "login/saml/<slug:key>/", "login/saml/<slug:key>/acs/", "login/saml/<slug:key>/metadata/",
        "login/passkey/options/",
        "link/<str:secret>/", "clusters/setpoint.yaml", "api/v1/manifest", "oauth/token",
    }  # fmt: skip


def test_options_tells_the_methods_and_never_fails(doors):
    """A browser's preflight or a scanner asks it of every address; nothing is behind it, so nothing may break."""
    wrong = {}
    for route, _ in addresses():
        is_rest = route.startswith("api/") and route not in ("api/v1/docs", "api/v1/manifest")
        for who in ("anonymous", "viewer", "admin"):
            expected = {200} if is_rest and who != "anonymous" else {200, 302, 401, 404, 405, 410}
            if (status := doors.knock(who, "OPTIONS", route)) not in expected:
                wrong[route, who] = status
    assert wrong == {}


@pytest.mark.parametrize("who", ["outside", "team", "none"])
def test_no_answer_names_what_its_reader_has_no_role_for(doors, who):
    """A staging cluster's name, id, nodes, plans, and the author of the profile that runs there stay hidden."""
    world = doors.world
    Cluster.objects.filter(pk=world.cluster.pk).update(name="kept-from-you")
    node = world.node("n1")
    hidden: tuple[str, ...] = ("kept-from-you", str(world.cluster.pk), str(world.cluster.uid), str(node.uid))
    hidden += (world.author.email,) * (who != "outside")
    leaks = {}
    for route in {route for route, _ in addresses()} - {"metrics"}:  # which answers this machine, or its token
        status, content = doors.answer(who, "GET", route)
        address = doors.address(route)
        leaked = [text for text in hidden if text in content.replace(address, "") and text not in address]
        if status == 200 and leaked:
            leaks[route] = leaked
    assert leaks == {}


def test_an_account_without_a_role_reads_nothing_stored_but_its_own():
    """The table itself is checked: a page or a list that a viewer reads is closed to it, unless named here."""
    own = {"account/", "account/second-factor/", "account/confirm/", "api/v1/me", "api/v1/role-bindings",
           "api/v1/tokens", "api/v1/sessions", "api/v1/openapi.json"}  # fmt: skip
    of_teams = {"team/<int:pk>/", "api/v1/gpus/teams/<int:pk>/week"}
    for who, opened in (("none", own), ("team", own | of_teams)):
        reads = {
            route
            for (method, route), statuses in expected().items()
            if method == "GET" and statuses[WHO.index(who)] == 200 and statuses[0] in (302, 401)
        }
        assert reads == opened, who


@pytest.mark.parametrize("who", ["team", "none"])
def test_an_account_without_a_role_reads_no_record(doors, who):
    assert doors.client.get("/api/v1/audit", **doors.tokens[who]).status_code == 403
    assert doors.client.get("/api/v1/audit", **doors.tokens["viewer"]).json()["count"] > 0
