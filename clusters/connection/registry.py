"""Registry of clients: opens the stored credential of a Cluster row, keeps one Fleet per process and cluster.

Tests and in-process demos put a simulated fleet in a cluster's place with `override`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from django.conf import settings

from clusters.connection import encryption
from clusters.fleet import CredentialsRefused, Fleet
from clusters.models import Cluster
from clusters.net.credentials import Credentials, from_kubeconfig, from_token
from clusters.net.egress import Policy
from common import hooks
from common.clock import now
from common.errors import Invalid

if TYPE_CHECKING:
    from clusters.kube.apiserver import ApiServer

FIELD = "credential"


class _Opened(NamedTuple):
    fleet: Fleet
    set_at: datetime
    """When the credential it uses was stored."""


_lock = threading.Lock()
_open: dict[UUID, _Opened] = {}
_overrides: dict[UUID | str, Fleet] = {}


class CredentialUnreadable(CredentialsRefused):
    """The stored credential does not open; no call was made. Chained from crypto's error."""


def connect(cluster: Cluster) -> Fleet:
    """The cluster's fleet, cached until its credential changes. Makes no call. Raises CredentialUnreadable."""
    with _lock:
        if fleet := _overrides.get(cluster.pk) or _overrides.get(cluster.server):
            return fleet
        have = _open.get(cluster.pk)
    if have and have.set_at >= cluster.credential_set_at:
        return have.fleet
    made = _Opened(open_fleet(credentials(cluster)), cluster.credential_set_at)
    with _lock:
        have = _open.get(cluster.pk)
        over: _Opened | None = have
        kept = made
        if have and have.set_at >= made.set_at:
            over, kept = made, have  # another thread was faster
        else:
            _open[cluster.pk] = made
    if over:
        over.fleet.close()
    return kept.fleet


def open_fleet(credential: Credentials) -> Fleet:
    """A fleet for these credentials; the caller closes it. Raises CredentialsRefused."""
    with _lock:
        if fleet := _overrides.get(credential.server):
            return fleet
    # Imported here because the client library costs a web process 60 MB and a second, and most never connect.
    from clusters.kube.fleet import KubeFleet

    policy = Policy.of(settings.SETPOINT_ALLOW_NETWORKS)
    return KubeFleet(credential, policy=policy, timeout=settings.SETPOINT_CALL_TIMEOUT_SECONDS)


@contextmanager
def dedicated(cluster: Cluster) -> Iterator[Fleet]:
    """A fleet of its own for a block that holds connections open for long: the watch. Raises CredentialUnreadable."""
    with _lock:
        stand_in = _overrides.get(cluster.pk) or _overrides.get(cluster.server)
    if stand_in is not None:
        yield stand_in
        return
    with trying(credentials(cluster)) as fleet:
        yield fleet


@contextmanager
def api_server(cluster: Cluster, *, connections: int = 32) -> Iterator[ApiServer]:
    """The cluster's API server itself, for objects that the port has no verbs for: what components install.

    Raises CredentialsRefused.
    """
    with server_of(credentials(cluster), connections=connections) as server:
        yield server


@contextmanager
def server_of(credential: Credentials, *, connections: int = 32) -> Iterator[ApiServer]:
    """The API server that these credentials are for. Raises CredentialsRefused."""
    from clusters.kube.apiserver import ApiServer

    policy = Policy.of(settings.SETPOINT_ALLOW_NETWORKS)
    timeout = settings.SETPOINT_CALL_TIMEOUT_SECONDS
    server = ApiServer(credential, policy=policy, timeout=timeout, connections=connections)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def trying(credential: Credentials) -> Iterator[Fleet]:
    """A fleet for credentials that are not stored (yet). Raises CredentialsRefused where they are unusable."""
    with _lock:
        stand_in = _overrides.get(credential.server)
    fleet = stand_in or open_fleet(credential)
    try:
        yield fleet
    finally:
        if stand_in is None:
            fleet.close()


def read_credentials(
    *, kubeconfig: str = "", context: str = "", server: str = "", ca: str = "", token: str = ""
) -> Credentials:
    """Parse what an administrator gave: a kubeconfig, or URL, CA and token. Raises BadCredentials, Invalid."""
    if kubeconfig.strip() and (server.strip() or token.strip()):
        text = "Give either a kubeconfig or URL, CA and token; both were given."
        raise Invalid(text, fields={"kubeconfig": [text]})
    if kubeconfig.strip():
        return from_kubeconfig(kubeconfig, now=now(), context=context or None)
    if not server.strip() and not token.strip():
        text = "Give a kubeconfig, or the URL, CA and token of a service account."
        raise Invalid(text, fields={"kubeconfig": [text]})
    return from_token(server=server, ca=ca, token=token, now=now())


def credentials(cluster: Cluster) -> Credentials:
    """The stored credential, opened. Raises CredentialUnreadable."""
    try:
        text = encryption.unseal(
            cluster.pk, FIELD, encryption.Sealed(bytes(cluster.credential), cluster.credential_key)
        )
    except (encryption.CannotOpen, encryption.KeyUnusable) as error:
        raise CredentialUnreadable(f"The stored credential of {cluster.name} cannot be read: {error}.") from error
    return Credentials.from_json(json.loads(text))


def sealed(cluster_id: UUID, credential: Credentials) -> encryption.Sealed:
    """Encrypt credentials for the row. Raises encryption.KeyUnusable."""
    return encryption.seal(cluster_id, FIELD, json.dumps(credential.to_json()))


def stored_secrets() -> Iterator[hooks.StoredSecret]:
    for cluster in Cluster.objects.order_by("name"):
        yield hooks.StoredSecret(
            row=cluster,
            place=cluster.pk,
            field=FIELD,
            columns=("credential", "credential_key"),
            title=f"The stored credential of {cluster.name}",
            action="cluster.reseal",
            target=f"cluster:{cluster.pk}",
            target_name=cluster.name,
            cluster_id=cluster.pk,
        )


def forget(cluster_id: UUID) -> None:
    """Close this process's client of a cluster that was disconnected."""
    with _lock:
        have = _open.pop(cluster_id, None)
    if have:
        have.fleet.close()


def install(place: UUID | str, fleet: Fleet) -> None:
    """Answer for a cluster's id, or for a server URL before the cluster exists, with this fleet from now on."""
    with _lock:
        _overrides[place] = fleet


def uninstall(place: UUID | str) -> None:
    with _lock:
        _overrides.pop(place, None)


@contextmanager
def override(place: UUID | str, fleet: Fleet) -> Iterator[Fleet]:
    """`install` for the length of a block; what stood there before comes back."""
    with _lock:
        before = _overrides.get(place)
        _overrides[place] = fleet
    try:
        yield fleet
    finally:
        with _lock:
            if before is None:
                _overrides.pop(place, None)
            else:
                _overrides[place] = before
