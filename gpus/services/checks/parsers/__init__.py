"""Parsers of what checks print: strict, bounded, and never a pass where the text is not understood."""

from collections.abc import Callable, Mapping

from gpus.services.checks.parsers import dcgm, fio, nccl, network
from gpus.services.checks.verdicts import Verdict

PARSERS: Mapping[str, Callable[[str], Verdict]] = {
    "dcgm": dcgm.parse,
    "dcgm-software": dcgm.parse_software,
    "nccl": nccl.parse,
    "fio": fio.parse,
    "network": network.parse,
}
"""By the name that the catalog uses. Each raises NotUnderstood."""
