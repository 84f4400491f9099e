"""API servers that are slow or endless: none takes longer, nor sends more, than it may."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable

import pytest

from clusters.fleet import (
    FleetUnavailable,
    Untrusted,
)
from clusters.kube.apiserver import MAX_ANSWER, ApiServer, Call
from clusters.net.credentials import Credentials
from components.helm import releases
from tests.clusters.kube.scripted import (
    AUTHORITY,
    HERE,
    TIMEOUT,
    Script,
    Server,
    answer,
    status,
)


def within(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() < until


def test_silence_ends_at_the_timeout(serve):
    fleet, _ = serve(lambda connection, request: time.sleep(5), timeout=TIMEOUT)
    is_in_time = within(3 * TIMEOUT)
    with pytest.raises(FleetUnavailable, match=r"no answer within 0\.5 s"):
        fleet.node("n1")
    assert is_in_time()


def test_a_server_that_drips_is_cut_off_at_the_timeout(serve):
    def drip(connection: ssl.SSLSocket, request: str) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(1000):
            connection.sendall(b" ")
            time.sleep(TIMEOUT / 5)

    fleet, _ = serve(drip, timeout=TIMEOUT)
    is_in_time = within(4 * TIMEOUT)
    with pytest.raises(FleetUnavailable, match="did not end in time"):
        fleet.node("n1")
    assert is_in_time()


def test_a_server_that_pours_is_cut_off_at_the_limit(serve):
    def pour(connection: ssl.SSLSocket, request: str) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    _, server = serve(pour)
    api_server = ApiServer(
        Credentials(server=f"https://127.0.0.1:{server.port}", ca=AUTHORITY.pem), policy=HERE, timeout=20
    )
    with pytest.raises(Untrusted, match="longer than"):
        api_server.send(Call("get", "nodes"), "GET", "/", limit=1_000_000)
    api_server.close()
    assert MAX_ANSWER < 100 * 1024 * 1024


def test_an_answer_that_breaks_off_is_no_answer(serve):
    def break_off(connection: ssl.SSLSocket, request: str) -> None:
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"kind": "Node"}')
        connection.shutdown(socket.SHUT_RDWR)

    fleet, _ = serve(break_off)
    with pytest.raises(FleetUnavailable, match="broke"):
        fleet.node("n1")


def test_a_list_without_an_end_is_given_up(serve, monkeypatch):
    monkeypatch.setattr("clusters.kube.paging.MAX_PAGES", 5)
    fleet, server = serve(answer(200, {"kind": "NodeList", "metadata": {"continue": "more"}, "items": []}))
    with pytest.raises(Untrusted, match="no end"):
        fleet.list("nodes")
    assert len(server.requests) == 5


@pytest.mark.parametrize(
    "page",
    [
        {"kind": "NodeList", "metadata": {}, "items": {"a": "b"}},
        {"kind": "NodeList", "metadata": {}, "items": [1, 2]},
        {"kind": "NodeList", "items": []},
        {"kind": "Node", "metadata": {}},
    ],
)
def test_a_list_that_is_none_is_refused(serve, page):
    fleet, _ = serve(answer(200, page))
    with pytest.raises(Untrusted):
        fleet.list("nodes")


def test_pages_follow_each_other_and_one_that_grew_too_old_starts_again(serve):
    def say(connection: ssl.SSLSocket, request: str) -> None:
        first = "continue=" not in request
        expired = not first and len(server.requests) == 2
        token = {"continue": "second"} if first else {}
        page = {
            "kind": "NodeList",
            "metadata": {"resourceVersion": "9", **token},
            "items": [{"metadata": {"name": request}}],
        }
        (answer(410, status(410)) if expired else answer(200, page))(connection, request)

    fleet, server = serve(say)
    page = fleet.list("nodes", fresh=True)
    assert len(page.items) == 2
    assert page.resource_version == "9"
    assert len(server.requests) == 4


def expiring(times: int) -> Callable[[Server], Script]:
    """Two pages of a list, of which the second expires so often first, as after a compaction of etcd."""

    def of(server: Server) -> Script:
        def say(connection: ssl.SSLSocket, request: str) -> None:
            first = "continue=" not in request
            expired = not first and sum("continue=" in request for request in server.requests) <= times
            token = {"continue": "second"} if first else {}
            kind = "SecretList" if "secrets" in request else "NodeList"
            page = {"kind": kind, "metadata": {"resourceVersion": "9", **token}, "items": [{"metadata": {}}]}
            (answer(410, status(410)) if expired else answer(200, page))(connection, request)

        return say

    return of


def test_pages_that_expire_again_and_again_are_no_refusal(serve):
    """The listed objects are not in question: callers wait as for an unavailable API server, and no step fails."""
    fleet, server = serve(answer(200, {}))
    server.say = expiring(100)(server)
    with pytest.raises(FleetUnavailable, match="expire"):
        fleet.list("nodes")
    assert len(server.requests) <= 10


def test_helms_records_are_listed_again_when_a_page_expired(serve):
    fleet, server = serve(answer(200, {}))
    server.say = expiring(1)(server)
    assert len(list(releases._records(fleet._server, "/api/v1/secrets", "owner=helm"))) == 2
    server.requests.clear()
    server.say = expiring(100)(server)
    with pytest.raises(FleetUnavailable, match="expire"):
        list(releases._records(fleet._server, "/api/v1/secrets", "owner=helm"))
