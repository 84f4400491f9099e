"""A kubeconfig for a program that this product runs, made from stored credentials and pinned to a judged address.

The program resolves nothing itself: it is given the numeric address that the egress policy permitted and that answered
just now, and the name for TLS to verify. A name that resolves to something else a second later gains nothing.
"""

from __future__ import annotations

import base64
import json
from urllib.parse import urlsplit

from clusters.fleet import FleetRefused, FleetUnavailable
from clusters.net.credentials import Credentials
from clusters.net.egress import EgressRefused, Policy

CONNECT_SECONDS = 5.0
_NAME = "setpoint"


def pinned(credentials: Credentials, *, policy: Policy, timeout: float = CONNECT_SECONDS) -> str:
    """JSON, which is YAML. Makes one TCP connection. Raises FleetRefused (the policy's no), FleetUnavailable."""
    parts = urlsplit(credentials.server)
    host, port = parts.hostname or "", parts.port or 443
    try:
        with policy.connect(host, port, timeout=timeout) as sock:
            address = str(sock.getpeername()[0])
    except EgressRefused as error:
        raise FleetRefused(str(error)) from error
    except OSError as error:
        raise FleetUnavailable(f"no connection to {host}:{port}: {error}") from error
    shown = f"[{address}]" if ":" in address else address
    return _written(credentials, f"https://{shown}:{port}{parts.path.rstrip('/')}", credentials.tls_server_name or host)


def _written(credentials: Credentials, server: str, name: str) -> str:
    cluster = {"server": server, "tls-server-name": name}
    if credentials.ca:
        cluster["certificate-authority-data"] = _encoded(credentials.ca)
    user: dict[str, str] = {}
    if credentials.token:
        user["token"] = credentials.token
    if credentials.client_certificate:
        user["client-certificate-data"] = _encoded(credentials.client_certificate)
        user["client-key-data"] = _encoded(credentials.client_key)
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": _NAME, "cluster": cluster}],
            "users": [{"name": _NAME, "user": user}],
            "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME}}],
            "current-context": _NAME,
        }
    )


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
