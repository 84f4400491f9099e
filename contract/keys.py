"""Keys and values of settings: one grammar, one allow-list and one deny-list for control plane and agent.

A profile that asks for more is refused when it is published, and the agent refuses it again on the node, so that
neither side has to trust the other. The lists name exact keys: a prefix would let the next kernel's new key through.
The sources of each key and its bounds are in profiles/catalog/*.yaml.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from functools import lru_cache

from contract.nodetuning import MAX_KEY, MAX_VALUE, Operator


class BadKey(ValueError):
    """A key outside the grammar. The message names the key and what is wrong with it."""


class BadValue(ValueError):
    """A value that no key of this kind can take. The message names the key and what is wrong."""


class KeyKind(enum.StrEnum):
    SYSCTL = "sysctl"
    HUGEPAGES = "hugepages"
    THP = "transparent_hugepage"
    GOVERNOR = "cpu_governor"
    MODULE = "module"
    MODULE_PARAMETER = "module_parameter"
    BLOCK = "block"
    CMDLINE = "cmdline"
    READ_ONLY = "read_only"


class ApplyClass(enum.StrEnum):
    """Action needed before a written value takes effect, in rising order of disturbance."""

    LIVE = "live"
    NEW_PODS = "new-pods"
    KUBELET_RESTART = "kubelet-restart"
    CONTAINERD_RESTART = "containerd-restart"
    REBOOT = "reboot"


def _keys(prefix: str, names: str) -> frozenset[str]:
    return frozenset(f"{prefix}{name}" for name in names.split())


MIXED = "mixed:"
"""Prefix of an effective value that is not the same in all places: `mixed:128,4096`."""

SYSCTL_ROOTS = frozenset({"vm", "net", "fs", "kernel"})

KUBELET_OWNED: Mapping[str, str] = {
    "vm.overcommit_memory": "1",
    "vm.panic_on_oom": "0",
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
    "kernel.keys.root_maxkeys": "1000000",
    "kernel.keys.root_maxbytes": "25000000",
}
"""The value the kubelet writes at start, or with protectKernelDefaults insists on: any other one stops it."""

CNI_OWNED = _keys(
    "net.",
    """ipv4.conf.all.forwarding ipv4.conf.default.forwarding ipv6.conf.all.forwarding ipv6.conf.default.forwarding
    ipv4.conf.all.rp_filter ipv4.conf.default.rp_filter""",
)
"""Written by network plugins, which write them again whenever they like."""

ALLOWED_SYSCTLS = (
    _keys(
        "net.core.",
        """rmem_max wmem_max rmem_default wmem_default optmem_max netdev_max_backlog netdev_budget netdev_budget_usecs
        somaxconn default_qdisc busy_poll busy_read rps_sock_flow_entries dev_weight bpf_jit_enable bpf_jit_harden
        bpf_jit_limit""",
    )
    | _keys(
        "net.ipv4.",
        """tcp_rmem tcp_wmem tcp_mem tcp_congestion_control tcp_max_syn_backlog tcp_mtu_probing tcp_window_scaling
        tcp_timestamps tcp_sack tcp_fastopen tcp_fin_timeout tcp_keepalive_time tcp_keepalive_intvl
        tcp_keepalive_probes tcp_slow_start_after_idle tcp_notsent_lowat tcp_tw_reuse tcp_max_tw_buckets
        tcp_no_metrics_save tcp_moderate_rcvbuf tcp_adv_win_scale tcp_limit_output_bytes tcp_retries1 tcp_retries2
        tcp_syn_retries tcp_synack_retries tcp_syncookies tcp_ecn tcp_autocorking tcp_max_orphans udp_rmem_min
        udp_wmem_min udp_mem ip_local_port_range neigh.default.gc_thresh1 neigh.default.gc_thresh2
        neigh.default.gc_thresh3 neigh.default.gc_interval neigh.default.gc_stale_time conf.all.arp_ignore
        conf.default.arp_ignore conf.all.arp_announce conf.default.arp_announce""",
    )
    | _keys("net.ipv6.neigh.default.", "gc_thresh1 gc_thresh2 gc_thresh3")
    | _keys(
        "net.netfilter.nf_conntrack_",
        """max buckets tcp_timeout_established tcp_timeout_close_wait tcp_timeout_time_wait udp_timeout
        udp_timeout_stream""",
    )
    | _keys(
        "vm.",
        """max_map_count swappiness min_free_kbytes dirty_ratio dirty_bytes dirty_background_ratio
        dirty_background_bytes dirty_expire_centisecs dirty_writeback_centisecs watermark_scale_factor
        watermark_boost_factor vfs_cache_pressure zone_reclaim_mode overcommit_memory overcommit_ratio
        nr_overcommit_hugepages stat_interval page-cluster compaction_proactiveness admin_reserve_kbytes
        user_reserve_kbytes panic_on_oom""",
    )
    | _keys(
        "fs.",
        """aio-max-nr file-max nr_open inotify.max_user_instances inotify.max_user_watches
        inotify.max_queued_events pipe-max-size epoll.max_user_watches""",
    )
    | _keys(
        "kernel.",
        """pid_max threads-max numa_balancing shmmax shmall shmmni msgmax msgmnb msgmni sem sched_autogroup_enabled
        sched_rt_runtime_us sched_rt_period_us perf_event_paranoid kptr_restrict
        dmesg_restrict yama.ptrace_scope sysrq watchdog nmi_watchdog watchdog_thresh hung_task_timeout_secs
        timer_migration panic panic_on_oops keys.maxkeys keys.maxbytes keys.root_maxkeys keys.root_maxbytes""",
    )
)

ALLOWED_MODULES = _keys(
    "",
    """ib_umad ib_uverbs ib_ipoib rdma_ucm rdma_cm mlx5_core mlx5_ib nvidia_peermem gdrdrv nvme nvme_tcp nvme_rdma
    nvme_fabrics nf_conntrack br_netfilter overlay tcp_bbr sch_fq vfio vfio_pci dm_multipath nfs lustre knem xpmem
    ipmi_devintf ipmi_si nbd dummy""",
)

ALLOWED_MODULE_PARAMETERS = _keys(
    "",
    """nvme_core.io_timeout nvme_core.max_retries nvme_core.default_ps_max_latency_us nvme.poll_queues
    nvme.write_queues mlx5_core.prof_sel ib_ipoib.send_queue_size ib_ipoib.recv_queue_size
    zswap.enabled zswap.max_pool_percent zswap.accept_threshold_percent workqueue.power_efficient
    nf_conntrack.hashsize nf_conntrack.expect_hashsize""",
)
"""`<module>.<parameter>`; the parameter must be writable in /sys/module for a live change."""

BLOCK_CLASSES = frozenset({"nvme", "sd", "vd", "xvd"})
BLOCK_ATTRIBUTES = _keys(
    "", "read_ahead_kb scheduler nr_requests rq_affinity nomerges max_sectors_kb wbt_lat_usec add_random iostats"
)

ALLOWED_CMDLINE = _keys(
    "",
    """iommu intel_iommu amd_iommu iommu.passthrough iommu.strict pci init_on_alloc init_on_free numa_balancing
    transparent_hugepage default_hugepagesz hugepagesz hugepages intel_pstate amd_pstate processor.max_cstate
    intel_idle.max_cstate cpuidle.off idle nmi_watchdog nohz nohz_full rcu_nocbs skew_tick tsc clocksource audit
    nosoftlockup psi cgroup_no_v1 systemd.unified_cgroup_hierarchy kvm_intel.nested workqueue.power_efficient
    pcie_aspm pcie_ports hpet crashkernel hugetlb_free_vmemmap""",
)

READ_ONLY = frozenset(
    {
        "containerd.LimitMEMLOCK",
        "containerd.LimitSTACK",
        "kubelet.cpuManagerPolicy",
        "kubelet.topologyManagerPolicy",
    }
)

ALLOWED: frozenset[str] = (
    ALLOWED_SYSCTLS
    | _keys("hugepages-", "2Mi 1Gi")
    | _keys("transparent_hugepage.", "enabled defrag")
    | {"cpu.scaling_governor"}
    | {f"module.{name}" for name in ALLOWED_MODULES}
    | {f"module_parameter.{name}" for name in ALLOWED_MODULE_PARAMETERS}
    | {f"block.{of}.{attribute}" for of in BLOCK_CLASSES for attribute in BLOCK_ATTRIBUTES}
    | {f"cmdline.{name}" for name in ALLOWED_CMDLINE}
)
"""Every key that may be written, but for the per-node `hugepages-<size>.node<N>` forms of the two huge page keys."""

_CODE = "it names a program that the kernel runs"
_ONE_WAY = "it cannot be put back without a reboot"
_SECURITY = "it weakens the node's security"

DENIED: Mapping[str, str] = {
    "kernel.core_pattern": _CODE,
    "kernel.core_pipe_limit": _CODE,
    "kernel.modprobe": _CODE,
    "kernel.hotplug": _CODE,
    "kernel.poweroff_cmd": _CODE,
    "kernel.usermodehelper.bset": _CODE,
    "kernel.usermodehelper.inheritable": _CODE,
    "kernel.modules_disabled": f"{_ONE_WAY}, and it blocks GPU and network drivers",
    "kernel.kexec_load_disabled": _ONE_WAY,
    "kernel.unprivileged_bpf_disabled": _ONE_WAY,
    "kernel.hostname": "it renames the node under the kubelet",
    "kernel.domainname": "it renames the node under the kubelet",
    "kernel.cad_pid": "it redirects the reboot key's signal",
    "kernel.panic_on_warn": "a warning would stop the node",
    "kernel.randomize_va_space": _SECURITY,
    "vm.drop_caches": "it is an action, not a setting",
    "vm.compact_memory": "it is an action, not a setting",
    "vm.mmap_min_addr": _SECURITY,
    "vm.nr_hugepages": "use hugepages-2Mi or hugepages-1Gi, which also make the kubelet see the pages",
    "vm.nr_hugepages_mempolicy": "use hugepages-2Mi or hugepages-1Gi, which also make the kubelet see the pages",
    "fs.suid_dumpable": _SECURITY,
    "net.ipv4.ip_forward": "writing it resets the settings of every interface",
    "cmdline.init": "it replaces the first program of the node",
    "cmdline.rdinit": "it replaces the first program of the node",
    "cmdline.root": "it replaces the root file system",
    "cmdline.systemd.unit": "it changes what the node boots into",
    "cmdline.selinux": _SECURITY,
    "cmdline.enforcing": _SECURITY,
    "cmdline.apparmor": _SECURITY,
    "cmdline.security": _SECURITY,
    "cmdline.mitigations": _SECURITY,
    "cmdline.module.sig_enforce": _SECURITY,
    "cmdline.lockdown": _SECURITY,
    "cmdline.isolcpus": "it is deprecated and cannot be undone at run time; use the kubelet's static CPU policy",
}
"""Keys that no profile may set, whatever its author's role. `denied_reason` adds families and single values."""

_DENIED_FAMILIES: tuple[tuple[str, str], ...] = (
    ("net.bridge.", "it belongs to the network plugin"),
    ("fs.protected_", _SECURITY),
    ("kernel.usermodehelper.", _CODE),
)
_UNANSWERED = "the node would not answer for any of its addresses, and no neighbor could reach it"
_DENIED_VALUES: Mapping[tuple[str, str], str] = {
    ("vm.panic_on_oom", "2"): "the node would stop whenever memory runs out in any cgroup",
    ("kernel.yama.ptrace_scope", "3"): _ONE_WAY,
    ("net.ipv4.conf.all.arp_ignore", "8"): _UNANSWERED,
    ("net.ipv4.conf.default.arp_ignore", "8"): _UNANSWERED,
    ("cmdline.crashkernel", "no"): "it removes the crash kernel's memory",
    ("cmdline.crashkernel", "0"): "it removes the crash kernel's memory",
}

COUPLED: tuple[frozenset[str], ...] = (
    frozenset({"vm.dirty_ratio", "vm.dirty_bytes"}),
    frozenset({"vm.dirty_background_ratio", "vm.dirty_background_bytes"}),
)
"""Writing one of a group sets the others to 0, so they are journalled and restored together."""

ONE_VALUE: tuple[frozenset[str], ...] = (
    frozenset({"net.netfilter.nf_conntrack_buckets", "module_parameter.nf_conntrack.hashsize"}),
)
"""Two names of one value: only one of a group may be wanted."""

SYSCTL_WORDS: Mapping[str, int] = {
    "kernel.sem": 4,
    "net.ipv4.ip_local_port_range": 2,
    "net.ipv4.tcp_mem": 3,
    "net.ipv4.tcp_rmem": 3,
    "net.ipv4.tcp_wmem": 3,
    "net.ipv4.udp_mem": 3,
}
"""How many values a sysctl takes; every other takes one. The kernel writes the first and ignores what follows
(`__do_proc_dointvec` in kernel/sysctl.c), so `3 0` is 3 to it and on no list of values here."""

_NEW_PODS = _keys(
    "net.ipv4.",
    "tcp_rmem tcp_wmem tcp_congestion_control tcp_mtu_probing tcp_keepalive_time tcp_fastopen",
)
"""Copied from the host into a network namespace when it is created, or read when a connection opens."""

_GRAMMAR = re.compile(r"[A-Za-z0-9_.-]+")
_HUGEPAGES = re.compile(r"hugepages-(2Mi|1Gi)(?:\.node(0|[1-9][0-9]{0,3}))?")
_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")
# Values end in files that shells, grub and systemd read: nothing that any of them expands, and no ';', which ends a
# command in grub.cfg.
_VALUE = re.compile(r"[A-Za-z0-9_.,:=+@/ -]*")
_WORD = re.compile(r"[A-Za-z0-9_.,:=+@/-]+")
_COUNT = re.compile(r"0|[1-9][0-9]{0,9}")
_OTHER_BASE = re.compile(r"[+-]?0[0-9A-Za-z]+")
"""What the kernel takes for an octal or a hexadecimal number."""
_NUMBER = re.compile(r"[+-]?[0-9]+")
_LARGEST_NUMBER = 2**64 - 1
"""Kernels before 5.1, RHEL 8's among them, read a greater one as what is left of it in 64 bits."""


def normalize(key: str) -> str:
    """One spelling: `vm/swappiness` becomes `vm.swappiness`, `module.ib-umad` `module.ib_umad`. Raises BadKey."""
    if key.partition("/")[0] in SYSCTL_ROOTS and "." not in key:
        key = key.replace("/", ".")
    if key.startswith("module."):
        key = "module." + key.removeprefix("module.").replace("-", "_")
    check_key(key)
    return key


def check_key(key: str) -> None:
    """Accept a key of the grammar, known or not. Raises BadKey."""
    kind_of(key)


def kind_of(key: str) -> KeyKind:
    """Return the kind of setting that a key names. Raises BadKey."""
    try:
        return _known_kind(key)
    except TypeError:  # not hashable, so not text either
        raise BadKey("a key must be text, and not empty") from None


@lru_cache(maxsize=1024)  # the same few hundred keys on every look at a machine
def _known_kind(key: str) -> KeyKind:
    if not isinstance(key, str) or not key:
        raise BadKey("a key must be text, and not empty")
    shown = key[:40].encode("unicode_escape").decode()
    if len(key) > MAX_KEY:
        raise BadKey(f"{shown}…: longer than {MAX_KEY} characters")
    if not _GRAMMAR.fullmatch(key):
        bad = next(c for c in key if not _GRAMMAR.fullmatch(c))
        raise BadKey(f"{shown}: contains {bad!a}; allowed are letters, digits, '.', '-' and '_'")
    if not all(_SEGMENT.fullmatch(part) for part in key.split(".")):
        raise BadKey(f"{shown}: has an empty part ('..', or a dot at an end)")
    kind = _kind(key)
    if kind is None:
        raise BadKey(f"{shown}: is of no known kind")
    return kind


def _kind(key: str) -> KeyKind | None:
    first, *rest = key.split(".")
    if key in READ_ONLY:
        return KeyKind.READ_ONLY
    if _HUGEPAGES.fullmatch(key):
        return KeyKind.HUGEPAGES
    if key in ("transparent_hugepage.enabled", "transparent_hugepage.defrag"):
        return KeyKind.THP
    if key == "cpu.scaling_governor":
        return KeyKind.GOVERNOR
    if first in SYSCTL_ROOTS and rest:
        return KeyKind.SYSCTL
    if first == "module" and len(rest) == 1:
        return KeyKind.MODULE
    if first == "module_parameter" and len(rest) == 2:
        return KeyKind.MODULE_PARAMETER
    if first == "block" and len(rest) == 2 and rest[0] in BLOCK_CLASSES:
        return KeyKind.BLOCK
    if first == "cmdline" and rest:
        return KeyKind.CMDLINE
    return None


def canonical_value(value: str) -> str:
    """A value as it is compared and reported: runs of blanks and tabs are one space, none at the ends."""
    return " ".join(value.split())


def check_value(key: str, value: str) -> None:
    """Check that this text could be a value of this key at all; ranges are the catalog's. Raises BadKey, BadValue."""
    kind = kind_of(key)
    if not isinstance(value, str) or not value or len(value) > MAX_VALUE:
        raise BadValue(f"{key}: a value must be text of 1 to {MAX_VALUE} characters")
    if value.startswith(MIXED):
        raise BadValue(f"{key}: {MIXED} is how places that differ are reported, and no value")
    if not _VALUE.fullmatch(value) or value != canonical_value(value):
        raise BadValue(f"{key}: a value may hold letters, digits, single spaces and any of _ . , : = + @ / -")
    if kind is KeyKind.SYSCTL and any(_OTHER_BASE.fullmatch(word) for word in value.split()):
        # `0x3` and `03` are 3 to the kernel: no list of values and no range would know them.
        raise BadValue(f"{key}: a number is written in decimal, and begins with no 0")
    if kind is KeyKind.SYSCTL and len(value.split()) != (count := SYSCTL_WORDS.get(key, 1)):
        raise BadValue(
            f"{key}: takes {count} value{'s' if count > 1 else ''}, and the kernel would ignore what follows"
        )
    if kind is KeyKind.SYSCTL and any(_NUMBER.fullmatch(w) and abs(int(w)) > _LARGEST_NUMBER for w in value.split()):
        raise BadValue(f"{key}: the kernel's numbers have 64 bits")
    if kind is KeyKind.HUGEPAGES and not _COUNT.fullmatch(value):
        raise BadValue(f"{key}: must be a whole number of pages")
    if kind is KeyKind.MODULE and value != "loaded":
        raise BadValue(f"{key}: can only be 'loaded'")
    if kind is not KeyKind.SYSCTL and not _WORD.fullmatch(value):
        raise BadValue(f"{key}: must be one word")


def parts(effective: str) -> list[str]:
    """The different values of a key in its places; one, unless they are `mixed:`."""
    return effective.removeprefix(MIXED).split(",") if effective.startswith(MIXED) else [effective]


def is_observable(key: str) -> bool:
    """Return whether the agent reports this key if `spec.observe` names it: one that may be set, or that others own."""
    return is_allowed(key) or key in READ_ONLY or key in CNI_OWNED


def is_allowed(key: str) -> bool:
    """Return whether the key is on the allow-list; `denied_reason` also applies the deny-list and the owners."""
    return key in ALLOWED or bool(_HUGEPAGES.fullmatch(key))


def denied_reason(key: str, value: str) -> str | None:
    """Return the reason why no profile may set this key to this value, as half a sentence; None if one may."""
    value = canonical_value(value)
    if reason := DENIED.get(key) or _DENIED_VALUES.get((key, value)):
        return reason
    for prefix, reason in _DENIED_FAMILIES:
        if key.startswith(prefix):
            return reason
    if key in CNI_OWNED or key.endswith(".forwarding"):
        return "the network plugin owns it"
    if key in KUBELET_OWNED and value != KUBELET_OWNED[key]:
        return f"the kubelet owns it and insists on {KUBELET_OWNED[key]}"
    if key in READ_ONLY:
        return "it is only observed, for now"
    if not is_allowed(key):
        return "it is not on the list of keys that may be set"
    return None


def apply_class(key: str) -> ApplyClass:
    """Return the action that must follow a write before it takes effect. Raises BadKey."""
    kind = kind_of(key)
    if kind is KeyKind.CMDLINE:
        return ApplyClass.REBOOT
    if kind is KeyKind.HUGEPAGES:
        return ApplyClass.KUBELET_RESTART
    if kind is KeyKind.READ_ONLY:
        return ApplyClass.CONTAINERD_RESTART if key.startswith("containerd.") else ApplyClass.KUBELET_RESTART
    return ApplyClass.NEW_PODS if key in _NEW_PODS else ApplyClass.LIVE


def coupled_with(key: str) -> frozenset[str]:
    """The other keys that a write to this one changes."""
    return next((group - {key} for group in COUPLED if key in group), frozenset())


def satisfied(operator: str, wanted: str, effective: str | None) -> bool:
    """Return whether the kernel's answer is the wanted value, or better for >= and <=.

    Numbers compare as numbers (`010` is 10), lists element by element and only with as many elements. Text that is no
    number satisfies >= and <= only by being equal. `mixed:a,b` (disks or CPUs that differ) needs every part to satisfy.
    """
    if effective is None:
        return False
    if effective.startswith(MIXED):
        return all(satisfied(operator, wanted, part) for part in parts(effective))
    want, have = wanted.split(), effective.split()
    if len(want) != len(have):
        return False
    return all(_one_satisfied(operator, w, h) for w, h in zip(want, have, strict=True))


_SPREAD = (KeyKind.BLOCK, KeyKind.GOVERNOR)
"""Kinds of several places, of which some may have gone or come since the original was read."""


def is_restored(key: str, original: str | None, effective: str | None) -> bool:
    """Return whether this answer of the kernel is the original, judged by the value alone.

    A key that is gone has nothing left to put back. Where disks or CPUs come and go, one that both know suffices.
    """
    if effective == original:
        return True
    if effective is None:
        return kind_of(key) not in (KeyKind.MODULE, KeyKind.CMDLINE)
    if original is None:  # of other kinds: it did not exist when the plan was made, so the plan names no value
        return kind_of(key) not in (KeyKind.MODULE, KeyKind.CMDLINE)
    if satisfied(Operator.EQUALS, original, effective):
        return True
    if kind_of(key) not in _SPREAD or MIXED not in (original[: len(MIXED)], effective[: len(MIXED)]):
        return False
    had, has = set(parts(original)), set(parts(effective))
    return bool(had & has)


def _one_satisfied(operator: str, wanted: str, effective: str) -> bool:
    if not (_NUMBER.fullmatch(wanted) and _NUMBER.fullmatch(effective)):
        return wanted == effective
    want, have = int(wanted), int(effective)
    if operator == Operator.AT_LEAST:
        return have >= want
    if operator == Operator.AT_MOST:
        return have <= want
    return have == want
