"""The agent keeps running, and restarts nothing, when an API server, a proxy or a clock answers anything."""

from __future__ import annotations

import http.server
import json
import os
import queue
import socket
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.client import Client, RequestRefused, Unavailable
from agent.loop import Watcher
from contract import clock
from contract.nodetuning import RestartGrant
from tests.agent.kernel import EXPIRES, want

GOOD = {"metadata": {"uid": "u", "generation": 7, "resourceVersion": "7"}, "spec": {}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
METADATA = st.fixed_dictionaries({}, optional={"uid": JSON, "generation": JSON, "resourceVersion": JSON, "name": JSON})
OBJECT = JSON | st.fixed_dictionaries({}, optional={"metadata": METADATA | JSON, "spec": JSON, "code": JSON})
TYPES = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
EVENT = JSON | st.fixed_dictionaries(
    {},
    optional={"type": st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]) | JSON, "object": OBJECT},
)
PAGE = OBJECT | st.fixed_dictionaries(
    {}, optional={"items": st.lists(OBJECT, max_size=2) | JSON, "metadata": METADATA | JSON}
)


class Server:
    """Answers each request with the next of `answers`: the bytes that go over the wire."""

    def __init__(self):
        self.answers: list[bytes] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.wfile.write(outer.answers.pop(0))
                self.close_connection = True

            def log_message(self, *args):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def address(self):
        return f"http://127.0.0.1:{self.http.server_address[1]}"


def answer(body, date="Thu, 01 Jan 1970 00:00:00 GMT"):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\nDate: %s\r\nContent-Length: %d\r\n\r\n%s" % (date.encode("latin-1"), len(body), body)


@pytest.fixture(scope="module")
def server():
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture(scope="module")
def client(server, tmp_path_factory):
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text("t")
    return Client(server.address(), token_file=str(token), ca_file=None)


MANY_HEADERS = b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n"
RUBBISH = [b"", b"\x00\xff", b"HTTP/9.9 xyz\r\n\r\n", b"SSH-2.0-x\r\n", MANY_HEADERS,
           b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}",
           b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
           answer(b"[" * 100_000), answer(b"9" * 10_000), answer(b"{\"metadata\": 1e999}"),
           b"HTTP/1.1 500 x\r\n\r\n" + b"[" * 60_000, b"HTTP/1.1 302 x\r\nLocation: http://10.0.0.1/\r\n\r\n",
           answer(GOOD | {"metadata": []}), answer({"items": {"a": 1}}), answer({"items": ["x"]}),
           answer({"type": "ERROR", "object": {"code": None}}), answer({"type": "ADDED", "object": []}),
           answer({"type": "ADDED", "object": {"metadata": {"uid": "u", "generation": float("inf")}}})]  # fmt: skip


@pytest.mark.parametrize("rubbish", RUBBISH, ids=range(len(RUBBISH)))
@pytest.mark.parametrize("ask", ["tuning", "list", "watch"])
def test_rubbish_on_the_wire_is_an_api_server_that_is_away(server, client, rubbish, ask):
    server.answers[:] = [rubbish, rubbish]
    asking = {
        "tuning": lambda: client.tuning("n"),
        "list": lambda: client.list_one("n"),
        "watch": lambda: list(client.watch_one("n", "1")),
    }[ask]
    try:
        result = asking()
    except (Unavailable, RequestRefused):
        return
    assert result in ([], (None, "")), "an answer without an object is none"


@settings(max_examples=150, deadline=None)
@given(page=PAGE, event=EVENT, date=st.text(st.characters(codec="latin-1", exclude_characters="\r\n"), max_size=20))
def test_no_answer_ends_a_thread_of_the_agent(server, client, page, event, date):
    server.answers[:] = [answer(page, date), answer(page, date), answer(event, date)]
    for asking in (
        lambda: client.tuning("n")[0],
        lambda: client.list_one("n")[0],
        lambda: [event["object"] for event in client.watch_one("n", "1") if event.get("type") in ("ADDED", "MODIFIED")],
    ):
        try:
            result = asking()
        except (Unavailable, RequestRefused):
            continue
        for raw in result if isinstance(result, list) else [result] if result else []:
            assert isinstance(raw["metadata"]["uid"], str)
            assert isinstance(raw["metadata"]["generation"], int)


def keepalive_seconds(address: tuple[str, int]) -> float | None:
    """Seconds until the kernel probes the connection from this address, by `/proc/net/tcp`; None if it never will."""
    where = "{:08X}:{:04X}".format(struct.unpack("=I", socket.inet_aton(address[0]))[0], address[1])
    while True:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        (timer, _, ticks) = next(row[5] for row in rows if row[1] == where).partition(":")
        if timer != "01":  # what was sent is acknowledged
            return int(ticks, 16) / os.sysconf("SC_CLK_TCK") if timer == "02" else None


def test_the_kernel_probes_a_connection_on_which_nothing_is_heard(tmp_path):
    """A firewall that forgot a watch, or a server that lost its power, ends no connection, and a watch may be idle."""
    (tmp_path / "token").write_text("t")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = f"http://127.0.0.1:{listener.getsockname()[1]}"
        client = Client(server, token_file=str(tmp_path / "token"), ca_file=None)
        events = client.watch_one("n", "1")
        asking = threading.Thread(target=lambda: next(events, None))
        asking.start()
        try:
            connection, address = listener.accept()
            with connection:
                connection.recv(65536)
                seconds = keepalive_seconds(address)
                connection.sendall(answer({"type": "ADDED", "object": GOOD}))
        finally:
            asking.join(10)
            events.close()

    assert seconds is not None
    assert seconds <= 30


def test_the_watch_hears_again_whatever_ended_it(monkeypatch):
    """A thread that died would leave an agent that renews its Lease and never hears of a change."""
    monkeypatch.setattr("agent.loop.time.sleep", lambda seconds: None)
    arrivals: queue.SimpleQueue = queue.SimpleQueue()

    class Odd:
        tries = 0

        def list_one(self, name):
            self.tries += 1
            if self.tries == 1:
                raise RuntimeError("nobody thought of this")
            return GOOD, "7"

        def watch_one(self, name, version):
            threading.Event().wait()
            yield {}

    Watcher(Odd(), "node-1", arrivals).start()

    assert arrivals.get(timeout=5) == GOOD


@given(st.text(max_size=40) | st.from_regex(r"[A-Z][a-z]{2}, -?[0-9]{1,21} Nov [0-9]{1,9} [0-9:]{8} [+-][0-9]{4,16}"))
def test_no_text_is_too_odd_to_be_a_date(text):
    for read in (clock.of_header, clock.parsed):
        timestamp = read(text)
        assert timestamp is None or isinstance(timestamp, float)


def test_a_date_without_a_zone_is_utc(monkeypatch):
    assert clock.of_header("Thu, 01 Jan 1970 01:00:00 -0000") == 3600.0


def test_a_clock_that_is_set_back_gives_a_confirmed_grant_no_more_time(kernel, agent):
    steady = [0.0]
    agent.core._steady = lambda: steady[0]
    agent.ask(want("hugepages-2Mi", "10", "0"), restart=RestartGrant("g", "kubelet", "boot-1", EXPIRES))

    def announce(status):
        steady[0] += 60
        agent.now += 60 - 45  # a correction, while the status was being written

    status = agent.core.restart(agent.confirm, announce)

    assert status.restart.state == "Refused"
    assert not [effect for effect in kernel.effects if effect[0] == "run"]
