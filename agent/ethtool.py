"""Attributes of a network card that the kernel keeps in no file: rings, channels, offloads, and the bound of the MTU.

By ioctl and netlink instead of the programs `ethtool` and `ip`: both are part of the kernel's stable interface, which
the programs use themselves; no node has to have the programs; and an answer is a number, not text to be parsed. The
numbers: include/uapi/linux/ethtool.h (ETHTOOL_*, struct ethtool_ringparam, ethtool_channels, ethtool_value), sockios.h
(SIOCETHTOOL), rtnetlink.h, if_link.h (IFLA_MAX_MTU). The requests concern the network namespace of this process.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

SIOCETHTOOL = 0x8946
_IFREQ = struct.Struct("16sP16x")
"""Name, and the address of the request; struct ifreq has 40 bytes on 64 bits."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """Layout of a request of 32-bit words: the place of the number that is meant. The first word is the command."""

    get: int
    put: int
    words: int
    value: int
    maximum: int = 0
    """0: it has none."""


_LAYOUTS: Mapping[str, _Layout] = {
    # cmd, rx_max, rx_mini_max, rx_jumbo_max, tx_max, rx, rx_mini, rx_jumbo, tx
    "rx_ring": _Layout(0x10, 0x11, 9, value=5, maximum=1),
    "tx_ring": _Layout(0x10, 0x11, 9, value=8, maximum=4),
    # cmd, max_rx, max_tx, max_other, max_combined, rx, tx, other, combined
    "combined_channels": _Layout(0x3C, 0x3D, 9, value=8, maximum=4),
    "tso": _Layout(0x1E, 0x1F, 2, value=1),
    "gso": _Layout(0x23, 0x24, 2, value=1),
    "gro": _Layout(0x2B, 0x2C, 2, value=1),
}
MAXIMUM = "_max"
"""Ends the name under which the bound of an attribute is read: `rx_ring_max`, `mtu_max`."""

_ABSENT = (errno.EOPNOTSUPP, errno.ENODEV, errno.ENXIO)
_REQUEST, _ERROR, _NEW_LINK, _GET_LINK = 1, 2, 16, 18
_HEADER, _LINK, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BxHiII"), struct.Struct("=HH")
_NAME, _MAX_MTU = 3, 51
_ANSWER_BYTES = 1 << 16

Ioctl = Callable[[int, int, bytes], object]


class Cards:
    """Network cards of this process's network namespace, by the name of their interface."""

    def __init__(self, ioctl: Ioctl = fcntl.ioctl) -> None:
        self._ioctl = ioctl

    def read(self, interface: str, name: str) -> str | None:
        """Return an attribute or its maximum; None where the card, or its driver, has none. Raises OSError."""
        if name == f"mtu{MAXIMUM}":
            return _largest_mtu(interface)
        layout = _LAYOUTS.get(name.removesuffix(MAXIMUM))
        if layout is None or (name.endswith(MAXIMUM) and not layout.maximum):
            return None
        try:
            words = self._query(interface, layout)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise
        if layout.maximum and not words[layout.maximum]:
            return None  # a driver with rings or channels of another kind answers 0 for those that it lacks
        return str(words[layout.maximum if name.endswith(MAXIMUM) else layout.value])

    def write(self, interface: str, name: str, value: str) -> None:
        """Raises OSError: EOPNOTSUPP where the driver cannot change it, EINVAL beyond its maximum."""
        layout = _LAYOUTS.get(name)
        if layout is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        # The rest of the request is written along with it, so it is what the driver answers now.
        words = self._query(interface, layout) if layout.words > 2 else array.array("I", [0, 0])
        words[0], words[layout.value] = layout.put, int(value)
        self._send(interface, words)

    def _query(self, interface: str, layout: _Layout) -> array.array[int]:
        words = array.array("I", [layout.get] + [0] * (layout.words - 1))
        self._send(interface, words)
        return words

    def _send(self, interface: str, words: array.array[int]) -> None:
        request = _IFREQ.pack(interface.encode(), words.buffer_info()[0])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
            self._ioctl(channel.fileno(), SIOCETHTOOL, request)


def _largest_mtu(interface: str) -> str | None:
    """Ask for the link by rtnetlink: /sys tells the MTU and not its bound. None where the driver names none."""
    name = interface.encode() + b"\0"
    attribute = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(name), _NAME) + name
    body = _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + attribute + b"\0" * (-len(attribute) % 4)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as channel:
        channel.settimeout(5.0)
        channel.send(_HEADER.pack(_HEADER.size + len(body), _GET_LINK, _REQUEST, 1, 0) + body)
        answer = channel.recv(_ANSWER_BYTES)
    length, kind, *_ = _HEADER.unpack_from(answer)
    if kind == _ERROR:
        number = -struct.unpack_from("=i", answer, _HEADER.size)[0]
        if number in _ABSENT:
            return None
        raise OSError(number, os.strerror(number), interface)
    at = _HEADER.size + _LINK.size
    while kind == _NEW_LINK and at + _ATTRIBUTE.size <= min(length, len(answer)):
        size, of = _ATTRIBUTE.unpack_from(answer, at)
        if of == _MAX_MTU:
            return str(struct.unpack_from("=I", answer, at + _ATTRIBUTE.size)[0] or "") or None
        at += max(_ATTRIBUTE.size, size + -size % 4)
    return None
