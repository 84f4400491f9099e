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
def test_a_gpu_far_below_its_pods_median_is_an_alert(eight, profiled):
    put(eight, "n0", [200, 210, 190, 39, 200, 205, 195, 200], profiled=profiled)
    put(eight, "n1", [200, 210, 190, 41, 200, 205, 195, 200], profiled=profiled)
    result = look(eight)
    (condition,) = result.conditions
    assert (condition.kind, condition.subject, condition.name) == ("device", "GPU-n0-3 team/train-0", "n0 GPU 3")
    assert condition.sentence == (
        "It moves 39.0 GB/s over NVLink, far less than the other GPUs of team/train-0: the median of the 8 is 200 GB/s."
    )
    assert (condition.figures["uuid"], condition.figures["bytes_per_second"]) == ("GPU-n0-3", 39 * GB)
    assert condition.mend.index("unequal work") < condition.mend.index("drain")
    assert result.unknown == frozenset()


@pytest.mark.parametrize(
    ("rates", "pod"),
    [
        ([0, 200, 200, 200], "train-0"),  # too few: one is a quarter
        ([0.9] * 7 + [0.0], "train-0"),  # at rest
        ([0, 0, 200, 200, 200, 200, 200, 200], "train-0"),  # a quarter
        ([200, 200, 200, 200, 0], ""),  # no pod holds them
        ([200, 200, 200, 200, 0, None], "train-0"),  # one is not known
    ],
)
def test_what_proves_nothing_is_no_alert(eight, rates, pod):
    put(eight, "n0", rates, pod)
    put(eight, "n1", [100] * 8)
    result = look(eight)
    assert result.conditions == []
    is_unclear = pod and len(rates) >= links.FEWEST
    every = {f"GPU-n0-{index} team/{pod}" for index in range(len(rates))}
    assert result.unknown == (every if is_unclear else frozenset())


@pytest.mark.parametrize(
    ("others", "its", "fires"),
    [
        ({Metric.BUSY: 0.9}, {Metric.BUSY: 0.0}, False),
        ({Metric.BUSY: 0.9}, {Metric.BUSY: 0.5}, True),
        ({Metric.BUSY: 1.0, Metric.TENSOR: 0.4}, {Metric.BUSY: 1.0, Metric.TENSOR: 0.1}, False),  # other work
        ({Metric.BUSY: 1.0, Metric.ENGINE: 0.9, Metric.TENSOR: 0.0}, {Metric.BUSY: 1.0, Metric.ENGINE: 0.1,
         Metric.TENSOR: 0.0}, False),  # work without tensors
        ({Metric.BUSY: 0.9, Metric.TENSOR: 0.4}, {Metric.BUSY: 0.9}, True),  # one reports no more than that
        ({Metric.TENSOR: 0.4}, {Metric.BUSY: 0.9}, False),  # nothing to compare
    ],
)  # fmt: skip
def test_a_gpu_that_does_less_than_its_peers_is_not_judged(eight, others, its, fires):
    put(eight, "n0", [200] * 7 + [1])
    for index in range(8):
        traffic = eight.values[f"GPU-n0-{index}"][Metric.NVLINK_TRAFFIC]
        eight.values[f"GPU-n0-{index}"] = (its if index == 7 else others) | {Metric.NVLINK_TRAFFIC: traffic}
    result = look(eight)
    assert [condition.name for condition in result.conditions] == (["n0 GPU 7"] if fires else [])
    assert result.unknown == (frozenset() if fires else {"GPU-n0-7 team/train-0"})


def test_pods_are_judged_by_themselves_and_shared_gpus_not_at_all(eight):
    put(eight, "n0", [200] * 3)
    for index in range(3, 8):
        uuid = f"GPU-n0-{index}"
        eight.holders[uuid] = (Holder("team", "small", "main"),)
        eight.values[uuid] = {Metric.BUSY: 0.9, Metric.NVLINK_TRAFFIC: 10 * GB}
    put(eight, "n1", [200, 200, 200, 200, 200, 0])
    eight.holders["GPU-n1-5"] = (Holder("team", "train-0", "main"), Holder("team", "other", "main"))
    assert look(eight).conditions == []
    eight.values["GPU-n0-7"] |= {Metric.NVLINK_TRAFFIC: 1 * GB}
    (condition,) = look(eight).conditions
    assert "GPUs of team/small: the median of the 5 is 10.0 GB/s" in condition.sentence


def test_a_gpu_that_the_last_reading_lacks_leaves_its_pods_gpus_unknown(eight):
    put(eight, "n0", [200] * 7 + [1])
    assert look(eight).conditions
    eight.absent = {"GPU-n0-2"}
    result = look(eight)
    assert result.conditions == []
    assert result.unknown == {f"GPU-n0-{index} team/train-0" for index in range(8)}


def test_conditions_are_bounded_in_the_order_of_the_nodes(eight, monkeypatch):
    monkeypatch.setattr(links, "MOST_BOARDS", 1)
    put(eight, "n1", [200] * 7 + [1])
    put(eight, "n0", [200] * 7 + [1])
    result = look(eight)
    assert [condition.name for condition in result.conditions] == ["n0 GPU 7"]
    assert result.unknown == {"GPU-n1-7 team/train-0"}


@pytest.fixture
def after(eight, clock):
    """Let minutes pass, each with a look; return the statuses of this rule's alerts."""
    evaluation.reconcile()

    def passed(minutes, rates, pod="train-0"):
        for minute in range(minutes):
            clock.forward(60)
            put(eight, "n0", rates(minute) if callable(rates) else rates, pod)
            eight.read()
            Evaluation.objects.update(due_at=eight.cluster.observed_at)
            assert evaluation.evaluate(eight.cluster.pk)
        return list(Alert.objects.filter(rule=links.TRAFFIC).values_list("status", flat=True))

    return passed


SLOW, REST, WELL = [200] * 7 + [3], [0] * 8, [200] * 8


def test_it_opens_after_ten_minutes_stays_while_the_others_rest_and_closes_when_it_is_well(after):
    assert after(9, SLOW) == ["pending"]
    assert after(3, SLOW) == ["open"]
    assert after(15, REST) == ["open"]
    assert after(9, WELL) == ["open"]
    assert after(3, WELL) == ["closed"]


def test_ten_minutes_are_those_of_one_gpu(after):
    assert "open" not in after(40, lambda minute: [3 if index == minute % 8 else 200 for index in range(8)])


@pytest.mark.parametrize(("rates", "pod"), [(REST, "serve-0"), (WELL, "serve-0"), ([0.2] * 8, "")])
def test_it_closes_once_its_pod_is_gone(after, rates, pod):
    assert after(12, SLOW) == ["open"]
    assert after(12, rates, pod) == ["closed"]


@pytest.mark.parametrize("seed", range(10))
def test_it_is_blind_to_what_a_fleet_of_alike_gpus_does_by_chance(eight, seed):
    rng = random.Random(seed)
    for node in ("n0", "n1"):
        put(eight, node, [rng.uniform(0.5, 1.5) * 200 for _ in range(8)])
    assert look(eight).conditions == []
