"""The same truth, however it is told, is the same reading; and no telling, however broken, makes a number up."""

from __future__ import annotations

import math
import random
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from gpus.metrics.samples import Holder, Metric, Series
from gpus.metrics.vendors import NAMES
from gpus.normalization.plausibility import LIMITS
from tests.gpus.scrapes import NOW, TARGET, counts, direct, line, prometheus, read

MIB = 1024 * 1024
PERCENT = st.integers(0, 100).map(lambda percent: percent / 100)
RATIO = st.integers(0, 1_000_000).map(lambda millionths: millionths / 1_000_000)
TRUTH = st.fixed_dictionaries(
    {
        # Nothing contradictory: that would rightly be withheld
        Metric.BUSY: st.integers(1, 49).map(lambda percent: percent / 100),
        Metric.ENGINE: RATIO,
        Metric.MEMORY_COPY: PERCENT,
        Metric.MEMORY_USED: st.integers(0, 200_000).map(lambda mib: mib * MIB),
        Metric.ENERGY: st.integers(0, 10**9),
        Metric.SM_CLOCK: st.integers(1, 3_000).map(lambda mhz: mhz * 10**6),
        Metric.TEMPERATURE: st.integers(1, 110),
    },
    optional={Metric.POWER: st.integers(0, 1_500), Metric.THERMAL_THROTTLED: st.integers(0, 10**6)},
)
GPU = st.tuples(TRUTH, st.sampled_from(["", "a", "b"]))
FLEET = st.lists(st.lists(GPU, min_size=1, max_size=3), min_size=1, max_size=3)
"""By node, each GPU's values and the pod that holds it."""

# Written down once more, by hand: a mistake in the alias table must not cancel itself out
CLASSIC = {
    Metric.BUSY: ("DCGM_FI_DEV_GPU_UTIL", 100),
    Metric.ENGINE: ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 1),
    Metric.MEMORY_COPY: ("DCGM_FI_DEV_MEM_COPY_UTIL", 100),
    Metric.MEMORY_USED: ("DCGM_FI_DEV_FB_USED", 1 / MIB),
    Metric.ENERGY: ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e3),
    Metric.SM_CLOCK: ("DCGM_FI_DEV_SM_CLOCK", 1e-6),
    Metric.TEMPERATURE: ("DCGM_FI_DEV_GPU_TEMP", 1),
    Metric.POWER: ("DCGM_FI_DEV_POWER_USAGE", 1),
    Metric.THERMAL_THROTTLED: ("DCGM_FI_DEV_THERMAL_VIOLATION", 1e9),
}
BASE = {
    Metric.BUSY: "DCGM_FI_DEV_GPU_UTIL_RATIO",
    Metric.ENGINE: "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
    Metric.MEMORY_COPY: "DCGM_FI_DEV_MEMORY_UTIL_RATIO",
    Metric.MEMORY_USED: "DCGM_FI_DEV_FB_USED_BYTES",
    Metric.ENERGY: "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
    Metric.SM_CLOCK: "DCGM_FI_DEV_SM_CLOCK_HERTZ",
    Metric.TEMPERATURE: "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
    Metric.POWER: "DCGM_FI_DEV_BOARD_POWER_WATTS",
    Metric.THERMAL_THROTTLED: "DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL",
}


def written(node: int, gpus, *, base: bool) -> str:
    text = ""
    for index, (truth, pod) in enumerate(gpus):
        labels = {"hostname" if base else "Hostname": f"n{node}", "gpu": str(index)}
        if pod:
            labels |= {"namespace": f"team-{pod}", "pod": f"{pod}-{node}-{index}", "container": "main"}
        for metric, value in truth.items():
            name, factor = (BASE[metric], 1) if base else CLASSIC[metric]
            number = (
                f"{value * factor:.6f}" if metric in {Metric.ENGINE, Metric.POWER} or base else round(value * factor)
            )
            text += exposition_line(name, number, f"GPU-{node}-{index}", labels)
    return text


def exposition_line(name, number, uuid, labels):
    all_labels = {"gpu": "0", "UUID": uuid, "modelName": "H100"} | labels
    return name + "{" + ",".join(f'{label}="{text}"' for label, text in all_labels.items()) + f"}} {number}\n"


def series_of(fleet, *, base: bool, how: str):
    series = []
    for node, gpus in enumerate(fleet):
        text, pod = written(node, gpus, base=base), f"nvidia-dcgm-exporter-{node}"
        if how == "direct":
            series += direct(text, f"gpu-operator/{pod}")
        else:
            target = TARGET | {"instance": f"10.0.0.{node}:9400", "pod": pod}
            series += prometheus(text, honor_labels=how == "honored", target=target)
    return series


def true_samples(fleet):
    """Return by UUID the node, its holders, and the values; straight from the truth."""
    return {
        f"GPU-{node}-{index}": (
            f"n{node}",
            ((Holder(f"team-{pod}", f"{pod}-{node}-{index}", "main"),) if pod else ()),
            dict(truth),
        )
        for node, gpus in enumerate(fleet)
        for index, (truth, pod) in enumerate(gpus)
    }


def as_read(reading):
    return {
        sample.device.uuid: (sample.node, sample.holders, {m: round(value, 6) for m, value in sample.values.items()})
        for sample in reading.samples
    }


TELLINGS = [(base, how) for base in (False, True) for how in ("direct", "honored", "renamed")]


@settings(max_examples=12, deadline=None)
@given(FLEET, st.randoms(use_true_random=False))
def test_one_truth_is_one_reading_in_every_telling_and_order(fleet, chance):
    truth = true_samples(fleet)
    for base, how in TELLINGS:
        series = series_of(fleet, base=base, how=how)
        reading = read(series)
        assert as_read(reading) == truth, (base, how)
        chance.shuffle(series)
        assert read(series) == reading


@settings(max_examples=12, deadline=None)
@given(FLEET, st.lists(st.sampled_from(TELLINGS), min_size=2, max_size=3), st.randoms(use_true_random=False))
def test_no_reading_is_billed_twice_however_often_it_is_told(fleet, tellings, chance):
    series = [point for base, how in tellings for point in series_of(fleet, base=base, how=how)]
    chance.shuffle(series)
    reading = read(series)
    assert len(reading.samples) == len({sample.device for sample in reading.samples}) == sum(map(len, fleet))
    assert as_read(reading) == true_samples(fleet)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_broken_text_never_raises_and_never_makes_a_number_up(data):
    """Every value that is read is on an untouched line of the written text, with its own GPU."""
    fleet = data.draw(FLEET)
    base = data.draw(st.booleans())
    lines = "".join(written(node, gpus, base=base) for node, gpus in enumerate(fleet)).splitlines()
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    broken = [_broken(text_line, chance) for text_line in lines]
    chance.shuffle(broken)
    text = "\n".join(broken) + "\n"
    text = text[: chance.randrange(len(text))]

    reading = read(direct(text))

    truth = true_samples(fleet)
    for sample in reading.samples:
        _node, holders, values = truth[sample.device.uuid]
        assert set(sample.holders) <= set(holders)
        for metric, value in sample.values.items():
            assert round(value, 6) == values[metric], metric
    assert sum(len(sample.values) for sample in reading.samples) <= len(lines)


def _broken(text_line: str, chance: random.Random) -> str:
    """Cut, blanked, made infinite, or left alone. A cut never ends within the number: that is told apart elsewhere."""
    labels_end = text_line.rindex("}")
    match chance.randrange(6):
        case 0:
            return text_line[: chance.randrange(labels_end + 1)]
        case 1:
            return text_line[: labels_end + 2] + chance.choice(
                ["NaN", "+Inf", "-Inf", "", "9223372036854775792", "1e300"]
            )
        case 2:
            return text_line.replace('"', "", 1)
        case _:
            return text_line


ANYTHING = st.builds(
    Series,
    st.sampled_from([*NAMES, "DCGM_FI_DEV_NEW", "node_load1"]),
    st.dictionaries(
        st.sampled_from(
            ["UUID", "gpu_uuid", "GPU_I_ID", "instance", "pod", "exported_pod", "Hostname", "xid", "service"]
        ),
        st.sampled_from(["", "a", "b", "1", "31", "dcgm-exporter-abcde", "localhost"]),
    ),
    st.sampled_from([0.0, 0.5, 1.0, 1.02, 31.0, 100.0, 2.0**31, 2.0**47, 2.0**63, -1.0, 1e300, math.nan, math.inf]),
    st.sampled_from([None, NOW, NOW - timedelta(seconds=90), NOW - timedelta(days=1), NOW + timedelta(days=1)]),
    st.sampled_from(["", "x/dcgm-exporter-1", "y"]),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(ANYTHING, max_size=30), st.randoms(use_true_random=False))
def test_whatever_a_source_says_is_read_within_what_hardware_can_be(series, chance):
    reading = read(series)
    for sample in (*reading.samples, *reading.boards):
        for metric, value in sample.values.items():
            assert LIMITS[metric][0] <= value <= LIMITS[metric][1]
        assert sample.device.uuid
        assert not any("dcgm-exporter" in holder.pod for holder in sample.holders)
    devices = [sample.device for sample in reading.samples]
    assert devices == sorted(set(devices))
    assert len(list(reading.hardware())) == len({device.uuid for device in devices})
    assert all(finding.count > 0 for finding in reading.findings)
    chance.shuffle(series)
    assert read(series) == reading


def test_what_is_missing_stays_missing():
    (sample,) = read(direct(line("DCGM_FI_DEV_GPU_TEMP", 50))).samples
    assert sample.values == {Metric.TEMPERATURE: 50}
    assert counts(read(direct(line("DCGM_FI_DEV_GPU_TEMP", 50)))).keys() <= {"no_holders", "profiling_absent"}
