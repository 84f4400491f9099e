"""The requests that reach the kernel, against a driver that takes them as net/ethtool/ioctl.c does."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

import pytest

from agent.ethtool import SIOCETHTOOL, Cards
from agent.host import LinuxHost

LARGEST_RINGS, RINGS = [4096, 16, 32, 2048], [512, 1, 2, 256]
LARGEST_CHANNELS, CHANNELS = [0, 0, 1, 16], [0, 0, 1, 8]


class Driver:
    """Words behind the command, as the structures of include/uapi/linux/ethtool.h lay them out."""

    def __init__(self) -> None:
        self.rings, self.channels = [*LARGEST_RINGS, *RINGS], [*LARGEST_CHANNELS, *CHANNELS]
        self.switches = {"tso": 1, "gso": 1, "gro": 1}
        self.lacks: set[int] = set()
        self.fixed: set[str] = set()
        self.requests: list[int] = []

    def __call__(self, _channel: int, request: int, argument: bytes) -> int:
        assert request == SIOCETHTOOL == 0x8946
        assert len(argument) == 40
        name, address = struct.unpack_from("16sP", argument)
        if name.rstrip(b"\0") != b"eth0":
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        command = ctypes.c_uint32.from_address(address).value
        self.requests.append(command)
        if command in self.lacks:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        behind = 1 if command in SWITCHES else 8
        words = (ctypes.c_uint32 * behind).from_address(address + 4)
        if command in SWITCHES:
            self._switch(*SWITCHES[command], words)
        else:
            self._table(command, words)
        return 0

    def _switch(self, name: str, is_set: bool, words: ctypes.Array[ctypes.c_uint32]) -> None:
        if not is_set:
            words[0] = self.switches[name]
        elif name in self.fixed:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        else:
            self.switches[name] = words[0]

    def _table(self, command: int, words: ctypes.Array[ctypes.c_uint32]) -> None:
        table = {0x10: self.rings, 0x11: self.rings, 0x3C: self.channels, 0x3D: self.channels}[command]
        if command in (0x10, 0x3C):
            words[:] = table
            return
        numbers = list(words[4:])
        if any(value > most for value, most in zip(numbers, table[:4], strict=True)):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        table[4:] = numbers


SWITCHES = {
    0x1E: ("tso", False), 0x1F: ("tso", True), 0x23: ("gso", False), 0x24: ("gso", True),
    0x2B: ("gro", False), 0x2C: ("gro", True),
}  # fmt: skip


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def on(driver: Driver) -> Cards:
    return Cards(driver)


def test_each_attribute_and_its_maximum_is_read_from_its_own_place(on):
    names = ("rx_ring", "rx_ring_max", "tx_ring", "tx_ring_max", "combined_channels", "combined_channels_max")

    assert [on.read("eth0", name) for name in names] == ["512", "4096", "256", "2048", "8", "16"]
    assert [on.read("eth0", name) for name in ("tso", "gso", "gro")] == ["1", "1", "1"]
    assert [on.read("eth0", name) for name in ("tso_max", "lro", "speed", "")] == [None] * 4


def test_a_ring_is_written_and_the_other_rings_keep_their_own(on, driver):
    on.write("eth0", "rx_ring", "4096")
    assert driver.rings == [*LARGEST_RINGS, 4096, 1, 2, 256]
    on.write("eth0", "tx_ring", "64")
    assert driver.rings == [*LARGEST_RINGS, 4096, 1, 2, 64]


def test_combined_channels_are_written_and_the_others_keep_their_own(on, driver):
    on.write("eth0", "combined_channels", "16")
    assert driver.channels == [*LARGEST_CHANNELS, 0, 0, 1, 16]


@pytest.mark.parametrize("name", ["tso", "gso", "gro"])
def test_an_offload_is_switched_alone(on, driver, name):
    on.write("eth0", name, "0")
    assert driver.switches == {"tso": 1, "gso": 1, "gro": 1, name: 0}
    assert on.read("eth0", name) == "0"


def test_the_driver_refuses_more_than_its_maximum_and_what_it_cannot_change(on, driver):
    with pytest.raises(OSError, match="Invalid argument"):
        on.write("eth0", "rx_ring", "8192")
    driver.fixed.add("tso")
    with pytest.raises(OSError, match="not supported"):
        on.write("eth0", "tso", "0")
    assert (driver.rings, driver.switches["tso"]) == ([*LARGEST_RINGS, *RINGS], 1)


def test_what_a_driver_lacks_is_absent(on, driver):
    driver.lacks |= {0x10, 0x23}
    driver.channels = [8, 8, 0, 0, 4, 4, 0, 0]  # channels for one direction each, and none combined

    assert [on.read("eth0", name) for name in ("rx_ring", "tx_ring_max", "gso", "combined_channels")] == [None] * 4
    assert on.read("gone", "gro") is None


def test_what_is_no_attribute_is_not_asked_of_the_kernel(on, driver):
    for name in ("speed", "rx_ring_max", "mtu", "../x"):
        with pytest.raises(OSError, match="No such file"):
            on.write("eth0", name, "1")
    assert driver.requests == []


def test_this_machine_s_own_kernel_answers():
    host = LinuxHost(root="/", init_pid=None)

    assert host.read_text("/nic/lo/gro") in ("0", "1")
    assert host.read_text("/nic/lo/rx_ring") is None
    assert host.read_text("/nic/no-such-card/gro") is None
    assert host.read_text("/nic/no-such-card/mtu_max") is None
