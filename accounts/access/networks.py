"""Address ranges (CIDR) from which a token is accepted. Stored as one canonical text."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

MOST = 20


def canonical(ranges: Sequence[str]) -> tuple[str, list[str]]:
    """Return the ranges as one text, and what is wrong with them, one sentence each."""
    networks, wrong = [], []
    if len(ranges) > MOST:
        return "", [f"At most {MOST} address ranges."]
    for text in ranges:
        if "%" in text:
            wrong.append(f"{text[:60]!r} has a zone: leave it out.")
            continue
        try:
            network = ipaddress.ip_network(text.strip(), strict=False)
            ipaddress.ip_network(text.strip())
        except ValueError:
            right = f" Did you mean {network}?" if _is_network(text) else " Write it as 10.0.0.0/8 or 2001:db8::/32."
            wrong.append(f"{text[:60]!r} is not an address range.{right}")
            continue
        if network.prefixlen == 0:
            wrong.append(f"{network} is every address: leave it out.")
        elif isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped:
            wrong.append(f"{text[:60]!r} is an IPv4 range: write it as IPv4.")
        networks.append(network)
    return " ".join(dict.fromkeys(map(str, networks))), wrong


def admits(networks: str, address: str) -> bool:
    """Return whether one of the ranges has this address. An empty text admits every address, a malformed one none."""
    if not networks:
        return True
    try:
        client = ipaddress.ip_address(address.partition("%")[0])
        ranges = [ipaddress.ip_network(text) for text in networks.split()]
    except ValueError:
        return False
    if isinstance(client, ipaddress.IPv6Address) and client.ipv4_mapped:
        client = client.ipv4_mapped
    return any(client in network for network in ranges)


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        return False
    return True
