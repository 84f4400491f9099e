"""Every raw name that is understood, whichever vendor's exporter says it."""

from __future__ import annotations

from gpus import amd, names
from gpus.names import Name

NAMES: dict[str, Name] = names.NVIDIA | {name.raw: name for name in amd.names()}
"""By raw name. Sources ask for these, and for nothing else."""
