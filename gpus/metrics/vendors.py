"""Every raw name that is understood, whichever vendor's exporter says it."""

from __future__ import annotations

from gpus.metrics import amd, nvidia
from gpus.metrics.nvidia import Name

NAMES: dict[str, Name] = nvidia.NVIDIA | {name.raw: name for name in amd.names()}
"""By raw name. Sources ask for these, and for nothing else."""
