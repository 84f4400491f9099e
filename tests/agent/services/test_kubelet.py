"""Fields of the kubelet's configuration: what counts is what the running kubelet was started with."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.host import Command
from agent.journal import Journal
from agent.services import SEARCH_SECONDS
from contract import kubelet
from contract.nodetuning import Restore
from tests.agent.kernel import Agent, states, through, want
from tests.agent.services.node import CONFIG, DEFAULTS, FOLDER, OWN, ServicesNode, restart

PIDS = want("kubelet.podPidsLimit", "4096", "-1")
BACK = Restore("kubelet.podPidsLimit", "-1", "4096")


def effective(status, key="kubelet.podPidsLimit"):
    return status.setting(key).effective


def test_a_field_is_effective_when_the_kubelet_has_restarted_and_goes_back_the_same_way(agent, kernel):
    before = dict(kernel.loaded)
    status = agent.ask(PIDS)
    assert (states(status), effective(status)) == ({"kubelet.podPidsLimit": "PendingRestart"}, "-1")
    assert yaml.safe_load(kernel.disk[OWN]) == {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "podPidsLimit": 4096,
    }  # fmt: skip

    status = restart(agent, "kubelet")

    assert kernel.loaded["podPidsLimit"] == 4096
    assert (states(status), effective(status)) == ({"kubelet.podPidsLimit": "Effective"}, "4096")

    status = agent.ask(restore=(BACK,))
    assert (states(status), effective(status)) == ({"kubelet.podPidsLimit": "PendingRestart"}, "4096")
    assert kernel.setpoints() == {}
    status = restart(agent, "kubelet")
    assert (states(status), effective(status)) == ({"kubelet.podPidsLimit": "Restored"}, "-1")
    assert kernel.loaded == before
    assert Journal(kernel).content.entries == {}


def test_a_restarted_agent_does_not_take_the_written_file_for_a_loaded_one(agent, kernel):
    agent.ask(PIDS)
    agent.restart()

    status = agent.again()

    assert (states(status), effective(status)) == ({"kubelet.podPidsLimit": "PendingRestart"}, "-1")


def test_a_field_taken_back_before_any_restart_needs_none(agent, kernel):
    agent.ask(PIDS)

    status = agent.ask(restore=(Restore("kubelet.podPidsLimit", "-1", "-1"),))

    assert states(status) == {"kubelet.podPidsLimit": "Restored"}
    assert status.condition("RestartRequired").status == "False"
    assert kernel.setpoints() == {}


def test_a_value_that_the_running_kubelet_does_not_have_has_moved(agent, kernel):
    assert states(agent.ask(want("kubelet.maxPods", "200", "250"))) == {"kubelet.maxPods": "Moved"}
    assert kernel.setpoints() == {}


def test_a_file_edited_after_the_start_changes_no_answer_and_holds_the_step(agent, kernel):
    agent.ask(mode="observe", observe=("kubelet.maxPods",))
    kernel.put(CONFIG, "maxPods: 50\n")

    status = agent.ask(want("kubelet.podPidsLimit", "4096", "-1"), observe=("kubelet.maxPods",))

    assert status.observed.get("kubelet.maxPods") == str(kernel.loaded["maxPods"]) == "110"
    assert states(status) == {"kubelet.podPidsLimit": "Failed"}
    assert CONFIG in status.setting("kubelet.podPidsLimit").reason
    assert kernel.setpoints() == {}


@pytest.mark.parametrize("path", [CONFIG, f"{FOLDER}/10-site.conf"])
def test_of_a_kubelet_whose_files_are_newer_than_it_nothing_is_known_until_it_restarts(agent, kernel, path):
    kernel.put(path, "maxPods: 50\n")

    status = agent.ask(want("kubelet.maxPods", "200", None), observe=("kubelet.podPidsLimit",))

    assert status.observed == {}
    assert states(status) == {"kubelet.maxPods": "Unsupported"}
    assert "was changed after it started" in status.setting("kubelet.maxPods").reason
    kernel.start("kubelet")
    assert agent.core.verify().observed["kubelet.podPidsLimit"] == "-1"
    assert agent.ask(want("kubelet.maxPods", "200", "50")).setting("kubelet.maxPods").state == "PendingRestart"


def test_files_that_could_not_be_looked_at_once_are_looked_at_again(agent, kernel):
    """An error on the way is no answer about this run: it would hold until the kubelet's next start."""
    age, fails = kernel.age, [True]

    def failing(path):
        if fails:
            raise OSError(5, "Input/output error")
        return age(path)

    kernel.age = failing
    agent.restart()
    agent.ask(observe=(PIDS.key,))
    fails.clear()

    assert agent.ask(observe=(PIDS.key,)).observed[PIDS.key] == "-1"
    assert states(agent.ask(PIDS)) == {PIDS.key: "PendingRestart"}


def test_a_drop_in_taken_away_after_the_start_leaves_a_trace(kernel):
    kernel.put(f"{FOLDER}/10-site.conf", "maxPods: 50\n")
    kernel.start("kubelet")
    kernel.put(f"{FOLDER}/10-site.conf", None)

    status = Agent(kernel).ask(observe=("kubelet.maxPods",))

    assert status.observed == {}, "the kubelet runs with 50, and no file says so any more"


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (f"--config={CONFIG}", "add --config-dir=/etc/kubernetes/kubelet.conf.d"),
        (f"--config={CONFIG} --config-dir=/opt/kubelet.d", "--config-dir is /opt/kubelet.d"),
        (f"--config={CONFIG} --config-dir={FOLDER} --pod-max-pids=100", "flag --pod-max-pids"),
        (f"--config={CONFIG} --config-dir {FOLDER} --pod_max_pids 100", "flag --pod-max-pids"),
        (f"--config={CONFIG} --config-dir=/etc/kubernetes/../../etc", "--config-dir is"),
    ],
)
def test_a_kubelet_that_would_not_take_the_file_is_unsupported_and_the_reason_says_what_to_do(flags, why):
    kernel = ServicesNode(flags=flags)
    agent = Agent(kernel)
    now = agent.ask(observe=("kubelet.podPidsLimit",)).observed["kubelet.podPidsLimit"]
    assert now == ("100" if "max" in flags else "-1")

    status = agent.ask(want("kubelet.podPidsLimit", "4096", now))

    assert states(status) == {"kubelet.podPidsLimit": "Unsupported"}
    assert why in status.setting("kubelet.podPidsLimit").reason
    assert kernel.setpoints() == {}


def test_a_switch_before_a_flag_hides_no_flag():
    kernel = ServicesNode(flags=f"--fail-swap-on --config={CONFIG} --config-dir {FOLDER} --v 2")

    assert states(Agent(kernel).ask(PIDS)) == {"kubelet.podPidsLimit": "PendingRestart"}


def test_a_file_that_is_read_later_and_sets_the_field_too_is_named():
    late = f"{FOLDER}/zz-site.conf"
    kernel = ServicesNode({late: "podPidsLimit: 100\n"})

    status = Agent(kernel).ask(want("kubelet.podPidsLimit", "4096", "100"))

    assert states(status) == {"kubelet.podPidsLimit": "Failed"}
    assert late in status.setting("kubelet.podPidsLimit").reason
    assert states(Agent(kernel).ask(want("kubelet.maxPods", "200", "110"))) == {"kubelet.maxPods": "PendingRestart"}


def test_a_node_that_holds_more_pods_than_wanted_is_left_alone(agent, kernel):
    for number in range(30):
        kernel.files[f"/var/lib/kubelet/pods/{number}/etc-hosts"] = ""

    assert states(agent.ask(want("kubelet.maxPods", "29", "110"))) == {"kubelet.maxPods": "Failed"}
    assert "30 pods" in agent.again().setting("kubelet.maxPods").reason
    assert states(agent.ask(want("kubelet.maxPods", "30", "110"))) == {"kubelet.maxPods": "PendingRestart"}


HIGH, LOW = "kubelet.imageGCHighThresholdPercent", "kubelet.imageGCLowThresholdPercent"


def test_thresholds_that_no_kubelet_starts_with_are_denied_whichever_is_set(agent, kernel):
    assert states(agent.ask(want(HIGH, "70", "85"))) == {HIGH: "Denied"}
    assert states(agent.ask(want(LOW, "85", "80"))) == {LOW: "Denied"}
    assert kernel.setpoints() == {}
    assert set(states(agent.ask(want(HIGH, "70", "85"), want(LOW, "60", "80"))).values()) == {"PendingRestart"}
    restart(agent, "kubelet")

    status = agent.ask(want(HIGH, "70", "70"), restore=(Restore(LOW, "80", "60"),))

    assert states(status)[LOW] == "Denied", "70 and 80 would stop the kubelet"
    assert states(agent.ask(restore=(Restore(HIGH, "85", "70"), Restore(LOW, "80", "60")))).keys() == {HIGH, LOW}
    assert kernel.setpoints() == {}


@pytest.mark.parametrize("original", [" ", "lots", "8 5", "9" * 40, "1e2"])
@pytest.mark.parametrize("key", [HIGH, LOW])
def test_a_threshold_to_put_back_that_is_no_number_ends_no_agent_and_is_not_written(agent, kernel, key, original):
    status = agent.ask(restore=(Restore(key, original, None),))
    assert states(status)[key] not in ("Restored", "Effective")
    assert OWN not in kernel.disk


@given(st.integers(-5, 105), st.integers(-5, 105))
def test_no_thresholds_reach_the_kubelet_that_it_would_not_start_with(high, low):
    """The rule of ValidateKubeletConfiguration, written down once more."""
    kernel = ServicesNode()
    Agent(kernel).ask(want(HIGH, str(high), "85"), want(LOW, str(low), "80"))

    kernel.start("kubelet")

    high, low = kernel.loaded["imageGCHighThresholdPercent"], kernel.loaded["imageGCLowThresholdPercent"]
    assert 0 <= low < high <= 100


@given(st.sampled_from(sorted(kubelet.FIELDS)), st.text("-+0123456789eE.x_ ~", max_size=12))
def test_a_value_is_a_decimal_number_as_yaml_and_the_kubelet_read_it_or_none(key, value):
    if not kubelet.bad_value(key, value):
        assert yaml.safe_load(value) == int(value)
        assert str(int(value)) == value
        least = {"kubelet.podPidsLimit": 64, "kubelet.maxPods": 1}.get(key, 0)
        assert int(value) >= least or (key, value) == ("kubelet.podPidsLimit", "-1")


NAMES = st.sampled_from(["00-a.conf", "50-b.conf", "99-zz-a.conf", "99-zz-t.conf", "sub/10.conf", "a.yaml"])
VALUES = {
    "podPidsLimit": st.sampled_from([-1, 100, 2048]),
    "maxPods": st.sampled_from([1, 58, 250]),
    "cpuManagerPolicy": st.sampled_from(["none", "static"]),
    "evictionHard": st.just({"memory.available": "100Mi", "maxPods": 3}),
}
SPELLINGS = [json.dumps, yaml.safe_dump, lambda value: "---\n# a comment: with a colon\n" + yaml.safe_dump(value)]
CONTENT = st.builds(
    lambda value, spell: spell(value), st.fixed_dictionaries({}, optional=VALUES), st.sampled_from(SPELLINGS)
)


@settings(max_examples=200)
@given(CONTENT, st.dictionaries(NAMES, CONTENT, max_size=4))
def test_the_answer_is_what_a_kubelet_merges(config, drop_ins):
    kernel = ServicesNode({CONFIG: config} | {f"{FOLDER}/{name}": text for name, text in drop_ins.items()})
    merged = dict(DEFAULTS)
    for text in (config, *(drop_ins[name] for name in sorted(drop_ins) if name.endswith(".conf"))):
        merged |= yaml.safe_load(text) or {}

    observed = Agent(kernel).ask(observe=tuple(f"kubelet.{name}" for name in DEFAULTS)).observed

    assert observed == {f"kubelet.{name}": str(merged[name]) for name in DEFAULTS}


@pytest.mark.parametrize("value", ["", "~", "null", "&a 5", "0x10", "010", "'5 0'", "[5]", "5.0", "true"])
def test_a_field_that_is_no_plain_value_is_not_guessed(value):
    kernel = ServicesNode({CONFIG: f"maxPods: {value}\n"})

    assert Agent(kernel).ask(observe=("kubelet.maxPods",)).observed == {}


def test_a_kubelet_that_does_not_run_is_no_reason_to_keep_setpoints_field(agent, kernel):
    agent.ask(PIDS)
    restart(agent, "kubelet")
    for name in ("comm", "stat", "cmdline"):
        del kernel.live[f"/proc/4242/{name}"]

    status = agent.ask(restore=(BACK,))

    assert states(status) == {"kubelet.podPidsLimit": "PendingRestart"}
    assert kernel.setpoints() == {}
    kernel.start("kubelet")
    kernel.seconds += SEARCH_SECONDS
    assert states(agent.core.verify()) == {"kubelet.podPidsLimit": "Restored"}


def test_a_kubelet_restarted_by_somebody_else_has_read_the_file(agent, kernel):
    agent.ask(PIDS)
    kernel.start("kubelet")

    status = agent.core.verify()

    assert states(status) == {"kubelet.podPidsLimit": "Effective"}
    assert "not by Setpoint" in status.setting("kubelet.podPidsLimit").reason


def test_a_file_that_cannot_be_written_fails_the_setting(agent, kernel):
    kernel.refusing[OWN] = 30

    status = agent.ask(PIDS)

    assert states(status) == {"kubelet.podPidsLimit": "Failed"}
    assert "Read-only" in status.setting("kubelet.podPidsLimit").reason


def test_a_drop_in_that_somebody_deletes_is_drift_once_the_kubelet_has_restarted(agent, kernel):
    agent.ask(PIDS, mode="enforce")
    restart(agent, "kubelet")
    del kernel.disk[OWN]
    kernel.start("kubelet")
    kernel.effects.clear()

    status = agent.core.verify()

    assert states(status) == {"kubelet.podPidsLimit": "Drifted"}
    assert not any(effect[0] == "run" for effect in kernel.effects), "only a grant restarts it"


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 14), st.booleans(), st.integers(0, 14), st.booleans(), st.booleans())
def test_the_node_s_own_value_comes_back_wherever_the_power_fails(cut_apply, before, cut_restore, restarts, others):
    kernel = ServicesNode({f"{FOLDER}/10-site.conf": "podPidsLimit: 100\n"})
    agent = Agent(kernel)
    kernel.before, kernel.fuse = before, cut_apply
    status = through(agent, lambda: agent.ask(want("kubelet.podPidsLimit", "4096", "100")))
    kernel.fuse = None
    if restarts:
        status = restart(agent, "kubelet")
    elif others:
        kernel.start("kubelet")
        status = agent.core.verify()
    assert effective(status) == str(kernel.loaded["podPidsLimit"])
    kernel.fuse = cut_restore
    expect = str(kernel.loaded["podPidsLimit"])

    status = through(agent, lambda: agent.ask(restore=(Restore("kubelet.podPidsLimit", "100", expect),)))

    kernel.fuse = None
    assert kernel.setpoints() == {}
    if states(status)["kubelet.podPidsLimit"] == "PendingRestart":
        status = restart(agent, "kubelet")
    assert states(status) == {"kubelet.podPidsLimit": "Restored"}
    assert kernel.loaded["podPidsLimit"] == 100
    agent.core.verify()
    assert Journal(kernel).content.entries == {}


def test_a_refused_restart_is_reported_and_the_value_stays_the_running_one(agent, kernel):
    agent.ask(PIDS)
    kernel.codes[Command.RESTART_KUBELET] = 5

    status = restart(agent, "kubelet")

    assert status.restart.state == "Refused"
    assert (states(status), effective(status)) == ({"kubelet.podPidsLimit": "PendingRestart"}, "-1")


def test_a_node_without_a_kubelet_is_not_searched_for_one_at_every_key(agent, kernel):
    del kernel.live["/proc/4242/comm"]
    searches = []
    glob = kernel.glob

    def counted(pattern):
        searches.append(pattern)
        return glob(pattern)

    kernel.glob = counted
    agent.restart()

    for _ in range(5):
        agent.ask(observe=tuple(f"kubelet.{name}" for name in DEFAULTS))

    assert searches.count("/proc/[0-9]*/comm") == 1
