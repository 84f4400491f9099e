"""Fields of the kubelet's configuration and limits of services that may be set, with the kubelet's own rules for them.

Its resource managers, which need more than a restart, are in `contract.resource_managers`.

Fields, defaults and bounds: KubeletConfiguration v1beta1 (pkg/kubelet/apis/config: v1beta1/defaults.go and
validation/validation.go); flags: cmd/kubelet/app/options/options.go. Limits: systemd.exec(5).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

FIELDS: Mapping[str, tuple[str, str]] = {
    "kubelet.podPidsLimit": ("pod-max-pids", "-1"),
    "kubelet.maxPods": ("max-pods", "110"),
    "kubelet.imageGCHighThresholdPercent": ("image-gc-high-threshold", "85"),
    "kubelet.imageGCLowThresholdPercent": ("image-gc-low-threshold", "80"),
}
"""Per key that may be set its flag, which wins over every file, and the value of a kubelet that is given none."""

SERVICE_LIMITS: Mapping[str, tuple[str, str]] = {
    "containerd.LimitMEMLOCK": ("containerd", "Max locked memory"),
    "containerd.LimitNOFILE": ("containerd", "Max open files"),
    "kubelet.LimitMEMLOCK": ("kubelet", "Max locked memory"),
}
"""Per limit its service, and its name in /proc/<pid>/limits.

Without the kubelet's LimitNOFILE: it sets that limit of itself to `maxOpenFiles`, also where systemd gives it another
one."""
HARD = frozenset({"containerd.LimitNOFILE"})
"""Limits of which the hard one is the proof: containerd raises its own soft limit to it when it starts, as every Go
program does, and gives the programs that it starts back what systemd gave it."""
UNLIMITED = "infinity"
LEAST_LOCKED = 65536
"""Bytes. The kernel's own limit until 5.16; below it, programs for control groups cannot be loaded on older ones."""
LEAST_FILES = 65536
"""A judgment: containerd itself keeps several open for each container, and with fewer a full node loses pods."""
MOST_FILES = 2147483584
"""The most that fs.nr_open takes, beyond which no limit can be (fs/file.c, sysctl_nr_open_max)."""

LEAST_PIDS = 64
"""A judgment: well below what any pod needs, and above what keeps the network plugin's own from starting."""

_PODS_AND_PERCENT: Mapping[str, tuple[int, int]] = {
    "kubelet.maxPods": (1, 2**31 - 1),
    "kubelet.imageGCHighThresholdPercent": (0, 100),
    "kubelet.imageGCLowThresholdPercent": (0, 100),
}
_HIGH, _LOW = "kubelet.imageGCHighThresholdPercent", "kubelet.imageGCLowThresholdPercent"
TOGETHER = (_HIGH, _LOW)
"""Fields that the kubelet judges together."""
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")


def bad_value(key: str, value: str) -> str:
    """Return why the kubelet, or systemd, would not take this value, as half a sentence; empty when it would."""
    if key in HARD:
        is_fit = _WHOLE.fullmatch(value) and LEAST_FILES <= int(value) <= MOST_FILES
        return "" if is_fit else f"must be a whole number of files from {LEAST_FILES} to {MOST_FILES}"
    if key in SERVICE_LIMITS:
        if value == UNLIMITED or (_WHOLE.fullmatch(value) and LEAST_LOCKED <= int(value) < 2**63):
            return ""
        return f"must be {UNLIMITED}, or a whole number of bytes that is at least {LEAST_LOCKED}"
    if not _WHOLE.fullmatch(value):
        return "must be a whole number"
    if key == "kubelet.podPidsLimit":
        is_fit = value == "-1" or LEAST_PIDS <= int(value) < 2**63
        return "" if is_fit else f"must be -1, which is no limit, or at least {LEAST_PIDS}: with fewer no pod starts"
    low, high = _PODS_AND_PERCENT[key]
    return "" if low <= int(value) <= high else f"must be {low} to {high}"


def unstartable(values: Mapping[str, str | None]) -> str:
    """Return why no kubelet starts with these values together, as half a sentence; empty when one does.

    Fields that are absent or None have the kubelet's default. A value that is no number may be a hostile spec's.
    """
    given = [values.get(key) or FIELDS[key][1] for key in TOGETHER]
    if not all(map(_WHOLE.fullmatch, given)):
        return f"the kubelet's image thresholds {' and '.join(map(repr, given))} are not whole numbers"
    high, low = map(int, given)
    if low < high:
        return ""
    return (
        f"the kubelet does not start with imageGCLowThresholdPercent {low} and imageGCHighThresholdPercent {high}: the "
        "low one must be less than the high one"
    )
