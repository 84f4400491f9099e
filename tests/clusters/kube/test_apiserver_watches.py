"""Watches of an API server: events, bad events and the end."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable

import pytest

from clusters.fleet import (
    FleetUnavailable,
    Gone,
    Untrusted,
)
from tests.clusters.kube.scripted import (
    NODE,
    Script,
    status,
)


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
