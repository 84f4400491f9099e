"""A GPU that MIG splits is one GPU: in bands, in GPU-hours, in cost and in energy, however it is split and held."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters.models import GpuPod, Node
from common.clock import now
from gpus.metrics import mig
from gpus.metrics.samples import DeviceKey, Holder, Metric, Reading, Sample
from gpus.models import GpuBand, IdleHolding, TelemetrySource
from gpus.reports import idle_gpus, ranges, state_bands
from gpus.storage import devices as storing
from gpus.storage import node_snapshot
from gpus.storage.node_snapshot import Offer, PodRequests
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory
from tests.gpus.recording import Recording

A100, A30 = "NVIDIA A100-SXM4-80GB", "NVIDIA A30"


@pytest.mark.parametrize(
    ("profile", "model", "sevenths_or_fourths"),
    [
        ("1g.10gb", A100, 1 / 7),
        ("1g.10gb+me", A100, 1 / 7),
        ("3g.40gb", A100, 3 / 7),  # and half of its memory
        ("7g.80gb", A100, 1),
        ("1c.3g.40gb", A100, 1 / 7),
        ("2g.12gb", A30, 2 / 4),
        ("4g.24gb", "NVIDIA-A30", 1),
        ("1g.24gb", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 1 / 4),
        ("1g.24gb", "NVIDIA RTX PRO 5000 Blackwell", 1 / 2),
        ("2g.32gb", "NVIDIA-RTX-PRO-4500-Blackwell-Server-Edition", 1),
        ("2g.35gb", "NVIDIA H200", 2 / 7),
        ("", A100, 1),
        ("odd", A100, 1),
    ],
)
def test_an_instance_is_its_compute_slices_of_the_boards(profile, model, sevenths_or_fourths):
    assert mig.part_of(profile, model) == pytest.approx(sevenths_or_fourths)


@pytest.mark.parametrize(("mode", "number"), [("dpx", 2), ("cpx", 8), ("cpx", 6)])
def test_partitions_of_amds_are_equal_parts(mode, number):
    split = mig.of_node((DeviceKey("AMD-1", str(index)), mode, "AMD Instinct") for index in range(number))
    assert (sum(split.parts.values()), split.left) == (pytest.approx(1), pytest.approx(0))
    assert max(split.parts.values()) == pytest.approx(1 / number)


# ── any answer of telemetry and the API server ────────────────────────────────────────────────────────────────────────
INSTANCE = st.tuples(
    st.sampled_from(["1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]),  # also what no board could have at once
    st.lists(st.sampled_from(["a/x", "a/y", "b/z"]), max_size=2, unique=True),
    st.sampled_from([None, 0.0, 0.3, 0.9]),
)
BOARD = st.one_of(st.just([]), st.lists(INSTANCE, min_size=1, max_size=7))
"""An empty one is a whole GPU that no pod holds."""


def devices(boards) -> list[Sample]:
    samples = []
    for number, instances in enumerate(boards):
        if not instances:
            samples.append(sample(DeviceKey(f"GPU-{number}"), "", [], 0.0))
        for index, (profile, pods, engine) in enumerate(instances):
            samples.append(sample(DeviceKey(f"GPU-{number}", str(index)), profile, pods, engine))
    return samples


def sample(key, profile, pods, engine) -> Sample:
    values = {} if engine is None else {Metric.ENGINE if key.instance else Metric.BUSY: engine}
    return Sample(key, "n", "0", A100, profile, "", tuple(Holder(*pod.split("/")) for pod in pods), values)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(BOARD, min_size=1, max_size=3), st.integers(-3, 3), st.integers(0, 20), st.booleans(),
    st.dictionaries(st.sampled_from(["a", "b", "c", "a/Job/x", "a/Job/y", "c/Job/z"]), st.integers(1, 9)),
)  # fmt: skip
def test_no_gpu_counts_more_than_once_and_bands_sum_to_the_gpus(boards, unknown, allocated, is_out, wanted):
    """`unknown`: how many devices more, or fewer, the API server knows."""
    samples = devices(boards)
    wanted = PodRequests(Counter(wanted), {("a", "p"): "a/Job/x"})
    split = mig.of_node((gpu_sample.device, gpu_sample.profile, gpu_sample.model) for gpu_sample in samples)
    together = {gpu_sample.device.uuid: 0.0 for gpu_sample in samples}
    paid = dict(together)
    for gpu_sample in samples:
        together[gpu_sample.device.uuid] += split.of(gpu_sample)
    for uuid, shares in node_snapshot._paying(node_snapshot._stated(samples), wanted, split).items():
        paid[uuid] = sum(share for _, share in shares)
    assert max(*together.values(), *paid.values()) <= 1 + 1e-9
    stated = node_snapshot._stated(samples)
    offer = Offer(1, "n", "", max(0, len(samples) + unknown), min(allocated, len(samples)), is_out)
    view = node_snapshot._view(offer, stated, wanted, split)
    assert min(view.bands) >= -1e-9
    if unknown >= 0:
        assert sum(view.bands) == pytest.approx(len(boards) + unknown * split.mean)
    assert sum(view.bands) <= len(boards) + max(0, unknown) * split.mean + 1e-9
    held = sum(sum(states) for states in view.payers.values())
    assert held == pytest.approx(sum(view.bands[:4]))
    blind = node_snapshot._view(offer, (), wanted, split)
    assert sum(blind.bands) == pytest.approx(split.left + split.mean * max(offer.offered, offer.allocated))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([[], ["a/x"], ["a/x", "b/z"]]), min_size=1, max_size=6), st.integers(0, 8))
def test_whole_gpus_are_weighed_as_they_are_counted(pods, offered):
    """The weighing of a node that MIG splits and the counting of one that it does not are one rule."""
    samples = [sample(DeviceKey(f"GPU-{n}"), "", held, 0.9) for n, held in enumerate(pods)]
    stated = node_snapshot._stated(samples)
    for out in (False, True):
        offer = Offer(1, "n", "", offered, min(offered, 2), out)
        counted = node_snapshot._view(offer, stated, PodRequests(), mig.WHOLE)
        weighed = node_snapshot._view(offer, stated, PodRequests(), mig.Split({}, 0.0, 1.0))
        assert weighed.bands == pytest.approx(counted.bands)


# ── and what comes of it ──────────────────────────────────────────────────────────────────────────────────────────────
LAYOUT = [("3g.40gb", "team/notebook"), ("2g.20gb", ""), ("1g.10gb", "team/notebook")]
"""Of one board; a seventh is free."""


def record(settings, product: str):
    settings.SETPOINT_GPU_PRICES = {"NVIDIA-A100-SXM4-80GB": 7.0}
    cluster = ClusterFactory()
    Node.objects.create(
        cluster=cluster, uid="n", name="n", is_ready=True, gpu_product=product, gpu_count=3, gpu_allocated=2
    )  # fmt: skip
    GpuPod.objects.create(cluster=cluster, uid="p", namespace="team", name="notebook", node_name="n", gpus=2)
    recording = Recording(now(), nodes=0, cluster=cluster)
    ids = count()
    samples = [sample(DeviceKey("GPU-0", str(next(ids))), p, [pod] if pod else [], 0.0) for p, pod in LAYOUT]
    power = Sample(DeviceKey("GPU-0"), "n", "0", A100, "", "", (), {Metric.POWER: 300.0})
    recording.reading = lambda: Reading(recording.at, tuple(samples), boards=(power,))  # type: ignore[method-assign]
    return cluster, recording


@pytest.mark.django_db
@pytest.mark.parametrize("product", ["NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"])
def test_an_hour_of_a_split_gpu_is_one_gpu_hour_and_its_price_once(clock, settings, product):
    cluster, recording = record(settings, product)
    recording.store()
    recording.go_on(3600)
    clock.at = recording.at
    hours = GpuBand.objects.get(scope="cluster", seconds=3600)
    assert sum(getattr(hours, name) for name in GpuBand.STATES) / 3600 == pytest.approx(1.0)
    assert (hours.held / 3600, hours.free / 3600) == (pytest.approx(4 / 7), pytest.approx(3 / 7))
    team = GpuBand.objects.get(scope="namespace", seconds=3600)
    assert (team.name, team.held / 3600) == ("team", pytest.approx(4 / 7))
    assert team.joules == pytest.approx(300 * 3600 * 4 / 7)
    whole = state_bands.over(UserFactory(is_superuser=True), ranges.BANDS.preset("24h"), "model").whole
    assert float(whole.cost) == pytest.approx(4.0)  # 4/7 of an hour at 7
    (idle_pod,) = idle_gpus.idle(UserFactory(is_superuser=True), TelemetrySource.objects.all(), {cluster.pk: cluster})
    assert (idle_pod.row.gpus, idle_pod.gpu_hours, float(idle_pod.cost)) == (
        2,
        pytest.approx(4 / 7),
        pytest.approx(4.0),
    )


@pytest.mark.django_db
def test_while_telemetry_is_lost_a_split_gpu_stays_one(clock, settings):
    cluster, recording = record(settings, "NVIDIA-A100-SXM4-80GB")
    storing.store(cluster.pk, recording.reading(), claimed=recording.claimed)
    recording.store()
    recording.lose(3600)
    band = GpuBand.objects.filter(scope="cluster", seconds=300).order_by("start").last()
    assert sum(getattr(band, name) for name in GpuBand.STATES) / band.recorded == pytest.approx(1.0)
    assert band.held == 0
    assert IdleHolding.objects.get().is_seen is False


@pytest.mark.django_db
def test_a_node_that_no_reading_told_of_is_weighed_by_its_label(clock):
    cluster = ClusterFactory()
    Node.objects.create(
        cluster=cluster, uid="n", name="n", is_ready=True, gpu_product="NVIDIA-A30-MIG-1g.6gb", gpu_count=8
    )  # fmt: skip
    (seen,) = node_snapshot.snapshots(cluster.pk, None).values()
    assert sum(seen.look.blind.bands) == pytest.approx(2.0)
