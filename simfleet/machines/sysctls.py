"""Sysctls of simulated kernels: defaults, ranges and side effects of a 6.8 kernel on a GPU server.

Ranges are the kernel's own (Documentation/admin-guide/sysctl, and the proc handlers), so that a value the catalog
lets through by mistake fails here as it would there.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Sysctl:
    default: str
    low: int = 0
    high: int = INT_MAX
    words: tuple[str, ...] = ()
    """Values of a key that takes a name; numbers otherwise, as many as the default has."""
    module: str = ""
    """Kernel module that brings the key."""
    zeroes: str = ""
    """Key that a write of another value sets to 0."""
    clamps: bool = False
    """Out of range becomes the nearest bound instead of EINVAL."""


def _unbounded(**defaults: int) -> dict[str, Sysctl]:
    return {key.replace("__", "."): Sysctl(str(value)) for key, value in defaults.items()}


SYSCTLS: Mapping[str, Sysctl] = {
    # ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────
    "vm.swappiness": Sysctl("60", high=200),
    "vm.max_map_count": Sysctl("65530"),
    "vm.min_free_kbytes": Sysctl("67584"),
    "vm.dirty_ratio": Sysctl("20", high=100, zeroes="vm.dirty_bytes"),
    "vm.dirty_bytes": Sysctl("0", low=8192, high=LONG_MAX, zeroes="vm.dirty_ratio"),
    "vm.dirty_background_ratio": Sysctl("10", high=100, zeroes="vm.dirty_background_bytes"),
    "vm.dirty_background_bytes": Sysctl("0", low=1, high=LONG_MAX, zeroes="vm.dirty_background_ratio"),
    "vm.dirty_expire_centisecs": Sysctl("3000"),
    "vm.dirty_writeback_centisecs": Sysctl("500"),
    "vm.overcommit_memory": Sysctl("1", high=2),
    "vm.overcommit_ratio": Sysctl("50"),
    "vm.panic_on_oom": Sysctl("0", high=2),
    "vm.zone_reclaim_mode": Sysctl("0"),
    "vm.watermark_scale_factor": Sysctl("10", low=1, high=3000),
    "vm.watermark_boost_factor": Sysctl("15000"),
    "vm.vfs_cache_pressure": Sysctl("100"),
    "vm.stat_interval": Sysctl("1"),
    "vm.page-cluster": Sysctl("3", high=31),
    "vm.compaction_proactiveness": Sysctl("20", high=100),
    "vm.admin_reserve_kbytes": Sysctl("8192", high=LONG_MAX),
    "vm.user_reserve_kbytes": Sysctl("131072", high=LONG_MAX),
    "vm.nr_overcommit_hugepages": Sysctl("0", high=LONG_MAX),
    # ── network ───────────────────────────────────────────────────────────────────────────────────────────────────
    "net.core.rmem_max": Sysctl("212992", low=2304),
    "net.core.wmem_max": Sysctl("212992", low=4608),
    "net.core.rmem_default": Sysctl("212992", low=2304),
    "net.core.wmem_default": Sysctl("212992", low=4608),
    "net.core.default_qdisc": Sysctl("pfifo_fast", words=("pfifo_fast", "fq", "fq_codel", "pfifo", "bfifo", "noqueue")),
    "net.core.netdev_max_backlog": Sysctl("1000"),
    "net.ipv4.tcp_rmem": Sysctl("4096\t131072\t6291456", low=1),
    "net.ipv4.tcp_wmem": Sysctl("4096\t16384\t4194304", low=1),
    "net.ipv4.tcp_mem": Sysctl("3093171\t4124229\t6186342", high=LONG_MAX),
    "net.ipv4.udp_mem": Sysctl("6186342\t8248458\t12372684", high=LONG_MAX),
    "net.ipv4.tcp_congestion_control": Sysctl("cubic", words=("cubic", "reno", "bbr")),
    "net.ipv4.tcp_mtu_probing": Sysctl("0", high=2),
    "net.ipv4.tcp_syncookies": Sysctl("1", high=2),
    "net.ipv4.tcp_timestamps": Sysctl("1", high=2),
    "net.ipv4.tcp_slow_start_after_idle": Sysctl("1"),
    "net.ipv4.tcp_tw_reuse": Sysctl("2", high=2),
    "net.ipv4.tcp_notsent_lowat": Sysctl("4294967295", high=2**32 - 1),
    "net.ipv4.ip_local_port_range": Sysctl("32768\t60999", low=1, high=65535),
    "net.ipv4.conf.all.arp_ignore": Sysctl("0"),
    "net.ipv4.conf.all.arp_announce": Sysctl("0"),
    "net.ipv4.conf.default.arp_ignore": Sysctl("0"),
    "net.ipv4.conf.default.arp_announce": Sysctl("0"),
    "net.ipv4.conf.all.rp_filter": Sysctl("0"),
    "net.ipv4.conf.default.rp_filter": Sysctl("2"),
    "net.ipv4.conf.all.forwarding": Sysctl("1"),
    "net.ipv4.conf.default.forwarding": Sysctl("1"),
    "net.ipv4.ip_forward": Sysctl("1", high=1),
    "net.netfilter.nf_conntrack_max": Sysctl("262144", module="nf_conntrack"),
    "net.netfilter.nf_conntrack_buckets": Sysctl("262144", module="nf_conntrack"),
    "net.netfilter.nf_conntrack_tcp_timeout_established": Sysctl("432000", module="nf_conntrack"),
    "net.netfilter.nf_conntrack_tcp_timeout_close_wait": Sysctl("60", module="nf_conntrack"),
    "net.netfilter.nf_conntrack_tcp_timeout_time_wait": Sysctl("120", module="nf_conntrack"),
    "net.netfilter.nf_conntrack_udp_timeout": Sysctl("30", module="nf_conntrack"),
    "net.netfilter.nf_conntrack_udp_timeout_stream": Sysctl("120", module="nf_conntrack"),
    **_unbounded(
        net__core__optmem_max=131072,
        net__core__somaxconn=4096,
        net__core__netdev_budget=300,
        net__core__netdev_budget_usecs=8000,
        net__core__dev_weight=64,
        net__core__busy_poll=0,
        net__core__busy_read=0,
        net__core__rps_sock_flow_entries=0,
        net__core__bpf_jit_enable=1,
        net__core__bpf_jit_harden=0,
        net__ipv4__tcp_max_syn_backlog=4096,
        net__ipv4__tcp_window_scaling=1,
        net__ipv4__tcp_sack=1,
        net__ipv4__tcp_fastopen=1,
        net__ipv4__tcp_fin_timeout=60,
        net__ipv4__tcp_keepalive_time=7200,
        net__ipv4__tcp_keepalive_intvl=75,
        net__ipv4__tcp_keepalive_probes=9,
        net__ipv4__tcp_max_tw_buckets=262144,
        net__ipv4__tcp_no_metrics_save=0,
        net__ipv4__tcp_moderate_rcvbuf=1,
        net__ipv4__tcp_limit_output_bytes=1048576,
        net__ipv4__tcp_retries1=3,
        net__ipv4__tcp_retries2=15,
        net__ipv4__tcp_syn_retries=6,
        net__ipv4__tcp_synack_retries=5,
        net__ipv4__tcp_ecn=2,
        net__ipv4__tcp_autocorking=1,
        net__ipv4__tcp_max_orphans=262144,
        net__ipv4__udp_rmem_min=4096,
        net__ipv4__udp_wmem_min=4096,
        net__ipv4__neigh__default__gc_thresh1=128,
        net__ipv4__neigh__default__gc_thresh2=512,
        net__ipv4__neigh__default__gc_thresh3=1024,
        net__ipv4__neigh__default__gc_interval=30,
        net__ipv4__neigh__default__gc_stale_time=60,
        net__ipv6__neigh__default__gc_thresh1=128,
        net__ipv6__neigh__default__gc_thresh2=512,
        net__ipv6__neigh__default__gc_thresh3=1024,
    ),
    # ── files and kernel ──────────────────────────────────────────────────────────────────────────────────────────
    "fs.aio-max-nr": Sysctl("65536", high=LONG_MAX),
    "fs.file-max": Sysctl("9223372036854775807", high=LONG_MAX),
    "fs.nr_open": Sysctl("1048576", low=64, high=2147483584),
    "fs.inotify.max_user_instances": Sysctl("128"),
    "fs.inotify.max_user_watches": Sysctl("1048576"),
    "fs.inotify.max_queued_events": Sysctl("16384"),
    "fs.pipe-max-size": Sysctl("1048576", low=4096),
    "fs.epoll.max_user_watches": Sysctl("232837529", high=LONG_MAX),
    "kernel.pid_max": Sysctl("4194304", low=301, high=4194304),
    "kernel.threads-max": Sysctl("16512444", low=20, high=0x3FFFFFFF, clamps=True),
    "kernel.numa_balancing": Sysctl("1", high=3),
    "kernel.shmmax": Sysctl("18446744073692774399", high=2**64 - 1),
    "kernel.shmall": Sysctl("18446744073692774399", high=2**64 - 1),
    "kernel.shmmni": Sysctl("4096", high=32768),
    "kernel.msgmni": Sysctl("32000", high=32768),
    "kernel.sem": Sysctl("32000\t1024000000\t500\t32000"),
    "kernel.sched_rt_runtime_us": Sysctl("950000", low=-1),
    "kernel.sched_rt_period_us": Sysctl("1000000", low=1),
    "kernel.perf_event_paranoid": Sysctl("4", low=-1),
    "kernel.kptr_restrict": Sysctl("1", high=2),
    "kernel.dmesg_restrict": Sysctl("1", high=1),
    "kernel.yama.ptrace_scope": Sysctl("1", high=3),
    "kernel.watchdog": Sysctl("1", high=1),
    "kernel.nmi_watchdog": Sysctl("1", high=1),
    "kernel.watchdog_thresh": Sysctl("10", high=60),
    "kernel.timer_migration": Sysctl("1", high=1),
    "kernel.sched_autogroup_enabled": Sysctl("1", high=1),
    **_unbounded(
        kernel__msgmax=8192,
        kernel__msgmnb=16384,
        kernel__perf_event_max_sample_rate=100000,
        kernel__sysrq=176,
        kernel__hung_task_timeout_secs=120,
        kernel__panic=10,
        kernel__panic_on_oops=1,
        kernel__keys__maxkeys=200,
        kernel__keys__maxbytes=20000,
        kernel__keys__root_maxkeys=1000000,
        kernel__keys__root_maxbytes=25000000,
    ),
}


def answer(key: str, rule: Sysctl, current: str, text: str) -> str:
    """Return the value that the kernel holds after `text` was written. Raises OSError as the write would."""
    if rule.words:
        word = text.strip()
        if word not in rule.words:
            raise OSError(errno.ENOENT, "No such file or directory", key)
        return word
    given, held = text.split(), current.split()
    if not given or len(given) > len(held):
        raise OSError(errno.EINVAL, "Invalid argument", key)
    for place, item in enumerate(given):
        try:
            number = int(item, 0) if not item.lstrip("-").startswith("0") or "x" in item else int(item, 8)
        except ValueError as error:
            raise OSError(errno.EINVAL, "Invalid argument", key) from error
        if rule.clamps:
            number = max(rule.low, min(rule.high, number))
        if not rule.low <= number <= rule.high:
            raise OSError(errno.EINVAL, "Invalid argument", key)
        held[place] = str(number)
    return "\t".join(held)
