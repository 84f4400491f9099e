"""The kubelet's resource managers: no change of them, cut short anywhere, leaves a node without a kubelet."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent import trial_files
from agent.host import Command
from agent.journal import Journal
from contract import resource_managers
from contract.nodetuning import RestartGrant, Restore
from contract.resource_managers import CPU_POLICY, CPUS, MEMORY, MEMORY_POLICY, OPTION, SCOPE, TOPOLOGY
from tests.agent.kernel import EXPIRES, HUGE, Agent, PowerCut, states, want
from tests.agent.services.managers_node import CPU_STATE, MEMORY_STATE, OWN, ManagersNode, run_script
from tests.agent.services.node import CONFIG, FOLDER, restart

STATIC = (want(CPU_POLICY, "static", "none"), want(CPUS, "0-1", "none"))
BACK = (Restore(CPU_POLICY, "none", "static"), Restore(CPUS, "none", "0-1"))
KEYS = {CPU_POLICY, CPUS}


@pytest.fixture
def kernel():
    return ManagersNode()


def policy(kernel, path=CPU_STATE):
    return json.loads(kernel.state_files[path])["policyName"]


def leftovers(kernel):
    return {path for path in kernel.disk if path.startswith(("/etc/systemd", FOLDER))}


def runs(kernel):
    return "/proc/4242/comm" in kernel.live


def settled(agent):
    """Look until the trial has ended, as the loop does."""
    for _ in range(8):
        status = agent.core.verify()
        if agent.kernel.journal and Journal(agent.kernel).content.managers is None:
            return status
        agent.kernel.seconds += 60
    return status


def granted(agent, action="kubelet"):
    restart(agent, action)
    return settled(agent)


def test_the_static_policy_comes_with_its_state_files_moved_aside_and_goes_the_same_way(agent, kernel):
    before = dict(kernel.state_files)
    assert states(agent.ask(*STATIC)) == dict.fromkeys(KEYS, "PendingRestart")
    assert leftovers(kernel) == set(), "a kubelet that restarts now must find nothing new"

    status = granted(agent)

    assert (states(status), status.restart.state) == (dict.fromkeys(KEYS, "Effective"), "Done")
    assert (kernel.merged()["cpuManagerPolicy"], policy(kernel), kernel.refusals) == ("static", "static", [])
    assert leftovers(kernel) == {OWN, trial_files.UNIT, trial_files.SCRIPT, trial_files.BOOT}

    assert states(agent.ask(restore=BACK)) == dict.fromkeys(KEYS, "PendingRestart")
    status = granted(agent)

    assert states(status) == dict.fromkeys(KEYS, "Restored")
    assert (kernel.state_files, leftovers(kernel), kernel.refusals) == (before, set(), [])
    assert Journal(kernel).content.entries == {}


@pytest.mark.parametrize("fault", ["broken", "stuck"])
def test_a_kubelet_that_does_not_come_up_gets_its_old_files_and_says_so(agent, kernel, fault):
    before = dict(kernel.state_files)
    agent.ask(*STATIC)
    setattr(kernel, fault, True)

    status = granted(agent)

    assert states(status) == dict.fromkeys(KEYS, "Failed")
    assert status.restart.state == "Refused"
    assert "did not come up" in status.restart.reason
    assert (kernel.state_files, leftovers(kernel), runs(kernel)) == (before, set(), True)
    assert Journal(kernel).content.entries == {}
    kernel.broken = kernel.stuck = False
    assert states(agent.ask(*STATIC)) == dict.fromkeys(KEYS, "PendingRestart"), "another try is another attempt"
    assert set(states(granted(agent)).values()) == {"Effective"}


def test_a_revert_whose_kubelet_does_not_come_up_leaves_what_ran_and_its_originals(agent, kernel):
    agent.ask(*STATIC)
    granted(agent)
    kernel.put(CONFIG, kernel.files[CONFIG])  # the same text: only its time changes
    agent.ask(restore=BACK)
    refusal, kernel._refusal = kernel._refusal, lambda merged: "" if OWN in kernel.disk else "broken"

    status = granted(agent)

    kernel._refusal = refusal
    assert (states(status), policy(kernel), runs(kernel)) == (dict.fromkeys(KEYS, "Failed"), "static", True)
    assert {key: entry.original for key, entry in Journal(kernel).content.entries.items()} == {
        CPU_POLICY: "none",
        CPUS: "none",
    }
    assert states(agent.ask(restore=BACK)) == dict.fromkeys(KEYS, "PendingRestart")
    assert states(granted(agent)) == dict.fromkeys(KEYS, "Restored")


@pytest.mark.parametrize("end", ["restart", "reboot"])
def test_what_waits_for_its_grant_comes_with_no_other_start_of_the_kubelet(agent, kernel, end):
    agent.ask(*STATIC)
    kernel.start("kubelet") if end == "restart" else kernel.reboot()
    agent.restart()

    status = agent.again()

    assert (states(status), kernel.refusals, policy(kernel)) == (dict.fromkeys(KEYS, "PendingRestart"), [], "none")
    assert set(states(granted(agent)).values()) == {"Effective"}


def test_a_grant_of_another_step_does_not_bring_what_it_does_not_name(agent, kernel):
    agent.ask(*STATIC)
    agent.ask(want("kubelet.podPidsLimit", "4096", "-1"))

    status = granted(agent)

    assert states(status)["kubelet.podPidsLimit"] == "Effective"
    assert policy(kernel) == "none", "its node was not drained for that"


@pytest.mark.parametrize("action", ["containerd", "reboot"])
def test_a_greater_restart_brings_the_managers_with_it(agent, kernel, action):
    agent.ask(*STATIC, want("containerd.LimitMEMLOCK", "infinity", "8388608"))

    restart(agent, action)
    if action == "reboot":
        agent.restart()
        agent.again()

    assert (states(settled(agent))[CPU_POLICY], policy(kernel), kernel.refusals) == ("Effective", "static", [])


def test_state_files_of_an_earlier_boot_stop_no_kubelet(agent, kernel):
    """More memory or fewer CPUs than the files name: kubernetes/kubernetes#131253 and #110478."""
    agent.ask(*STATIC)
    granted(agent)
    kernel.cpus = 6

    kernel.reboot()

    assert (runs(kernel), kernel.refusals, policy(kernel)) == (True, [], "static")
    agent.restart()
    assert set(states(agent.again()).values()) == {"Effective"}


def test_a_spec_that_comes_while_the_kubelet_is_on_trial_waits_for_its_end(agent, kernel):
    agent.ask(*STATIC)
    kernel.stuck = True
    restart(agent, "kubelet")

    status = agent.ask(restore=BACK)

    assert status.observed_generation < agent.generation
    assert agent.core.restart(agent.confirm, lambda s: None) is None
    status = settled(agent)
    assert (status.observed_generation, states(status)) == (agent.generation, dict.fromkeys(KEYS, "Restored"))
    assert (policy(kernel), leftovers(kernel)) == ("none", set())


def test_an_override_that_resets_the_script_is_named(agent, kernel):
    agent.ask(*STATIC)
    kernel._run_script = lambda: None

    status = granted(agent)

    assert "ExecStartPre" in status.restart.reason
    assert (states(status), policy(kernel), leftovers(kernel)) == (dict.fromkeys(KEYS, "Failed"), "none", set())


@pytest.mark.parametrize(
    ("config", "wanted", "why"),
    [
        ("", [(CPU_POLICY, "static")], CPUS),
        ("", [(CPU_POLICY, "static"), (CPUS, "0-8")], "8"),
        ("", [(CPU_POLICY, "static"), (CPUS, "0-7")], "no CPU"),
        ("", [(f"{OPTION}full-pcpus-only", "true")], CPU_POLICY),
        (
            "cpuManagerPolicyOptions: {full-pcpus-only: 'false'}\ncpuManagerPolicy: static\nkubeReserved: {cpu: 1}\n",
            [(CPU_POLICY, "none")],
            "none",
        ),
        ("", [(MEMORY_POLICY, "Static")], "100Mi"),
        ("", [(MEMORY_POLICY, "Static"), (MEMORY, "0:memory=50Mi,1:memory=51Mi")], "101Mi"),
        ("", [(MEMORY_POLICY, "Static"), (MEMORY, "2:memory=100Mi")], "0-1"),
        ("evictionHard:\n  memory.available: 5%\n", [(MEMORY_POLICY, "Static"), (MEMORY, "0:memory=1Gi")], "in bytes"),
        ("evictionHard:\n  nodefs.available: 5%\n", [(MEMORY_POLICY, "Static"), (MEMORY, "0:memory=100Mi")], "0 over"),
        ("systemReserved:\n  memory: 1Gi\n", [(MEMORY_POLICY, "Static"), (MEMORY, "0:memory=100Mi")], "1124Mi"),
        ("systemReservedCgroup: /system.slice\n", [(CPUS, "0")], "systemReservedCgroup"),
        (
            "featureGates: {CPUManagerPolicyBetaOptions: false}\nkubeReserved: {cpu: 1}\n",
            [(CPU_POLICY, "static"), (f"{OPTION}strict-cpu-reservation", "true")],
            "CPUManagerPolicyBetaOptions",
        ),
    ],
)  # fmt: skip
def test_what_the_kubelet_would_not_start_with_is_refused_before_anything_is_written(config, wanted, why):
    kernel = ManagersNode({CONFIG: f"maxPods: 110\n{config}"})
    agent = Agent(kernel)
    now = agent.ask(observe=tuple(key for key, _ in wanted)).observed

    status = agent.ask(*(want(key, value, now[key]) for key, value in wanted))

    assert {s.state for s in status.settings} & {"Denied", "Failed"}
    assert any(why in s.reason for s in status.settings), [s.reason for s in status.settings]
    assert leftovers(kernel) == set()


def test_a_revert_that_would_leave_no_kubelet_is_refused(agent, kernel):
    """One key goes back alone, and the static policy would have no CPUs reserved."""
    agent.ask(*STATIC)
    granted(agent)

    status = agent.ask(want(CPU_POLICY, "static", "static"), restore=(BACK[1],))

    assert states(status)[CPUS] == "Denied"
    assert runs(kernel)


VALUES = {
    CPU_POLICY: ["none", "static"],
    CPUS: ["0", "0-1", "0-7", "7-8"],
    MEMORY_POLICY: ["None", "Static"],
    MEMORY: ["0:memory=100Mi", "0:memory=50Mi,1:memory=50Mi", "1:memory=1Gi", "5:memory=100Mi"],
    TOPOLOGY: ["none", "restricted"],
    SCOPE: ["container", "pod"],
    **{f"{OPTION}{name}": ["true", "false"] for name in resource_managers.OPTIONS},
}
ASKED = st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in VALUES.items()})
OWN_CONFIG = st.sampled_from(
    [
        "",
        "kubeReserved: {cpu: 500m, memory: 924Mi}\n",
        "cpuManagerPolicy: static\nsystemReserved:\n  cpu: 1\n",
        'cpuManagerPolicy: static\nreservedSystemCPUs: 0,1\ncpuManagerPolicyOptions:\n  full-pcpus-only: "false"\n',
    ]
)


@settings(max_examples=120, deadline=None)
@given(OWN_CONFIG, st.sampled_from([2, 9]), ASKED, ASKED)
def test_no_set_of_values_that_the_agent_writes_stops_the_kubelet(config, nodes, first, second):
    """Check against a kubelet's rules that were written apart; and what is not refused comes."""
    kernel = ManagersNode({CONFIG: f"maxPods: 110\n{config}"}, nodes=nodes)
    agent = Agent(kernel)
    for wanted in (first, second):
        now = agent.ask(observe=tuple(VALUES)).observed
        status = agent.ask(*(want(key, value, now[key]) for key, value in wanted.items()))
        if "PendingRestart" in states(status).values():
            status = granted(agent)
            assert set(states(status).values()) <= {"Effective", "Orphaned"}, [
                (s.key, s.state, s.reason) for s in status.settings
            ]
    assert (kernel.refusals, runs(kernel)) == ([], True)


@settings(max_examples=120, deadline=None)
@example(15, False, 13, True, "", "reboot", "")
@example(15, False, 0, True, "broken", "reboot", "")
@given(
    st.integers(0, 30), st.booleans(), st.integers(0, 30), st.booleans(), st.sampled_from(["", "broken", "stuck"]),
    st.sampled_from(["kubelet", "reboot"]), st.sampled_from(["", "boot", "start"]),
)  # fmt: skip
def test_wherever_the_agent_or_the_machine_is_cut_a_kubelet_runs_at_last(
    cut, before, cut_back, again, fault, action, then
):
    """Let systemd alone start things after the cut: the agent's own pod needs the kubelet."""
    kernel = ManagersNode()
    agent, original = Agent(kernel), dict(kernel.state_files)
    agent.ask(*STATIC)
    setattr(kernel, fault or "unused", True)
    for wanted, fuse in ((STATIC, cut), ((), cut_back)):
        agent.spec = replace(agent.spec, settings=wanted, restore=() if wanted else BACK, restart=None)
        agent.generation += 1
        kernel.before = before if wanted else again
        kernel.fuse = fuse
        try:
            agent.again()
            agent.spec = replace(agent.spec, restart=RestartGrant(f"g{fuse}", action, kernel.boot_id(), EXPIRES))
            agent.generation += 1
            agent.again()
            agent.core.restart(agent.confirm, lambda status: None)
            settled(agent)
            is_cut = False
        except PowerCut:
            is_cut = True
        kernel.fuse = None
        if then == "boot" or (is_cut and action == "reboot"):  # a machine that was going down comes up
            kernel.reboot()
        elif then:
            kernel.start("kubelet")
        assert runs(kernel), kernel.refusals
        agent.restart()
        for _ in range(3):
            agent.again()
            settled(agent)
        assert runs(kernel), kernel.refusals
        assert policy(kernel) == kernel.merged()["cpuManagerPolicy"]
        kernel.broken = kernel.stuck = False

    # The way back, uncut, from wherever that left it.
    agent.spec = replace(agent.spec, settings=(), restore=BACK, restart=None)
    agent.generation += 1
    status = agent.again()
    if "PendingRestart" in states(status).values():
        status = granted(agent)
    assert set(states(status).values()) <= {"Restored", "Moved"}
    if "Moved" not in states(status).values():
        assert (kernel.state_files, kernel.merged()["cpuManagerPolicy"]) == (original, "none")
        assert leftovers(kernel) == set()
    assert runs(kernel)


FILES = st.fixed_dictionaries(
    {},
    optional={
        **{path: st.just("old") for path in (CPU_STATE, MEMORY_STATE, trial_files.OLD, OWN)},
        trial_files.NEW: st.sampled_from(["new", ""]),
        trial_files.APPLY: st.just(""), trial_files.TRIED: st.just(""), trial_files.FAILED: st.just(""),
        trial_files.BOOT: st.sampled_from(["boot-1\n", "boot-0\n"]),
        f"{trial_files.AT}.cpu_manager_state": st.just("kept"),
        f"{trial_files.AT}.memory_manager_state": st.just("kept"),
    },
)  # fmt: skip


@settings(max_examples=12, deadline=None)
@given(FILES)
def test_the_script_does_to_real_files_what_these_tests_take_it_to_do(tmp_path_factory, there):
    root = tmp_path_factory.mktemp("root")
    for path, text in {**there, "/proc/sys/kernel/random/boot_id": "boot-1\n"}.items():
        place = root / path[1:]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    for folder in (FOLDER, trial_files.FOLDER, "/var/lib/kubelet"):
        (root / folder[1:]).mkdir(parents=True, exist_ok=True)
    file = root / "script.sh"
    file.write_text(trial_files.script(FOLDER, str(root)).replace("sleep 1", ":"))

    subprocess.run(["/bin/sh", file], check=True, stderr=subprocess.DEVNULL)

    disk = {path: text for path, text in there.items() if path not in (CPU_STATE, MEMORY_STATE)}
    held = {path: text for path, text in there.items() if path in (CPU_STATE, MEMORY_STATE)}
    run_script(disk, held, "boot-1", OWN)
    after = {f"/{p.relative_to(root)}": p.read_text() for p in root.rglob("*") if p.is_file() and p != file}
    del after["/proc/sys/kernel/random/boot_id"]
    assert after == disk | held


def test_huge_pages_are_left_alone_while_the_static_memory_manager_has_counted_them(agent, kernel):
    agent.ask(want(MEMORY_POLICY, "Static", "None"), want(MEMORY, "0:memory=100Mi", "none"))
    assert set(states(granted(agent)).values()) == {"Effective"}

    status = agent.ask(want("hugepages-2Mi", "16", "0"))

    assert states(status)["hugepages-2Mi"] == "Denied"
    assert kernel.live[HUGE] == "0"
    both = (want("hugepages-2Mi", "16", "0"), want(MEMORY_POLICY, "None", "Static"))
    agent.ask(*both)
    assert {state for key, state in states(granted(agent)).items() if key != MEMORY} == {"Effective"}
    assert (policy(kernel, MEMORY_STATE), kernel.refusals) == ("None", [])


@pytest.mark.parametrize("lacks", ["Restart", "sh", "root-dir", "unit"])
def test_a_node_on_which_a_failed_start_would_not_be_undone_is_unsupported(lacks):
    flags = f"--config={CONFIG} --config-dir={FOLDER}" + (" --root-dir=/data/kubelet" if lacks == "root-dir" else "")
    unit = {"/lib/systemd/system/kubelet.service": "[Service]\nRestart=no\n"} if lacks == "Restart" else {}
    kernel = ManagersNode(unit, flags=flags)
    kernel.programs -= {lacks}
    if lacks == "unit":
        del kernel.files["/lib/systemd/system/kubelet.service"]

    assert set(states(Agent(kernel).ask(*STATIC)).values()) == {"Unsupported"}


def test_a_reload_that_fails_grants_nothing(agent, kernel):
    agent.ask(*STATIC)
    kernel.codes[Command.RELOAD_UNITS] = 1

    status = restart(agent, "kubelet")

    assert (status.restart.state, policy(kernel)) == ("Refused", "none")
    assert "daemon-reload" in status.restart.reason
    assert trial_files.APPLY not in kernel.disk
