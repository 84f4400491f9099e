"""The simulated cluster behind its HTTP door, reached by the port that reaches real ones."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from clusters.fleet import Fleet
from clusters.kube.fleet import KubeFleet
from clusters.net.credentials import Credentials
from simfleet.apiserver.callers import SETPOINT, Caller
from simfleet.core import SimCluster
from simfleet.http import Door
from tests.contract.worlds import SimWorld
from tests.controlplane.pki import Authority
from tests.controlplane.plane import LOOPBACK

NOBODY = Caller("nobody", "nobody")


class Entrance:
    """A TLS door with a CA of its own, and the port through it as the account that a token names."""

    def __init__(self, cluster: SimCluster) -> None:
        authority = Authority()
        certificate, key = authority.server(["127.0.0.1"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "server.pem")
            path.write_text(certificate + key)
            context.load_cert_chain(path)
        self.ca = authority.pem
        self.door = Door(cluster, tokens={"setpoint": SETPOINT, "nobody": NOBODY}, ssl_context=context).start()
        self._fleets: list[KubeFleet] = []

    def credentials(self, token: str = "setpoint") -> Credentials:
        return Credentials(server=self.door.url, ca=self.ca, token=token)

    def fleet(self, token: str = "setpoint", *, timeout: float = 10.0) -> KubeFleet:
        fleet = KubeFleet(self.credentials(token), policy=LOOPBACK, timeout=timeout)
        self._fleets.append(fleet)
        return fleet

    def close(self) -> None:
        for fleet in self._fleets:
            fleet.close()
        self.door.stop()


class DoorWorld(SimWorld):
    def __init__(self) -> None:
        super().__init__()
        self.entrance = Entrance(self.cluster)
        self.fleet: Fleet = self.entrance.fleet()

    def stranger(self) -> Fleet:
        super().stranger()
        return self.entrance.fleet("nobody")

    def clean(self) -> None:
        self.entrance.close()
