"""The rules that rooms offer, on rows as readings and the watch leave them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from clusters.models import Cluster, GpuPod, Node
from common import hooks
from common.clock import now
from compliance.hooks.alert_rules import drifted
from compliance.models import NodeStanding, SettingState
from gpus.alerts import hardware, heat, idle, rules
from gpus.metrics.buckets import Bucket, Device
from gpus.metrics.samples import Metric
from gpus.models import GpuDevice, GpuPacked, IdleHolding, TelemetrySource
from gpus.storage import codec
from jobs.hooks.alert_rules import stopped
from jobs.models import Rollout
from notices.alerts import evaluation, rulebook
from tests.clusters.factories import ClusterFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster(clock):
    cluster = ClusterFactory(name="atlas", reach=Cluster.Reach.REACHABLE, observed_at=now(), leases_at=now())
    TelemetrySource.objects.create(cluster=cluster, state="well", read_at=now(), tried_at=now())
    Node.objects.create(cluster=cluster, uid="u1", name="n1", gpu_count=8, is_ready=True)
    return cluster


def gpu(cluster, uuid, *, pod="", **fields):
    holders = [["team", pod, "main"]] if pod else []
    node = Node.objects.get(cluster=cluster)
    values = {"busy": 0.9, "engine": 0.8} | fields.pop("values", {})
    return GpuDevice.objects.create(
        cluster=cluster, node=node, node_name="n1", index=uuid[-1], uuid=uuid, holders=holders, values=values, **fields
    )


IDLE = {"busy": 0.0, "engine": 0.01, "power": 70}


def test_every_rule_has_words_and_numbers_that_are_within_their_limits():
    offered = rulebook.offered()
    assert list(offered) == [
        "held-idle", "gpu-lost", "check-failed", "check-far-from-peers", "gpu-pod-oom",
        "fatal-xid", "ecc-uncorrected", "thermal", "thermal-throttle", "memory-thermal",
        "hw-slowdown", "row-remap-failed", "row-remap-pending", "nvlink-errors", "nvlink-traffic",
        "pcie-replays", "pcie-link",
        "dcgm-health", "telemetry-lost", "exporter-silent", "host-disk-latency",
        "host-io-pressure", "drift", "credential-refused", "credential-expiring",
        "rollout-credential-refused", "rollout-stopped", "break-glass-overdue", "fleet-run-stuck",
    ]  # fmt: skip
    for holding in rulebook.of_cluster(None):
        assert "{" not in holding.about
        assert holding.about.endswith(".")
        rulebook.checked(holding.rule, rulebook.field_values(rulebook.setting_of(holding.rule, None)))


def test_a_pod_is_held_idle_when_all_of_its_gpus_do_nothing(cluster):
    gpu(cluster, "GPU-1", pod="a", values=IDLE)
    gpu(cluster, "GPU-2", pod="a", values=IDLE)
    gpu(cluster, "GPU-3", pod="b", values=IDLE)
    gpu(cluster, "GPU-4", pod="b")
    gpu(cluster, "GPU-5", values=IDLE)
    GpuPod.objects.create(
        cluster=cluster, uid="x", namespace="team", name="a", gpus=2, owner_kind="Job", owner_name="train"
    )
    result = idle.held_idle(cluster.pk, 5)
    (condition,) = result.conditions
    assert (condition.kind, condition.subject, condition.namespace) == ("workload", "team/Job/train", "team")
    assert condition.figures == {"pods": 1, "gpus": 2, "owner": "Job train", "watts": 140}
    assert [member.name for member in condition.members] == ["team/a"]
    assert condition.sentence == "a of Job train holds 2 GPUs on n1 and uses none of them, and draws 140 W."
    assert (result.unknown, result.blind) == (frozenset(), "")


def test_since_when_a_pod_is_idle_is_what_the_pages_of_gpus_say(cluster):
    """However late its first look was, or the process that looks was started."""
    gpu(cluster, "GPU-1", pod="a", values=IDLE)
    since = now() - timedelta(days=1)
    IdleHolding.objects.create(
        cluster=cluster, node_name="n1", namespace="team", pod="a", since=since, gpus=1, share=1, counted_until=now()
    )
    (condition,) = idle.held_idle(cluster.pk, 5).conditions
    assert condition.since == since
    holding = rulebook.of_cluster(cluster.pk)[0]
    assert evaluation._row(cluster.pk, holding, ("workload", "team//"), condition, now()).began_at == since


@pytest.mark.parametrize(
    ("fields", "unknown"),
    [
        ({"values": {"busy": 0.0, "engine": 0.5}}, False),  # one alone proves nothing
        ({"values": {"busy": 0.9, "engine": 0.0}}, False),
        ({"values": IDLE, "is_suspect": True}, True),
        ({"values": IDLE, "missing_since": "now"}, True),
        ({"values": {"busy": 0.049, "engine": 0.06}}, False),
    ],
)
def test_nobody_is_told_of_a_pod_that_may_be_at_work(cluster, fields, unknown):
    if "missing_since" in fields:
        fields = fields | {"missing_since": now()}
    gpu(cluster, "GPU-1", pod="a", **fields)
    result = idle.held_idle(cluster.pk, 5)
    assert (list(result.conditions), "team//" in result.unknown) == ([], unknown)


def test_the_limit_of_idle_is_what_people_set(cluster):
    gpu(cluster, "GPU-1", pod="a", values={"busy": 0.08, "engine": 0.08})
    assert not idle.held_idle(cluster.pk, 5).conditions
    assert idle.held_idle(cluster.pk, 10).conditions


def test_only_xids_that_need_somebody_at_the_hardware_are_fatal(cluster):
    gpu(cluster, "GPU-1", xids=[[13, 4, "total"]])
    gpu(cluster, "GPU-2", xids=[[79, 1, "last"]])
    gpu(cluster, "GPU-3", xids=[[48, 1, "total"], [31, 1, "total"]])
    gpu(cluster, "GPU-4", xids=[[79, 1, "total"]], missing_since=now())
    result = rules.fatal_xids(cluster.pk, 0)
    assert [(condition.subject, condition.figures["xids"]) for condition in result.conditions] == [
        ("GPU-2", "79"),
        ("GPU-3", "48"),
    ]
    assert "fell off the bus" in result.conditions[0].sentence
    assert "since the driver was loaded" in result.conditions[0].sentence
    assert "since the driver was loaded" not in result.conditions[1].sentence
    assert result.unknown == {"GPU-4"}


def test_heat_is_a_held_back_clock_or_the_limit_in_degrees(cluster):
    gpu(cluster, "GPU-1", values={"temperature": 84})
    gpu(cluster, "GPU-2", values={"temperature": 85})
    gpu(cluster, "GPU-3", values={"temperature": 70}, clock_events={"hw_thermal": 3, "power_cap": 9})
    gpu(cluster, "GPU-4", clock_events={"power_cap": 9, "sw_thermal": 0})
    result = heat.throttled(cluster.pk, 85)
    assert {condition.subject: condition.figures.get("celsius") for condition in result.conditions} == {
        "GPU-2": 85,
        "GPU-3": 70,
    }
    assert "hw_thermal 3 times" in result.conditions[1].sentence


def five_minutes(cluster, ago: int, held_back: dict[str, float], *, covered: float = 1.0) -> None:
    """Packed, as they are stored: seconds held back by heat by UUID, in the five minutes that ended `ago` fives ago."""
    start = now().replace(minute=now().minute // 5 * 5, second=0, microsecond=0) - timedelta(minutes=5 * (ago + 1))
    data = codec.pack(
        (Device(uuid, "", "n1", "H100"), Bucket(start, covered, 0.0, {Metric.THERMAL_THROTTLED: seconds}, ""))
        for uuid, seconds in held_back.items()
    )
    GpuPacked.objects.create(cluster=cluster, seconds=300, start=start, of=1, shard=0, data=data)


def test_a_gpu_is_slowed_down_by_the_share_of_time_that_heat_held_it_back(cluster):
    for uuid, so_far in (("GPU-1", 900), ("GPU-2", 900), ("GPU-3", 900), ("GPU-4", 900), ("GPU-5", 0)):
        gpu(cluster, uuid, values={"thermal_throttled": so_far, "temperature": 70})
    gpu(cluster, "GPU-6")  # its exporter does not count
    gpu(cluster, "GPU-7", values={"thermal_throttled": 0})
    five_minutes(cluster, 2, {"GPU-1": 0.0, "GPU-2": 300.0, "GPU-3": 0.0})  # longer ago than ten minutes
    five_minutes(cluster, 1, {"GPU-1": 0.0, "GPU-2": 0.0, "GPU-3": 15.0, "GPU-5": 0.0})
    five_minutes(cluster, 0, {"GPU-1": 31.0, "GPU-2": 0.0, "GPU-3": 14.0, "GPU-5": 0.0})
    result = heat.held_back(cluster.pk, 5)
    assert {condition.subject: condition.figures["percent"] for condition in result.conditions} == {"GPU-1": 5.2}
    assert result.conditions[0].sentence == "Thermally throttled for 5.2 % of the last ten minutes. It is at 70 °C."
    assert result.unknown == {"GPU-4", "GPU-6"}  # of which no five minutes tell: what is open about it stays open
    assert {condition.subject for condition in heat.held_back(cluster.pk, 4.8).conditions} == {"GPU-1", "GPU-3"}


def test_a_share_of_time_is_of_what_readings_cover(cluster):
    gpu(cluster, "GPU-1", values={"thermal_throttled": 900})
    five_minutes(cluster, 0, {"GPU-1": 6.0}, covered=0.2)
    (condition,) = heat.held_back(cluster.pk, 5).conditions
    assert condition.figures["percent"] == 10


def test_a_row_that_could_not_be_replaced_is_told_and_zero_is_not(cluster):
    gpu(cluster, "GPU-1", values={"row_remap_failed": 1})
    gpu(cluster, "GPU-2", values={"row_remap_failed": 0})
    gpu(cluster, "GPU-3")
    assert [condition.subject for condition in hardware.remap_failed(cluster.pk, 0).conditions] == ["GPU-1"]


def test_lost_telemetry_is_told_and_blinds_the_rules_of_devices(cluster, clock):
    gpu(cluster, "GPU-1", pod="a", values=IDLE | {"row_remap_failed": 1}, xids=[[79, 1, "last"]])
    looks = (
        idle.held_idle, rules.fatal_xids, heat.throttled, heat.held_back,
        hardware.remap_failed,
    )  # fmt: skip
    assert not rules.telemetry_lost(cluster.pk, 0).conditions
    clock.forward(minutes=4)
    (lost,) = rules.telemetry_lost(cluster.pk, 0).conditions
    assert lost.sentence == "Its GPUs are not read: last read 2026-11-21 12:00 UTC."
    for look in looks:
        assert look(cluster.pk, 5).blind
        assert not look(cluster.pk, 5).conditions
    TelemetrySource.objects.update(is_enabled=False)
    assert not rules.telemetry_lost(cluster.pk, 0).conditions
    assert idle.held_idle(cluster.pk, 5).blind == "GPU telemetry is not read here."


def test_a_cluster_without_gpus_has_lost_nothing(cluster):
    Node.objects.update(gpu_count=0)
    TelemetrySource.objects.update(read_at=None, state="empty")
    assert not rules.telemetry_lost(cluster.pk, 0).conditions


def test_drift_is_of_nodes_that_are_heard(cluster, clock):
    node = Node.objects.get()
    other = Node.objects.create(cluster=cluster, uid="u2", name="n2", is_ready=True)
    for drifted_node in (node, other):
        NodeStanding.objects.create(node=drifted_node, state="drifted")
    SettingState.objects.create(
        node=node, key="vm.swappiness", desired="10", effective="60", state="drifted", won_by="/etc/sysctl.d/99.conf:3"
    )
    result = drifted(cluster.pk, 0)
    assert [condition.subject for condition in result.conditions] == ["u1", "u2"]
    assert result.conditions[0].sentence == (
        "vm.swappiness is 60, approved value: 10. /etc/sysctl.d/99.conf:3 sets it."
    )
    other.tuning = None
    clock.forward(minutes=3)
    assert drifted(cluster.pk, 0).blind.startswith("No updates from the cluster")


def test_a_stopped_rollout_waits_for_a_person(world):
    rollout = world.started()
    assert not stopped(world.cluster.pk, 0).conditions
    Rollout.objects.filter(pk=rollout.pk).update(status=Rollout.Status.STOPPED, waiting_for="2 nodes failed.")
    (condition,) = stopped(world.cluster.pk, 0).conditions
    assert (condition.name, condition.sentence) == (str(rollout), "2 nodes failed.")


def test_a_look_costs_the_same_at_any_number_of_gpus(cluster, django_assert_max_num_queries):
    rows = [
        GpuDevice(
            cluster=cluster, uuid=f"GPU-{n}", node_name="n1", index=str(n), holders=[["team", f"p{n}", ""]],
            values=IDLE | {"temperature": 90, "row_remap_failed": 1, "thermal_throttled": 9}, xids=[[79, 1, "last"]],
        )
        for n in range(300)
    ]  # fmt: skip
    GpuDevice.objects.bulk_create(rows)
    for rule in hooks.alert_rules():
        with django_assert_max_num_queries(7):
            rule.look(cluster.pk, rule.threshold.default if rule.threshold else 0)
    (together,) = idle.held_idle(cluster.pk, 5).conditions
    assert len(together.members) == 300


def test_a_young_pod_is_exempt_by_the_time_that_it_takes_to_open():
    rule = rulebook.named("held-idle")
    assert rule.opens_after == timedelta(minutes=30)
