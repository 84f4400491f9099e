"""Isolated CPUs: lists of CPUs against a model of their own, and a node from the first write to the revert."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.boot_loader import DROP_IN
from agent.host import Command
from agent.journal import Journal
from contract import isolation, keys
from contract.isolation import KEY, Isolation
from contract.nodetuning import RestartGrant, Restore
from tests.agent.kernel import EXPIRES, SYS, Agent, Kernel, states, through, want

CPU = "/sys/devices/system/cpu/"
STATUS = "/proc/1/status"
AFFINITY = "/proc/irq/default_smp_affinity"
NOHZ = "cmdline.nohz_full"


def numbers(text: str) -> set[int]:
    """Read a list of CPUs as its format says, with no code of the product's."""
    out: set[int] = set()
    for part in text.split(","):
        ends = [int(end) for end in part.split("-")]
        out.update(range(ends[0], ends[-1] + 1))
    return out


class Machine(Kernel):
    """Eight CPUs, threads 0,4 to 3,7 of four cores; keeps to its command line as kernel/sched/isolation.c does."""

    has_nohz_full = True
    frees_services = False
    """As Linux before 6.2 below a kubelet: its cpusets give each process all CPUs, against systemd's choice."""

    def __init__(self) -> None:
        super().__init__()
        self._come_up()

    def reboot(self) -> None:
        super().reboot()
        self._come_up()

    def _come_up(self) -> None:
        words = [word.partition("=") for word in self.live["/proc/cmdline"].split()]
        ticks, kept, balanced = "(null)", set(range(8)), ""
        for name, _, value in words:
            if name == "isolcpus":
                listed = value.split(",")
                flags = [word for word in listed if word.isidentifier()]
                if "domain" in flags or not flags:
                    balanced = ",".join(word for word in listed if word not in flags)
            if name == "nohz_full" and ticks == "(null)":  # the first wins
                ticks = value
            if name == "irqaffinity":
                kept = numbers(value) | {0}
        serving = next((value for name, _, value in words if name == "systemd.cpu_affinity"), "0-7")
        serving = "0-7" if self.frees_services else serving
        self.live |= {f"{CPU}online": "0-7\n", f"{CPU}possible": "0-7\n", f"{CPU}isolated": f"{balanced}\n"}
        self.live |= {AFFINITY: f"{sum(1 << cpu for cpu in kept):02x}\n", STATUS: f"Cpus_allowed_list:\t{serving}\n"}
        self.live |= {f"{CPU}cpu{n}/topology/thread_siblings_list": f"{n % 4},{n % 4 + 4}\n" for n in range(8)}
        if self.has_nohz_full:
            self.live[f"{CPU}nohz_full"] = f"{ticks}\n"


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def agent(machine: Machine) -> Agent:
    return Agent(machine)


def booted(agent: Agent, *settings, **more):
    """Ask, grant the reboot, and return the status after it."""
    agent.ask(*settings, **more)
    grant = RestartGrant(f"g-{agent.generation}", "reboot", agent.kernel.boot_id(), EXPIRES)
    agent.ask(*settings, restart=grant, **more)
    agent.core.restart(agent.confirm, lambda status: None)
    agent.restart()
    return agent.again()


cpus = st.frozensets(st.integers(1, 300), min_size=1, max_size=40)


@given(cpus, st.frozensets(st.integers(0, 300)), st.booleans(), st.booleans())
def test_every_set_of_cpus_is_written_and_read_alike_and_its_arguments_split_the_machine(isolated, more, domain, serve):
    present = isolated | more | {0}
    value = Isolation(isolated, domain, serve).to_text()

    assert keys.denied_reason(KEY, value) is None
    keys.check_value(KEY, value)
    assert Isolation.of(value) == Isolation(isolated, domain, serve)
    words = Isolation.of(value).arguments(present)
    assert numbers(words["nohz_full"]) == numbers(words["rcu_nocbs"]) == isolated
    flags, listed = words["isolcpus"].split(",", 1)
    listed = listed.removeprefix("domain,") if domain else listed
    assert (flags, numbers(listed)) == ("managed_irq", isolated)
    assert numbers(words["irqaffinity"]) == present - isolated
    assert ("systemd.cpu_affinity" in words) is serve
    assert isolation.read_back(words) == Isolation(isolated, domain, serve)
    assert not any(isolation.bad_argument(name, word) for name, word in words.items())
    assert isolation.impossible(value, present) == ""
    assert isolation.impossible(value, isolated), "no CPU is left"
    for taken in (min(isolated), max(isolated)):
        assert isolation.impossible(value, present, str(taken)), "a CPU is isolated or reserved"
        assert isolation.impossible(value, present - {taken}), "a CPU that the node does not have"


@given(st.text(alphabet="0123456789,-:/^N domainservcl", max_size=20) | st.text(max_size=8))
def test_any_text_is_a_value_in_its_one_form_or_refused(text):
    if isolation.bad_value(text):
        with pytest.raises((keys.BadValue, keys.BadKey)):
            keys.check_value(KEY, text)
        assert (isolation.impossible(text, frozenset({0})), isolation.split_cores(text, "0+1")) == ("", [])
    else:
        assert Isolation.of(text).to_text() == text
        assert 0 not in Isolation.of(text).cpus


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("0-3", "CPU 0"),
        ("2-31:1/2", "group"),
        ("2-N", "N or all"),
        ("all", "N or all"),
        ("2-7,^3", "^"),
        ("3,2", "2-3"),
        ("services,domain,2", "domain,services,2"),
        ("domain", "list of CPUs"),
        ("domain,domain,2", "list of CPUs"),
        ("2,domain", "list of CPUs"),
        ("9000", "8191"),
        ("7-2", "list of CPUs"),
    ],
)
def test_what_the_kernel_might_take_and_a_profile_does_not_is_named(value, word):
    assert word in isolation.bad_value(value)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), cpus)
def test_a_core_isolated_in_part_is_known_from_the_short_text(threads, isolated):
    rows = [[start + number * 50 for number in range(count)] for start, count in enumerate(threads)]
    text = isolation.siblings_text(rows)
    split = isolation.split_cores(Isolation(isolated).to_text(), text)
    assert sorted(map(sorted, split)) == [row for row in rows if 0 < len(isolated & set(row)) < len(row)]


def test_a_node_boots_isolated_is_watched_and_goes_back(agent, machine):
    status = agent.ask(want(KEY, "services,2-3,6-7", "none"), observe=(isolation.SIBLINGS, "cpu.online"))
    assert states(status) == {KEY: "PendingRestart"}
    assert status.observed[isolation.SIBLINGS] == "0-3+4"

    status = booted(agent, want(KEY, "services,2-3,6-7", "none"))
    assert states(status) == {KEY: "Effective"}
    line = machine.cmdline()
    assert line["isolcpus"] == "managed_irq,2-3,6-7"
    assert line["irqaffinity"] == line["systemd.cpu_affinity"] == "0-1,4-5"

    for path, drifts, shown in (
        (AFFINITY, "00000000,000000ff", "interrupts:2-3,6-7"),
        (STATUS, "Cpus_allowed_list:\t0-2", "services:2"),
        (f"{CPU}nohz_full", "2-3", "nohz_full:2-3"),
    ):
        kept, machine.live[path] = machine.live[path], f"{drifts}\n"
        drifted = agent.again()
        assert shown in drifted.settings[0].effective
        assert states(drifted) != {KEY: "Effective"}
        machine.live[path] = kept
        assert states(agent.again()) == {KEY: "Effective"}

    effective = agent.again().settings[0].effective
    status = booted(agent, restore=(Restore(KEY, "none", effective),))
    assert states(status) == {KEY: "Restored"}
    assert machine.live["/proc/cmdline"] == Kernel().live["/proc/cmdline"]
    assert DROP_IN not in machine.disk


def test_another_set_replaces_the_first_in_one_reboot(agent, machine):
    booted(agent, want(KEY, "domain,services,2-7", "none"))
    assert machine.live[f"{CPU}isolated"] == "2-7\n"
    machine.live[f"{CPU}isolated"] = "\n"  # as a kernel that ignored the flag
    assert "isolated:none" in agent.again().settings[0].effective
    machine.live[f"{CPU}isolated"] = "2-7\n"

    status = booted(agent, want(KEY, "4-7", "domain,services,2-7"))

    assert states(status) == {KEY: "Effective"}
    assert machine.cmdline()["nohz_full"] == "4-7"
    assert "systemd.cpu_affinity" not in machine.cmdline()


@pytest.mark.parametrize(
    ("value", "reason"),
    [("2-8", "names 8"), ("1-31", "names 8-31"), ("0-3", "CPU 0"), ("2-3:1/2", "group")],
)
def test_what_the_node_cannot_have_is_refused_and_nothing_written(agent, machine, value, reason):
    status = agent.ask(want(KEY, value, "none"), want("vm.swappiness", "10", "60"))
    assert states(status)[KEY] == "Denied"
    assert reason in status.settings[0].reason
    assert set(machine.effects) <= {("journal",)}


def test_foreign_arguments_and_a_kernel_without_the_feature_hold_the_step(machine):
    machine.live["/proc/cmdline"] += " nohz_full=1-7"
    agent = Agent(machine)
    status = agent.ask(want(KEY, "2-7", "nohz_full=1-7"))
    assert states(status) == {KEY: "Failed"}
    assert "nohz_full=1-7" in status.settings[0].reason
    assert set(machine.effects) <= {("journal",)}

    plain = Machine()
    del plain.live[f"{CPU}nohz_full"]
    status = Agent(plain).ask(want(KEY, "2-7", "none"))
    assert states(status) == {KEY: "Unsupported"}
    assert "CONFIG_NO_HZ_FULL" in status.settings[0].reason


def test_the_same_argument_by_two_keys_is_refused_in_one_step_and_after_another(agent, machine):
    status = agent.ask(want(KEY, "2-7", "none"), want(NOHZ, "2-7", None))
    assert set(states(status).values()) == {"Denied"}
    assert set(machine.effects) <= {("journal",)}
    agent.ask(want(NOHZ, "2-7", None))
    status = agent.ask(want(KEY, "2-7", "none"))
    assert states(status)[KEY] == "Denied"
    assert NOHZ in status.settings[0].reason


def test_without_tick_control_of_its_own_a_kernel_that_ignores_an_argument_is_not_called_effective(agent, machine):
    machine.has_nohz_full = False  # the next kernel, of another build
    status = booted(agent, want(KEY, "2-7", "none"))
    assert states(status) == {KEY: "NotEffective"}
    assert "nohz_full" in status.settings[0].effective


@pytest.mark.parametrize("is_heard", [True, False], ids=["as-observed", "as-written"])
def test_what_a_kernel_keeps_to_in_part_is_not_effective_and_still_goes_back(agent, machine, is_heard):
    """Seen on Debian 12: a revert that takes Setpoint's own arguments away must not wait for a value never reached."""
    before = machine.live["/proc/cmdline"]
    machine.frees_services = True
    isolated = want(KEY, "domain,services,2-3", "none")
    assert states(booted(agent, isolated)) == {KEY: "NotEffective"}
    assert states(agent.ask(isolated)) == {KEY: "NotEffective"}, "no other party wrote"
    effective = agent.again().settings[0].effective
    assert effective == "domain,services,2-3 services:2-3"

    status = booted(agent, restore=(Restore(KEY, "none", effective if is_heard else "domain,services,2-3"),))

    assert states(status) == {KEY: "Restored"}
    assert machine.live["/proc/cmdline"] == before


def test_arguments_that_another_party_made_are_not_taken_away_with_setpoints(agent, machine):
    booted(agent, want(KEY, "2-3", "none"))
    machine.live["/proc/cmdline"] = machine.live["/proc/cmdline"].replace("2-3", "2-4").replace("0-1,4-7", "0-1,5-7")
    machine.live[f"{CPU}nohz_full"] = "2-4\n"
    assert states(agent.ask(restore=(Restore(KEY, "none", "2-3"),))) == {KEY: "Moved"}


def test_grubby_gets_and_loses_every_word(machine):
    machine.programs = {"grubby"}
    agent = Agent(machine)
    agent.ask(want(KEY, "services,2-7", "none"))
    assert states(agent.ask(want(KEY, "4-7", "none"))) == {KEY: "PendingRestart"}
    agent.ask(restore=(Restore(KEY, "none", "none"),))

    line: dict[str, str] = {}
    for _, name, *words in (effect for effect in machine.effects if effect[0] == "run"):
        argument, _, value = words[0].partition("=")
        if name == Command.GRUBBY_ADD.name:
            line[argument] = value
        elif line.get(argument) == value:
            del line[argument]
    assert line == {}


@pytest.mark.parametrize("effect", range(8))
def test_a_power_cut_at_any_effect_ends_as_without_one(machine, effect):
    machine.fuse = effect
    agent = Agent(machine)
    status = through(agent, lambda: agent.ask(want(KEY, "2-7", "none"), want("vm.swappiness", "10", "60")))
    assert states(status)[KEY] == "PendingRestart"
    machine.reboot()
    assert machine.live[f"{CPU}nohz_full"].strip() == "2-7"
    assert machine.live[SYS + "vm/swappiness"] == "10"


def test_a_boot_that_the_boot_loader_gave_no_arguments_is_waited_for_again(agent, machine):
    machine.codes[Command.UPDATE_GRUB] = 1
    agent.ask(want(KEY, "2-7", "none"))
    machine.reboot()
    agent.restart()
    agent.again()
    assert Journal(machine).content.pending[KEY].boot_id == machine.boot_id()

    machine.codes.clear()
    agent.now += 3600
    agent.again()
    assert states(booted(agent, want(KEY, "2-7", "none"))) == {KEY: "Effective"}
