"""Values that leave a node unusable: the boundaries of each limit, with and without a machine to judge by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import fitness, judging, key_lists, keys
from contract.fitness import GIB, LIMITS, MachineSize
from profiles.document import setting_check
from tests.agent.kernel import HUGE, want

NOWHERE = MachineSize()
MACHINES = st.builds(MachineSize, memory=st.integers(4 * GIB, 4 * fitness.TIB), cores=st.integers(1, 4096))
COUNTED = sorted(set(LIMITS) - {"cmdline.crashkernel"})
SINGLE = [key for key in COUNTED if key not in key_lists.SYSCTL_WORDS]
PORTS = "net.ipv4.ip_local_port_range"


def written(key: str, amount: int) -> str:
    """Return the amount as a value of this key: the least of as many words as it takes, or so many ports."""
    if key == PORTS:
        return f"1024 {1023 + amount}"
    return " ".join([str(amount)] + ["2147483647"] * (key_lists.SYSCTL_WORDS.get(key, 1) - 1))


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
    assert fitness.unfit(key, "=", value, MachineSize(memory=512 * GIB, cores=64))


@pytest.mark.parametrize("value", ["0x14", "024", "0X14", "+5", "-1", "1 2", "1e9", "many", "9" * 31])
@pytest.mark.parametrize("key", [key for key in COUNTED if key != PORTS])
def test_a_count_that_cannot_be_read_is_not_let_through(key, value):
    """The kernel reads 0x14 and 024 as 20: what is not read the kernel's way must not count as harmless."""
    for operator in ("=", ">=", "<="):
        assert fitness.unfit(key, operator, value, MachineSize(64 * GIB, cores=8))


@pytest.mark.parametrize(
    "value",
    ["900P", "1E", "0xE100000000", "0x0-:900G", "1G,high,900G,low", "00", "0M", "0K@16M", "1G-:0", "0-:900E", "1G@x",
     "-1G", "G", "512M,512M", "1G-2G:1M,900G", "512M;900G"],
)  # fmt: skip
def test_memory_of_the_crash_kernel_that_is_taken_away_or_cannot_be_read_is_not_let_through(value):
    assert fitness.unfit("cmdline.crashkernel", "=", value, MachineSize(64 * GIB))
    assert fitness.unfit("cmdline.crashkernel", "=", value, NOWHERE)


def test_pages_of_the_command_line_by_numa_node_are_added():
    assert not fitness.unfit("cmdline.hugepages", "=", "0:512,1:512", MachineSize(64 * GIB))
    assert fitness.unfit("cmdline.hugepages", "=", "0:20000,1:20000", MachineSize(64 * GIB))


@given(st.sampled_from(COUNTED), MACHINES)
def test_the_least_passes_and_one_less_does_not(key, machine):
    limit = LIMITS[key]
    least = max(limit.minimum, min(limit.per_core * machine.cores, limit.ceiling))
    assert not fitness.unfit(key, "=", written(key, least), machine)
    if least:
        assert "too low" in fitness.unfit(key, "=", written(key, least - 1), machine)
        assert not fitness.unfit(key, ">=", written(key, least - 1), machine), "what only raises lowers nothing"


CUT_OFF = [
    ("net.core.netdev_budget", "0"),
    ("net.core.dev_weight", "1"),
    ("net.core.netdev_max_backlog", "0"),
    ("net.core.bpf_jit_limit", "4096"),
    ("net.ipv4.tcp_mem", "1 1 1"),
    ("net.ipv4.tcp_mem", "0 500000 900000"),
    ("net.ipv4.udp_mem", "190000 250000 0"),
    ("net.ipv4.tcp_rmem", "1 1 1"),
    ("net.ipv4.tcp_wmem", "4096 1 1"),
    ("net.ipv4.ip_local_port_range", "32768 32768"),
    ("net.ipv4.ip_local_port_range", "60999 32768"),
    ("net.ipv4.neigh.default.gc_thresh3", "0"),
    ("net.ipv6.neigh.default.gc_thresh3", "1"),
    ("net.ipv4.tcp_retries2", "0"),
    ("net.ipv4.conf.all.arp_ignore", "8"),
    ("net.ipv4.conf.default.arp_ignore", "8"),
    ("net.netfilter.nf_conntrack_tcp_timeout_established", "0"),
    ("module_parameter.nf_conntrack.hashsize", "1"),
    ("fs.inotify.max_user_instances", "1"),
    ("kernel.keys.maxkeys", "1"),
]


@pytest.mark.parametrize(("key", "value"), CUT_OFF)
def test_what_would_cut_a_node_off_is_refused_before_it_is_published_and_by_the_agent(key, value):
    """No revert reaches a node that lost its network."""
    with pytest.raises(setting_check.SettingRefused):
        setting_check.ask(key, value, "=")
    assert fitness.unfit(key, "=", value, NOWHERE) or judging.refusal(key, value)


@pytest.mark.parametrize(("key", "value"), [case for case in CUT_OFF if "hashsize" not in case[0]])
def test_an_agent_does_not_cut_its_own_node_off(kernel, agent, key, value):
    path = f"/proc/sys/{key.replace('.', '/')}"
    kernel.live[path] = now = (
        "32768 60999" if key == PORTS else " ".join(["190000"] * key_lists.SYSCTL_WORDS.get(key, 1))
    )
    agent.ask(want(key, value, now))
    assert not kernel.writes()
    assert kernel.live[path] == now


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


@given(st.sampled_from(SINGLE), st.integers(0, 10**12), MACHINES)
def test_what_no_machine_could_use_this_one_cannot_either(key, value, machine):
    if fitness.unfit(key, "=", str(value), NOWHERE):
        assert fitness.unfit(key, "=", str(value), machine)


@pytest.mark.parametrize(
    ("value", "is_fit"),
    [("512M", True), ("256M,high", True), ("1G@16M", True), ("17G", False), ("1G-32G:256M,32G-:512M", True),
     ("1G-32G:256M,32G-:40G", False), ("256M,low", True), ("auto", True), ("1G-32G:256M,32G-:512M@16M", True)],
)  # fmt: skip
def test_memory_of_the_crash_kernel_is_read_as_the_kernel_does(value, is_fit):
    assert (not fitness.unfit("cmdline.crashkernel", "=", value, MachineSize(64 * GIB))) == is_fit


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kernel.yama.ptrace_scope", "0x3"),
        ("kernel.yama.ptrace_scope", "03"),
        ("kernel.kptr_restrict", "0x0"),
        ("vm.swappiness", "010"),
        ("net.ipv4.tcp_rmem", "4096 0x10 6291456"),
    ],
)
def test_a_number_that_the_kernel_reads_otherwise_than_it_looks_is_no_value(key, value):
    """A list of what may not be set, and one of what weakens security, is a list of decimal numbers."""
    assert judging.refusal(key, value)
    assert not judging.refusal("net.ipv4.tcp_rmem", "4096 131072 6291456")


@pytest.mark.parametrize(
    ("counts", "is_fit"),
    [
        ({"hugepages-2Mi": 16000, "hugepages-1Gi": 26}, True),
        ({"hugepages-2Mi": 16000, "hugepages-1Gi": 27}, False),
        ({"hugepages-1Gi.node0": 40, "hugepages-1Gi.node1": 40}, False),
        ({"hugepages-1Gi": 50, "hugepages-1Gi.node0": 25}, True),
    ],
)
def test_huge_pages_of_both_sizes_and_all_numa_nodes_take_of_one_memory(counts, is_fit):
    machine = MachineSize(64 * GIB)
    assert not any(fitness.unfit(key, "=", str(count), machine) for key, count in counts.items())
    wishes = [(key, "=", str(count)) for key, count in counts.items()]
    assert (not fitness.together(wishes, machine)) == is_fit
    assert not fitness.together([(key, "<=", value) for key, _, value in wishes], machine)


def test_an_agent_reserves_no_more_than_its_memory_in_two_sizes(kernel, agent):
    """Each fits the 15.6 GiB of this node, both together do not; neither is written."""
    kernel.live[HUGE.replace("2048", "1048576")] = "0"
    both = [want("hugepages-2Mi", "6000", "0"), want("hugepages-1Gi", "8", "0")]
    for setting in both:
        assert not fitness.unfit(setting.key, setting.operator, setting.value, MachineSize(16384000 * 1024))
    agent.ask(*both)
    assert not kernel.writes()
    agent.ask(both[0])
    assert kernel.writes(), "one of them alone is written"


def test_a_part_of_the_memory_of_one_numa_node_counts_alike():
    assert fitness.unfit("hugepages-1Gi.node0", "=", "64", MachineSize(64 * GIB))
