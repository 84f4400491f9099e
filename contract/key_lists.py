"""The lists of keys: those that may be set, those that never may, and those that others own.

The lists name exact keys: a prefix would let the next kernel's new key through. contract.keys applies them.
The sources of each key and its bounds are in profiles/catalog/*.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping

from contract import disk_layouts, disks, isolation, kubelet, nics, resource_managers


def _keys(prefix: str, names: str) -> frozenset[str]:
    return frozenset(f"{prefix}{name}" for name in names.split())


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
    """ib_umad ib_uverbs ib_ipoib rdma_ucm rdma_cm rdma_rxe mlx5_core mlx5_ib nvidia_peermem gdrdrv nvme nvme_tcp
    nvme_rdma nvme_fabrics nf_conntrack br_netfilter overlay tcp_bbr sch_fq vfio vfio_pci dm_multipath nfs lustre knem
    xpmem ipmi_devintf ipmi_si nbd dummy""",
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

CPU_LATENCY = "cpu.resume_latency_us"

ALLOWED_CMDLINE = _keys(
    "",
    """iommu intel_iommu amd_iommu iommu.passthrough iommu.strict pci init_on_alloc init_on_free numa_balancing
    transparent_hugepage default_hugepagesz hugepagesz hugepages intel_pstate amd_pstate processor.max_cstate
    intel_idle.max_cstate cpuidle.off idle nmi_watchdog nohz nohz_full rcu_nocbs skew_tick tsc clocksource audit
    nosoftlockup psi cgroup_no_v1 systemd.unified_cgroup_hierarchy kvm_intel.nested workqueue.power_efficient
    pcie_aspm pcie_ports hpet crashkernel hugetlb_free_vmemmap""",
)

BOOT_FALLBACK = "boot.fallback"
"""`grub` where a node that does not come up with new kernel arguments boots with the old ones, else `none`."""
READ_ONLY = frozenset(
    {
        BOOT_FALLBACK,
        "containerd.LimitSTACK",
        *resource_managers.FACTS,
        isolation.SIBLINGS,
        *disks.KEYS,
    }
)

ALLOWED: frozenset[str] = (
    ALLOWED_SYSCTLS
    | _keys("hugepages-", "2Mi 1Gi")
    | _keys("transparent_hugepage.", "enabled defrag")
    | {"cpu.scaling_governor", CPU_LATENCY, isolation.KEY}
    | {f"module.{name}" for name in ALLOWED_MODULES}
    | {f"module_parameter.{name}" for name in ALLOWED_MODULE_PARAMETERS}
    | {f"block.{of}.{attribute}" for of in BLOCK_CLASSES for attribute in BLOCK_ATTRIBUTES}
    | {f"cmdline.{name}" for name in ALLOWED_CMDLINE}
    | kubelet.FIELDS.keys()
    | resource_managers.FLAGS.keys()
    | kubelet.SERVICE_LIMITS.keys()
    | nics.KEYS
    | {disk_layouts.KEY}
)
"""Every key that may be written, but for the per-node `hugepages-<size>.node<N>` forms of the two huge page keys."""

_CODE = "it names a program that the kernel runs"
_ONE_WAY = "it cannot be put back without a reboot"
_SECURITY = "it weakens the node's security"
_ISOLATING = (isolation.ISOLCPUS, isolation.IRQ_AFFINITY, isolation.SERVICE_AFFINITY)

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
    **{f"cmdline.{name}": f"use {isolation.KEY}, which sets it with all that belongs to it" for name in _ISOLATING},
}
"""Keys that no profile may set, for any role of its author. `denied_reason` adds families and single values."""

DENIED_FAMILIES: tuple[tuple[str, str], ...] = (
    ("net.bridge.", "it belongs to the network plugin"),
    ("fs.protected_", _SECURITY),
    ("kernel.usermodehelper.", _CODE),
)
_UNANSWERED = "the node would not answer for any of its addresses, and no neighbor could reach it"
DENIED_VALUES: Mapping[tuple[str, str], str] = {
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
    *isolation.RIVALS,
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

NEW_PODS = _keys(
    "net.ipv4.",
    "tcp_rmem tcp_wmem tcp_congestion_control tcp_mtu_probing tcp_keepalive_time tcp_fastopen",
)
"""Copied from the host into a network namespace when it is created, or read when a connection opens."""
