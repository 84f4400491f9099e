"""The egress policy: what is judged is the address connected to, at the moment of connecting."""

from __future__ import annotations

import http.server
import socket
import threading

import pytest
import urllib3

from clusters.net import egress
from clusters.net.egress import EgressRefused, PinnedPools, Policy

HERE = Policy.of(["127.0.0.0/8", "::1/128"])


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0",  # link-local
        "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192",  # metadata elsewhere
        "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1",  # the same, dressed as IPv6
        "::169.254.169.254", "::ffff:0:169.254.169.254", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:fffe:a9:fea9:fe00:0",
        "2001:0:a9fe:a9fe::", "2001:0:5ef5:79fb:0:0:5601:5601",  # Teredo: its server, and its client inverted
        "2001:db8::5efe:169.254.169.254", "2001:db8::200:5efe:169.254.169.254",  # ISATAP
        "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1",  # no single host
    ],
)  # fmt: skip
def test_some_addresses_are_never_connected_to_whatever_is_allowed(address):
    everything = Policy.of(["0.0.0.0/0", "::/0"])
    for policy in (Policy(), everything):
        with pytest.raises(EgressRefused, match="never connected to"):
            policy.check(address)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"])
def test_loopback_is_reached_only_where_the_setting_says_so(address):
    with pytest.raises(EgressRefused, match="SETPOINT_ALLOW_NETWORKS"):
        Policy().check(address)
    with pytest.raises(EgressRefused):
        Policy.of(["10.0.0.0/8"]).check(address)
    HERE.check(address)


@pytest.mark.parametrize("address", ["10.0.0.5", "192.168.1.1", "172.16.0.9", "8.8.8.8", "2001:db8::1", "fd12::1"])
def test_ordinary_and_private_addresses_are_permitted(address):
    Policy().check(address)


def test_a_setting_that_is_no_network_is_named():
    with pytest.raises(ValueError, match="nonsense"):
        Policy.of(["nonsense"])


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f.1", "[::1]", "0"])
def test_other_spellings_of_loopback_are_judged_by_what_they_resolve_to(host):
    with pytest.raises(EgressRefused):
        PinnedPools(Policy()).request("GET", f"http://{host}:9/", timeout=2)


def test_a_name_that_changes_its_mind_gains_nothing(monkeypatch):
    """DNS rebinding: harmless when looked at, loopback a moment later. There is one look, and that is connected to."""
    answers = iter([[(socket.AF_INET, "127.0.0.1")], [(socket.AF_INET, "8.8.8.8")]])
    connected = []
    monkeypatch.setattr(egress, "_lookup", lambda host, port: next(answers))
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: connected.append(address))

    with pytest.raises(EgressRefused, match=r"127\.0\.0\.1"):
        Policy().connect("rebind.example", 443, timeout=1)
    Policy().connect("rebind.example", 443, timeout=1).close()

    assert connected == [("8.8.8.8", 443)]


def test_of_several_addresses_only_permitted_ones_are_tried(monkeypatch):
    addresses = [(socket.AF_INET, "169.254.169.254"), (socket.AF_INET, "10.0.0.9"), (socket.AF_INET, "127.0.0.1")]
    monkeypatch.setattr(egress, "_lookup", lambda host, port: addresses)
    assert Policy().resolve("mixed.example", 443) == [(socket.AF_INET, "10.0.0.9")]


def test_a_resolver_that_does_not_answer_is_given_up(monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(egress, "DNS_SECONDS", 0.05)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: [release.wait(5)][:0])
    try:
        with pytest.raises(urllib3.exceptions.NameResolutionError):
            PinnedPools(Policy()).request("GET", "http://slow.example/", timeout=2)
    finally:
        release.set()


@pytest.fixture
def redirecting():
    """A server that redirects every request and counts them."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.path)
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/first", seen
    server.shutdown()
    server.server_close()


def test_a_redirect_is_an_answer_and_is_not_followed(redirecting):
    url, seen = redirecting
    response = PinnedPools(HERE).request("GET", url, redirect=True, timeout=5)
    assert response.status == 302
    assert seen == ["/first"]


def test_proxies_of_the_environment_are_not_used(redirecting, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    url, seen = redirecting
    assert PinnedPools(HERE).request("GET", url, timeout=5).status == 302
    assert seen == ["/first"]


def test_a_refused_connection_says_so():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening
        with pytest.raises(urllib3.exceptions.NewConnectionError):
            PinnedPools(HERE).request("GET", f"http://127.0.0.1:{taken.getsockname()[1]}/", timeout=2)
