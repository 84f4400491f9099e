"""A lost GPU is told apart from a node that is down, an exporter that is silent and a board that was replaced."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F

from clusters.models import Node
from gpus.alerts import nodes, rules
from gpus.metrics.samples import Xid, XidEvidence
from gpus.models import GpuDevice, TelemetrySource

pytestmark = pytest.mark.django_db
ONE = "GPU-n0-1"


def lost(boards) -> dict[str, tuple[int, int]]:
    result = nodes.gpus_lost(boards.cluster.pk, 0)
    assert not result.blind
    return {
        condition.name: (condition.figures["reported"], condition.figures["expected"])
        for condition in result.conditions
    }


def silent(boards) -> set[tuple[str, str]]:
    return {(condition.kind, condition.name) for condition in nodes.exporters_silent(boards.cluster.pk, 0).conditions}


def test_a_board_that_no_reading_has_any_more_is_lost_and_returns(boards, clock):
    boards.read()
    assert (lost(boards), silent(boards)) == ({}, set())
    boards.absent.add(ONE)
    clock.forward(seconds=30)
    boards.read()
    assert (lost(boards), silent(boards)) == ({"n0": (3, 4)}, set())
    (condition,) = nodes.gpus_lost(boards.cluster.pk, 0).conditions
    assert "GPU 1 (GPU-n0-1)" in condition.sentence
    boards.absent.clear()
    boards.read()
    assert lost(boards) == {}


@pytest.mark.parametrize("labels", [{}, {"nvidia.com/gpu.count": "4"}])
def test_a_board_that_was_never_seen_is_known_by_the_nodes_inventory(boards, labels):
    Node.objects.filter(name="n0").update(labels=labels, gpu_count=3 if labels else 4)
    boards.absent.add(ONE)
    boards.read()
    assert lost(boards) == {"n0": (3, 4)}


def test_a_count_that_fell_is_known_though_node_and_label_have_followed_it(boards, clock):
    boards.read()
    boards.absent.add(ONE)
    Node.objects.filter(name="n0").update(labels={"nvidia.com/gpu.count": "3"}, gpu_count=3)
    clock.forward(seconds=30)
    boards.read()
    assert lost(boards) == {"n0": (3, 4)}
    clock.forward(seconds=(nodes.KNOWN_FOR + timedelta(hours=1)).total_seconds())
    boards.read()
    assert lost(boards) == {}  # taken out


def test_a_board_in_the_place_of_another_is_no_loss(boards, clock):
    boards.read()
    boards.absent.add(ONE)
    clock.forward(seconds=30)
    boards.read()
    boards.values["GPU-n0-9"] = dict(boards.values[ONE])
    clock.forward(seconds=30)
    boards.read()
    assert lost(boards) == {}


def test_what_the_driver_lost_is_lost_and_a_fatal_xid_reports_it_alone(boards, clock):
    boards.values[ONE] = {}
    boards.read()
    assert lost(boards) == {"n0": (3, 4)}
    boards.xids[ONE] = (Xid(79, 1, XidEvidence.TOTAL),)
    boards.read()
    assert lost(boards) == {}
    clock.forward(minutes=20)  # the counter rests, so its alert ends, and the GPU is still not there
    boards.read()
    assert lost(boards) == {"n0": (3, 4)}


@pytest.mark.parametrize("fields", [{"is_ready": False}, {"driver_upgrade": "upgrade-required"}])
def test_a_node_that_is_down_or_replaces_its_driver_is_unknown_to_both(boards, clock, fields):
    boards.read()
    Node.objects.filter(name="n0").update(**fields)
    boards.absent |= {uuid for uuid in boards.values if "n0" in uuid}
    clock.forward(seconds=30)
    boards.read()
    for look in (nodes.gpus_lost, nodes.exporters_silent):
        result = look(boards.cluster.pk, 0)
        assert (list(result.conditions), "uid-n0" in result.unknown) == ([], True)


def test_one_silent_exporter_is_reported_by_its_node_and_is_no_lost_gpu(boards, clock):
    boards.read()
    boards.absent |= {uuid for uuid in boards.values if "n0" in uuid}
    clock.forward(seconds=30)
    boards.read(state="partly", kind="exporters")
    assert silent(boards) == {("node", "n0")}
    result = nodes.gpus_lost(boards.cluster.pk, 0)
    assert (list(result.conditions), result.unknown) == ([], {"uid-n0"})


def test_an_exporter_that_never_reported_is_silent_too_but_not_where_none_ever_did(boards):
    boards.absent |= set(boards.values)
    boards.read()
    result = nodes.exporters_silent(boards.cluster.pk, 0)
    assert (list(result.conditions), result.is_blind) == ([], True)
    boards.absent = {uuid for uuid in boards.values if "n1" in uuid}
    boards.read()
    assert silent(boards) == {("node", "n1")}


def test_a_host_of_virtual_machines_has_no_silent_exporter_and_lacks_no_gpu(boards, clock):
    boards.read()
    offered = {"nvidia.com/gpu": "0", "nvidia.com/NVIDIA_A10-12Q": "4"}
    Node.objects.filter(name="n0").update(gpu_count=4, gpu_virtual=4, allocatable=offered)
    boards.absent |= {uuid for uuid in boards.values if "n0" in uuid}
    clock.forward(seconds=30)
    boards.read(state="partly", kind="exporters")
    assert (lost(boards), silent(boards)) == ({}, set())
    Node.objects.filter(name="n0").update(gpu_virtual=0)
    assert silent(boards) == {("node", "n0")}


def test_a_board_of_containers_is_lost_beside_boards_of_virtual_machines(boards, clock):
    boards.read()
    offered = {"nvidia.com/gpu": "4", "nvidia.com/GA102GL_A10": "4"}
    Node.objects.filter(name="n0").update(gpu_count=8, gpu_virtual=4, allocatable=offered)
    assert lost(boards) == {}
    boards.absent.add(ONE)
    clock.forward(seconds=30)
    boards.read()
    assert lost(boards) == {"n0": (3, 4)}


def test_no_telemetry_is_missed_where_all_gpus_are_virtual_machines(boards):
    boards.read()
    TelemetrySource.objects.update(read_at=None)
    assert rules.telemetry_lost(boards.cluster.pk, 0).conditions
    Node.objects.update(gpu_virtual=F("gpu_count"))
    assert not rules.telemetry_lost(boards.cluster.pk, 0).conditions


def test_all_exporters_at_once_are_one_condition_of_the_cluster(boards, clock):
    boards.read()
    boards.absent |= set(boards.values)
    clock.forward(seconds=30)
    boards.read(state="empty")
    assert silent(boards) == {("cluster", "atlas")}


def test_nodes_that_split_their_gpus_or_are_another_vendors_are_not_counted(boards, clock):
    boards.read()
    boards.absent.add(ONE)
    clock.forward(seconds=30)
    boards.read()
    for fields in ({"labels": {"nvidia.com/mig.config": "all-1g.10gb"}}, {"allocatable": {"gpu.intel.com/xe": "4"}}):
        Node.objects.filter(name="n0").update(**fields)
        assert lost(boards) == {}
    boards.values[ONE] = {}
    boards.absent.clear()
    Node.objects.filter(name="n0").update(allocatable={"nvidia.com/gpu": "4"})
    boards.read()
    assert lost(boards) == {"n0": (3, 4)}  # one that the driver lost is lost, split or not


def test_a_source_that_answers_in_part_or_names_no_node_is_no_evidence(boards, clock):
    boards.read()
    boards.absent.add(ONE)
    clock.forward(seconds=30)
    boards.read(state="partly", kind="prometheus")
    for look in (nodes.gpus_lost, nodes.exporters_silent):
        assert look(boards.cluster.pk, 0).blind
    boards.read(kind="automatic")
    GpuDevice.objects.update(node_name="localhost")
    for look in (nodes.gpus_lost, nodes.exporters_silent):
        result = look(boards.cluster.pk, 0)
        assert result.is_unjudged
        assert "7 GPUs" in result.not_judged


def test_a_look_costs_the_same_for_any_number_of_nodes(boards, django_assert_max_num_queries):
    Node.objects.bulk_create(
        Node(
            cluster=boards.cluster, uid=f"u{n}", name=f"m{n}", is_ready=True, gpu_count=2,
            allocatable={"nvidia.com/gpu": "2"},
        )
        for n in range(200)
    )  # fmt: skip
    GpuDevice.objects.bulk_create(
        GpuDevice(
            cluster=boards.cluster,
            uuid=f"GPU-m{n}-{i}",
            node_name=f"m{n}",
            index=str(i),
            values={"busy": i} if i else {},
        )
        for n in range(150)
        for i in range(2)
    )
    boards.read(read_at=boards.cluster.observed_at)
    GpuDevice.objects.filter(uuid__startswith="GPU-m").update(missing_since=None)
    with django_assert_max_num_queries(8):
        assert len(nodes.gpus_lost(boards.cluster.pk, 0).conditions) == 150
    with django_assert_max_num_queries(8):
        assert len(nodes.exporters_silent(boards.cluster.pk, 0).conditions) == 50
