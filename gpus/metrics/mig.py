"""Fraction of a GPU that an instance is: its compute slices of the board's, so that no board counts twice.

NVIDIA's MIG user guide gives each profile's fraction of SMs: 3g.40gb is 3/7 of an H100, 2g.12gb 2/4 of an A30
(docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html). Memory has eighths, and does not count.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpus.metrics.amd import PARTITIONS
from gpus.metrics.samples import DeviceKey, Sample

SLICES = 7
"""Of the boards that MIG splits, but for those below."""
FEWER = (
    (re.compile(r"\bA30\b"), 4),
    (re.compile(r"\bRTX PRO 6000\b"), 4),
    (re.compile(r"\bRTX PRO (?:5000|4500)\b"), 2),
)
"""The most instances that the guide's table of supported GPUs gives them (supported-gpus.html)."""
MIG = "-MIG-"
"""In a product's name, before the profile, where the device plugin's strategy is `single`."""
_PROFILE = re.compile(r"(?:(\d{1,2})c\.)?(\d{1,2})g\.")
"""`1c.3g.40gb` is one compute slice of an instance that has three."""


def part_of(profile: str, model: str = "") -> float:
    """0-1 of a whole GPU; all of it where the profile is neither MIG's nor a mode of AMD's partitions."""
    if profile in PARTITIONS:
        return 1 / PARTITIONS[profile]
    match = _PROFILE.match(profile)
    if match is None:
        return 1.0
    slices = next((number for pattern, number in FEWER if pattern.search(model.replace("-", " "))), SLICES)
    return min(int(match[1] or match[2]), slices) / slices


@dataclass(frozen=True, slots=True)
class Split:
    """One node's devices, in whole GPUs."""

    parts: Mapping[DeviceKey, float]
    """Of each instance; what is not there is a whole GPU. Those of one board are never more than 1 together."""
    left: float
    """Of the boards that are split, what no instance has: no pod can hold it, so it is free."""
    mean: float
    """Of a device that only the API server knows, as those that telemetry knows are on the average."""

    def of(self, sample: Sample) -> float:
        return self.parts.get(sample.device, 1.0)


WHOLE = Split({}, 0.0, 1.0)
"""A node that MIG does not split."""


def of_product(product: str) -> Split:
    """Return the split of a node not read yet, from GPU feature discovery's label where all GPUs are split alike."""
    model, mig, profile = product.replace(" ", "-").partition(MIG)
    return Split({}, 0.0, part_of(profile, model)) if mig else WHOLE


def of_node(devices: Iterable[tuple[DeviceKey, str, str]]) -> Split:
    """Return the split of a node, from key, profile and model of each device that can be held."""
    boards: dict[str, dict[DeviceKey, float]] = defaultdict(dict)
    equal: dict[str, bool] = {}
    whole = 0
    for key, profile, model in devices:
        if key.instance:
            boards[key.uuid][key] = part_of(profile, model)
            equal[key.uuid] = profile in PARTITIONS
        else:
            whole += 1
    if not boards:
        return WHOLE
    parts: dict[DeviceKey, float] = {}
    left = 0.0
    for uuid, of_board in boards.items():
        # An MI300A has six in the mode in which an MI300X has eight
        shares = dict.fromkeys(of_board, 1 / len(of_board)) if equal[uuid] else of_board
        together = sum(shares.values())
        left += max(0.0, 1.0 - together)
        parts |= {key: part / max(1.0, together) for key, part in shares.items()}
    return Split(parts, left, (sum(parts.values()) + whole) / (len(parts) + whole))
