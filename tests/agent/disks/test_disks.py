"""The agent's report of local disks: one that holds, or may hold, data is never called empty."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.disks import LEAST_SIZE, Disks
from agent.host import LinuxHost
from agent.signatures import EDGE
from contract.disks import KEYS, Disk
from contract.nodetuning import Spec
from tests.agent.disks.node import SIZE, DisksNode
from tests.agent.kernel import Agent, states, want

GUID = "c68573f64e1a45ca8265f57f48ba6d81"


def state(node, name="nvme0n1"):
    return Disks().read(node, name).state


def test_a_disk_that_nothing_was_ever_written_to_is_empty():
    node = DisksNode("SN0001")

    disk = Disks().read(node, "nvme0n1")

    assert disk == Disk("nvme0n1", "SN0001", "QEMU NVMe Ctrl", SIZE, False, 0, "empty")
    assert disk.is_empty


@pytest.mark.parametrize(
    ("at", "mark", "name"),
    [
        (510, b"\x55\xaa", "a partition table or boot record"),
        (512, b"EFI PART", "a GPT partition table"),
        (4096, b"EFI PART", "a GPT partition table"),
        (SIZE - 512, b"EFI PART", "a GPT partition table"),
        (SIZE - 4096, b"EFI PART", "a GPT partition table"),
        (512, b"LABELONE", "LVM"),
        (0, b"LABELONE", "LVM"),
        (0, bytes.fromhex("fc4e2ba9"), "Linux RAID"),
        (4096, bytes.fromhex("fc4e2ba9"), "Linux RAID"),
        (SIZE - 8192, bytes.fromhex("fc4e2ba9"), "Linux RAID"),
        (SIZE - 65536, bytes.fromhex("fc4e2ba9"), "Linux RAID"),
        (1080, bytes.fromhex("53ef"), "ext2, ext3 or ext4"),
        (0, b"XFSB", "XFS"),
        (65600, b"_BHRfS_M", "btrfs"),
        (131072, bytes.fromhex("0cb1ba0000000000"), "ZFS"),
        (131072 + 5 * 1024, bytes.fromhex("0000000000bab10c"), "ZFS"),
        (SIZE - 262144 + 131072, bytes.fromhex("0cb1ba0000000000"), "ZFS"),
        (0, b"LUKS\xba\xbe", "LUKS"),
        (16384, b"SKUL\xba\xbe", "LUKS"),
        (4086, b"SWAPSPACE2", "swap"),
        (65526, b"SWAPSPACE2", "swap"),
        (4120, bytes.fromhex(GUID), "bcache"),
        (0, b"bluestore block device\n", "Ceph BlueStore"),
        (SIZE - 4096 + 60, bytes.fromhex("8374026b"), "DRBD"),
    ],
)
def test_a_signature_is_named_and_is_never_empty(at, mark, name):
    node = DisksNode("SN0001")
    node.put("nvme0n1", at, mark)

    assert state(node) == f"has a signature: {name}"


@settings(max_examples=30)
@given(at=st.one_of(st.integers(0, EDGE - 1), st.integers(SIZE - EDGE, SIZE - 1)), byte=st.integers(1, 255))
def test_one_byte_in_the_first_or_last_mib_is_enough(at, byte):
    node = DisksNode("SN0001")
    node.put("nvme0n1", at, bytes([byte]))

    assert state(node).startswith("has ")


def test_data_without_a_mark_is_seen_in_the_places_between():
    """A database that uses the whole disk may never write its first and last MiB."""
    node = DisksNode("SN0001")
    node.content["nvme0n1"] = {}
    filled = range(SIZE // 4, SIZE // 4 + (64 << 20), 4096)
    node.read_disk = lambda name, at, count: b"\1" * count if at in filled else bytes(count)

    assert state(node).startswith("has data: there are no zeros at byte ")


def test_a_disk_that_cannot_be_read_is_not_empty():
    node = DisksNode("SN0001")
    node.failing.add("nvme0n1")

    assert state(node) == "cannot be read: Input/output error"


def test_a_disk_that_ends_before_its_size_is_not_empty():
    node = DisksNode("SN0001")
    node.sizes["nvme0n1"] = SIZE - 512

    assert state(node) == "cannot be read: it ends before its size"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"/sys/block/nvme0n1/nvme0n1p1/partition": "1"}, "has 1 partition"),
        ({"/sys/block/nvme0n1/holders/md0": ""}, "is part of md0"),
        ({"/proc/1/mountinfo": "30 24 259:1 / /data rw - xfs /dev/nvme0n1 rw"}, "is mounted at /data"),
        ({"/proc/1/mountinfo": "30 24 259:1 / /data rw shared:9 - xfs /dev/other rw"}, "is mounted at /data"),
        ({"/proc/1/mountinfo": "30 24 0:41 / /data rw - btrfs /dev/nvme0n1 rw"}, "is mounted at /data"),
        (
            {
                "/proc/1/mountinfo": "30 24 259:1 / /var/lib/kubelet/pods/a/disk rw - xfs /dev/nvme0n1 rw\n"
                "31 24 259:1 / /data rw - xfs /dev/nvme0n1 rw"
            },
            "is mounted at /data",
        ),
        ({"/proc/swaps": "Filename Type\n/dev/nvme0n1 partition 1 0 -2"}, "is swap space in use"),
        ({"/sys/block/nvme0n1/ro": "1"}, "is read-only"),
        ({"/sys/block/nvme0n1/device/transport": "tcp"}, "is attached by tcp, not in this machine"),
        ({"/sys/block/nvme0n1/device/serial": ""}, "has no serial number that a plan can name"),
        ({"/sys/block/nvme0n1/device/model": "Amazon Elastic Block Store"}, "is a network volume"),
        (
            {"/sys/block/nvme0n2/size": "2097152"},
            "shares its serial number with another namespace of its controller",
        ),
        ({"/sys/block/nvme0n1/size": str(LEAST_SIZE // 512 - 1)}, f"has {LEAST_SIZE - 512} bytes, less than"),
    ],
)
def test_what_is_in_use_or_not_in_this_machine_is_not_empty_whatever_it_holds(files, says):
    node = DisksNode("SN0001")
    node.live |= files

    assert state(node).startswith(says)
    assert not node.reads, "and needs no reading"


def test_a_disk_whose_transport_nobody_knows_is_not_empty():
    node = DisksNode("SN0001")
    del node.live["/sys/block/nvme0n1/device/transport"]

    assert state(node) == "is attached by an unknown transport, not in this machine"


def test_the_disk_of_a_controller_with_several_paths_is_local_if_all_of_them_are():
    node = DisksNode("SN0001")
    del node.live["/sys/block/nvme0n1/device/transport"]
    node.live["/sys/block/nvme0n1/device/nvme0/transport"] = "pcie"
    assert state(node) == "empty"

    node.live["/sys/block/nvme0n1/device/nvme1/transport"] = "rdma"
    assert state(node) == "is attached by pcie, rdma, not in this machine"


def test_content_is_read_again_after_a_write_and_only_then():
    node, disks = DisksNode("SN0001"), Disks()
    assert disks.read(node, "nvme0n1").is_empty
    node.reads.clear()

    assert disks.read(node, "nvme0n1").is_empty
    assert not node.reads

    node.put("nvme0n1", 8192, b"x")
    assert not disks.read(node, "nvme0n1").is_empty


def test_where_the_kernel_counts_no_writes_content_is_read_every_time():
    node, disks = DisksNode("SN0001"), Disks()
    node.live["/sys/block/nvme0n1/queue/iostats"] = "0"
    assert disks.read(node, "nvme0n1").is_empty

    node.put("nvme0n1", 8192, b"x", counts=False)

    assert not disks.read(node, "nvme0n1").is_empty


def test_another_disk_in_its_place_is_read_again():
    node, disks = DisksNode("SN0001"), Disks()
    assert disks.read(node, "nvme0n1").is_empty

    node.put("nvme0n1", 0, b"XFSB", counts=False)
    node.live["/sys/block/nvme0n1/device/serial"] = "SN0002"

    assert disks.read(node, "nvme0n1").state == "has a signature: XFS"


def test_the_agent_reports_each_disk_and_nothing_for_those_that_are_not_there():
    node = DisksNode("SN0001", "SN0002")
    node.put("nvme1n1", 0, b"XFSB")
    agent = Agent(node)

    observed = agent.ask(mode="observe", observe=KEYS).observed

    assert {name: Disk.from_text(name, text).state for name, text in observed.items()} == {
        "disk.nvme0n1": "empty",
        "disk.nvme1n1": "has a signature: XFS",
    }
    assert not node.writes(), "looking changes nothing"


@given(
    st.builds(
        Disk,
        name=st.just("nvme0n1"),
        serial=st.text(max_size=50),
        model=st.text(max_size=90),
        size=st.integers(0, 2**63 - 1),
        is_rotating=st.booleans(),
        partitions=st.integers(0, 9999),
        state=st.text(max_size=300),
    )
)
def test_whatever_a_device_calls_itself_is_one_line_and_never_makes_it_empty(disk):
    text = disk.to_text()
    read_back = Disk.from_text(disk.name, text)

    assert text.isprintable()
    assert len(text) <= 512
    assert read_back is not None
    assert (read_back.size, read_back.partitions) == (disk.size, disk.partitions)
    assert not read_back.is_empty or disk.state.split() == ["empty"]


@given(st.text())
def test_text_of_an_agent_that_lies_is_a_disk_or_nothing(text):
    disk = Disk.from_text("nvme0n1", text)

    assert disk is None or disk.to_text()


def test_no_profile_sets_a_disk():
    agent = Agent(DisksNode("SN0001"))

    status = agent.ask(want("disk.nvme0n1", "empty", None))

    assert states(status) == {"disk.nvme0n1": "Denied"}


TOOLS = {
    "ext4": (["mkfs.ext4", "-q", "-F"], "has a signature: ext2, ext3 or ext4"),
    "swap": (["mkswap"], "has a signature: swap"),
}


@pytest.mark.parametrize("kind", TOOLS)
def test_what_the_real_tools_write_is_recognized(kind, tmp_path):
    command, says = TOOLS[kind]
    if not (program := shutil.which(command[0], path="/usr/sbin:/sbin:/usr/bin:/bin")):
        pytest.skip(f"no {command[0]} here: it comes with e2fsprogs and util-linux")
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(SIZE)
    subprocess.run([program, *command[1:], str(image)], check=True, capture_output=True)
    node = DisksNode("SN0001")
    node.read_disk = lambda name, at, count: _part(image, at, count)

    assert state(node) == says


@pytest.mark.parametrize("label", ["dos", "gpt"])
def test_a_partition_table_is_recognized(label, tmp_path):
    if not (program := shutil.which("sfdisk", path="/usr/sbin:/sbin:/usr/bin:/bin")):
        pytest.skip("no sfdisk here: it comes with fdisk")
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(SIZE)
    subprocess.run([program, "-q", str(image)], input=f"label: {label}\n", text=True, check=True, capture_output=True)
    node = DisksNode("SN0001")
    node.read_disk = lambda name, at, count: _part(image, at, count)

    assert "partition table" in state(node)


def _part(image, at, count):
    with image.open("rb") as file:
        file.seek(at)
        return file.read(count)


def test_only_a_block_device_that_the_kernel_knows_by_this_name_is_read(tmp_path):
    """A file, or a link, in its place is none."""
    (tmp_path / "root/dev").mkdir(parents=True)
    (tmp_path / "sys/block/nvme0n1").mkdir(parents=True)
    (tmp_path / "sys/block/nvme0n1/dev").write_text("259:0\n")
    host = LinuxHost(root=str(tmp_path / "root"), sys=str(tmp_path / "sys"), init_pid=None)
    (tmp_path / "root/dev/nvme0n1").write_bytes(bytes(4096))

    with pytest.raises(OSError, match="not the disk"):
        host.read_disk("nvme0n1", 0, 512)

    (tmp_path / "root/dev/nvme0n1").unlink()
    with pytest.raises(FileNotFoundError):
        host.read_disk("nvme0n1", 0, 512)


def test_observing_asks_for_every_disk_that_can_be_reported():
    from profiles.catalog import known_settings

    assert set(KEYS) < set(known_settings.observable_keys())
    assert Spec("uid-1", observe=tuple(known_settings.observable_keys())).to_json()
