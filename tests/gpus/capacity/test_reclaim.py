"""Gangs that would start if more were free: never more than is there, in order, and by each queue's terms."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from gpus.capacity import reclaim
from gpus.capacity.queue_terms import Line, Terms
from gpus.capacity.reclaim import Pending, Room

BEGIN = datetime(2026, 11, 21, tzinfo=UTC)
QUEUE = ("kueue", "batch")
ALONE = ("pods", "")
gangs_of = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from([1, 2, 4, 8]), st.integers(0, 2)), min_size=1, max_size=6
)
frees = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 8)), min_size=1, max_size=5)


def answers(gangs, free, quota, *, strict):
    pending_gangs = [
        Pending(number, QUEUE, [[count, each]], "", BEGIN + timedelta(minutes=number), priority)
        for number, (count, each, priority) in enumerate(gangs)
    ]
    rooms = [Room(f"n{number}", "H100", "", gpus) for number, gpus in enumerate(free)]
    return reclaim.judge(pending_gangs, rooms, {QUEUE: Terms({"": Line(quota, quota, 0)}, strict)})


@given(gangs_of, frees, st.integers(0, 40), st.booleans())
@hypothesis_settings(max_examples=150, deadline=None)
def test_never_more_starts_than_is_there_and_more_room_never_starts_fewer_in_strict_order(gangs, free, quota, strict):
    before, after = [now for now, _ in free], [now + freed for now, freed in free]
    judged = answers(gangs, after, quota, strict=strict)
    started = sum(answer.gang.gpus for answer in judged if answer.starts)
    assert started <= min(sum(after), quota)
    order = [(-answer.gang.priority, answer.gang.created_at) for answer in judged]
    assert order == sorted(order)
    if strict:
        starts = [answer.starts for answer in judged]
        assert starts == sorted(starts, reverse=True)
        fewer = sum(answer.gang.gpus for answer in answers(gangs, before, quota, strict=True) if answer.starts)
        assert fewer <= started


def test_a_cohort_lends_what_its_queues_leave_and_no_more():
    terms = {
        ("kueue", "a"): Terms({"": Line(8, None, 8)}, cohort="c"),
        ("kueue", "b"): Terms({"": Line(8, None, 4)}, cohort="c"),
        ("kueue", "closed"): Terms({"": Line(8, 8, 0)}, is_stopped=True),
        ("volcano", "free"): Terms({}),
    }
    wanted = [("kueue", "a", 4), ("kueue", "a", 2), ("kueue", "closed", 1), ("volcano", "free", 1), ("kueue", "b", 1)]
    gangs = [
        Pending(number, (system, queue), [[1, gpus]], "", BEGIN + timedelta(minutes=number))
        for number, (system, queue, gpus) in enumerate(wanted)
    ]
    judged = reclaim.judge(gangs, [Room("n", "H100", "", 64)], terms)
    assert [answer.why for answer in judged] == ["", reclaim.COHORT, reclaim.STOPPED, "", reclaim.COHORT]


def test_a_selector_and_a_profile_are_held_against_the_nodes():
    rooms = [Room("a", "H100", "", 8, {"zone": "x"}), Room("b", "H100", "1g.10gb", 7)]
    gangs = [
        Pending(0, ALONE, [[1, 8]], "", BEGIN, selector={"zone": "y"}),
        Pending(1, ALONE, [[7, 1]], "1g.10gb", BEGIN),
        Pending(2, ALONE, [[1, 8]], "", BEGIN, selector={"zone": "x"}),
        Pending(3, ALONE, [[1, 1]], "", BEGIN, is_active=False),
    ]
    starts = {answer.gang.key: answer.starts for answer in reclaim.judge(gangs, rooms, {})}
    assert starts == {0: False, 1: True, 2: True, 3: False}


def test_a_gang_whose_queue_is_not_known_is_not_said_to_start():
    """A rule or a right may be missing: its quota is not known, which is no quota without a limit."""
    gangs = [Pending(0, ("kueue", ""), [[1, 1]], "", BEGIN), Pending(1, ALONE, [[1, 1]], "", BEGIN)]
    assert [answer.why for answer in reclaim.judge(gangs, [Room("a", "H100", "", 8)], {})] == [reclaim.UNKNOWN, ""]


def test_a_gang_whose_quota_is_reserved_is_counted_once_and_in_the_way_of_none():
    """Kueue counts it as used while an admission check is pending; only room is left to be found."""
    terms = {QUEUE: Terms({"": Line(8, 8, 8)}, is_strict=True)}
    reserved = Pending(0, QUEUE, [[1, 8]], "", BEGIN, has_quota=True)
    behind = Pending(1, QUEUE, [[1, 8]], "", BEGIN + timedelta(minutes=1))
    rooms = [Room("a", "H100", "", 8), Room("b", "H100", "", 8)]
    assert [answer.why for answer in reclaim.judge([reserved, behind], rooms, terms)] == ["", reclaim.QUOTA]
    assert [answer.why for answer in reclaim.judge([reserved, behind], [], terms)] == [reclaim.ROOM, reclaim.QUOTA]


def test_selectors_of_one_tenant_take_a_bounded_number_of_steps(monkeypatch):
    """Each node is a kind of its own by its host name, and each gang asks for what none of them has."""
    rooms = [Room(f"n{k}", "H100", "", 1, {"kubernetes.io/hostname": f"n{k}"}) for k in range(400)]
    gangs = [Pending(k, ALONE, [[k + 1, 8]], "", BEGIN + timedelta(seconds=k)) for k in range(300)]
    alike = [Pending(k, ALONE, [[9, 8]], "", BEGIN + timedelta(seconds=k)) for k in range(300)]
    steps: list[int] = []
    place = reclaim._one_placed

    def counted(size, lists):
        steps.append(len(lists))
        return place(size, lists)

    monkeypatch.setattr(reclaim, "_one_placed", counted)
    assert {answer.why for answer in reclaim.judge(alike, rooms, {})} == {reclaim.ROOM}
    assert len(steps) <= 1, "the same is not tried again"
    steps.clear()
    monkeypatch.setattr(reclaim, "MOST_STEPS", 100_000)
    assert {answer.why for answer in reclaim.judge(gangs, rooms, {})} == {reclaim.ROOM, reclaim.NOT_JUDGED}
    assert sum(steps) <= 100_000
