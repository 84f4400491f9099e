"""docs/gpu.md names each metric with each name, scale and unit that the code knows, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from gpus.metrics.nvidia import MHZ, MIB, MILLI, NANO, NVIDIA, PERCENT, Labeled
from gpus.metrics.samples import Generation, Metric
from gpus.normalization.plausibility import LIMITS

PAGE = (Path(__file__).parents[3] / "docs" / "gpu.md").read_text()
SCALES = {"÷ 100": PERCENT, "× 2²⁰": MIB, "× 10⁶": MHZ, "÷ 10³": MILLI, "÷ 10⁹": NANO, "": 1.0}


def rows():
    metrics, _, _ = PAGE.partition("\n### AMD")  # other tables have names in their first column, too
    for match in re.finditer(r"^\| `(\w+)` \|(.+)\|$", metrics, re.MULTILINE):
        _meaning, unit, classic, base = (cell.strip() for cell in match[2].split(" | "))
        yield Metric(match[1]), unit, classic, base


def names(cell, generation):
    raw, scale = re.fullmatch(r"`([^`]+)` ?(.*)", cell).groups()
    before, parts, after = re.fullmatch(r"([^{]*)(?:\{(.*)\})?(.*)", raw).groups()
    return {(before + part + after, SCALES[scale], generation) for part in (parts or "").split(",")}


def test_the_table_is_the_alias_table():
    written = {metric: (classic, base) for metric, _unit, classic, base in rows()}
    assert list(written) == list(Metric)
    for metric, (classic, base) in written.items():
        known = {(name.raw, name.scale, name.generation) for name in NVIDIA.values() if name.means is metric}
        if base == "the same":
            assert known == names(classic, None), metric
        else:
            assert known == names(classic, Generation.CLASSIC) | names(base, Generation.BASE_UNITS), metric
    for name in NVIDIA.values():
        if isinstance(name.means, Labeled):
            assert f"`{name.raw}`" in PAGE


def test_every_metric_has_limits_in_its_unit():
    most = {"0–1": 1.05, "0 or 1": 1.0}
    for metric, unit, _classic, _base in rows():
        assert LIMITS[metric][1] == most.get(unit, LIMITS[metric][1]), metric
        assert (LIMITS[metric][1] <= 1.05) is (unit in most), metric
    assert LIMITS.keys() == set(Metric)
