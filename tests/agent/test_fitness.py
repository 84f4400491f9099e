"""Values that leave a node unusable: the boundaries of each limit, with and without a machine to judge by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import fitness, keys
from contract.fitness import GIB, LIMITS, Machine

NOWHERE = Machine()
MACHINES = st.builds(Machine, memory=st.integers(4 * GIB, 4 * fitness.TIB), cores=st.integers(1, 4096))
COUNTED = sorted(set(LIMITS) - {"cmdline.crashkernel"})


@pytest.mark.parametrize("key", sorted(LIMITS))
def test_only_keys_that_may_be_set_have_limits(key):
    assert keys.is_allowed(key)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kernel.threads-max", "20"),
        ("kernel.pid_max", "301"),
        ("cmdline.hugepages", "99999999"),
        ("cmdline.crashkernel", "900G"),
    ],
)
def test_what_was_published_and_planned_without_a_word(key, value):
    assert fitness.unfit(key, "=", value, Machine(memory=512 * GIB, cores=64))


@given(st.sampled_from(COUNTED), MACHINES)
def test_the_least_passes_and_one_less_does_not(key, machine):
    limit = LIMITS[key]
    least = max(limit.minimum, min(limit.per_core * machine.cores, limit.ceiling))
    assert not fitness.unfit(key, "=", str(least), machine)
    if least:
        assert "too low" in fitness.unfit(key, "=", str(least - 1), machine)
        assert not fitness.unfit(key, ">=", str(least - 1), machine), "what only raises lowers nothing"


@given(st.sampled_from([key for key in COUNTED if LIMITS[key].unit]), MACHINES)
def test_the_most_passes_and_one_more_does_not(key, machine):
    limit = LIMITS[key]
    most = int(machine.memory * limit.share / limit.unit)
    assert not fitness.unfit(key, "=", str(most), machine)
    assert "would take" in fitness.unfit(key, ">=", str(most + 1), machine)
    assert not fitness.unfit(key, "<=", str(most + 1), machine), "what only lowers takes no more"


@given(st.sampled_from(sorted(LIMITS)), st.text(max_size=30), MACHINES)
def test_no_text_is_too_odd_to_judge(key, value, machine):
    assert isinstance(fitness.unfit(key, "=", value, machine), str)


@given(st.sampled_from(COUNTED), st.integers(0, 10**12), MACHINES)
def test_what_no_machine_could_use_this_one_cannot_either(key, value, machine):
    if fitness.unfit(key, "=", str(value), NOWHERE):
        assert fitness.unfit(key, "=", str(value), machine)


@pytest.mark.parametrize(
    ("value", "is_fit"),
    [("512M", True), ("256M,high", True), ("1G@16M", True), ("17G", False), ("1G-32G:256M,32G-:512M", True),
     ("1G-32G:256M,32G-:40G", False)],
)  # fmt: skip
def test_memory_of_the_crash_kernel_is_read_as_the_kernel_does(value, is_fit):
    assert (not fitness.unfit("cmdline.crashkernel", "=", value, Machine(64 * GIB))) == is_fit


def test_a_part_of_the_memory_of_one_numa_node_counts_alike():
    assert fitness.unfit("hugepages-1Gi.node0", "=", "64", Machine(64 * GIB))
