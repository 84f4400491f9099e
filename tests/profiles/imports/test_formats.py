"""Files of each format, with all of its syntax: what is taken, and which line is named for the rest."""

from __future__ import annotations

import pytest

from common.errors import Invalid
from profiles.imports.draft import ImportedDraft
from profiles.imports.formats import FORMATS, translate


def imported(text: str, to: str) -> ImportedDraft:
    draft = translate(text, FORMATS[to])
    assert draft
    return draft


def taken(draft: ImportedDraft) -> dict[str, str]:
    return {
        wish.key: wish.value if wish.operator == "=" else f"{wish.operator} {wish.value}"
        for wish in draft.document.settings
    }


def named(draft: ImportedDraft) -> dict[int, str]:
    """Return the reasons by line."""
    out: dict[int, str] = {}
    for entry in draft.not_taken:
        out[entry.line] = f"{out[entry.line]}; {entry.reason}" if entry.line in out else entry.reason
    return out


SYSCTL = """\
# a comment
; another
vm.swappiness = 10
net/ipv4/tcp_fastopen=3
kernel.pid_max=4194304
  net.ipv4.tcp_rmem =  4096\t87380   16777216
-net.core.somaxconn = 4096
-net.ipv4.conf.lo.rp_filter
net.ipv4.conf.*.rp_filter = 2
net/ipv4/conf/eth0.100/rp_filter = 1
vm.swappiness = 5
kernel.core_pattern = |/bin/core
fs.file-max = 0x100000
vm.dirty_ratio = 20
vm.dirty_bytes = 1073741824
vm.max_map_count
vm.overcommit_ratio = 50 # as it was
kernel.shmmax = 4Gi
vm.stat_interval = >= 10
vm.nr_hugepages = 512
"""


def test_sysctl_d() -> None:
    draft = imported(SYSCTL, "sysctl.d")

    assert taken(draft) == {
        "kernel.pid_max": "4194304",
        "net.core.somaxconn": "4096",
        "net.ipv4.tcp_fastopen": "3",
        "net.ipv4.tcp_rmem": "4096 87380 16777216",
        "vm.dirty_bytes": "1073741824",
        "vm.swappiness": "5",
    }
    reasons = named(draft)
    assert sorted(reasons) == [3, 7, 8, 9, 10, 12, 13, 14, 16, 17, 18, 19, 20]
    assert "line 11" in reasons[3]
    assert "failure is ignored" in reasons[7]
    assert "pattern" in reasons[8]
    assert "pattern" in reasons[9]
    assert "program that the kernel runs" in reasons[12]
    assert "hexadecimal" in reasons[13] or "plain number" in reasons[13]
    assert "vm.dirty_bytes" in reasons[14]
    assert "no =" in reasons[16]
    assert "hugepages-2Mi" in reasons[20]


@pytest.mark.parametrize("line", ["vm.swappiness = 010", "vm.swappiness = 0x0a"])
def test_a_number_that_the_kernel_reads_in_another_base_is_not_taken_as_decimal(line: str) -> None:
    with pytest.raises(Invalid) as refusal:
        translate(line, FORMATS["sysctl.d"])
    assert line in str(refusal.value.fields["source"])


def test_a_later_line_that_is_refused_does_not_bring_the_earlier_one_back() -> None:
    draft = imported("vm.swappiness = 10\nvm.swappiness = 9999\nkernel.pid_max = 65536\n", "sysctl.d")

    assert taken(draft) == {"kernel.pid_max": "65536"}
    assert sorted(named(draft)) == [1, 2]


def test_settings_that_exclude_one_another_cost_one_line_and_the_rest_is_taken() -> None:
    text = "net.ipv4.neigh.default.gc_thresh1 = 4096\nnet.ipv4.neigh.default.gc_thresh2 = 1024\nvm.swappiness = 1\n"
    draft = imported(text, "sysctl.d")

    assert taken(draft) == {"net.ipv4.neigh.default.gc_thresh2": "1024", "vm.swappiness": "1"}
    assert list(named(draft)) == [1]


TUNED = """\
[main]
summary=For training, on bare metal   # as measured
include=throughput-performance

[variables]
isolated_cores=2-7

[sysctl]
vm.swappiness=<10
kernel.pid_max=>4194304
net.ipv4.ip_local_port_range="1024 65535"
kernel.sched_rt_runtime_us=${runtime}
net/core/rmem_max=16777216

[vm]
transparent_hugepages=madvise
transparent_hugepage.defrag=defer
dirty_bytes=20%

[cpu]
governor=performance
energy_perf_bias=performance
force_latency=1

[disk]
readahead=>8192 s
elevator=none
spindown=6

[data]
type=disk
devices=sda
readahead=128

[sysfs]
/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages=512
/sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages=4
/sys/block/nvme*n*/queue/nr_requests=256
/sys/block/sda/queue/nr_requests=64
/sys/kernel/mm/ksm/run=1

[modules]
nvme_core=io_timeout=255
ib-umad=+r
zswap=max_pool_percent=20 nonsense

[bootloader]
cmdline_a=+iommu=pt nosoftlockup
cmdline_b=-quiet
cmdline_c=isolcpus=${isolated_cores} pci=realloc pci=noaer
initrd_add_dir=/x

[scheduler]
group.rcuc=0:f:11:*:rcuc.*

[old]
type=sysctl
enabled=false
kernel.threads-max=1000000

[uname]
type=sysctl
uname_regex=aarch64
kernel.threads-max=1000000

[rtentsk]
"""


def test_tuned() -> None:
    draft = imported(TUNED, "tuned")

    assert draft.document.description == "For training, on bare metal"
    classes = ("nvme", "sd", "vd", "xvd")
    assert taken(draft) == {
        "vm.swappiness": "<= 10",
        "kernel.pid_max": ">= 4194304",
        "net.ipv4.ip_local_port_range": "1024 65535",
        "net.core.rmem_max": "16777216",
        "transparent_hugepage.enabled": "madvise",
        "transparent_hugepage.defrag": "defer",
        "vm.dirty_ratio": "20",
        "cpu.scaling_governor": "performance",
        **{f"block.{disks}.read_ahead_kb": ">= 4096" for disks in classes},
        **{f"block.{disks}.scheduler": "none" for disks in classes},
        "hugepages-2Mi": "512",
        "hugepages-1Gi.node1": "4",
        "block.nvme.nr_requests": "256",
        "module_parameter.nvme_core.io_timeout": "255",
        "module.ib_umad": "loaded",
        "module_parameter.zswap.max_pool_percent": "20",
        "cmdline.iommu": "pt",
        "cmdline.nosoftlockup": "present",
        "cpu.isolated": "2-7",
    }
    lines = TUNED.split("\n")
    not_taken = {lines[line - 1] for line in named(draft)}
    assert not_taken == {
        "include=throughput-performance",
        "kernel.sched_rt_runtime_us=${runtime}",
        "energy_perf_bias=performance",
        "force_latency=1",
        "spindown=6",
        "readahead=128",
        "/sys/block/sda/queue/nr_requests=64",
        "/sys/kernel/mm/ksm/run=1",
        "zswap=max_pool_percent=20 nonsense",
        "cmdline_b=-quiet",
        "cmdline_c=isolcpus=${isolated_cores} pci=realloc pci=noaer",
        "initrd_add_dir=/x",
        "group.rcuc=0:f:11:*:rcuc.*",
        "enabled=false",
        "kernel.threads-max=1000000",
        "type=sysctl",
        "uname_regex=aarch64",
        "[rtentsk]",
    }


def test_several_page_sizes_at_boot_are_pages_of_the_node() -> None:
    boot = "[bootloader]\ncmdline=+hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=512\n"
    assert taken(imported(boot, "tuned")) == {"hugepages-1Gi": "4", "hugepages-2Mi": "512"}

    single = "[bootloader]\ncmdline=+default_hugepagesz=1G hugepagesz=1G hugepages=4\n"
    assert taken(imported(single, "tuned")) == {
        "cmdline.default_hugepagesz": "1G",
        "cmdline.hugepagesz": "1G",
        "cmdline.hugepages": "4",
    }


def test_a_count_before_its_size_is_about_the_default_size_and_not_taken() -> None:
    draft = imported("[bootloader]\ncmdline=+hugepages=4 hugepagesz=1G\n", "tuned")

    assert taken(draft) == {"cmdline.hugepagesz": "1G"}
    assert "default size" in named(draft)[2]


OPENSHIFT = """\
apiVersion: tuned.openshift.io/v1
kind: Tuned
metadata:
  name: gpu
  namespace: openshift-cluster-node-tuning-operator
  labels: {team: a}
spec:
  managementState: Managed
  profile:
    - name: gpu
      data: |
        [main]
        summary=GPU nodes
        include=openshift-node

        [sysctl]
        vm.max_map_count=262144
        net.netfilter.nf_conntrack_max=bad
    - name: other
      data: "[sysctl]"
  recommend:
    - {profile: gpu, priority: 20}
"""


def test_openshift_tuned() -> None:
    draft = imported(OPENSHIFT, "openshift-tuned")

    assert taken(draft) == {"vm.max_map_count": "262144"}
    assert draft.document.description == "GPU nodes"
    reasons = named(draft)
    assert sorted(reasons) == [6, 8, 14, 18, 19, 21]
    assert "pool" in reasons[21]
    assert "import the others" in reasons[19]


PERFORMANCE = """\
apiVersion: performance.openshift.io/v2
kind: PerformanceProfile
metadata:
  name: gpu
spec:
  cpu:
    isolated: 4-63
    reserved: 0-3
    balanceIsolated: false
  hugepages:
    defaultHugepagesSize: 1G
    pages:
      - size: 1G
        count: 16
        node: 0
      - size: 2M
        count: 512
      - {size: 64K, count: 1}
      - {size: 1G, count: "4"}
  additionalKernelArgs:
    - pcie_aspm=off
    - nosoftlockup
    - mitigations=off
  numa:
    topologyPolicy: single-numa-node
  realTimeKernel:
    enabled: true
  nodeSelector:
    node-role.kubernetes.io/gpu: ""
  workloadHints: {realTime: true}
  surprise: 1
"""


def test_performance_profile() -> None:
    draft = imported(PERFORMANCE, "performance-profile")

    assert taken(draft) == {
        "cmdline.default_hugepagesz": "1G",
        "cmdline.nosoftlockup": "present",
        "cmdline.pcie_aspm": "off",
        "cpu.isolated": "domain,4-63",
        "hugepages-1Gi.node0": "16",
        "hugepages-2Mi": "512",
        "kubelet.reservedSystemCPUs": "0-3",
    }
    reasons = named(draft)
    assert sorted(reasons) == [18, 19, 23, 24, 26, 28, 30, 31]
    assert "security" in reasons[23]
    assert "kubelet" in reasons[24]


NODEWRIGHT = """\
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: gpu}
spec:
  nodeSelectors: {matchLabels: {a: b}}
  packages:
    limits:
      image: ghcr.io/nvidia/skyhook-packages/tuning:1.1.4
      configMap:
        ulimit.conf: |-
          memlock=128
        sysctl.conf: |-
          vm.max_map_count=262144
          vm.unheard_of=1
        grub.conf: |-
          hugepagesz=1G
          hugepages=2
          hugepagesz=2M
          hugepages=5128
          iommu=pt
    shell:
      image: example.com/shellscript
"""


def test_nodewright() -> None:
    draft = imported(NODEWRIGHT, "nodewright")

    assert taken(draft) == {
        "cmdline.iommu": "pt",
        "hugepages-1Gi": "2",
        "hugepages-2Mi": "5128",
        "vm.max_map_count": "262144",
    }
    assert sorted(named(draft)) == [5, 8, 10, 14, 21]


@pytest.mark.parametrize("to", ["openshift-tuned", "performance-profile", "nodewright"])
@pytest.mark.parametrize("text", ["a: 1\n", "[]", "kind: Pod\napiVersion: v1\n", "a: &a 1\nb: *a\n", "---\n---\n"])
def test_another_object_is_refused_with_what_would_be_right(to: str, text: str) -> None:
    with pytest.raises(Invalid) as refusal:
        translate(text, FORMATS[to])
    assert list(refusal.value.fields) == ["source"]


def test_a_text_that_is_all_rubbish_is_refused_as_a_whole() -> None:
    with pytest.raises(Invalid) as refusal:
        translate("x\n" * 5000, FORMATS["sysctl.d"])
    assert "1,000 lines" in str(refusal.value)
