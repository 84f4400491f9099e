"""One handler per kind of setting."""

from __future__ import annotations

from collections.abc import Mapping

from agent.disks import Disks
from agent.journal import Journal
from agent.kinds.base import Handler
from agent.kinds.cmdline import Cmdline
from agent.kinds.cpu_isolation import CpuIsolation
from agent.kinds.disk_layout import DiskLayouts
from agent.kinds.hugepages import Hugepages
from agent.kinds.kubelet import Kubelet
from agent.kinds.kubelet_managers import KubeletManager
from agent.kinds.lifeline import Lifeline
from agent.kinds.modules import Module
from agent.kinds.nic import Nic
from agent.kinds.readonly import ReadOnly
from agent.kinds.service_limits import ServiceLimit
from agent.kinds.sysctl import Sysctl
from agent.kinds.sysfs import Block, Governor, ModuleParameter, ResumeLatency, TransparentHugepage
from agent.services import Running
from contract.keys import KeyKind


def handlers(journal: Journal, lifeline: Lifeline) -> Mapping[KeyKind, Handler]:
    """Fresh ones: a handler may remember things of its node, and note them in the journal."""
    running = Running()
    kubelet = Kubelet(journal.content.kubelet, running)
    looks = Disks()
    return {
        KeyKind.SYSCTL: Sysctl(),
        KeyKind.HUGEPAGES: Hugepages(),
        KeyKind.THP: TransparentHugepage(),
        KeyKind.GOVERNOR: Governor(),
        KeyKind.CPU_LATENCY: ResumeLatency(),
        KeyKind.MODULE: Module(),
        KeyKind.MODULE_PARAMETER: ModuleParameter(),
        KeyKind.BLOCK: Block(),
        KeyKind.NIC: Nic(journal, lifeline),
        KeyKind.CMDLINE: Cmdline(),
        KeyKind.CPU_ISOLATION: CpuIsolation(journal),
        KeyKind.KUBELET: kubelet,
        KeyKind.KUBELET_MANAGER: KubeletManager(kubelet),
        KeyKind.SERVICE_LIMIT: ServiceLimit(running),
        KeyKind.DISK_LAYOUT: DiskLayouts(journal, looks),
        KeyKind.READ_ONLY: ReadOnly(kubelet, running, looks),
    }


ORDER = (
    KeyKind.MODULE,
    KeyKind.MODULE_PARAMETER,
    KeyKind.SYSCTL,
    KeyKind.THP,
    KeyKind.GOVERNOR,
    KeyKind.CPU_LATENCY,
    KeyKind.BLOCK,
    KeyKind.NIC,
    KeyKind.HUGEPAGES,
    KeyKind.CMDLINE,
    KeyKind.CPU_ISOLATION,
    KeyKind.KUBELET,
    KeyKind.KUBELET_MANAGER,
    KeyKind.SERVICE_LIMIT,
    KeyKind.DISK_LAYOUT,
    KeyKind.READ_ONLY,
)
"""Writing order: a module brings sysctls with it, and huge pages are better found before anything else takes memory."""
