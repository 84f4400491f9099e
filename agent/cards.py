"""Network cards of the machine: which interfaces are any, their class, and where an attribute of one is.

Only cards of the machine's own: an interface without a device beneath it is none (loopback, bridge, bond, VLAN, tunnel,
the node's end of a pod's veth), and virtual functions belong to those whom they are lent to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from agent.host import CARDS, Host
from contract import nics

NET = "/sys/class/net/"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
_PLACE = re.compile(rf"{NET}([^/]+)/(mtu)|{CARDS}([^/]+)/([a-z_]+)")
_DEEPEST = 8
"""Interfaces beneath one another that are followed: a VLAN on a bridge on a bond is three."""


def place(interface: str, attribute: str) -> str:
    return f"{NET}{interface}/mtu" if attribute == "mtu" else f"{CARDS}{interface}/{attribute}"


def parsed(path: str) -> tuple[str, str] | None:
    """Return interface and attribute of a card's place; None for any other path."""
    match = _PLACE.fullmatch(path)
    if match is None:
        return None
    interface, attribute = (part for part in match.groups() if part)
    return (interface, attribute) if attribute in nics.ATTRIBUTES else None


def is_card(host: Host, interface: str) -> bool:
    """Return whether a device of the machine is beneath the interface, and no virtual function of one."""
    device = f"{NET}{interface}/device"
    return bool(_NAME.fullmatch(interface) and host.glob(device) and not host.glob(f"{device}/physfn"))


def classes(host: Host) -> dict[str, str]:
    """Return the class of each network card, by the name of its interface."""
    names = (path.split("/")[4] for path in host.glob(f"{NET}*/device"))
    cards = [name for name in names if is_card(host, name)]
    if not cards:
        return {}
    routes = set(_with_those_beneath(host, _default_routes(host)))
    rdma = {path.rpartition("/")[2] for path in host.glob("/sys/class/infiniband/*/device/net/*")}
    rdma |= {(host.read_text(path) or "").strip() for path in host.glob("/sys/class/infiniband/*/parent")}  # soft RoCE
    return {name: nics.DEFAULT_ROUTE if name in routes else nics.RDMA if name in rdma else nics.OTHER for name in cards}


def _default_routes(host: Host) -> Iterator[str]:
    """Yield the interfaces of default routes, in the main table of this process's network namespace."""
    for line in (host.read_text("/proc/net/route") or "").splitlines()[1:]:
        match line.split():
            case [interface, "00000000", _, _, _, _, _, "00000000", *_]:  # destination and mask
                yield interface
    for line in (host.read_text("/proc/net/ipv6_route") or "").splitlines():
        match line.split():
            case [destination, "00", *_, interface] if not destination.strip("0"):
                yield interface


def _with_those_beneath(host: Host, interfaces: Iterable[str]) -> Iterator[str]:
    level = {name for name in interfaces if _NAME.fullmatch(name)}
    for _ in range(_DEEPEST):
        yield from level
        carrying = (path for name in level for path in host.glob(f"{NET}{name}/lower_*"))
        level = {name for path in carrying if _NAME.fullmatch(name := path.rpartition("/lower_")[2])}
