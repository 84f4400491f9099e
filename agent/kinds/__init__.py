"""One handler per kind of setting."""

from __future__ import annotations

from collections.abc import Mapping

from agent.kinds.base import Handler
from agent.kinds.cmdline import Cmdline
from agent.kinds.hugepages import Hugepages
from agent.kinds.modules import Module
from agent.kinds.readonly import ReadOnly
from agent.kinds.sysctl import Sysctl
from agent.kinds.sysfs import Block, Governor, ModuleParameter, TransparentHugepage
from contract.keys import Kind


def handlers() -> Mapping[Kind, Handler]:
    """Fresh ones: a handler may remember things of its node."""
    return {
        Kind.SYSCTL: Sysctl(),
        Kind.HUGEPAGES: Hugepages(),
        Kind.THP: TransparentHugepage(),
        Kind.GOVERNOR: Governor(),
        Kind.MODULE: Module(),
        Kind.MODULE_PARAMETER: ModuleParameter(),
        Kind.BLOCK: Block(),
        Kind.CMDLINE: Cmdline(),
        Kind.READ_ONLY: ReadOnly(),
    }


ORDER = (
    Kind.MODULE,
    Kind.MODULE_PARAMETER,
    Kind.SYSCTL,
    Kind.THP,
    Kind.GOVERNOR,
    Kind.BLOCK,
    Kind.HUGEPAGES,
    Kind.CMDLINE,
    Kind.READ_ONLY,
)
"""Writing order: a module brings sysctls with it, and huge pages are better found before anything else takes memory."""
