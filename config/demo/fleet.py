"""The demo's clusters, each behind an HTTPS door of its own on a free loopback port."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from clusters.net.credentials import Credentials
from config.demo import tls
from simfleet.apiserver.callers import SETPOINT, person
from simfleet.clock import Clock
from simfleet.core import SimCluster
from simfleet.fleets import more_gpu_nodes, training_cluster
from simfleet.http import Door
from simfleet.machines.host_counters import SLOW_DISK
from simfleet.machines.inference_counters import FULL, ServingLoad
from simfleet.machines.instances import ALL_1G, ALL_3G, BALANCED, HALF_3G, Layout
from simfleet.machines.training_counters import TrainingLoad

BOOT_SECONDS = 10.0
"""With the kubelet's and the agent's start, a reboot takes about 20 s: long enough to be watched."""


@dataclass(frozen=True, slots=True)
class Site:
    """One cluster as the demo describes it."""

    name: str
    environment: str
    nodes: int
    gpus: int
    budget: int = 1
    control_planes: int = 0
    is_busy: bool = True
    pools: Mapping[str, int] = field(default_factory=dict)
    mig: Mapping[int, Layout] = field(default_factory=dict)
    """Nodes whose GPUs are split, by number."""
    joins: int = 0
    """GPU nodes that join late in the history, in EXTRA_POOL: a large demo must not cost a large history."""
    is_connected: bool = True
    is_late: bool = False
    """Connected in the middle of the history, not at its beginning."""
    is_equipped: bool = True
    """False: no network, device plugin or scheduler is installed yet."""


SITES: Sequence[Site] = (
    Site(
        "atlas-training",
        "production",
        48,
        8,
        6,
        3,
        pools={"train-rdma": 40, "interactive": 8},
        mig={41: ALL_1G, 42: BALANCED, 43: ALL_3G, 44: HALF_3G},
    ),
    Site("borealis-inference", "staging", 24, 4, 3, pools={"serving": 18, "canary": 6}),
    Site("cirrus-dev", "development", 6, 8, 2, is_busy=False, pools={"dev": 6}),
    Site("dune-edge", "staging", 4, 2, 1, pools={"edge": 4}),
    Site("fjord-bare", "development", 6, 8, 2, 1, is_busy=False, pools={"train": 6}, is_late=True, is_equipped=False),
    Site("ember-lab", "development", 4, 2, is_busy=False, pools={"lab": 4}, is_connected=False),
)
"""The fourth is connected and then lost. The fifth is new and bare, for visitors to equip; the last one is there for
them to connect, by page or by API."""
WORN = 5
"""Number of the node with a slow disk, which is one of a job's."""
EXTRA_POOL = "pretrain"
"""Of the nodes that join."""
LEAST_NODES = SITES[0].nodes + SITES[0].control_planes
MOST_NODES = 5000


def sites(nodes: int = LEAST_NODES) -> Sequence[Site]:
    """The demo's clusters, the first one with so many nodes, its control plane included. Raises ValueError."""
    first, *others = SITES
    if not LEAST_NODES <= nodes <= MOST_NODES:
        raise ValueError(
            f"The first cluster has {LEAST_NODES} to {MOST_NODES:,} nodes, {first.control_planes} of them control "
            f"plane; {nodes:,} is out of that range."
        )
    return (replace(first, joins=nodes - LEAST_NODES), *others)


def reading_seconds(nodes: int) -> float:
    """Between two readings of the GPUs of a demo with so many nodes in its first cluster.

    Exporter, door and reader together take 4 ms of CPU a node, and all of it is this machine's: 2 minutes at 5,000
    nodes keep that below a fifth of a core, and are within the three that a reading counts as the present.
    """
    return max(30.0, 120.0 * nodes / MOST_NODES)


class ServedCluster:
    """A simulated cluster and the way to it."""

    def __init__(self, site: Site, clock: Clock) -> None:
        self.site = site
        self.sim: SimCluster = training_cluster(
            site.name,
            nodes=site.nodes,
            gpus=site.gpus,
            clock=clock,
            live=True,
            control_planes=site.control_planes,
            is_busy=site.is_busy,
            pools=site.pools,
            mig=site.mig,
            boot_seconds=BOOT_SECONDS,
            is_equipped=site.is_equipped,
        )
        if site.is_equipped:
            self.sim.monitoring.install()
            self.sim.monitoring.serves("team-serving", "chat", FULL if site.environment == "staging" else ServingLoad())
            self.sim.monitoring.trains("team-llm", "llm-pretrain", TrainingLoad())
            self.sim.monitoring.loads |= {f"{site.name}-gpu-{WORN:03}": SLOW_DISK} if site.nodes > WORN else {}
        self._token, self._persons = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._ca, context = tls.server_context(site.name)
        tokens = {self._token: SETPOINT, self._persons: person("you@example.com")}
        self.door = Door(self.sim, tokens=tokens, ssl_context=context)

    def join(self) -> None:
        """The nodes that the site still lacks."""
        site = self.site
        more_gpu_nodes(
            self.sim,
            site.name,
            first=site.nodes + 1,
            count=site.joins,
            gpus=site.gpus,
            pool=EXTRA_POOL,
            boot_seconds=BOOT_SECONDS,
        )

    @property
    def credential(self) -> Credentials:
        return Credentials(server=self.door.url, ca=self._ca, token=self._token)

    @property
    def by_hand(self) -> Credentials:
        """Credentials of a person with kubectl, as distinct from Setpoint's."""
        return Credentials(server=self.door.url, ca=self._ca, token=self._persons)


def left_to_connect(served: Mapping[str, ServedCluster], folder: Path) -> dict[str, str]:
    """Return demo.env's values for the cluster that is not connected; write its authority's certificate to a file."""
    values = {}
    for name, entry in served.items():
        if not entry.site.is_connected:
            authority = folder / f"{name}.crt"
            authority.write_text(entry.credential.ca, encoding="utf-8")
            values = {
                "SETPOINT_LAB_SERVER": entry.credential.server,
                "SETPOINT_LAB_CA": str(authority),
                "SETPOINT_LAB_TOKEN": entry.credential.token,
            }
    return values


@contextmanager
def serving(sites: Sequence[Site], clock: Clock) -> Iterator[dict[str, ServedCluster]]:
    """The clusters by name, served for the length of a block."""
    served = {site.name: ServedCluster(site, clock) for site in sites}
    for entry in served.values():
        entry.door.start()
    try:
        yield served
    finally:
        for entry in served.values():
            entry.door.stop()
