"""The agent ends its own node's hold: only after the time that the taint names, and only that taint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.client import RequestRefused, Unavailable
from agent.hold import LOOK_SECONDS, REFUSED_SECONDS, Hold
from agent.identity import Identity
from contract import holds
from contract.names import UNTUNED_TAINT
from tests.agent.test_loop import Life

OTHER = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def taint(value="30m", **fields):
    return {"key": UNTUNED_TAINT, "value": value, "effect": "NoSchedule"} | fields


class Memory:
    def __init__(self):
        self.text, self.saved = None, 0

    def load(self):
        return self.text

    def save(self, text):
        self.text, self.saved = text, self.saved + 1


class Cluster:
    """Stand-in for agent.client.Client: one Node, its API server's clock, and what fails."""

    def __init__(self, *taints, uid="uid-1"):
        self.taints, self.uid, self.date, self.error = list(taints), uid, 1_000_000.0, None

    def node(self, name):
        assert name == "node-1"
        if self.error:
            raise self.error
        return {"metadata": {"name": name, "uid": self.uid}, "spec": {"taints": list(self.taints)}}, self.date

    def untaint(self, name, uid, place, taint):
        assert (name, uid) == ("node-1", self.uid)
        if self.error:
            raise self.error
        if self.taints[place] != taint:
            raise RequestRefused(422, "the test failed")
        del self.taints[place]


def agent(cluster, store):
    return Hold(cluster, Identity("node-1", "uid-1"), store)


def after(cluster, hold, minutes):
    cluster.date += minutes * 60
    return hold.look()[0]


def test_the_taint_goes_when_its_time_is_up_and_others_stay():
    cluster = Cluster(OTHER, taint("30m"))
    hold = agent(cluster, Memory())
    assert after(cluster, hold, 0) == LOOK_SECONDS
    assert after(cluster, hold, 29.9) == LOOK_SECONDS
    assert cluster.taints == [OTHER, taint("30m")]
    after(cluster, hold, 0.2)
    assert cluster.taints == [OTHER]
    assert after(cluster, hold, 1) is None, "there is nothing left to look at"


def test_the_time_goes_on_while_the_agent_is_not_there():
    cluster, store = Cluster(taint("30m")), Memory()
    agent(cluster, store).look()
    cluster.date += 31 * 60
    agent(cluster, store).look()
    assert not cluster.taints


def test_what_was_stored_of_another_node_of_this_name_does_not_count():
    cluster, store = Cluster(taint("30m")), Memory()
    store.save("uid-0 2000-01-01T00:00:00Z\n")
    hold = agent(cluster, store)
    hold.look()
    after(cluster, hold, 29)
    assert cluster.taints


def test_a_hold_that_ended_is_forgotten_so_that_the_next_has_its_whole_time():
    cluster, store = Cluster(taint("30m")), Memory()
    agent(cluster, store).look()
    cluster.taints.clear()
    agent(cluster, store).look()
    cluster.taints.append(taint("30m"))
    cluster.date += 3600
    agent(cluster, store).look()
    assert cluster.taints


def test_setpoint_may_give_more_time_or_less_meanwhile():
    cluster = Cluster(taint("30m"))
    hold = agent(cluster, Memory())
    hold.look()
    cluster.taints[0] = taint("90m")
    after(cluster, hold, 60)
    assert cluster.taints
    cluster.taints[0] = taint("10m")
    after(cluster, hold, 0)
    assert not cluster.taints


@pytest.mark.parametrize(
    "other",
    [
        taint(""),
        taint("30"),
        taint("0m"),
        taint("1441m"),
        taint("-5m"),
        taint("1.5m"),
        taint("soon"),
        taint("٣m"),
        taint(None),
        taint("30m", effect="NoExecute"),
        taint("30m", key=f"{UNTUNED_TAINT}-2"),
        OTHER,
        "no taint at all",
    ],
)
def test_a_taint_without_a_limit_stays_for_setpoint_or_a_person(other):
    cluster = Cluster(other)
    hold = agent(cluster, Memory())
    hold.look()
    after(cluster, hold, 100_000)
    assert cluster.taints == [other]


def test_without_the_right_it_leaves_the_node_alone_and_asks_seldom():
    cluster = Cluster(taint("30m"))
    hold = agent(cluster, Memory())
    cluster.error = RequestRefused(403, "nodes is forbidden")
    assert after(cluster, hold, 60) == REFUSED_SECONDS
    cluster.error = None
    assert after(cluster, hold, 0) == LOOK_SECONDS, "the time counts from when it may look"
    after(cluster, hold, 31)
    assert not cluster.taints


def test_an_answer_without_a_time_decides_nothing():
    cluster, store = Cluster(taint("30m")), Memory()
    hold = agent(cluster, store)
    hold.look()
    before, cluster.date = cluster.date, None
    assert hold.look()[0] == LOOK_SECONDS
    assert cluster.taints
    cluster.date = before + 31 * 60
    hold.look()
    assert not cluster.taints


def test_what_fails_is_tried_again():
    cluster = Cluster(taint("30m"))
    hold = agent(cluster, Memory())
    hold.look()
    cluster.error = Unavailable("no route")
    assert after(cluster, hold, 31) == LOOK_SECONDS
    cluster.error = None
    hold.look()
    assert not cluster.taints


def test_taints_that_changed_between_look_and_write_cost_one_look_and_no_other_taint():
    cluster = Cluster(taint("30m"))
    hold = agent(cluster, Memory())
    hold.look()
    ask = cluster.node

    def overtaken(name):
        answer = ask(name)
        cluster.taints.insert(0, OTHER)
        return answer

    cluster.node = overtaken
    assert after(cluster, hold, 31) == LOOK_SECONDS
    assert cluster.taints == [OTHER, taint("30m")]
    cluster.node = ask
    after(cluster, hold, 1)
    assert cluster.taints == [OTHER]


def test_a_node_that_was_replaced_under_its_name_is_none_of_its_business():
    cluster = Cluster(taint("1m"), uid="uid-2")
    assert after(cluster, agent(cluster, Memory()), 100) is None
    assert cluster.taints


def test_a_node_that_is_not_held_costs_one_question_and_no_write(kernel):
    life, store = Life(kernel), Memory()
    cluster, looks = Cluster(OTHER), []
    ask = cluster.node

    def counted(name):
        looks.append(name)
        return ask(name)

    cluster.node = counted
    hold = agent(cluster, store)
    life.loop._hold, life.loop._hold_at = hold, 0.0
    life.pass_(7200)
    assert (len(looks), store.saved) == (1, 0)


def test_a_held_node_is_looked_at_each_minute_until_its_time_is_up(kernel):
    life = Life(kernel)
    cluster = Cluster(taint("30m"))
    hold = agent(cluster, Memory())
    life.loop._hold, life.loop._hold_at = hold, 0.0
    for _ in range(29 * 60):
        cluster.date += 1
        life.pass_(1)
    assert cluster.taints
    for _ in range(3 * 60):
        cluster.date += 1
        life.pass_(1)
    assert not cluster.taints
    assert life.loop._hold_at is None or life.loop._hold_at > life.now


@given(st.integers(1, holds.MOST_MINUTES))
def test_what_setpoint_writes_the_agent_reads(minutes):
    assert holds.minutes_of(holds.value_of(minutes)) == minutes


@given(st.one_of(st.text(), st.integers(), st.none(), st.lists(st.text())))
def test_no_other_value_is_a_limit(value):
    minutes = holds.minutes_of(value)
    assert minutes is None or value in (f"{minutes}m", f"{minutes:02d}m", f"{minutes:03d}m", f"{minutes:04d}m")
