"""The virtual kernel answers as Linux does."""

from __future__ import annotations

import errno

import pytest

from simfleet.machines.hardware import CPU_SERVER, Hardware
from simfleet.machines.kernel import VirtualKernel

POOL = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"


@pytest.fixture
def kernel():
    ids = iter(range(100))
    return VirtualKernel(Hardware(gpus=8, memory_gib=64), lambda: f"boot-{next(ids)}")


def write(kernel, key, value):
    kernel.write("/proc/sys/" + key.replace(".", "/"), value)
    return kernel.sysctl(key)


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("vm.swappiness", "201", errno.EINVAL),
        ("vm.swappiness", "ten", errno.EINVAL),
        ("vm.swappiness", "1 2", errno.EINVAL),
        ("vm.dirty_ratio", "101", errno.EINVAL),
        ("vm.dirty_bytes", "8191", errno.EINVAL),
        ("kernel.pid_max", "300", errno.EINVAL),
        ("kernel.pid_max", "4194305", errno.EINVAL),
        ("kernel.sched_latency_ns", "1", errno.ENOENT),
        ("net.ipv4.tcp_congestion_control", "bbr", errno.ENOENT),
        ("net.core.default_qdisc", "nosuch", errno.ENOENT),
    ],
)
def test_what_the_kernel_refuses_leaves_the_value(kernel, key, value, code):
    before = kernel.sysctl(key)
    with pytest.raises(OSError) as refused:
        write(kernel, key, value)
    assert refused.value.errno == code
    assert kernel.sysctl(key) == before


def test_writing_one_of_a_coupled_pair_zeroes_the_other(kernel):
    assert write(kernel, "vm.dirty_bytes", "1048576") == "1048576"
    assert kernel.sysctl("vm.dirty_ratio") == "0"
    assert write(kernel, "vm.dirty_ratio", "20") == "20"
    assert kernel.sysctl("vm.dirty_bytes") == "0"


def test_a_short_list_changes_only_its_first_numbers(kernel):
    assert write(kernel, "net.ipv4.tcp_rmem", "8192 262144") == "8192\t262144\t6291456"


def test_threads_max_is_clamped_and_read_ahead_rounded_to_pages(kernel):
    assert write(kernel, "kernel.threads-max", "2000000000") == str(0x3FFFFFFF)
    path = "/sys/block/nvme0n1/queue/read_ahead_kb"
    kernel.write(path, "4097")
    assert kernel.read(path) == "4096"


def test_huge_pages_beyond_free_memory_are_allocated_in_part(kernel):
    kernel.write(POOL, "1000")
    assert kernel.read(POOL) == "1000"
    assert [kernel.read(p) for p in kernel.glob("/sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_*")] == [
        "500",
        "500",
    ]
    kernel.fragmentation = 0.95
    kernel.write(POOL, "5000")
    assert 0 < int(kernel.read(POOL)) < 5000
    assert kernel.sysctl("vm.nr_hugepages") == kernel.read(POOL)


def test_transparent_huge_pages_and_governors_take_only_what_they_offer(kernel):
    thp = "/sys/kernel/mm/transparent_hugepage/enabled"
    kernel.write(thp, "never")
    assert kernel.read(thp) == "always madvise [never]"
    with pytest.raises(OSError, match="Invalid"):
        kernel.write(thp, "sometimes")
    [first, *_] = kernel.glob("/sys/devices/system/cpu/cpufreq/policy[0-9]*/scaling_governor")
    kernel.write(first, "performance")
    with pytest.raises(OSError, match="Invalid"):
        kernel.write(first, "warp")
    assert kernel.read(first) == "performance"


def test_a_star_does_not_cross_a_slash(kernel):
    assert kernel.glob("/sys/block/*") == [f"/sys/block/nvme{n}n1" for n in range(4)]
    assert kernel.glob("/sys/*/read_ahead_kb") == []


def test_a_module_brings_its_sysctls_and_takes_them_along():
    kernel = VirtualKernel(Hardware(modules=("overlay",), installable=("nf_conntrack", "tcp_bbr")), lambda: "b")
    assert kernel.sysctl("net.netfilter.nf_conntrack_max") is None
    assert kernel.load("nf-conntrack") == ""
    assert kernel.sysctl("net.netfilter.nf_conntrack_max") == "262144"
    assert kernel.unload("nf_conntrack") == ""
    assert kernel.sysctl("net.netfilter.nf_conntrack_max") is None
    assert "not found" in kernel.load("nosuch")
    mark = "/sys/module/nf_conntrack/initstate"
    for _ in range(2):  # names come and go with it, as often as one looks
        assert kernel.glob("/sys/module/nf_conntrack/init*") == []
        kernel.load("nf_conntrack")
        assert kernel.glob("/sys/module/nf_conntrack/init*") == kernel.glob("/sys/module/nf_c*/initstate") == [mark]
        assert kernel.glob("/proc/sys/net/netfilter/nf_conntrack_m*") == ["/proc/sys/net/netfilter/nf_conntrack_max"]
        kernel.unload("nf_conntrack")
    kernel.unload("overlay")  # that one was there at boot
    assert kernel.glob("/sys/module/overlay/initstate") == []
    kernel.boot()
    assert kernel.glob("/sys/module/overlay/initstate") == ["/sys/module/overlay/initstate"]
    kernel.load("tcp_bbr")
    assert write(kernel, "net.ipv4.tcp_congestion_control", "bbr") == "bbr"


def test_a_boot_forgets_what_was_live_and_reads_what_is_on_the_disk(kernel):
    first = kernel.boot_id
    write(kernel, "vm.swappiness", "1")
    write(kernel, "vm.max_map_count", "300000")
    kernel.load("ib_umad")
    kernel.disk["/etc/sysctl.d/10-a.conf"] = "vm.max_map_count = 1\n# vm.swappiness = 5\n"
    kernel.disk["/etc/sysctl.d/99-z.conf"] = "vm/max_map_count=262144\nvm.nonsense = 1\n-vm.dirty_ratio = 15\n"
    kernel.disk["/usr/lib/sysctl.d/99-z.conf"] = "vm.max_map_count = 7\n"
    kernel.disk["/etc/modules-load.d/x.conf"] = "tcp_bbr\n"
    kernel.disk["/etc/tmpfiles.d/x.conf"] = f"w {POOL} - - - - 64\n"
    kernel.boot()
    assert kernel.boot_id != first
    assert kernel.sysctl("vm.swappiness") == "60"
    assert kernel.sysctl("vm.max_map_count") == "262144"
    assert kernel.sysctl("vm.dirty_ratio") == "15"
    assert kernel.glob("/sys/module/ib_umad") == []
    assert kernel.glob("/sys/module/tcp_bbr") == ["/sys/module/tcp_bbr"]
    assert kernel.read(POOL) == "64"


def test_a_grub_drop_in_reaches_the_kernel_after_update_grub_and_a_boot(kernel):
    kernel.disk["/etc/default/grub.d/90-x.cfg"] = (
        'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX iommu=pt hugepagesz=1G hugepages=4"\n'
    )
    kernel.boot()
    assert "iommu=pt" not in kernel.read("/proc/cmdline")
    kernel.update_grub()
    assert "iommu=pt" not in kernel.read("/proc/cmdline")
    kernel.boot()
    assert kernel.read("/proc/cmdline").split()[-3:] == ["iommu=pt", "hugepagesz=1G", "hugepages=4"]
    assert kernel.huge_pages(1048576) == 4
    del kernel.disk["/etc/default/grub.d/90-x.cfg"]
    kernel.update_grub()
    kernel.boot()
    assert kernel.read("/proc/cmdline") == kernel.hardware.cmdline


def test_machines_of_one_kind_share_nothing_that_a_write_changes():
    machine, other = VirtualKernel(CPU_SERVER, lambda: "a"), VirtualKernel(CPU_SERVER, lambda: "b")
    write(machine, "vm.swappiness", "1")
    assert other.sysctl("vm.swappiness") == "60"
