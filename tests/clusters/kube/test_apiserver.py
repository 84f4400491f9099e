"""API servers that are slow, wrong or lying: each answer has its error, and none takes longer than it may."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clusters.fleet import (
    Conflict,
    CredentialsRefused,
    FleetError,
    FleetRefused,
    FleetUnavailable,
    Forbidden,
    Gone,
    NotFound,
    ObjectRef,
    PodRef,
    Throttled,
    Untrusted,
    WrongCertificate,
)
from clusters.kube.apiserver import MAX_ANSWER, ApiServer, Call
from clusters.kube.fleet import KubeFleet
from clusters.net.credentials import Credentials
from clusters.net.egress import Policy
from components.helm import releases
from tests.controlplane.pki import Authority

HERE = Policy.of(["127.0.0.0/8"])
AUTHORITY = Authority()
TIMEOUT = 0.5
POD = PodRef("default", "p", "uid-1")
QUOTA = ObjectRef("v1", "ResourceQuota", "gpus", "team-a")
Script = Callable[[ssl.SSLSocket, str], None]


class Server:
    """TLS on 127.0.0.1; what it says to each request is up to the test."""

    def __init__(self, say: Script, host: str = "127.0.0.1") -> None:
        self.say = say
        self.requests: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "server.pem")
            path.write_text("".join(AUTHORITY.server([host])))
            self._context.load_cert_chain(path)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(plain,), daemon=True).start()

    def _talk(self, plain: socket.socket) -> None:
        try:
            with self._context.wrap_socket(plain, server_side=True) as connection:
                while request := self._request(connection):
                    self.requests.append(request)
                    self.say(connection, request)
        except OSError:
            plain.close()

    def _request(self, connection: ssl.SSLSocket) -> str:
        data = b""
        while b"\r\n\r\n" not in data:
            if not (chunk := connection.recv(65536)):
                return ""
            data += chunk
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        while length and len(body) < int(length[1]):  # else what is left of it would begin the next request
            body += connection.recv(65536)
        return head.split(b"\r\n")[0].decode()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., tuple[KubeFleet, Server]]]:
    servers: list[Server] = []
    fleets: list[KubeFleet] = []

    def start(say: Script, **how: str) -> tuple[KubeFleet, Server]:
        servers.append(Server(say, **how))
        credentials = Credentials(server=f"https://127.0.0.1:{servers[-1].port}", ca=AUTHORITY.pem, token="t")
        fleets.append(KubeFleet(credentials, policy=HERE, timeout=TIMEOUT))
        return fleets[-1], servers[-1]

    yield start
    for fleet in fleets:
        fleet.close()
    for server in servers:
        server.close()


def answer(status: int, body: object, **headers: str) -> Script:
    text = body if isinstance(body, str) else json.dumps(body)
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())

    def say(connection: ssl.SSLSocket, request: str) -> None:
        raw = text.encode()
        connection.sendall(f"HTTP/1.1 {status} Said\r\nContent-Length: {len(raw)}\r\n{head}\r\n".encode() + raw)

    return say


def status(code: int, message: str = "said so", **details: object) -> dict[str, object]:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "message": message, "details": details}


STARTING = """nodes "n1" is forbidden: User "x" cannot get resource "nodes" at the cluster scope: RBAC: \
[clusterrole.rbac.authorization.k8s.io "setpoint-controller" not found, clusterrole.rbac.authorization.k8s.io \
"system:discovery" not found]"""
"""Of an API server that was started a moment ago: no cluster lacks a role that every API server makes."""

FORBIDDEN = 'nodes "n1" is forbidden: User "x" cannot get resource "nodes" in API group "" at the cluster scope'


# ── Statuses ──────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("code", "body", "error"),
    [
        (401, "nope", CredentialsRefused),
        (403, status(403), Forbidden),
        (403, status(403, STARTING), FleetUnavailable),
        (404, status(404), NotFound),
        (409, status(409), Conflict),
        (410, status(410), Gone),
        (422, status(422), FleetRefused),
        (400, status(400), FleetRefused),
        (408, status(408), FleetUnavailable),
        (429, status(429), Throttled),
        (500, status(500), FleetUnavailable),
        (503, "<html>upstream</html>", FleetUnavailable),
        (404, "<html>not found</html>", Untrusted),
        (404, "404 page not found\n", Untrusted),
        (410, "<html>gone</html>", Untrusted),
        (302, "", Untrusted),
        (200, "<html>hello</html>", Untrusted),
        (200, "[]", Untrusted),
        (200, "", Untrusted),
        (200, {"kind": "Pod", "metadata": {}}, Untrusted),
        (200, "[" * 100_000, Untrusted),
        (200, '{"kind": "Node", "a": ' * 20_000, Untrusted),
    ],
)
def test_every_answer_has_its_error(serve, code, body, error):
    fleet, _ = serve(answer(code, body))
    with pytest.raises(FleetRefused if issubclass(error, FleetRefused) else FleetUnavailable) as raised:
        fleet.node("n1")
    assert type(raised.value) is error


@pytest.mark.parametrize(
    ("ready", "said", "is_permitted_then", "error"),
    [
        (500, "not yet", False, FleetUnavailable),
        (403, STARTING, False, FleetUnavailable),
        (403, "no", False, Forbidden),
        (403, "no", True, None),
        (404, "no", False, Forbidden),
        (200, "ok", False, Forbidden),
        (200, "ok", True, None),
    ],
)
def test_a_refusal_counts_once_the_api_server_is_ready_and_says_it_again(serve, ready, said, is_permitted_then, error):
    """An API server that has just started has read no roles, and forbids even /readyz."""
    asked: list[str] = []

    def say(connection: ssl.SSLSocket, request: str) -> None:
        asked.append(request.split()[1])
        if asked[-1] == "/readyz":
            return answer(ready, status(ready, said))(connection, request)
        if is_permitted_then and len(asked) > 1:
            return answer(200, {"kind": "Node", "metadata": {"name": "n1"}})(connection, request)
        return answer(403, status(403, FORBIDDEN))(connection, request)

    fleet, _ = serve(say)
    if error is None:
        assert fleet.node("n1")["metadata"]["name"] == "n1"
    else:
        with pytest.raises((Forbidden, FleetUnavailable)) as raised:
            fleet.node("n1")
        assert type(raised.value) is error
    assert len(asked) <= 3


@pytest.mark.parametrize("call", [lambda fleet: fleet.evict(POD), lambda fleet: fleet.policy(QUOTA)])
def test_whatever_is_asked_of_a_server_that_has_just_started_is_asked_again_later(serve, call):
    def say(connection: ssl.SSLSocket, request: str) -> None:
        is_ready = request.split()[1] == "/readyz"
        return answer(*((500, status(500)) if is_ready else (403, status(403, FORBIDDEN))))(connection, request)

    fleet, _ = serve(say)
    with pytest.raises(FleetUnavailable):
        call(fleet)


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "not a proxy", "https://[::1"])
def test_proxies_of_the_environment_are_ignored(serve, monkeypatch, proxy):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, proxy)
    monkeypatch.setenv("NO_PROXY", "")
    fleet, _ = serve(answer(200, {"kind": "Node", "metadata": {"name": "n1"}}))
    assert fleet.node("n1")["metadata"]["name"] == "n1"


@pytest.mark.parametrize("code", [301, 307, 429, 500, 503])
def test_a_request_is_sent_once(serve, code):
    """Neither retried nor redirected behind its caller's back: the caller decides."""
    fleet, server = serve(answer(code, status(code), Location="https://127.0.0.1:9/", Retry_After="0"))
    with pytest.raises(FleetError):
        fleet.node("n1")
    assert len(server.requests) == 1


def test_what_admission_refuses_is_not_asked_twice(serve):
    asked: list[str] = []

    def say(connection: ssl.SSLSocket, request: str) -> None:
        asked.append(request.split()[1])
        return answer(403, status(403, 'pods "p" is forbidden: exceeded quota: gpus'))(connection, request)

    fleet, _ = serve(say)
    with pytest.raises(Forbidden):
        fleet.node("n1")
    assert len(asked) == 1


def test_a_load_balancers_404_never_reads_as_a_pod_that_is_gone(serve):
    fleet, _ = serve(answer(404, "<html>no backend</html>"))
    with pytest.raises(Untrusted):
        fleet.evict(POD)


@pytest.mark.parametrize(
    ("headers", "details", "seconds"),
    [
        ({"Retry_After": "7"}, {}, 7.0),
        ({}, {"retryAfterSeconds": 4}, 4.0),
        ({}, {}, 1.0),
        ({"Retry_After": "999999"}, {}, 300.0),
        ({"Retry_After": "soon"}, {}, 1.0),
        ({"Retry_After": "-5"}, {}, 0.0),
    ],
)
def test_a_throttled_call_says_how_long_to_wait(serve, headers, details, seconds):
    fleet, _ = serve(answer(429, status(429, **details), **headers))
    with pytest.raises(Throttled) as raised:
        fleet.node("n1")
    assert raised.value.retry_after == seconds
    eviction = fleet.evict(POD)
    assert (eviction.outcome, eviction.retry_after) == ("throttled", seconds)


def test_a_servers_words_are_made_fit_for_a_page(serve):
    fleet, _ = serve(answer(403, status(403, "a\x1b[31m\nb\u202e" + "x" * 5000)))
    with pytest.raises(Forbidden) as raised:
        fleet.node("n1")
    text = str(raised.value)
    assert text.isprintable()
    assert len(text) < 600


def test_a_redirect_is_not_followed(serve):
    fleet, server = serve(answer(302, "", Location="/elsewhere"))
    with pytest.raises(Untrusted, match="redirect"):
        fleet.node("n1")
    assert server.requests == ["GET /api/v1/nodes/n1 HTTP/1.1"]


# ── Time and size ─────────────────────────────────────────────────────────────────────────────────────────────────────
def within(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() < until


def test_silence_ends_at_the_timeout(serve):
    fleet, _ = serve(lambda connection, request: time.sleep(5))
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

    fleet, _ = serve(drip)
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
    one = ApiServer(Credentials(server=f"https://127.0.0.1:{server.port}", ca=AUTHORITY.pem), policy=HERE, timeout=20)
    with pytest.raises(Untrusted, match="longer than"):
        one.send(Call("get", "nodes"), "GET", "/", limit=1_000_000)
    one.close()
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
            expired = not first and sum("continue=" in one for one in server.requests) <= times
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


# ── Watches ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def events(*lines: object, then: Callable[[ssl.SSLSocket], None] | None = None) -> Script:
    def say(connection: ssl.SSLSocket, request: str) -> None:
        body = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines).encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(body), 7):  # lines and chunks have nothing to do with each other
            piece = body[start : start + 7]
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        if then:
            then(connection)
        else:
            connection.sendall(b"0\r\n\r\n")

    return say


def event(type_: str, **object_: object) -> dict[str, object]:
    return {"type": type_, "object": object_}


NODE = {"kind": "Node", "metadata": {"name": "n1", "resourceVersion": "5", "managedFields": [1]}}


def test_events_are_read_across_chunks_until_the_server_ends(serve):
    fleet, server = serve(events(event("ADDED", **NODE), event("BOOKMARK", metadata={"resourceVersion": "8"})))
    seen = list(fleet.watch("nodes", "4", timeout=2))
    assert [(e.type, e.resource_version) for e in seen] == [("ADDED", "5"), ("BOOKMARK", "8")]
    assert "managedFields" not in seen[0].object["metadata"]
    for part in ("watch=1", "resourceVersion=4", "allowWatchBookmarks=true", "timeoutSeconds=2"):
        assert part in server.requests[0]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (event("ERROR", **status(410, "too old")), Gone),
        (event("ERROR", **status(500)), FleetUnavailable),
        (event("SURPRISE", **NODE), Untrusted),
        ({"type": "ADDED", "object": "text"}, Untrusted),
        ("not json", Untrusted),
    ],
)
def test_a_bad_event_ends_a_watch_with_its_error(serve, line, error):
    fleet, _ = serve(events(event("ADDED", **NODE), line))
    watch = fleet.watch("nodes", "4", timeout=2)
    assert next(watch).type == "ADDED"
    with pytest.raises(error):
        next(watch)


def test_closing_the_fleet_ends_a_watch_in_another_thread(serve):
    fleet, _ = serve(events(event("ADDED", **NODE), then=lambda connection: time.sleep(30)))
    started, ended = threading.Event(), threading.Event()

    def follow() -> None:
        try:
            for _ in fleet.watch("nodes", "4", timeout=60):
                started.set()
        except FleetUnavailable:
            pass
        ended.set()

    threading.Thread(target=follow, daemon=True).start()
    assert started.wait(30)
    fleet.close()
    assert ended.wait(30)


# ── Who is talking ────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_server_of_another_authority_is_not_trusted(serve):
    _, server = serve(answer(200, NODE))
    other = Credentials(server=f"https://127.0.0.1:{server.port}", ca=Authority("other").pem, token="t")
    with pytest.raises(WrongCertificate, match="certificate is not accepted"):
        KubeFleet(other, policy=HERE, timeout=TIMEOUT).node("n1")
    assert server.requests == []  # and it was not told the token


def test_a_certificate_for_another_host_is_not_trusted_unless_the_name_is_given(serve):
    _, server = serve(answer(200, NODE), host="api.example")
    url = f"https://127.0.0.1:{server.port}"
    with pytest.raises(WrongCertificate, match="certificate is not accepted"):
        KubeFleet(Credentials(server=url, ca=AUTHORITY.pem), policy=HERE, timeout=TIMEOUT).node("n1")
    named = Credentials(server=url, ca=AUTHORITY.pem, tls_server_name="api.example")
    assert KubeFleet(named, policy=HERE, timeout=TIMEOUT).node("n1")["metadata"]["name"] == "n1"


def test_a_server_without_tls_is_not_trusted():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=greet, daemon=True).start()
        credentials = Credentials(server=f"https://127.0.0.1:{listener.getsockname()[1]}", ca=AUTHORITY.pem)
        with pytest.raises(Untrusted, match="does not speak TLS"):
            KubeFleet(credentials, policy=HERE, timeout=TIMEOUT).node("n1")


def test_loopback_is_refused_where_the_policy_does_not_allow_it(serve):
    _, server = serve(answer(200, NODE))
    credentials = Credentials(server=f"https://127.0.0.1:{server.port}", ca=AUTHORITY.pem)
    with pytest.raises(FleetRefused, match="SETPOINT_ALLOW_NETWORKS"):
        KubeFleet(credentials, policy=Policy(), timeout=TIMEOUT).node("n1")
    assert server.requests == []


def test_a_closed_port_is_unavailable():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        credentials = Credentials(server=f"https://127.0.0.1:{taken.getsockname()[1]}", ca=AUTHORITY.pem)
        with pytest.raises(FleetUnavailable, match="refused"):
            KubeFleet(credentials, policy=HERE, timeout=TIMEOUT).node("n1")


def test_a_client_key_leaves_no_file_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    certificate, key = AUTHORITY.client("me")
    KubeFleet(
        Credentials(server="https://127.0.0.1:1", ca=AUTHORITY.pem, client_certificate=certificate, client_key=key),
        policy=HERE,
    ).close()
    assert os.listdir(tmp_path) == []
    with pytest.raises(CredentialsRefused, match="cannot be used"):
        KubeFleet(Credentials(server="https://127.0.0.1:1", client_certificate="x", client_key="y"), policy=HERE)
    assert os.listdir(tmp_path) == []
