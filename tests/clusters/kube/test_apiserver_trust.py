"""TLS: certificates, host names and addresses that are trusted."""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
import threading

import pytest
from urllib3.util.ssl_ import ssl_wrap_socket

from clusters.fleet import (
    CredentialsRefused,
    FleetRefused,
    FleetUnavailable,
    Untrusted,
    WrongCertificate,
)
from clusters.kube import transport
from clusters.kube.fleet import KubeFleet
from clusters.net.credentials import Credentials
from clusters.net.egress import Policy
from tests.clusters.kube.scripted import (
    AUTHORITY,
    HERE,
    NODE,
    PATIENCE_SECONDS,
    answer,
)
from tests.controlplane.pki import Authority


def test_a_server_of_another_authority_is_not_trusted(serve):
    _, server = serve(answer(200, NODE))
    other = Credentials(server=f"https://127.0.0.1:{server.port}", ca=Authority("other").pem, token="t")
    with pytest.raises(WrongCertificate, match="certificate is not accepted"):
        KubeFleet(other, policy=HERE, timeout=PATIENCE_SECONDS).node("n1")
    assert server.requests == []  # and it was not told the token


def test_a_certificate_for_another_host_is_not_trusted_unless_the_name_is_given(serve):
    _, server = serve(answer(200, NODE), host="api.example")
    url = f"https://127.0.0.1:{server.port}"
    with pytest.raises(WrongCertificate, match="certificate is not accepted"):
        KubeFleet(Credentials(server=url, ca=AUTHORITY.pem), policy=HERE, timeout=PATIENCE_SECONDS).node("n1")
    named = Credentials(server=url, ca=AUTHORITY.pem, tls_server_name="api.example")
    assert KubeFleet(named, policy=HERE, timeout=PATIENCE_SECONDS).node("n1")["metadata"]["name"] == "n1"


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
            KubeFleet(credentials, policy=HERE, timeout=PATIENCE_SECONDS).node("n1")


def test_loopback_is_refused_where_the_policy_does_not_allow_it(serve):
    _, server = serve(answer(200, NODE))
    credentials = Credentials(server=f"https://127.0.0.1:{server.port}", ca=AUTHORITY.pem)
    with pytest.raises(FleetRefused, match="SETPOINT_ALLOW_NETWORKS"):
        KubeFleet(credentials, policy=Policy(), timeout=PATIENCE_SECONDS).node("n1")
    assert server.requests == []


def test_a_closed_port_is_unavailable():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        credentials = Credentials(server=f"https://127.0.0.1:{taken.getsockname()[1]}", ca=AUTHORITY.pem)
        with pytest.raises(FleetUnavailable, match="refused"):
            KubeFleet(credentials, policy=HERE, timeout=PATIENCE_SECONDS).node("n1")


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


def test_no_connection_changes_the_context_that_other_threads_connect_with(serve, monkeypatch):
    """urllib3 sets the protocols of ALPN for each connection, and OpenSSL frees those that another handshake reads."""
    _, server = serve(answer(200, NODE))
    context = transport.tls(Credentials(server=f"https://127.0.0.1:{server.port}", ca=AUTHORITY.pem))
    changes: list[list[str]] = []
    change = ssl.SSLContext.set_alpn_protocols

    def noted(self: ssl.SSLContext, protocols: list[str]) -> None:
        changes.append(protocols)
        change(self, protocols)

    monkeypatch.setattr(ssl.SSLContext, "set_alpn_protocols", noted)
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            wrapped = ssl_wrap_socket(connection, ssl_context=context, server_hostname="127.0.0.1")
            wrapped.close()

    assert changes == []
    context.set_alpn_protocols(["h2"])
    assert changes == [["h2"]], "others are still set"
