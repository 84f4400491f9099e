"""A node with network cards whose drivers answer as the kernel does, and an API server that a change can cut off."""

from __future__ import annotations

import errno
import fnmatch
import os

from agent.journal import Journal
from agent.kinds.lifeline import Lifeline
from agent.reconcile import Reconciler
from tests.agent.kernel import Agent, Kernel

NET, NIC = "/sys/class/net/", "/nic/"
DRIVER = {"rx_ring": "512", "tx_ring": "512", "combined_channels": "8", "gro": "1", "gso": "1", "tso": "1"}
MAXIMA = {"rx_ring_max": "4096", "tx_ring_max": "4096", "combined_channels_max": "16", "mtu_max": "9000"}
HEAD = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"


def card(name: str, **more: str) -> dict[str, str]:
    values = DRIVER | MAXIMA | more
    own = {f"{NET}{name}/device/vendor": "0x15b3", f"{NET}{name}/mtu": "1500", f"{NET}{name}/carrier": "1"}
    return own | {f"{NIC}{name}/{attribute}": value for attribute, value in values.items()}


def virtual(name: str) -> dict[str, str]:
    """An interface without a device, such as the node's end of a pod's veth, whose driver knows offloads."""
    return {
        f"{NET}{name}/mtu": "1500",
        f"{NET}{name}/carrier": "1",
        **{f"{NIC}{name}/{n}": "1" for n in ("gro", "tso")},
    }


def routes(*interfaces: str) -> dict[str, str]:
    lines = "".join(f"{name} 00000000 0101A8C0 0003 0 0 0 00000000 0 0 0\n" for name in interfaces)
    return {"/proc/net/route": HEAD + lines + "cali1 0A000001 00000000 0005 0 0 0 FFFFFFFF 0 0 0"}


def rdma(name: str) -> dict[str, str]:
    return {f"/sys/class/infiniband/mlx5_{name}/device/net/{name}/ifindex": "7"}


MACHINE = (
    card("eno1")
    | card("eno2")
    | card("roce0")
    | card("roce1", rx_ring="1024")
    | rdma("roce0")
    | rdma("roce1")
    | virtual("lo")
    | virtual("cali1")
    | virtual("docker0")
    | routes("eno1")
)


class NetworkNode(Kernel):
    def __init__(self, machine: dict[str, str] = MACHINE) -> None:
        super().__init__(**machine)
        self.machine = machine
        self.cuts: dict[str, str] = {}
        """Values of places with which the API server does not answer this node."""
        self.drops: set[str] = set()
        """Places whose next write costs the interface its link for good."""
        self.looks = 0
        """How many questions the API server left without an answer."""
        self._names: tuple[frozenset[str], list[str]] = (frozenset(), [])

    def glob(self, pattern: str) -> list[str]:
        """Match as Kernel.glob does, with its folders named once, because cards are looked for by every key."""
        paths = frozenset(self.live) | frozenset(self.disk)
        if self._names[0] != paths:
            folders = {path.rsplit("/", n)[0] for path in paths for n in range(1, path.count("/"))}
            self._names = (paths, sorted(paths | folders))
        return [path for path in fnmatch.filter(self._names[1], pattern) if path.count("/") == pattern.count("/")]

    def write_text(self, path: str, value: str) -> None:
        if path.startswith((NET, NIC)) and path in self.live:
            _, *_, interface, attribute = path.split("/")
            most = self.live.get(f"{NIC}{interface}/{attribute}_max", "1")
            if int(value) > int(most):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        super().write_text(path, value)
        if path in self.drops:
            _, *_, interface, _ = path.split("/")
            self.live[f"{NET}{interface}/carrier"] = "0" if value != self.machine[path] else "1"

    def reboot(self) -> None:
        super().reboot()
        self.live |= self.machine

    def is_reachable(self) -> bool:
        return not any(self.live.get(path) == value for path, value in self.cuts.items())

    def reaches(self) -> bool:
        self.looks += not self.is_reachable()
        return self.is_reachable()

    def cards(self) -> dict[str, str]:
        """Return everything of network interfaces that could have been changed."""
        return {path: text for path, text in self.live.items() if path.startswith((NET, NIC))}


class NetworkAgent(Agent):
    kernel: NetworkNode

    def restart(self) -> None:
        """Start as `python -m agent` does: what is guarded goes back before anything is asked of the network."""
        self.core = Reconciler(
            self.kernel,
            Journal(self.kernel),
            lambda: self.now,
            node_uid="uid-1",
            agent_version="0.1.0",
            lifeline=Lifeline(self.kernel.reaches),
        )
        self.core.recover()
