"""Percent or ratio: settled for each exporter, as 1 alone could be either."""

from __future__ import annotations

import pytest

from gpus.metrics.samples import Code, Metric
from tests.gpus.scrapes import counts, direct, line, read


def busy(reading):
    return [sample.values.get(Metric.BUSY) for sample in reading.samples]


def exposition_of(name, *values, exporter="x/e-1", also=""):
    start = exporter[-1]
    lines = "".join(line(name, value, uuid=f"GPU-{start}{number}") for number, value in enumerate(values))
    return direct(lines + also, exporter)


CLASSIC, BASE = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"
OLD_UNITS = line("DCGM_FI_DEV_FB_USED", 5, uuid="GPU-10")
NEW_UNITS = line("DCGM_FI_DEV_FB_USED_BYTES", 5, uuid="GPU-10")


@pytest.mark.parametrize(
    ("series", "truth", "finding"),
    [
        (exposition_of(CLASSIC, 0, 1, 57), [0, 0.01, 0.57], None),
        (exposition_of(CLASSIC, 0, 1), [0, 0.01], None),
        (exposition_of(CLASSIC, 0, 1, 0.57), [0, 1, 0.57], Code.PERCENT_IS_RATIO),  # divided on the way, name kept
        (exposition_of(BASE, 0, 1, 0.57), [0, 1, 0.57], None),
        (exposition_of(BASE, 0, 1, 57), [0, 0.01, 0.57], Code.RATIO_IS_PERCENT),  # DCGM 4.6
        (exposition_of(BASE, 0, 1, also=OLD_UNITS), [0, 0.01], Code.RATIO_IS_PERCENT),
        (exposition_of(BASE, 0, 1, also=NEW_UNITS), [0, 1], None),
        (exposition_of(BASE, 0, 1), [0, None], Code.RATIO_AMBIGUOUS),
        (exposition_of(BASE, 0, 0), [0, 0], None),
        (exposition_of(BASE, 0.5, 70), [0.5, None], Code.ABSURD),
    ],
)
def test_one_exporter_is_judged_by_all_it_says(series, truth, finding):
    reading = read(series)
    assert busy(reading) == truth
    about_ratios = {Code.PERCENT_IS_RATIO, Code.RATIO_IS_PERCENT, Code.RATIO_AMBIGUOUS, Code.ABSURD}
    assert counts(reading).keys() & about_ratios == ({finding} if finding else set())


def test_an_exporter_that_proves_nothing_follows_the_others_if_they_agree():
    reading = read(
        [
            *exposition_of(BASE, 0, 1),
            *exposition_of(BASE, 33, exporter="x/e-2"),
            *exposition_of(BASE, 44, exporter="x/e-3"),
        ]
    )
    assert busy(reading) == [0, 0.01, 0.33, 0.44]


def test_and_not_if_they_disagree():
    reading = read(
        [
            *exposition_of(BASE, 0, 1),
            *exposition_of(BASE, 33, exporter="x/e-2"),
            *exposition_of(BASE, 0.44, exporter="x/e-3"),
        ]
    )
    assert busy(reading) == [0, None, 0.33, 0.44]
    assert counts(reading)[Code.RATIO_AMBIGUOUS] == 1


def test_memory_duty_is_guarded_alike():
    series = direct(line("DCGM_FI_DEV_MEMORY_UTIL_RATIO", 41) + line("DCGM_FI_PROF_SM_UTIL_RATIO", 0.4))
    (sample,) = read(series).samples
    assert sample.values == {Metric.MEMORY_COPY: 0.41, Metric.SM: 0.4}
