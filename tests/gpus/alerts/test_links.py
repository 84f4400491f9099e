"""The rule over NVLink's traffic: GPUs are held against those of their own pod on their own node."""

from __future__ import annotations

import random

import pytest

from gpus.alerts import links, rules
from gpus.metrics.samples import Holder, Metric
from notices.alerts import evaluation
from notices.models import Alert, Evaluation
from tests.gpus.alerts.conftest import Boards

pytestmark = pytest.mark.django_db
GB = 1e9
LIMIT = next(rule for rule in rules.rules() if rule.name == links.TRAFFIC).threshold.default


@pytest.fixture
def eight(db, clock):
    return Boards(gpus=8)


def put(boards, node, rates, pod="train-0", *, profiled=False):
    """Let one pod hold the node's first GPUs, which move so much."""
    for index, rate in enumerate(rates):
        uuid = f"GPU-{node}-{index}"
        boards.holders[uuid] = (Holder("team", pod, "main"),) if pod else ()
        values = {} if rate is None else {Metric.NVLINK_TRAFFIC: rate * GB}
        if profiled and rate is not None:
            values = {Metric.NVLINK_PAYLOAD: rate * GB, Metric.NVLINK_TRAFFIC: 200 * GB}
        boards.values[uuid] = {Metric.BUSY: 0.9} | values


def look(boards):
    boards.read()
    return links.lagging(boards.cluster.pk, LIMIT)


@pytest.mark.parametrize("profiled", [False, True])
def test_a_gpu_far_below_its_pods_median_is_an_alert_of_its_node(eight, profiled):
    put(eight, "n0", [200, 210, 190, 39, 200, 205, 195, 200], profiled=profiled)
    put(eight, "n1", [200, 210, 190, 41, 200, 205, 195, 200], profiled=profiled)
    result = look(eight)
    (condition,) = result.conditions
    assert (condition.kind, condition.subject, condition.name) == ("node", "uid-n0", "n0")
    assert condition.sentence == (
        "NVLink moves 39.0 GB/s of GPU 3; the median of the 8 GPUs of team/train-0 is 200 GB/s."
    )
    (member,) = condition.members
    assert (member.name, member.figures["bytes_per_second"]) == ("GPU 3", 39 * GB)
    assert result.unknown == frozenset()


@pytest.mark.parametrize(
    ("rates", "pod"),
    [
        ([0, 200, 200], "train-0"),  # too few to have a median
        ([0.9, 0.9, 0.9, 0.0], "train-0"),  # at rest
        ([0, 0, 200, 200], "train-0"),  # two groups
        ([0, 0, 0, 200, 200, 200, 200, 200], "train-0"),  # more than a quarter
        ([200, 200, 200, 0], ""),  # no pod holds them
        ([200, 200, 200, None], "train-0"),  # one is not known
    ],
)
def test_what_proves_nothing_is_no_alert(eight, rates, pod):
    put(eight, "n0", rates, pod)
    put(eight, "n1", [100] * 8)
    result = look(eight)
    assert result.conditions == []
    is_unclear = pod and len(rates) >= links.FEWEST
    assert result.unknown == (frozenset({"uid-n0"}) if is_unclear else frozenset())


def test_pods_are_judged_by_themselves_and_shared_gpus_not_at_all(eight):
    put(eight, "n0", [200, 200, 200, 200])
    for index in range(4, 8):
        uuid = f"GPU-n0-{index}"
        eight.holders[uuid] = (Holder("team", "small", "main"),)
        eight.values[uuid] = {Metric.NVLINK_TRAFFIC: 10 * GB}
    put(eight, "n1", [200, 200, 200, 200, 0])
    eight.holders["GPU-n1-4"] = (Holder("team", "train-0", "main"), Holder("team", "other", "main"))
    assert look(eight).conditions == []
    eight.values["GPU-n0-7"] = {Metric.NVLINK_TRAFFIC: 1 * GB}
    (condition,) = look(eight).conditions
    assert "the median of the 4 GPUs of team/small is 10.0 GB/s" in condition.sentence


def test_a_gpu_that_the_last_reading_lacks_leaves_its_node_unknown(eight):
    put(eight, "n0", [200] * 7 + [1])
    assert look(eight).conditions
    eight.absent = {"GPU-n0-2"}
    result = look(eight)
    assert (result.conditions, result.unknown) == ([], frozenset({"uid-n0"}))


def test_it_opens_after_ten_minutes_stays_while_the_others_rest_and_closes_when_it_is_well(eight, clock):
    evaluation.reconcile()

    def after(minutes, rates):
        for _ in range(minutes):
            clock.forward(60)
            put(eight, "n0", rates)
            eight.read()
            Evaluation.objects.update(due_at=eight.cluster.observed_at)
            assert evaluation.evaluate(eight.cluster.pk)
        return list(Alert.objects.filter(rule=links.TRAFFIC).values_list("status", flat=True))

    slow, rest, well = [200] * 7 + [3], [0] * 8, [200] * 8
    assert after(9, slow) == ["pending"]
    assert after(3, slow) == ["open"]
    assert after(15, rest) == ["open"]
    assert after(9, well) == ["open"]
    assert after(3, well) == ["closed"]


@pytest.mark.parametrize("seed", range(10))
def test_it_is_blind_to_what_a_fleet_of_alike_gpus_does_by_chance(eight, seed):
    rng = random.Random(seed)
    for node in ("n0", "n1"):
        put(eight, node, [rng.uniform(0.5, 1.5) * 200 for _ in range(8)])
    assert look(eight).conditions == []
