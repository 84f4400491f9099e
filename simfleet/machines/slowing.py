"""Cost of a node's kernel settings to the work on its GPUs: the truth behind every before-and-after in the simulation.

    achieved = what the work does on a well-set node × (1 − its `host_bound` × `slowed_by(kernel)`)

Three settings count, each for the reason that the profiles give for it, and their costs add up:

- vm.swappiness above 10: pages of data loaders and staging buffers are swapped out, and GPUs wait for them. Nothing at
  10, 12 % at 60, the kernel's default, and in between as far as the value is between.
- cmdline.iommu other than pt: RDMA between GPU and NIC is translated, and all-reduce waits for it: 5 %.
- vm.compaction_proactiveness above 0: background compaction is jitter, of which all-reduce takes the worst: 2 %.

The shares are invented; only that they are so, and nothing else is, matters. `config/demo` and tests rely on them.
"""

from __future__ import annotations

from simfleet.machines.kernel import VirtualKernel

CALM, RESTLESS = 10, 60
"""vm.swappiness: of gpu-baseline, and the kernel's default."""
SWAPPED, TRANSLATED, COMPACTED = 0.12, 0.05, 0.02


def slowed_by(kernel: VirtualKernel) -> float:
    """Share of its work, 0 to 1, that a job loses here which depends on its host entirely."""
    swappiness = min(RESTLESS, max(CALM, _number(kernel, "vm.swappiness")))
    lost = SWAPPED * (swappiness - CALM) / (RESTLESS - CALM)
    if "iommu=pt" not in (kernel.read("/proc/cmdline") or "").split():
        lost += TRANSLATED
    if _number(kernel, "vm.compaction_proactiveness"):
        lost += COMPACTED
    return round(lost, 4)


def _number(kernel: VirtualKernel, key: str) -> int:
    """0 where this kernel does not have it."""
    text = kernel.sysctl(key) or "0"
    return int(text) if text.isdecimal() else 0
