"""API servers that refuse or fail: each answer has its error."""

from __future__ import annotations

import ssl

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
    Throttled,
    Untrusted,
)
from tests.clusters.kube.scripted import (
    POD,
    QUOTA,
    answer,
    status,
)

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
    ("ready", "message", "is_permitted_then", "error"),
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
def test_a_refusal_counts_once_the_api_server_is_ready_and_says_it_again(
    serve, ready, message, is_permitted_then, error
):
    """An API server that has just started has read no roles, and forbids even /readyz."""
    paths: list[str] = []

    def say(connection: ssl.SSLSocket, request: str) -> None:
        paths.append(request.split()[1])
        if paths[-1] == "/readyz":
            return answer(ready, status(ready, message))(connection, request)
        if is_permitted_then and len(paths) > 1:
            return answer(200, {"kind": "Node", "metadata": {"name": "n1"}})(connection, request)
        return answer(403, status(403, FORBIDDEN))(connection, request)

    fleet, _ = serve(say)
    if error is None:
        assert fleet.node("n1")["metadata"]["name"] == "n1"
    else:
        with pytest.raises((Forbidden, FleetUnavailable)) as raised:
            fleet.node("n1")
        assert type(raised.value) is error
    assert len(paths) <= 3


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
    paths: list[str] = []

    def say(connection: ssl.SSLSocket, request: str) -> None:
        paths.append(request.split()[1])
        return answer(403, status(403, 'pods "p" is forbidden: exceeded quota: gpus'))(connection, request)

    fleet, _ = serve(say)
    with pytest.raises(Forbidden):
        fleet.node("n1")
    assert len(paths) == 1


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
