"""The content of a real block device, as the agent reads it and as real tools leave it."""

from __future__ import annotations

import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from agent import disks
from agent.host import LinuxHost

pytestmark = pytest.mark.full
SIZE = 256 << 20


@pytest.fixture
def loop(tmp_path: pathlib.Path) -> Iterator[str]:
    """Kernel's name of a loop device over a file of zeros."""
    if os.geteuid() != 0:
        pytest.skip("making a loop device needs root")
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(SIZE)
    device = _ran("losetup", "--find", "--show", str(image))
    try:
        yield device.removeprefix("/dev/")
    finally:
        _ran("losetup", "--detach", device)


def _ran(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def content(name: str) -> str:
    return disks.content(LinuxHost(root="", init_pid=None), name, SIZE)


def test_a_real_device_is_empty_until_something_is_written_and_not_again_when_its_marks_are_wiped(loop: str) -> None:
    assert content(loop) == "empty"

    _ran("mkfs.ext4", "-q", f"/dev/{loop}")
    assert content(loop) == "has a signature: ext2, ext3 or ext4"

    _ran("wipefs", "--quiet", "--all", f"/dev/{loop}")
    assert content(loop).startswith("has data"), "the data behind the marks is still somebody's"


def test_each_write_shows_in_the_counters_by_which_content_is_read_again(loop: str) -> None:
    pathlib.Path(f"/sys/block/{loop}/queue/iostats").write_text("1\n")
    host = LinuxHost(root="", init_pid=None)
    before = disks.writes(host, loop)
    assert before

    _ran("dd", "if=/dev/urandom", f"of=/dev/{loop}", "bs=4096", "count=1", "seek=512", "oflag=direct", "status=none")

    assert disks.writes(host, loop) != before


def test_a_device_of_another_name_is_not_read(loop: str) -> None:
    """A link in /dev, or a name that the kernel gave to another disk since, leads to another device."""
    host = LinuxHost(root="", init_pid=None)

    with pytest.raises(OSError, match="not the disk"):
        host.read_disk("null", 0, 512)
